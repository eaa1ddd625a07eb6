"""The interpreter that trains: which file a sweep's `python:` means on this host."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from bridgetower_ray.errors import UsageError

OLDEST = (3, 11)
ANSWER_SECONDS = 30.0


def interpreter(python: str | None, base: Path) -> str:
    """The file of an interpreter: this process's own if none is named.

    Args:
        python: a name on PATH, or a path, which is taken from `base`, with `~`, as `dataset.path` is.

    Raises:
        UsageError: no such program is on this host, or it is older than what trials can run on.
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
    if (version := _version(found)) is not None and version < OLDEST:
        has, wanted = (".".join(map(str, one)) for one in (version, OLDEST))
        raise UsageError(f"python: {python}: it is Python {has}, and trials want {wanted} or newer")
    return found


@cache
def _version(file: str) -> tuple[int, int] | None:
    """Major and minor version of an interpreter; None for a program that does not say."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([file, "-c", code], capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS)
        major, minor = done.stdout.split()
        return int(major), int(minor)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
