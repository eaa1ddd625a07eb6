"""Images resized once: a memory-mapped array of the distinct ones, and for each sample which it shows."""

import hashlib
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bridgetower_ray.data.cache import cached_folder
from bridgetower_ray.data.images import image_bytes
from bridgetower_ray.data.resize import fast_pixels
from bridgetower_ray.errors import UsageError

if TYPE_CHECKING:
    import datasets

RESIZE_VERSION = 2  # raise it when `fast_pixels` gives other pixels: it is part of the cache's key
PROGRESS_EVERY = 64


def image_cache(
    table: "datasets.Dataset",
    fingerprint: str,
    image_size: int,
    limit_gib: float,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """The folder with the resized images of a prepared table, built if it is not there.

    Args:
        table: has the column `image`, undecoded.
        fingerprint: of the table's content.
        limit_gib: the most that the images may take on the disk.
        progress: is told how far the building is.

    Raises:
        UsageError: the images would take more than the limit.
    """
    name = f"images-v{RESIZE_VERSION}-{fingerprint}-{image_size}"
    return cached_folder(name, lambda folder: _build(folder, table, image_size, limit_gib, progress), progress)


def _build(
    folder: Path, table: "datasets.Dataset", size: int, limit_gib: float, progress: Callable[[str], None]
) -> None:
    started = time.monotonic()
    with ThreadPoolExecutor() as threads:
        digests = list(threads.map(lambda row: _digest(table, row), range(len(table))))
        first: dict[bytes, int] = {}
        for row, digest in enumerate(digests):
            first.setdefault(digest, row)
        places = {digest: place for place, digest in enumerate(first)}
        needed = len(places) * size * size * 3
        if needed > limit_gib * 2**30:
            raise UsageError(
                f"input_pipeline: cached: {len(places)} images of {size} pixels need {needed / 2**30:.3g} GiB, "
                f"over dataset.image_cache_limit_gib: {limit_gib:g}"
            )
        pixels = np.lib.format.open_memmap(
            folder / "pixels.npy", mode="w+", dtype=np.uint8, shape=(len(places), size, size, 3)
        )
        for place, image in enumerate(threads.map(lambda row: _pixels(table, row, size), first.values())):
            pixels[place] = image
            if place % PROGRESS_EVERY == 0:
                progress(f"caching image {place}/{len(places)}")
        pixels.flush()
    np.save(folder / "places.npy", np.array([places[digest] for digest in digests], dtype=np.int64))
    cost = {"seconds": time.monotonic() - started, "bytes": needed, "images": len(places)}
    (folder / "cost.json").write_text(json.dumps(cost))


def _digest(table: "datasets.Dataset", row: int) -> bytes:
    return hashlib.sha256(image_bytes(table[row]["image"])).digest()


def _pixels(table: "datasets.Dataset", row: int, size: int) -> NDArray[np.uint8]:
    return fast_pixels(image_bytes(table[row]["image"]), size)


class CachedPixels:
    """The cache as a rank reads it; a copy for another process opens the file anew and copies nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open()

    def _open(self) -> None:
        self._pixels = np.load(self._folder / "pixels.npy", mmap_mode="r")
        self._places = np.load(self._folder / "places.npy")

    def __getstate__(self) -> Path:
        return self._folder

    def __setstate__(self, folder: Path) -> None:
        self._folder = folder
        self._open()

    def __len__(self) -> int:
        return len(self._places)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image: (size, size, 3)."""
        return tuple(self._pixels.shape[1:])

    def read(self, rows: list[int], out: NDArray[np.uint8]) -> None:
        """Copy the images of some samples into `out`, of shape (len(rows), size, size, 3)."""
        for place, row in enumerate(rows):
            out[place] = self._pixels[self._places[row]]
