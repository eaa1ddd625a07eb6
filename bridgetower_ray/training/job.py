"""What a rank is told: the trial, and what the node has ready for it."""

from pathlib import Path

from bridgetower_ray.data.preparation import Prepared
from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.settings import Strict


class Job(Strict):
    """The content of TRIAL.json.

    `base_folder` is where relative paths of the sweep start; `prepared` is None where nobody has prepared
    the node: then the rank does it itself.
    """

    trial: Trial
    base_folder: str
    prepared: Prepared | None = None

    @classmethod
    def read(cls, path: Path) -> "Job":
        """Read a job file; a UsageError says what is wrong with it."""
        try:
            return cls.model_validate_json(path.read_text())
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise UsageError(f"{path}: no trial: {str(error).splitlines()[0]}") from None
