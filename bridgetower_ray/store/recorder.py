"""Turns what trials say into records: kept on disk, written to the store, shown as progress."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bridgetower_ray.report.diagnosis import above_ceiling, takes_turns, verdict
from bridgetower_ray.report.efficiency import efficiency_figures
from bridgetower_ray.report.flags import flags_of
from bridgetower_ray.report.ranks import rank_figures
from bridgetower_ray.report.records import HEADLINE, usable
from bridgetower_ray.report.steadiness import pace_of, standard_error
from bridgetower_ray.report.stopping import Ended
from bridgetower_ray.store.redaction import redact
from bridgetower_ray.store.spool import Spool
from bridgetower_ray.store.tracking import StoreRefused, StoreUnavailable, Tracking
from bridgetower_ray.store.writing import StoreWriter, open_run
from bridgetower_ray.sweep.accelerators import dense_bf16_peak
from bridgetower_ray.sweep.cells import MEDIA_LOADER, Trial
from bridgetower_ray.sweep.outcomes import Kind, Outcome, by_what_was_measured
from bridgetower_ray.sweep.progress import Outlook, SweepProgress, TrialProgress, View
from bridgetower_ray.sweep.sweep_run import TrialRecord

PACE_STEPS = 10  # whose pace is shown
SHOWN = 1000  # steps, of all ranks, among which the last ones of the first rank are


@dataclass
class _Attempt:
    """A trial that is under way, with all that it has said."""

    progress: TrialProgress
    record: TrialRecord
    steps: list[dict[str, Any]] = field(default_factory=list)
    environment: dict[str, Any] | None = None
    measured: dict[str, Any] | None = None
    system: list[dict[str, Any]] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    reported: str = ""  # by the actor, which knows nothing of a training's own phases
    node: str = ""


class Asking(Protocol):
    """A sweep's question, which goes by what trials come to."""

    @property
    def outlook(self) -> Outlook:
        """What it is expected to take."""

    def heard(self, trial: Trial, ended: Ended) -> Outlook:
        """A trial has ended by itself; returns what is now expected."""


