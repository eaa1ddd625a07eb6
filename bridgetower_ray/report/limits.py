"""Why a cell is as fast as it is: its ceilings, what of a speedup is the host's doing, how many workers it wants."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bridgetower_ray.report.comparisons import Comparison, Grid, compare
from bridgetower_ray.report.diagnosis import PredictedWorkers, Verdict, predict_workers
from bridgetower_ray.report.records import CellResult, SweepResults
from bridgetower_ray.report.stats import Ratio, ratio_of_means

WORKERS = "dataloader_num_workers"
COMPUTE_CEILING = "compute_ceiling_samples_per_second"


@dataclass(frozen=True)
class WorkerAdvice:
    """Cells that differ in their workers only, and the number of workers they would want."""

    cells: tuple[CellResult, ...]
    predicted: PredictedWorkers

    @property
    def subject(self) -> str:
        """What the cells have in common: `h100`, or `h100 · pinned`."""
        parts = [part for part in self.cells[0].cell.setting.split(" · ") if not part.startswith("workers=")]
        return " · ".join(parts)

    @property
    def sentence(self) -> str:
        """The advice in words."""
        fewest, most, cpus = self.predicted.fewest, self.predicted.most, self.predicted.cpus_per_rank
        workers = "1 worker" if most == 1 else f"{most} workers" if fewest == most else f"{fewest} to {most} workers"
        if self.predicted.possible:
            there = f" (CPUs are there for {cpus})" if most > cpus else ""
            return f"{self.subject}: {workers} a rank would load as fast as the device computes{there}."
        return (
            f"{self.subject}: {workers} a rank would be needed to load as fast as the device computes, "
            f"more than the CPUs that are there ({cpus} a rank)."
        )


def worker_advice(results: SweepResults) -> list[WorkerAdvice]:
    """For each group of cells that differ in their workers only."""
    groups: dict[tuple[object, ...], list[CellResult]] = {}
    for one in results.measured:
        if one.cell.axes.get("mediapipe_dataloader") is not True:
            key = tuple(value for name, value in one.cell.axes.items() if name != WORKERS)
            groups.setdefault(key, []).append(one)
    advice = [(tuple(group), _predict(group)) for group in groups.values()]
    return [WorkerAdvice(group, predicted) for group, predicted in advice if predicted is not None]


def _predict(group: list[CellResult]) -> PredictedWorkers | None:
    computes = [value for one in group if one.compute_ceiling for value in one.ceilings("compute")]
    loaders = {one.workers: one.ceilings("loader") for one in group if one.loader_ceiling}
    cpus, ranks = group[0].fact("env.cpus_usable"), group[0].fact("run.ranks")
    if not (cpus or "").isdigit() or not (ranks or "").isdigit():
        return None
    return predict_workers(computes, loaders, int(cpus or 1), int(ranks or 1))


@dataclass(frozen=True)
class Decomposed:
    """A speedup end to end, the same pair on compute alone, and the factor between the two: the host's doing.

    Each with its interval over the repeats: a repeat's ceiling is as uncertain as its throughput.
    """

    comparison: Comparison
    compute_only: Ratio
    host_factor: Ratio


def decomposed(comparison: Comparison | None) -> Decomposed | None:
    """Split a comparison, if it has a ratio and every repeat of both its cells a compute ceiling that holds."""
    if comparison is None or comparison.ratio is None:
        return None
    cells = (comparison.numerator, comparison.denominator)
    one, other = ([] if cell.above("compute") else cell.values(COMPUTE_CEILING) for cell in cells)
    if not one or not other:
        return None
    host = ratio_of_means(_shares(cells[0], one), _shares(cells[1], other))
    return Decomposed(comparison, ratio_of_means(one, other), host)


def _shares(cell: CellResult, ceilings: Sequence[float]) -> list[float]:
    """What each repeat had of its own ceiling."""
    return [throughput / ceiling for throughput, ceiling in zip(cell.throughputs, ceilings, strict=True)]


def speedup_pairs(results: SweepResults) -> Iterator[Decomposed]:
    """Each pair that differs in its accelerator alone, and each cell against the baseline, both speedups each."""
    grid, seen = Grid(results), set()
    pairs = [
        grid.over_like(name, reference, loader)
        for reference in grid.accelerators[1:]
        for loader in grid.loaders
        for name in grid.accelerators
    ]
    baseline = results.baseline
    if baseline is not None:
        others = [one for one in results.to_measure if one is not baseline]
        pairs += [compare(one, baseline, results) for one in others]
    for pair in map(decomposed, pairs):
        if pair is not None:
            names = (pair.comparison.numerator.cell.setting, pair.comparison.denominator.cell.setting)
            if names not in seen:
                seen.add(names)
                yield pair


def held_back_by(results: SweepResults, verdict: Verdict) -> list[str]:
    """Settings with that verdict."""
    return [one.cell.setting for one in results.measured if one.verdict is verdict]
