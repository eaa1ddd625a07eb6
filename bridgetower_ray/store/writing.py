"""Writes to the store beside the sweep: one thread, in the order in which it is told, so that no trial waits for it."""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from bridgetower_ray.store.spool import Spool
from bridgetower_ray.store.tracking import StoreUnavailable, Tracking
from bridgetower_ray.sweep.sweep_run import TrialRecord

AWAY_SECONDS = 30.0  # how long a store that did not answer is left alone
Answer = TypeVar("Answer")


class StoreWriter:
    """Opens and fills the runs of one experiment; what the store does not take stays in the spool."""

    def __init__(self, tracking: Tracking, experiment_id: str, spool: Spool) -> None:
        self._tracking, self._experiment_id, self._spool = tracking, experiment_id, spool
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._told: list[Future[None]] = []
        self._run_ids: dict[str, str] = {}
        self._store_away_until = 0.0
        self.unkept: list[str] = []

    def open(self, record: TrialRecord) -> None:
        """Show a trial that has begun. Where the store does not answer, its run is opened with its record."""
        self._told.append(self._thread.submit(self._open, record))

    def write(self, record: TrialRecord, on_disk: bool) -> None:
        """Fill the run of a record, and take the record off the disk; one of the two is enough to lose nothing."""
        self._told.append(self._thread.submit(self._write, record, on_disk))

    def drain(self) -> None:
        """Wait until all that was told is done; raises what a task met that no store is known to meet."""
        told, self._told = self._told, []
        for one in told:
            one.result()

    def _open(self, record: TrialRecord) -> None:
        run_id = self._ask_store(lambda: start_run(self._tracking, self._experiment_id, record))
        if run_id is not None:
            self._run_ids[record.attempt] = run_id

    def _write(self, record: TrialRecord, on_disk: bool) -> None:
        if not on_disk:
            self._store_away_until = 0.0  # the store is all that is left to try
        if not self._written(record) and not on_disk:
            self.unkept.append(record.trial.name)

    def _written(self, record: TrialRecord) -> bool:
        run_id = self._run_ids.pop(record.attempt, None)

        def write() -> bool:
            self._tracking.write(run_id or open_run(self._tracking, self._experiment_id, record), record)
            return True

        if not self._ask_store(write):
            return False  # it waits in the spool
        with contextlib.suppress(OSError):  # what stays on a faulty disk is written again, which changes nothing
            self._spool.remove(record)
        return True

    def _ask_store(self, call: Callable[[], Answer]) -> Answer | None:
        """What the store answers; None, at once, for a while after it did not."""
        if time.monotonic() < self._store_away_until:
            return None
        try:
            return call()
        except StoreUnavailable:
            self._store_away_until = time.monotonic() + AWAY_SECONDS
            return None


def open_run(tracking: Tracking, experiment_id: str, record: TrialRecord) -> str:
    """The MLflow run of a record, opened if its attempt has none yet."""
    existing = tracking.find_attempt(experiment_id, record.attempt)
    return existing or start_run(tracking, experiment_id, record)


def start_run(tracking: Tracking, experiment_id: str, record: TrialRecord) -> str:
    """A new MLflow run for a record."""
    return tracking.start(experiment_id, record.sweep_run, record.trial, record.attempt, record.started_ms)
