"""A trial's folder on its node, and taking away those whose actor was killed."""

import shutil
import tempfile
from pathlib import Path

import psutil

from bridgetower_ray.doctor.processes import is_gone

PREFIX = "bridgetower-ray-trial-"


def own_folder() -> Path:
    """A new folder that bears the name of this process; those of processes that are gone are removed on the way."""
    parent = Path(tempfile.gettempdir())
    for folder in parent.glob(f"{PREFIX}*"):
        if _owner_is_gone(folder.name):
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{_mark(psutil.Process())}-", dir=parent))


def _mark(process: psutil.Process) -> str:
    """A pid is used again; with the second in which its process began it is not."""
    return f"{process.pid}-{process.create_time():.0f}"


def _owner_is_gone(name: str) -> bool:
    pid, _, rest = name.removeprefix(PREFIX).partition("-")
    began = rest.partition("-")[0]
    return pid.isdigit() and began.isdigit() and is_gone(int(pid), int(began))
