"""How an encoded image becomes the tensor that the model sees."""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as functional
from PIL import Image
from torch import Tensor

from bridgetower_ray.data.images import open_rgb


class ReferencePipeline:
    """The published operations: RGB, float tensor, resize the shorter side, centre crop, normalise.

    As in optimum-habana's examples/contrastive-image-text/run_bridgetower.py, which chains torchvision's Resize
    (bicubic, antialias), CenterCrop and Normalize on a float tensor; `interpolate` is what Resize calls.
    """

    def __init__(self, image_size: int, mean: Sequence[float], std: Sequence[float]) -> None:
        self.image_size = image_size
        self.mean = torch.tensor(mean).view(3, 1, 1)
        self.std = torch.tensor(std).view(3, 1, 1)

    def __call__(self, encoded: bytes) -> Tensor:
        """Encoded image -> float32 tensor of shape (3, image_size, image_size), normalised."""
        return (self.resized(encoded) - self.mean) / self.std

    def resized(self, encoded: bytes) -> Tensor:
        """The same before it is normalised: values about 0 to 1 (bicubic overshoots a little)."""
        pixels = to_tensor(open_rgb(encoded))
        height, width = resized_shape(pixels.shape[-2], pixels.shape[-1], self.image_size)
        pixels = functional.interpolate(
            pixels[None], size=(height, width), mode="bicubic", align_corners=False, antialias=True
        )[0]
        top, left = centre_crop_offset(height, width, self.image_size)
        return pixels[:, top : top + self.image_size, left : left + self.image_size]


def to_tensor(image: Image.Image) -> Tensor:
    """RGB image -> float32 tensor (3, height, width) of values from 0 to 1."""
    pixels = torch.from_numpy(np.array(image, dtype=np.uint8))
    return pixels.permute(2, 0, 1).contiguous().to(torch.float32).div(255)


def resized_shape(height: int, width: int, shorter: int) -> tuple[int, int]:
    """(height, width) with the shorter side at `shorter`; the longer is cut to an int, as torchvision does."""
    if height <= width:
        return shorter, int(shorter * width / height)
    return int(shorter * height / width), shorter


def centre_crop_offset(height: int, width: int, size: int) -> tuple[int, int]:
    """Top and left of the centre crop, rounded as torchvision does (half to even)."""
    return round((height - size) / 2.0), round((width - size) / 2.0)


def psnr(one: Tensor, other: Tensor) -> float:
    """Peak signal-to-noise ratio in dB of two images with values from 0 to 1; infinite if they are equal."""
    error = torch.mean((one.double() - other.double()) ** 2).item()
    return math.inf if error == 0 else -10 * math.log10(error)
