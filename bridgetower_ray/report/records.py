"""MLflow runs -> immutable records: the one chosen for each trial, gathered by cell."""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from bridgetower_ray.report.diagnosis import Verdict, above_ceiling, takes_turns, verdict
from bridgetower_ray.report.rounds import Rounds
from bridgetower_ray.report.stats import geometric_mean
from bridgetower_ray.report.stopping import Course, Ended, course, pools
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.sweep_run import CellRecord, SweepRun

HEADLINE = "train_samples_per_second"  # logged first: MLflow's compare page opens on the first metric


def usable(throughput: float | None) -> float | None:
    """A throughput, if it is one: positive and finite."""
    return throughput if throughput is not None and 0 < throughput < 1e300 else None


def phase_figure(phase: str) -> str:
    """The name under which a trial's seconds in a phase are kept."""
    return f"phase/{phase}_seconds"


class Run(Protocol):
    """An MLflow run, as `tracking` reads it."""

    @property
    def run_id(self) -> str: ...
    @property
    def start_ms(self) -> int: ...
    @property
    def tags(self) -> Mapping[str, str]: ...
    @property
    def params(self) -> Mapping[str, str]: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Record:
    """One trial: what became of it, its figures by metric name and its facts by param name."""

    cell_id: str
    repeat: int
    setting: str
    outcome: Outcome
    run_id: str
    started_ms: int
    figures: Mapping[str, float]
    facts: Mapping[str, str]
    flags: tuple[str, ...] = ()

    @property
    def throughput(self) -> float | None:
        """Samples per second; None unless the trial was measured."""
        return self.figures.get(HEADLINE) if self.outcome.kind is Kind.MEASURED else None

    @property
    def is_final(self) -> bool:
        """Whether it ended by itself."""
        return self.outcome.kind not in (Kind.RUNNING, Kind.INTERRUPTED)

    @property
    def ended(self) -> Ended:
        """As the rounds see it."""
        return Ended(self.throughput, self.facts.get("env.host"), self.figures.get("trial_seconds", 0.0))

    def is_above(self, kind: str) -> bool:
        """Whether it was faster than its own `compute` or `loader` ceiling."""
        return self.throughput is not None and above_ceiling(self.throughput, self.figures, kind)


