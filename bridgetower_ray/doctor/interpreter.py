"""The interpreter that trains: which file a sweep's `python:` means on this host."""

import os
import shutil
import sys
from pathlib import Path

from bridgetower_ray.errors import UsageError


def interpreter(python: str | None, base: Path) -> str:
    """The file of an interpreter: this process's own if none is named.

    Args:
        python: a name on PATH, or a path, which is taken from `base`, with `~`, as `dataset.path` is.

    Raises:
        UsageError: no such program is on this host.
    """
    if python is None:
        return sys.executable
    if os.sep not in python:
        found = shutil.which(python)
    else:
        path = base.absolute() / Path(python).expanduser()
        found = str(path) if path.is_file() and os.access(path, os.X_OK) else None
    if found is None:
        raise UsageError(f"python: {python}: no such program on this host")
    return found
