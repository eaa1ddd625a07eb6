"""Which cells may be put into a ratio, and what is to be said beside it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bridgetower_ray.report.records import CellResult, SweepResults
from bridgetower_ray.report.rounds import WithinRounds, rounds_needed
from bridgetower_ray.report.stats import Ratio, ratio_of_means, repeats_needed
from bridgetower_ray.sweep.cells import loader_label
from bridgetower_ray.sweep.outcomes import Kind

# The work that a cell does, with the axes that may be why it differs. Other differences forbid a ratio.
BATCH_AXES = frozenset({"per_device_train_batch_size", "gradient_accumulation_steps"})
WORK: Mapping[str, frozenset[str]] = {
    "model.parameters": frozenset(),
    "model.image": frozenset(),
    "data.fingerprint": frozenset(),
    "run.total_batch": BATCH_AXES,
    "run.total_steps": BATCH_AXES,
    "run.precision": frozenset({"bf16"}),
    "train.max_seq_length": frozenset({"max_seq_length"}),
    "train.dataloader_drop_last": frozenset(),
    "measure.warmup_steps": frozenset(),
}
# The stack under it: a difference is said beside the ratio.
STACK = (
    "env.host", "env.cpu_model", "env.driver", "env.python", "env.torch", "env.transformers", "env.accelerate",
    "env.pillow", "env.variables", "env.code_hash", "env.cpus_usable", "env.niceness", "env.scheduling_policy",
    "env.io_class", "env.cpu_affinity", "env.numa_nodes", "env.cgroup_cpus", "env.cgroup_memory_bytes",
    "env.cpu_governor", "env.turbo", "env.transparent_huge_pages", "env.allocator",
)  # fmt: skip
# Of two accelerators they differ by nature.
DEVICES = ("env.device_names", "env.device_power_limit_watts", "env.device_mig")


@dataclass(frozen=True)
class Comparison:
    """One cell against another: a ratio, or why there is none, and what differs in the stack under them.

    `within` is how the ratio was made where it was within rounds; elsewhere it is by Welch's t. `floor` is the least
    half-width of its interval, as a share.
    """

    numerator: CellResult
    denominator: CellResult
    ratio: Ratio | None
    why_not: str
    stack_differences: tuple[str, ...]
    like_setting: str = ""
    within: WithinRounds | None = None
    floor: float = 0.0

    @property
    def text(self) -> str:
        """`1.28x [1.20, 1.37]`; `~` where the interval holds 1; no interval from single repeats."""
        if self.ratio is None:
            return "–"
        return self.ratio.text + (" †" if self.stack_differences else "") + (" ‡" if self.like_setting else "")

    @property
    def repeats_needed(self) -> int | None:
        """Repeats an arm that would tell the two apart; None if they are, or if no sensible number would."""
        if self.ratio is None or self.ratio.separated is not False:
            return None
        if abs(self.ratio.value - 1) <= self.floor * self.ratio.value:
            return None
        if self.within is not None:
            return rounds_needed(self.within, len(self.numerator.throughputs))
        return repeats_needed(self.numerator.throughputs, self.denominator.throughputs)


def compare(numerator: CellResult, denominator: CellResult, results: SweepResults | None = None) -> Comparison:
    """The throughput of one cell over another's, if the work is the same.

    A difference in work that follows from an axis in which the two differ is what is compared.

    Args:
        results: those that the cells are of; cells of one accelerator are then compared within their rounds.
    """
    other_work = different_work(numerator, denominator)
    why_not = next((_not_measured(one) for one in (numerator, denominator) if not one.measured), other_work)
    differences = _different(numerator, denominator, _stack(numerator, denominator))
    if why_not:
        return Comparison(numerator, denominator, None, why_not, differences)
    within = _within_rounds(numerator, denominator, results)
    ratio = within.ratio if within else ratio_of_means(numerator.throughputs, denominator.throughputs)
    question = results.sweep_run.question if results is not None else None
    floor = question.precision if question is not None else 0.0
    return Comparison(numerator, denominator, ratio.at_least(floor), "", differences, within=within, floor=floor)


def _within_rounds(numerator: CellResult, denominator: CellResult, results: SweepResults | None) -> WithinRounds | None:
    """The ratio within rounds; None for cells that have not all their repeats in the same ones."""
    name = str(numerator.cell.axes["accelerator"])
    if results is None or name != str(denominator.cell.axes["accelerator"]):
        return None
    return results.rounds[name].ratio(numerator.cell.cell_id, denominator.cell.cell_id)


def _stack(one: CellResult, other: CellResult) -> tuple[str, ...]:
    return (*STACK, *DEVICES) if one.cell.axes["accelerator"] == other.cell.axes["accelerator"] else STACK


def _not_measured(one: CellResult) -> str:
    return f"{one.cell.setting}: {one.outcome.kind}"


def different_work(one: CellResult, other: CellResult) -> str:
    """What of the work differs, between the two or inside one, and follows from no axis; empty if nothing does."""
    differences = _different(one, other, [fact for fact, axes in WORK.items() if not _follows(one, other, fact, axes)])
    return f"other work: {', '.join(differences)}" if differences else ""


def _follows(one: CellResult, other: CellResult, fact: str, axes: frozenset[str]) -> bool:
    """Whether a fact is to differ, since an axis does. A batch that other numbers of ranks also change is not that."""
    differs = any(one.cell.axes.get(axis) != other.cell.axes.get(axis) for axis in axes)
    return differs and (fact != "run.total_batch" or one.facts("run.ranks") == other.facts("run.ranks"))


def _different(one: CellResult, other: CellResult, facts: Iterable[str]) -> tuple[str, ...]:
    if not (one.measured and other.measured):
        return ()
    pairs = [(fact, one.facts(fact), other.facts(fact)) for fact in facts]
    return tuple(
        f"{fact.partition('.')[2]} {together(left)} / {together(right)}"
        for fact, left, right in pairs
        if unlike(left, right)
    )


def unlike(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two sides, or the repeats of one of them, differ in a fact."""
    return len(one | other) > 1 or bool(one) != bool(other)


