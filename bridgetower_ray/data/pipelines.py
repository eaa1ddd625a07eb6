"""How an encoded image becomes the tensor that the model sees."""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as functional
from PIL import Image
from torch import Tensor

from bridgetower_ray.data.images import open_rgb
from bridgetower_ray.data.resize import centre_crop_offset, fast_pixels, resized_shape


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


class FastPipeline:
    """The reference's resize and crop in 8 bits, not normalised: that is the device's work (`normalise_on_device`)."""

    def __init__(self, image_size: int) -> None:
        self.image_size = image_size

    def __call__(self, encoded: bytes) -> Tensor:
        """Encoded image -> uint8 tensor of shape (image_size, image_size, 3)."""
        return torch.from_numpy(np.array(fast_pixels(encoded, self.image_size)))


def normalise_on_device(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 (batch, height, width, 3) -> normalised float32 (batch, 3, height, width), where `pixels` are.

    Args:
        mean, std: of shape (3, 1, 1), on the device of `pixels`.
    """
    return (pixels.permute(0, 3, 1, 2).to(torch.float32).div_(255) - mean) / std


def to_tensor(image: Image.Image) -> Tensor:
    """RGB image -> float32 tensor (3, height, width) of values from 0 to 1."""
    pixels = torch.from_numpy(np.array(image, dtype=np.uint8))
    return pixels.permute(2, 0, 1).contiguous().to(torch.float32).div(255)


def psnr(one: Tensor, other: Tensor) -> float:
    """Peak signal-to-noise ratio in dB of two images with values from 0 to 1; infinite if they are equal."""
    error = torch.mean((one.double() - other.double()) ** 2).item()
    return math.inf if error == 0 else -10 * math.log10(error)