class Recorder:
    """Hears the trials of one sweep run, and has all that they leave put on the disk and into the store."""

    def __init__(
        self,
        trials: Sequence[Trial],
        sweep_run: str,
        tracking: Tracking,
        experiment_id: str,
        spool: Spool,
        view: View,
        asking: Asking | None = None,
    ) -> None:
        self._trials, self._sweep_run = trials, sweep_run
        self._spool, self._view, self._asking = spool, view, asking
        self._store = StoreWriter(tracking, experiment_id, spool)
        self._attempts: dict[int, _Attempt] = {}
        self._progress = SweepProgress(len(trials))
        if asking is not None:
            self._progress.expect(asking.outlook)
        self.ended: dict[int, Outcome] = {}

    @property
    def unkept(self) -> list[str]:
        """Trials whose result neither the store nor the disk took; known once all is drained."""
        return self._store.unkept

    def drain(self) -> None:
        """Wait until the store has what it takes."""
        self._store.drain()

    def began(self, index: int) -> None:
        """Trial `index` begins, perhaps again after its node was lost."""
        if index in self._attempts:
            self._lost_attempt(index)
        if index in self.ended:
            return
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
        self._store.open(record)
        self._attempts[index] = _Attempt(one, record)
        self._progress.running[index] = one
        self._view.trial_began(self._progress, one)

    def _lost_attempt(self, index: int) -> None:
        """What it had measured counts, and the trial need not run again."""
        lost = Outcome(Kind.FAILED, "its actor or node was lost; it began again")
        if self._attempts[index].measured is None:
            self._keep(self._attempts.pop(index), lost)
        else:
            self.finished(index, Outcome(Kind.FAILED, "its actor or node was lost"))

    def heard(self, index: int, report: Mapping[str, Any]) -> None:
        """Trial `index` reports events."""
        attempt = self._attempts.get(index)
        if attempt is None:
            return  # it has its outcome
        if report["phase"] != attempt.reported:
            attempt.progress.phase = attempt.reported = report["phase"]
        attempt.progress.node = attempt.node = report["node"]
        for event in report["events"]:
            self._take(attempt, dict(event))
        self._view.moved(self._progress, attempt.progress)

    def _take(self, attempt: _Attempt, event: dict[str, Any]) -> None:
        match event.pop("event", None):
            case "phase":
                attempt.progress.phase = event["phase"].replace("_", "-")
            case "phases":
                attempt.phases = event
            case "environment":
                attempt.environment = event
            case "steps":
                _take_steps(attempt, event)
            case "measured":
                attempt.measured = event
            case "figures":
                attempt.measured = {**(attempt.measured or {}), **event}
            case "system":
                attempt.system.append(event)

    def finished(self, index: int, outcome: Outcome, log: str = "") -> None:
        """Trial `index` has its outcome: put it on disk, then into the store."""
        if index in self.ended:
            return
        attempt = self._attempts.pop(index)
        outcome = by_what_was_measured(outcome, attempt.measured)
        if outcome.kind is Kind.MEASURED and (other := _other_loader(attempt)):
            outcome, attempt.measured = Outcome(Kind.FAILED, other), None
        if attempt.progress.trial.rehearsal:
            outcome, attempt.measured = _as_rehearsed(outcome, attempt.measured)
        record = self._keep(attempt, outcome, log)
        self.ended[index] = outcome
        self._progress.running.pop(index, None)
        self._progress.ended += 1
        self._progress.measured += outcome.kind in (Kind.MEASURED, Kind.REHEARSED)
        figure = (attempt.measured or {}).get(HEADLINE) if outcome.kind is Kind.MEASURED else None
        if self._asking is not None and outcome.kind is not Kind.INTERRUPTED:
            ended = Ended(usable(figure), (attempt.environment or {}).get("host"), record.seconds)
            self._progress.expect(self._asking.heard(record.trial, ended))
        self._view.trial_ended(self._progress, attempt.progress, outcome, figure)

    def _keep(self, attempt: _Attempt, outcome: Outcome, log: str = "") -> TrialRecord:
        """Put what an attempt left on the disk, then into the store."""
        record = _record(attempt, outcome, log)
        self._store.write(record, on_disk=self._spooled(record))
        return record

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

    def save_under_way(self, reason: str) -> None:
        """Put on the disk, at once, what the trials under way have left: the driver may have seconds to live."""
        measuring = [one for one in self._attempts.values() if not one.progress.trial.rehearsal]
        for attempt in measuring:
            self._spooled(_record(attempt, by_what_was_measured(Outcome(Kind.INTERRUPTED, reason), attempt.measured)))


def _record(attempt: _Attempt, outcome: Outcome, log: str = "") -> TrialRecord:
    figures = _figures(attempt)
    return attempt.record.model_copy(
        update={
            "outcome": Outcome(outcome.kind, redact(outcome.reason)),
            "ended_ms": _now_ms(),
            "node": attempt.node,
            "environment": attempt.environment,
            "measured": figures,
            "steps": tuple(attempt.steps),
            "phases": attempt.phases,
            "system": tuple(attempt.system),
            "verdict": _verdict(attempt),
            "flags": flags_of(figures, attempt.progress.trial.cell, attempt.environment or {}) if figures else (),
            "log": log,
        }
    )


@dataclass
class Replayed:
    """What became of the records that waited: how many were written, how many wait on, which files were set aside."""

    written: int = 0
    waiting: int = 0
    set_aside: list[str] = field(default_factory=list)