def together(values: frozenset[str]) -> str:
    """`a and b`; `?` where nothing is known."""
    return " and ".join(sorted(values)) or "?"


def across_accelerators(results: SweepResults, reference: str) -> list[list[Comparison | None]]:
    """At each loader setting every accelerator over `reference`: a row an accelerator.

    Where the reference cannot have the setting (a hardware decoder it lacks), its like setting serves: the same
    without the decoder.
    """
    grid = Grid(results)
    return [[grid.over_like(name, reference, loader) for loader in grid.loaders] for name in grid.accelerators]


def across_loaders(results: SweepResults) -> list[list[Comparison | None]]:
    """On each accelerator every loader setting over the first: a row an accelerator."""
    grid = Grid(results)
    return [
        [grid.pair((name, loader), (name, grid.loaders[0])) for loader in grid.loaders] for name in grid.accelerators
    ]


def over_baseline(results: SweepResults) -> list[list[Comparison | None]]:
    """Every cell over the sweep's baseline: a row an accelerator."""
    grid, baseline = Grid(results), results.baseline
    if baseline is None:
        return []
    at = (str(baseline.cell.axes["accelerator"]), baseline.cell.loader)
    return [[grid.pair((name, loader), at) for loader in grid.loaders] for name in grid.accelerators]


class Grid:
    """The cells in the published table's shape: accelerators down, the other axes' settings across."""

    def __init__(self, results: SweepResults) -> None:
        self._results = results
        self._cells = {(str(one.cell.axes["accelerator"]), one.cell.loader): one for one in results.cells}
        self.accelerators = list(dict.fromkeys(name for name, _ in self._cells))
        # As published: plain loaders first, the hardware decoder last.
        ordered = sorted(results.cells, key=lambda one: bool(one.cell.axes.get("mediapipe_dataloader", False)))
        self.loaders = list(dict.fromkeys(one.cell.loader for one in ordered))

    def at(self, accelerator: str, loader: str) -> CellResult | None:
        """The cell there; None where the sweep excludes it."""
        return self._cells.get((accelerator, loader))

    def over_like(self, accelerator: str, reference: str, loader: str) -> Comparison | None:
        """An accelerator over another at the same loader setting, or at the like one where that is pruned."""
        if accelerator == reference:
            return None
        there = self.at(reference, loader)
        if there is None or there.cell.kind is not Kind.PRUNED:
            return self.pair((accelerator, loader), (reference, loader))
        like = loader_label({**there.cell.axes, "mediapipe_dataloader": False})
        found = self.pair((accelerator, loader), (reference, like))
        return None if found is None else replace(found, like_setting=like)

    def pair(self, one: tuple[str, str], other: tuple[str, str]) -> Comparison | None:
        """The comparison of two places; None if either is excluded or pruned, or they are one run."""
        numerator, denominator = self.at(*one), self.at(*other)
        if numerator is None or denominator is None or numerator.cell.cell_id == denominator.cell.cell_id:
            return None
        return compare(numerator, denominator, self._results)
