"""Results that wait on the driver's disk until the tracking store has taken them."""

from collections.abc import Iterator
from pathlib import Path

from bridgetower_ray.data.cache import cache_root
from bridgetower_ray.sweep.sweep_run import TrialRecord


class Spool:
    """Records of one experiment of one store, a file each; a file is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, record: TrialRecord) -> Path:
        """Put a record on the disk."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{record.attempt}.json"
        unfinished = file.with_suffix(".unfinished")
        unfinished.write_text(record.model_dump_json())
        return unfinished.rename(file)

    def remove(self, record: TrialRecord) -> None:
        """Forget a record that the store has taken."""
        (self._folder / f"{record.attempt}.json").unlink(missing_ok=True)

    def waiting(self) -> Iterator[TrialRecord | Path]:
        """Records that the store has not taken yet; for one that cannot be read, its file."""
        for file in sorted(self._folder.glob("*.json")):
            try:
                yield TrialRecord.model_validate_json(file.read_text())
            except (OSError, ValueError):
                yield file

    def set_aside(self, waiting: TrialRecord | Path) -> Path:
        """Keep a record under another name, where it is not tried again; returns the file."""
        file = waiting if isinstance(waiting, Path) else self._folder / f"{waiting.attempt}.json"
        return file.rename(file.with_suffix(".set-aside"))


def spool_for(store_key: str, experiment: str) -> Spool:
    """The spool of an experiment; `store_key` tells one store from another."""
    return Spool(cache_root() / "spool" / store_key / experiment)
