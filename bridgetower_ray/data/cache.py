"""The node's cache of prepared things: built once under a lock, moved into place whole, then only read."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

VARIABLE = "BRIDGETOWER_RAY_CACHE"


def cache_root() -> Path:
    """`BRIDGETOWER_RAY_CACHE`, or ~/.cache/bridgetower-ray; absolute."""
    return Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "bridgetower-ray").expanduser().absolute()


def settle_cache_root() -> None:
    """Make a relative `BRIDGETOWER_RAY_CACHE` absolute here, for the processes that begin in other folders."""
    if os.environ.get(VARIABLE):
        os.environ[VARIABLE] = str(cache_root())


def cached_folder(name: str, build: Callable[[Path], None]) -> Path:
    """The cache's folder `name`, built by `build(folder)` if it is not there yet.

    Processes that ask at once wait for the one that builds; a builder that dies leaves nothing behind
    that could be taken for the finished folder.
    """
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    target = root / name
    with FileLock(root / f"{name}.lock"):
        if not target.is_dir():
            unfinished = Path(tempfile.mkdtemp(prefix=f"{name}.unfinished-", dir=root))
            try:
                build(unfinished)
                unfinished.rename(target)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return target