@dataclass(frozen=True)
class CellResult:
    """A planned cell with the records of its trials."""

    cell: CellRecord
    records: tuple[Record, ...]
    repeats: int

    @property
    def throughputs(self) -> tuple[float, ...]:
        """Samples per second of each measured repeat."""
        return tuple(record.throughput for record in self.records if record.throughput is not None)

    @property
    def throughput(self) -> float | None:
        """Geometric mean over the repeats; None unless every repeat was measured."""
        return geometric_mean(self.throughputs) if self.measured else None

    @property
    def measured(self) -> bool:
        """Whether all repeats were."""
        return len(self.throughputs) >= self.repeats

    @property
    def rehearsed(self) -> bool:
        """Whether all repeats were gone through in a rehearsal."""
        return sum(record.outcome.kind is Kind.REHEARSED for record in self.records) >= self.repeats

    @property
    def outcome(self) -> Outcome:
        """The cell's: measured if it was, whatever its nodes came to since; else the plan's, else its trials'."""
        if self.measured or self.rehearsed:
            return Outcome(Kind.MEASURED if self.measured else Kind.REHEARSED)
        if self.cell.kind is not Kind.RUNNABLE:
            return Outcome(self.cell.kind, self.cell.reason)
        unsuccessful = [record.outcome for record in self.records if record.outcome.kind is not Kind.MEASURED]
        return unsuccessful[0] if unsuccessful else Outcome(Kind.NOT_RUN)

    @property
    def flags(self) -> tuple[str, ...]:
        """What is doubtful about its repeats, each once, with the repeats it is said of."""
        said: dict[str, list[int]] = {}
        for record in self.records:
            for flag in record.flags:
                said.setdefault(flag, []).append(record.repeat)
        return tuple(f"#{', #'.join(map(str, repeats))} {flag}" for flag, repeats in said.items())

    @property
    def compute_ceiling(self) -> float | None:
        """Samples/s without a loader, the mean of the repeats that have it; None if one of them was above its own."""
        return None if self.above("compute") else self.mean("compute_ceiling_samples_per_second")

    @property
    def loader_ceiling(self) -> float | None:
        """Samples/s of the loader without compute, in the same way."""
        return None if self.above("loader") else self.mean("loader_ceiling_samples_per_second")

    def ceilings(self, kind: str) -> tuple[float, ...]:
        """The `compute` or `loader` ceiling of each measured repeat that has one."""
        name = f"{kind}_ceiling_samples_per_second"
        return tuple(record.figures[name] for record in self.records if record.throughput and name in record.figures)

    def ceiling_range(self, kind: str) -> tuple[float, float] | None:
        """The slowest and the quickest stretch that a ceiling was taken in, of all repeats; None without any."""
        names = [f"{kind}_ceiling_{edge}" for edge in ("lowest", "highest")]
        known = [record.figures[name] for record in self.records for name in names if name in record.figures]
        return (min(known), max(known)) if known else None

    def above(self, kind: str) -> bool:
        """Whether a repeat was faster than its own `compute` or `loader` ceiling, which then is no limit."""
        return any(record.is_above(kind) for record in self.records)

    def values(self, figure: str) -> tuple[float, ...]:
        """A figure of each measured repeat; none unless all of them have it."""
        found = [record.figures.get(figure) for record in self.records if record.throughput]
        return () if None in found else tuple(value for value in found if value is not None)

    @property
    def workers(self) -> int:
        """Loader workers a rank that were in use."""
        return int(self.fact("run.dataloader_num_workers") or 0)

    @property
    def asynchronous(self) -> bool:
        """Whether its hosts ran ahead of their devices."""
        return self.fact("env.asynchronous") == "True"

    @property
    def verdict(self) -> Verdict | None:
        """What holds the cell back, by the means of its repeats; None without both ceilings."""
        if self.throughput is None:
            return None
        mediapipe = self.cell.axes.get("mediapipe_dataloader") is True
        ahead = self.asynchronous and self.fact("run.dataloader_non_blocking") == "True"
        turns = takes_turns(self.workers, mediapipe, ahead)
        return verdict(self.throughput, self.compute_ceiling, self.loader_ceiling, turns)

    def mean(self, figure: str) -> float | None:
        """Arithmetic mean of a figure over the measured repeats that have it."""
        values = [record.figures[figure] for record in self.records if record.throughput and figure in record.figures]
        return sum(values) / len(values) if values else None

    def facts(self, name: str) -> frozenset[str]:
        """What the measured repeats have under that name: one value where they are alike."""
        return frozenset(record.facts[name] for record in self.records if record.throughput and name in record.facts)

    def fact(self, name: str) -> str | None:
        """The value that the measured repeats have in common; None where they have none, or differ."""
        values = self.facts(name)
        return next(iter(values)) if len(values) == 1 else None


@dataclass(frozen=True)
class SweepResults:
    """A sweep run with all that is known of its cells; `courses` by accelerator, where the sweep asks a question."""

    sweep_run: SweepRun
    cells: tuple[CellResult, ...]
    courses: Mapping[str, Course] = field(default_factory=dict)

    @property
    def to_measure(self) -> tuple[CellResult, ...]:
        """The N of "n of N cells measured"."""
        return tuple(one for one in self.cells if one.cell.kind is not Kind.PRUNED and one.cell.same_as is None)

    @property
    def measured(self) -> tuple[CellResult, ...]:
        """The n of "n of N cells measured"."""
        return tuple(one for one in self.to_measure if one.measured)

    @property
    def rehearsal(self) -> bool:
        """Whether this is one."""
        return self.sweep_run.rehearsal

    @property
    def complete(self) -> bool:
        """Whether every cell came to what it was run for, and what the sweep asks, if it does, is answered."""
        answered = all(one.ended_by for one in self.courses.values())
        return answered and all(one.measured or (self.rehearsal and one.rehearsed) for one in self.to_measure)

    @cached_property
    def rounds(self) -> Mapping[str, Rounds]:
        """The measured throughputs of each accelerator by cell and round, which is a repeat on one host."""
        found: dict[str, dict[tuple[str, Hashable], float]] = {}
        for one in self.to_measure:
            of_accelerator = found.setdefault(str(one.cell.axes["accelerator"]), {})
            for record in one.records:
                if record.throughput is not None:
                    when = (record.repeat, record.facts.get("env.host"))
                    of_accelerator[one.cell.cell_id, when] = record.throughput
        return {name: Rounds(throughputs) for name, throughputs in found.items()}

    @property
    def summary(self) -> str:
        """`5 of 6 cells measured`."""
        if self.rehearsal:
            return f"{sum(one.rehearsed for one in self.to_measure)} of {len(self.to_measure)} cells rehearsed"
        return f"{len(self.measured)} of {len(self.to_measure)} cells measured"

    @property
    def records(self) -> tuple[Record, ...]:
        """Each trial once."""
        return tuple(record for one in self.cells if one.cell.same_as is None for record in one.records)

    def find(self, setting: str | None) -> CellResult | None:
        """The cell of that name."""
        return next((one for one in self.cells if one.cell.setting == setting), None)

    @property
    def baseline(self) -> CellResult | None:
        """The cell that the sweep names as its baseline."""
        return self.find(self.sweep_run.baseline)


