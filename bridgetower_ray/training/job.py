"""What a rank is told: the trial, and what the node has ready for it."""

import socket
from pathlib import Path

import psutil

from bridgetower_ray.data.preparation import Prepared
from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.settings import Strict


class Driver(Strict):
    """The process that runs a sweep: its host, its pid, and when it began, in seconds since the epoch."""

    host: str
    pid: int
    began: float

    @classmethod
    def this_process(cls) -> "Driver":
        """The one that asks."""
        own = psutil.Process()
        return cls(host=socket.gethostname(), pid=own.pid, began=own.create_time())

    @property
    def here(self) -> tuple[int, float] | None:
        """Pid and start, if it runs on this host."""
        return (self.pid, self.began) if self.host == socket.gethostname() else None


class Job(Strict):
    """The content of TRIAL.json.

    `base_folder` is where relative paths of the sweep start; `prepared` is None where nobody has prepared
    the node: then the rank does it itself. `driver` is the process that runs the sweep, None by hand.
    """

    trial: Trial
    base_folder: str
    prepared: Prepared | None = None
    driver: Driver | None = None

    @classmethod
    def read(cls, path: Path) -> "Job":
        """Read a job file; a UsageError says what is wrong with it."""
        try:
            return cls.model_validate_json(path.read_text())
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise UsageError(f"{path}: no trial: {str(error).splitlines()[0]}") from None
