"""Turns what trials say into records: kept on disk, written to the store, shown as progress."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridgetower_ray.cells import Trial
from bridgetower_ray.diagnosis import flags, takes_turns, verdict
from bridgetower_ray.outcomes import Kind, Outcome
from bridgetower_ray.progress import SweepProgress, TrialProgress, View
from bridgetower_ray.redaction import redact
from bridgetower_ray.spool import Spool
from bridgetower_ray.sweep_run import SweepRun, TrialRecord
from bridgetower_ray.tracking import HEADLINE, StoreUnavailable, Tracking


@dataclass
class _Attempt:
    """A trial that is under way, with all that it has said."""

    progress: TrialProgress
    record: TrialRecord
    run_id: str | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    environment: dict[str, Any] | None = None
    measured: dict[str, Any] | None = None
    system: list[dict[str, Any]] = field(default_factory=list)
    node: str = ""


class Recorder:
    """Hears the trials of one sweep run; the only one who writes to the store while it runs."""

    def __init__(
        self,
        trials: Sequence[Trial],
        sweep_run: SweepRun,
        tracking: Tracking,
        experiment_id: str,
        spool: Spool,
        view: View,
    ) -> None:
        self._trials, self._sweep_run = trials, sweep_run
        self._tracking, self._experiment_id, self._spool, self._view = tracking, experiment_id, spool, view
        self._attempts: dict[int, _Attempt] = {}
        self._progress = SweepProgress(len(trials))
        self.ended: dict[int, Outcome] = {}
        self.unkept: list[str] = []

    def began(self, index: int) -> None:
        """Trial `index` begins, perhaps again after its node was lost."""
        if index in self._attempts:
            self._keep(self._attempts.pop(index), Outcome(Kind.FAILED, "its actor or node was lost; it began again"))
        trial = self._trials[index]
        one = TrialProgress(trial)
        now = _now_ms()
        record = TrialRecord(
            sweep_run=self._sweep_run,
            trial=trial,
            started_ms=now,
            ended_ms=now,
            outcome=Outcome(Kind.RUNNING),
        )
        attempt = _Attempt(one, record)
        try:
            attempt.run_id = self._tracking.start(
                self._experiment_id, self._sweep_run.id, trial, record.attempt, record.started_ms
            )
        except StoreUnavailable:
            attempt.run_id = None  # opened when its record is written
        self._attempts[index] = attempt
        self._progress.running[index] = one
        self._view.trial_began(self._progress, one)

    def heard(self, index: int, report: Mapping[str, Any]) -> None:
        """Trial `index` reports events."""
        attempt = self._attempts.get(index)
        if attempt is None:
            return  # it has its outcome
        attempt.progress.phase = attempt.progress.phase if report["events"] else report["phase"]
        attempt.progress.node = attempt.node = report["node"]
        for event in report["events"]:
            self._take(attempt, dict(event))
        self._view.moved(self._progress, attempt.progress)

    def _take(self, attempt: _Attempt, event: dict[str, Any]) -> None:
        match event.pop("event", None):
            case "phase":
                attempt.progress.phase = event["phase"]
            case "environment":
                attempt.environment = event
            case "steps":
                attempt.steps += event["steps"]
                _show_steps(attempt.progress, event, attempt.steps)
            case "measured":
                attempt.measured = event
            case "ceilings":
                attempt.measured = {**(attempt.measured or {}), **event}
            case "system":
                attempt.system.append(event)

    def finished(self, index: int, outcome: Outcome, log: str = "") -> None:
        """Trial `index` has its outcome: put it on disk, then into the store."""
        attempt = self._attempts.pop(index)
        outcome = _by_what_was_measured(outcome, attempt.measured)
        if attempt.progress.trial.rehearsal:
            outcome, attempt.measured = _as_rehearsed(outcome, attempt.measured)
        self._keep(attempt, outcome, log)
        self.ended[index] = outcome
        self._progress.running.pop(index, None)
        self._progress.ended += 1
        self._progress.measured += outcome.kind in (Kind.MEASURED, Kind.REHEARSED)
        figure = (attempt.measured or {}).get(HEADLINE) if outcome.kind is Kind.MEASURED else None
        self._view.trial_ended(self._progress, attempt.progress, outcome, figure)

    def _keep(self, attempt: _Attempt, outcome: Outcome, log: str = "") -> None:
        """Put what an attempt left on the disk, then into the store; one of the two is enough to lose nothing."""
        record = attempt.record.model_copy(
            update={
                "outcome": Outcome(outcome.kind, redact(outcome.reason)),
                "ended_ms": _now_ms(),
                "node": attempt.node,
                "environment": attempt.environment,
                "measured": attempt.measured,
                "steps": tuple(attempt.steps),
                "system": tuple(attempt.system),
                "verdict": _verdict(attempt),
                "flags": _flags(attempt),
                "log": log,
            }
        )
        on_disk = self._spooled(record)
        if not self._written(record, attempt.run_id) and not on_disk:
            self.unkept.append(record.trial.name)

    def _spooled(self, record: TrialRecord) -> bool:
        try:
            self._spool.save(record)
        except OSError:
            return False  # a full disk; the store may take it all the same
        return True

    def lost(self, index: int, reason: str) -> None:
        """The actor or node of trial `index` is gone for good; a result that it gave before stands."""
        if index in self.ended:
            return
        if index not in self._attempts:
            self.began(index)
        self.finished(index, Outcome(Kind.FAILED, reason))

    def interrupt(self, reason: str) -> None:
        """End what is still under way as interrupted."""
        for index in list(self._attempts):
            self.finished(index, Outcome(Kind.INTERRUPTED, reason))

    def _written(self, record: TrialRecord, run_id: str | None) -> bool:
        try:
            run_id = run_id or open_run(self._tracking, self._experiment_id, record)
            self._tracking.write(run_id, record)
        except StoreUnavailable:
            return False  # it waits in the spool
        self._spool.remove(record)
        return True


def replay(tracking: Tracking, experiment_id: str, spool: Spool) -> tuple[int, int]:
    """Write what waits in the spool; returns how many records were written and how many wait on."""
    written = waiting = 0
    for record in spool.waiting():
        try:
            tracking.write(open_run(tracking, experiment_id, record), record)
        except StoreUnavailable:
            waiting += 1
        else:
            spool.remove(record)
            written += 1
    return written, waiting


def open_run(tracking: Tracking, experiment_id: str, record: TrialRecord) -> str:
    """The MLflow run of a record, opened if its attempt has none yet."""
    existing = tracking.find_attempt(experiment_id, record.attempt)
    return existing or tracking.start(
        experiment_id, record.sweep_run.id, record.trial, record.attempt, record.started_ms
    )


def _by_what_was_measured(outcome: Outcome, measured: Mapping[str, Any] | None) -> Outcome:
    """A window that has closed is measured, whatever befell the ceilings after it; none is none, whatever is said."""
    if measured is None:
        ended_well = outcome.kind is Kind.MEASURED
        return Outcome(Kind.FAILED, "the training ended without a measurement") if ended_well else outcome
    missing = [str(measured[name]) for name in measured if name.endswith("_ceiling_failed")]
    if outcome.kind is not Kind.MEASURED:
        missing.append(str(outcome))
    return Outcome(Kind.MEASURED, f"without a ceiling: {'; '.join(missing)}" if missing else "")


def _as_rehearsed(outcome: Outcome, measured: Mapping[str, Any] | None) -> tuple[Outcome, dict[str, Any]]:
    """Under names of their own, so that nothing can take a rehearsal's figures for measurements."""
    figures = {f"rehearsal_{name}": value for name, value in (measured or {}).items()}
    return (Outcome(Kind.REHEARSED) if outcome.kind is Kind.MEASURED else outcome), figures


def _verdict(attempt: _Attempt) -> str | None:
    figures, environment = attempt.measured or {}, attempt.environment or {}
    training = attempt.progress.trial.cell.training
    if HEADLINE not in figures or "asynchronous" not in environment:
        return None
    turns = takes_turns(training.dataloader_num_workers, environment["asynchronous"], training.mediapipe_dataloader)
    ceilings = (figures.get("compute_ceiling_samples_per_second"), figures.get("loader_ceiling_samples_per_second"))
    return verdict(figures[HEADLINE], *ceilings, turns)


def _flags(attempt: _Attempt) -> tuple[str, ...]:
    return flags(attempt.measured, attempt.progress.trial.cell.steady_window_steps) if attempt.measured else ()


def _show_steps(progress: TrialProgress, event: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> None:
    """Steps so far, and the pace of the last ten for all ranks."""
    progress.step, progress.total_steps = steps[-1]["step"], event["total_steps"]
    recent = steps[-10:]
    seconds = sum(step["seconds"] for step in recent)
    samples = sum(step["samples"] for step in recent) * progress.trial.cell.devices
    progress.phase = "warm-up" if steps[-1]["warmup"] else "measuring"
    progress.samples_per_second = samples / seconds if seconds else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
