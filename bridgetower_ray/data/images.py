"""Any image that Pillow reads -> RGB, whatever its mode, its format or its file name."""

import io
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps

UPRIGHT = 1  # EXIF's orientation of an image stored as it is seen
DEEP_MODES = ("I", "I;16", "I;16B", "I;16L", "F")  # Pillow clips these to white when it converts them


def image_bytes(source: dict[str, Any]) -> bytes:
    """The encoded image of a `datasets.Image(decode=False)` value: its bytes, or those of its file."""
    if source["bytes"] is not None:
        return bytes(source["bytes"])
    with open(source["path"], "rb") as file:  # noqa: PTH123 - on the measured path, without a Path object
        return file.read()


def open_rgb(encoded: bytes) -> Image.Image:
    """Decode to 8-bit RGB, upright by the orientation in its EXIF data, as `datasets.Image` gives the reference script
    its images; an alpha channel is dropped, as that script's `convert` does.

    Raises:
        OSError, ValueError, SyntaxError, Image.DecompressionBombError: whatever Pillow raises for a file
            it cannot read to its end.
    """
    image: Image.Image = Image.open(io.BytesIO(encoded))
    if is_turned(image):
        image = ImageOps.exif_transpose(image)
    if image.mode in DEEP_MODES:
        image = _to_eight_bits(image)
    return image.convert("RGB")


def is_turned(image: Image.Image) -> bool:
    """Whether the EXIF data say that what is stored is not upright; reads the header alone."""
    return bool(image.getexif().get(ExifTags.Base.Orientation, UPRIGHT) != UPRIGHT)


def _to_eight_bits(image: Image.Image) -> Image.Image:
    pixels = np.asarray(image, dtype=np.float64)
    top = 65535.0 if image.mode.startswith("I") else max(float(pixels.max(initial=0.0)), 1.0)
    return Image.fromarray(np.clip(pixels * (255.0 / top), 0, 255).astype(np.uint8))