def gather(sweep_run: SweepRun, runs: Iterable[Run]) -> SweepResults:
    """Choose one record for each trial and put them into the sweep run's cells.

    Of several attempts the first that was measured counts, else the newest. Runs that are not of this
    tool's making (they lack its tags) are passed over.
    """
    chosen: dict[tuple[str, int], Record] = {}
    for record in filter(None, (record_of(run) for run in sorted(runs, key=lambda run: run.start_ms))):
        key = (record.cell_id, record.repeat)
        if key not in chosen or chosen[key].throughput is None:
            chosen[key] = record
    courses = courses_of(sweep_run, {key: record.ended for key, record in chosen.items() if record.is_final})
    cells = (
        CellResult(cell, _records_of(cell, chosen), _repeats(sweep_run, courses, cell)) for cell in sweep_run.cells
    )
    return SweepResults(sweep_run, tuple(cells), courses)


def courses_of(sweep_run: SweepRun, ended: Mapping[tuple[str, int], Ended]) -> dict[str, Course]:
    """What the rounds of each accelerator have come to; nothing where the sweep asks no question."""
    if sweep_run.question is None:
        return {}
    ends = {name: one.rounds for name, one in sweep_run.decisions.items() if one.over_budget}
    found = pools(sweep_run, {cell for cell, _ in ended})
    return {name: course(sweep_run.question, pool, ended, ends.get(name)) for name, pool in found.items()}


def _repeats(sweep_run: SweepRun, courses: Mapping[str, Course], cell: CellRecord) -> int:
    """Those that a cell was to have: until the question is answered, no more than every cell is to have."""
    found = courses.get(str(cell.axes["accelerator"]))
    return sweep_run.repeats if found is None or not found.ended_by else found.asked(cell.cell_id) or sweep_run.repeats


def _records_of(cell: CellRecord, chosen: Mapping[tuple[str, int], Record]) -> tuple[Record, ...]:
    return tuple(chosen[key] for key in sorted(chosen) if key[0] == cell.cell_id)


def record_of(run: Run) -> Record | None:
    """A run as a trial's record; None for one that is not of this tool's making."""
    try:
        kind = Kind(run.tags["outcome"])
        cell_id, repeat, setting = run.tags["cell_id"], int(run.tags["repeat"]), run.tags["setting"]
    except (KeyError, ValueError):
        return None
    figures = {name: value for name, value in run.metrics.items() if math.isfinite(value) and abs(value) < 1e300}
    outcome = Outcome(kind, run.tags.get("reason", ""))
    if kind is Kind.MEASURED and usable(figures.get(HEADLINE)) is None:
        outcome = Outcome(Kind.FAILED, "its throughput is no number")
    found_flags = tuple(flag for flag in run.tags.get("flags", "").split("; ") if flag)
    return Record(cell_id, repeat, setting, outcome, run.run_id, run.start_ms, figures, dict(run.params), found_flags)
