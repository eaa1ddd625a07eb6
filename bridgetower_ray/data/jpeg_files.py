"""The images of a data set as JPEG files, for a decoder that takes nothing else: one file for each distinct image."""

import hashlib
import io
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bridgetower_ray.data.cache import cached_folder
from bridgetower_ray.data.images import image_bytes, is_turned, open_rgb
from bridgetower_ray.data.resize import source_box

if TYPE_CHECKING:
    import datasets

EXPORT_VERSION = 2  # raise it when files or index change: it is part of the cache's key
JPEG_QUALITY = 95
DECODED_IN_HARDWARE = ("RGB", "L")  # not CMYK, which Pillow decodes for everybody else
PROGRESS_EVERY = 64


def jpeg_files(table: "datasets.Dataset", fingerprint: str, progress: Callable[[str], None] = lambda _: None) -> Path:
    """The folder with the images of a prepared table as JPEG files, made if it is not there.

    A JPEG is written as it is; anything else, a CMYK JPEG, and one that is to be turned, is encoded anew, and counted
    in `cost.json`.

    Args:
        table: has the column `image`, undecoded.
        fingerprint: of the table's content.
        progress: is told how far the writing is.
    """
    name = f"jpegs-v{EXPORT_VERSION}-{fingerprint}"
    return cached_folder(name, lambda folder: _export(folder, table, progress), progress)


def _export(folder: Path, table: "datasets.Dataset", progress: Callable[[str], None]) -> None:
    places: dict[bytes, int] = {}
    rows = []
    for row in range(len(table)):
        digest = hashlib.sha256(image_bytes(table[row]["image"])).digest()
        rows.append((row, places.setdefault(digest, len(places)), digest))
    first = {place: row for row, place, _ in reversed(rows)}

    def write(place: int) -> tuple[tuple[int, int], bool]:
        encoded, size, anew = _as_jpeg(image_bytes(table[first[place]]["image"]))
        _file(folder, place).write_bytes(encoded)
        return size, anew

    written = []
    with ThreadPoolExecutor() as threads:
        for place, one in enumerate(threads.map(write, range(len(places)))):
            written.append(one)
            if place % PROGRESS_EVERY == 0:
                progress(f"writing image {place}/{len(places)}")
    np.save(folder / "places.npy", np.array([place for _, place, _ in rows], dtype=np.int64))
    np.save(folder / "sizes.npy", np.array([size for size, _ in written], dtype=np.int64))
    (folder / "cost.json").write_text(
        json.dumps({"images": len(places), "reencoded": sum(anew for _, anew in written)})
    )


def _as_jpeg(encoded: bytes) -> tuple[bytes, tuple[int, int], bool]:
    """An image as JPEG bytes, its (width, height), and whether it had to be encoded anew."""
    with Image.open(io.BytesIO(encoded)) as image:
        if image.format == "JPEG" and image.mode in DECODED_IN_HARDWARE and not is_turned(image):
            return encoded, image.size, False
    pixels = open_rgb(encoded)
    buffer = io.BytesIO()
    pixels.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue(), pixels.size, True


def _file(folder: Path, place: int) -> Path:
    return folder / f"{place:08d}.jpg"


class JpegFiles:
    """The exported files as a reader wants them: for each sample its path, and what of it the reference shows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places = np.load(folder / "places.npy")
        self._sizes = np.load(folder / "sizes.npy")

    def __len__(self) -> int:
        return len(self._places)

    def paths(self, rows: NDArray[np.int64]) -> NDArray[np.str_]:
        """Paths of samples."""
        return np.array([str(_file(self._folder, int(place))) for place in self._places[rows]])

    def windows(self, rows: NDArray[np.int64], size: int) -> NDArray[np.float32]:
        """(samples, 4): left, top, width, height of what the reference's resize and crop to `size` shows, as shares."""
        windows = np.empty((len(rows), 4), dtype=np.float32)
        for place, (width, height) in zip(range(len(rows)), self._sizes[self._places[rows]], strict=True):
            left, top, right, bottom = source_box(int(height), int(width), size)
            windows[place] = left / width, top / height, (right - left) / width, (bottom - top) / height
        return windows

    def largest(self) -> str:
        """The file with the most bytes, which a decoder sizes its buffers by."""
        return str(max(self._folder.glob("*.jpg"), key=lambda file: file.stat().st_size))