def replay(tracking: Tracking, experiment_id: str, spool: Spool) -> Replayed:
    """Write what waits in the spool. What cannot be read, or is refused for good, is set aside for a person to see.

    A store that does not answer is not asked again for the others: each would take as long.
    """
    found = Replayed()
    records = list(spool.waiting())
    for place, record in enumerate(records):
        try:
            if not isinstance(record, TrialRecord):
                raise StoreRefused("no record")
            tracking.write(open_run(tracking, experiment_id, record), record)
        except StoreRefused:
            found.set_aside.append(str(spool.set_aside(record)))
        except StoreUnavailable:
            found.waiting = len(records) - place
            return found
        else:
            spool.remove(record)
            found.written += 1
    return found


def _other_loader(attempt: _Attempt) -> str:
    """How the loader that was at work is not the one that was asked for; empty if it is."""
    trial = attempt.progress.trial
    used = (attempt.environment or {}).get("effective", {}).get("loader")
    if trial.rehearsal or not trial.cell.training.mediapipe_dataloader or used == MEDIA_LOADER:
        return ""
    return f"mediapipe_dataloader was asked for, but {used or 'nothing that is known'} loaded"


def _as_rehearsed(outcome: Outcome, measured: Mapping[str, Any] | None) -> tuple[Outcome, dict[str, Any]]:
    """Under names of their own, so that nothing can take a rehearsal's figures for measurements."""
    figures = {f"rehearsal_{name}": value for name, value in (measured or {}).items()}
    return (Outcome(Kind.REHEARSED) if outcome.kind is Kind.MEASURED else outcome), figures


def _figures(attempt: _Attempt) -> dict[str, Any] | None:
    """What was measured, with what is made from it: how steady it was, how far apart its ranks, what a sample cost."""
    measured, trial = attempt.measured, attempt.progress.trial
    if measured is None or HEADLINE not in measured:
        return measured
    known = dense_bf16_peak(trial.cell.accelerator.name, ", ".join((attempt.environment or {}).get("devices", ())))
    peak = (trial.peak_tflops or (known[0] if known else None)) if trial.cell.training.bf16 else None
    made = efficiency_figures(measured, trial.cell.devices, peak, trial.price_per_hour)
    pace = pace_of(attempt.steps)
    doubt = {"unsteady": f"{pace.doubt} {pace.picture}"} if pace is not None and pace.doubt else {}
    error = standard_error(attempt.steps)
    open_still = {} if error is None else {"window_standard_error": error}
    return {**measured, **rank_figures(attempt.steps), **made, **doubt, **open_still}


def _verdict(attempt: _Attempt) -> str | None:
    figures = attempt.measured or {}
    cell = attempt.progress.trial.cell
    if HEADLINE not in figures:
        return None
    turns = takes_turns(cell.training.dataloader_num_workers, cell.training.mediapipe_dataloader, cell.copies_ahead)
    return verdict(figures[HEADLINE], _limit(figures, "compute"), _limit(figures, "loader"), turns)


def _limit(figures: Mapping[str, float], kind: str) -> float | None:
    """A ceiling, unless the throughput is above it."""
    above = above_ceiling(figures[HEADLINE], figures, kind)
    return None if above else figures.get(f"{kind}_ceiling_samples_per_second")


def _take_steps(attempt: _Attempt, event: Mapping[str, Any]) -> None:
    rank = event.get("rank", 0)
    attempt.steps += [{"rank": rank, **step} for step in event["steps"]]
    if rank == 0:
        _show_steps(attempt.progress, event, [step for step in attempt.steps[-SHOWN:] if not step["rank"]])


def _show_steps(progress: TrialProgress, event: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> None:
    """Steps so far, and the pace of the last ten for all ranks."""
    progress.step, progress.total_steps = steps[-1]["step"], event["total_steps"]
    recent = steps[-PACE_STEPS:]
    seconds = sum(step["seconds"] for step in recent)
    samples = sum(step["samples"] for step in recent) * progress.trial.cell.devices
    progress.samples_per_second = samples / seconds if seconds else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
