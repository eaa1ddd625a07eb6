"""Before and after: the same cells in two sweep runs, and whether any became slower."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow
import pyarrow.parquet

from bridgetower_ray.errors import UsageError
from bridgetower_ray.report.comparisons import together, unlike
from bridgetower_ray.report.stats import Ratio, geometric_mean, p_value_of_no_change, ratio_of_means
from bridgetower_ray.report.tables import Table, figure
from bridgetower_ray.sweep.outcomes import Kind

SIGNIFICANCE = 0.05
WORK_COLUMNS = ("data.fingerprint", "model.parameters", "run.total_batch", "run.total_steps", "run.precision")
# Not the work but what it ran on: a difference stands beside the ratio, and in the verdict.
STACK_COLUMNS = (
    "env.host", "env.cpu_model", "env.device_names", "env.device_power_limit_watts",
    "env.device_mig", "env.driver", "env.python", "env.torch", "env.transformers",
    "env.variables", "env.code_hash",
)  # fmt: skip
# What a sample costs: shown, and no part of the verdict.
COST_COLUMNS = (
    "joules_per_sample", "host_joules_per_sample", "samples_per_watt_hour", "samples_per_dollar",
    "model_flops_utilisation",
)  # fmt: skip
NEEDED_COLUMNS = ("cell_id", "setting", "outcome", "train_samples_per_second")


@dataclass(frozen=True)
class Arm:
    """One cell of one sweep run: its measured repeats, and the words for what was not measured.

    `costs` are figures of each repeat, empty where one lacks it.
    """

    setting: str
    throughputs: tuple[float, ...]
    outcomes: tuple[str, ...]
    work: Mapping[str, frozenset[str]] = field(default_factory=lambda: defaultdict(frozenset))
    stack: Mapping[str, frozenset[str]] = field(default_factory=lambda: defaultdict(frozenset))
    costs: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: defaultdict(tuple))

    @property
    def measured(self) -> bool:
        """Whether every repeat was."""
        return bool(self.throughputs) and all(outcome == Kind.MEASURED for outcome in self.outcomes)


@dataclass(frozen=True)
class Change:
    """What became of a cell. `ratio` is after over before; `p` is of no change, adjusted for the number of cells.

    `after` is None for a cell that is gone.
    """

    setting: str
    before: Arm
    after: Arm | None
    ratio: Ratio | None
    p: float | None
    why_not: str

    @property
    def lost(self) -> bool:
        """Whether it was measured before and is not now, or is gone."""
        return self.before.measured and not (self.after and self.after.measured)

    @property
    def stack_differences(self) -> tuple[str, ...]:
        """What differs in host, device or software: `host host-a -> host-b`."""
        if self.after is None or not (self.before.throughputs and self.after.throughputs):
            return ()
        one, other = self.before.stack, self.after.stack
        return tuple(
            f"{name.removeprefix('env.')} {together(one[name])} -> {together(other[name])}"
            for name in STACK_COLUMNS
            if unlike(one[name], other[name])
        )

    @property
    def mark(self) -> str:
        """`!` a new failure, `~` unresolved, else `faster`, `slower`; `–` where there is nothing to compare."""
        if self.lost:
            return "!"
        if self.ratio is None:
            return "–"
        if self.p is None or self.p >= SIGNIFICANCE:
            return "~"
        return "faster" if self.ratio.value > 1 else "slower"

    def slower_by_more_than(self, share: float) -> bool:
        """Whether it is slower by more than `share`, and its adjusted interval excludes no change."""
        return self.mark == "slower" and self.ratio is not None and self.ratio.value < 1 - share

    def unresolved(self, share: float) -> bool:
        """Whether it may be slower by more than `share` or not: one repeat, or an interval that holds both."""
        if self.ratio is None or self.slower_by_more_than(share):
            return False
        return self.ratio.low is None or self.ratio.low < 1 - share


@dataclass(frozen=True)
class Gate:
    """What `--fail-over` decided, in words, and whether it let the change pass."""

    passed: bool
    sentence: str


def gate(found: Sequence[Change], share: float, strict: bool) -> Gate:
    """A cell that is slower by more than `share`, that failed or that is gone stops the change.

    One that cannot be told is said, and under `strict` stops it too.
    """
    slower = [one.setting for one in found if one.slower_by_more_than(share)]
    lost = [one.setting for one in found if one.lost]
    unresolved = [one.setting for one in found if one.unresolved(share)]
    passed = not slower and not lost and not (strict and unresolved)
    told = [f"slower by more than {share * 100:g} %: {', '.join(slower)}"] if slower else []
    told += [f"failed or gone: {', '.join(lost)}"] if lost else []
    told += [] if slower or lost else [f"no cell is known to be slower by more than {share * 100:g} %"]
    told += [f"not resolved, for want of repeats: {', '.join(unresolved)}"] if unresolved else []
    differing = sorted({difference for one in found for difference in one.stack_differences})
    told += [f"hosts, devices or software are not one and the same ({'; '.join(differing)})"] if differing else []
    return Gate(passed, f"gate {'passed' if passed else 'failed'}: {'; '.join(told)}.")


def read_arms(file: Path) -> dict[str, Arm]:
    """The cells of a saved results.parquet, by cell id.

    Raises:
        UsageError: the file is absent, no Parquet, or not one that a report of this tool wrote.
    """
    try:
        table = pyarrow.parquet.read_table(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise UsageError(f"{file}: cannot be read as Parquet: {str(error).splitlines()[0]}") from None
    lacking = [name for name in NEEDED_COLUMNS if name not in table.column_names]
    if lacking:
        raise UsageError(f"{file}: not a results.parquet of this tool: it has no {', '.join(lacking)}")
    return arms_of(table)


def arms_of(table: pyarrow.Table) -> dict[str, Arm]:
    """The cells of a results table, by cell id."""
    rows: dict[str, list[dict[str, object]]] = {}
    for row in table.to_pylist():
        if row["outcome"] != Kind.PRUNED:
            rows.setdefault(str(row["cell_id"]), []).append(row)
    return {cell_id: _arm(trials) for cell_id, trials in rows.items()}


def _arm(trials: Sequence[Mapping[str, object]]) -> Arm:
    measured = [row for row in trials if row["outcome"] == Kind.MEASURED]
    values = [row["train_samples_per_second"] for row in measured]
    return Arm(
        setting=str(trials[0]["setting"]),
        throughputs=_positive(values),
        outcomes=tuple(str(row["outcome"]) for row in trials),
        work={name: _values(measured, name) for name in WORK_COLUMNS},
        stack={name: _values(measured, name) for name in STACK_COLUMNS},
        costs={name: _of_all([row.get(name) for row in measured]) for name in COST_COLUMNS},
    )


def _positive(values: Sequence[object]) -> tuple[float, ...]:
    return tuple(value for value in values if isinstance(value, float) and math.isfinite(value) and value > 0)


def _of_all(values: Sequence[object]) -> tuple[float, ...]:
    """The values, or none unless every one is a number."""
    known = _positive(values)
    return known if len(known) == len(values) else ()


def _values(rows: Sequence[Mapping[str, object]], name: str) -> frozenset[str]:
    return frozenset(str(row[name]) for row in rows if row.get(name) is not None)


def changes(before: Mapping[str, Arm], after: Mapping[str, Arm]) -> list[Change]:
    """Every cell that `before` has, with p values adjusted by Holm for the number of those that both have.

    S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979).

    Raises:
        UsageError: they have no cell in common.
    """
    common = [cell_id for cell_id in before if cell_id in after]
    if not common:
        raise UsageError("the two have no cell in common: cells are the same where all that decides them is")
    pairs = [(before[cell_id], after[cell_id]) for cell_id in common]
    raw = [_p(one, other) for one, other in pairs]
    told = {
        cell_id: Change(one.setting, one, other, _ratio(one, other), p, _why_not(one, other))
        for cell_id, (one, other), p in zip(common, pairs, _holm(raw), strict=True)
    }
    gone = {cell_id: Change(arm.setting, arm, None, None, None, "after: gone") for cell_id, arm in before.items()}
    return list((gone | told).values())


def _why_not(before: Arm, after: Arm) -> str:
    for name, arm in (("before", before), ("after", after)):
        if not arm.measured:
            return f"{name}: {', '.join(sorted(set(arm.outcomes) - {str(Kind.MEASURED)})) or 'nothing measured'}"
    differing = [name for name in WORK_COLUMNS if unlike(before.work[name], after.work[name])]
    return f"other work: {', '.join(differing)}" if differing else ""


def _ratio(before: Arm, after: Arm) -> Ratio | None:
    return None if _why_not(before, after) else ratio_of_means(after.throughputs, before.throughputs)


def _p(before: Arm, after: Arm) -> float | None:
    return None if _why_not(before, after) else p_value_of_no_change(after.throughputs, before.throughputs)


def _holm(values: Sequence[float | None]) -> list[float | None]:
    """Adjusted p values: the smallest times their number, the next times one less, and never a smaller one after."""
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (value, place) in enumerate(known):
        highest = max(highest, min(1.0, value * (len(known) - rank)))
        adjusted[place] = highest
    return adjusted


def changes_table(found: Sequence[Change]) -> Table:
    """Cell by cell: before, after, their ratio with its interval, and the mark."""
    rows = tuple((one.setting, _row(one)) for one in found)
    notes = (
        "after / before with its 95 % interval; slower or faster where it holds after Holm's adjustment "
        f"for {sum(one.after is not None for one in found)} cells.",
        "~ not resolved: no change is as good an explanation, or one repeat gives no interval.",
        "! a new failure, or gone.",
        *(f"† {one.setting}: {'; '.join(one.stack_differences)}." for one in found if one.stack_differences),
    )
    return Table("Before and after", "setting", ("before", "after", "after / before", "", "why not"), rows, notes)


def _row(one: Change) -> tuple[str, ...]:
    ratio = one.ratio
    interval = f" [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio and ratio.low and ratio.high else ""
    text = f"{ratio.value:.3f}{interval}" if ratio else ""
    text += " †" if text and one.stack_differences else ""
    return _mean(one.before), _mean(one.after), text, one.mark, one.why_not


def _mean(arm: Arm | None) -> str:
    return figure(geometric_mean(arm.throughputs)) if arm and arm.throughputs else ""
