"""What holds a cell back, what is doubtful about it, and how many workers it would want. Pure arithmetic."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

BALANCED_WITHIN = 1.10
CONTENDED_BELOW = 0.80
REACHED = 0.90
WANDERS = 0.02  # what two windows of one cell differ by without anybody's doing


class Verdict(StrEnum):
    """What holds a cell back."""

    LOADER_BOUND = "loader-bound"
    COMPUTE_BOUND = "compute-bound"
    BALANCED = "balanced"
    SERIAL = "serial"
    HOST_CONTENDED = "host-contended"


def verdict(
    throughput: float, compute_ceiling: float | None, loader_ceiling: float | None, takes_turns: bool
) -> Verdict | None:
    """Judge a throughput by the two ceilings, all in samples/s; None where a ceiling is missing.

    - `serial`: loading and computing take turns (no workers), and the throughput is below
      90 % of the compute ceiling. Above that, turns cost nothing worth naming: `compute-bound`.
    - `host-contended`: below 80 % of the lower ceiling. Each side alone can do more: they get in each other's way.
    - `balanced`: the ceilings lie within 10 % of each other.
    - else the lower ceiling is what binds: `loader-bound` or `compute-bound`.
    """
    if compute_ceiling is None or loader_ceiling is None:
        return None
    if takes_turns:
        return Verdict.COMPUTE_BOUND if throughput >= REACHED * compute_ceiling else Verdict.SERIAL
    lower, higher = sorted((compute_ceiling, loader_ceiling))
    if throughput < CONTENDED_BELOW * lower:
        return Verdict.HOST_CONTENDED
    if higher <= BALANCED_WITHIN * lower:
        return Verdict.BALANCED
    return Verdict.COMPUTE_BOUND if compute_ceiling < loader_ceiling else Verdict.LOADER_BOUND


def takes_turns(workers: int, mediapipe: bool, copies_ahead: bool) -> bool:
    """Whether nothing can be loaded while something is computed.

    Without workers the main process loads. On an asynchronous device it could do so while the device computes, but
    accelerate moves each batch with `non_blocking=False` (its `DataLoaderShard`), which waits for the device first.

    Args:
        copies_ahead: batches are moved to an asynchronous device without waiting for it.
    """
    return workers == 0 and not mediapipe and not copies_ahead


@dataclass(frozen=True)
class PredictedWorkers:
    """The fewest workers a rank whose loading would reach the compute ceiling, and how many CPUs a rank has.

    Between `fewest` and `most`, as far as the ceilings are known.
    """

    fewest: int
    most: int
    cpus_per_rank: int

    @property
    def possible(self) -> bool:
        """Whether the host may have a CPU for each."""
        return self.fewest <= self.cpus_per_rank


def predict_workers(
    compute_ceilings: Sequence[float], loader_ceilings: Mapping[int, Sequence[float]], cpus: int, ranks: int
) -> PredictedWorkers | None:
    """Predict from measured ceilings, all in samples/s over all ranks; more workers than CPUs load no faster.

    The slowest compute ceiling over the quickest rate of a worker gives the fewest, the other way round the most.

    Args:
        compute_ceilings: as measured, one or more.
        loader_ceilings: by the number of workers a rank; those of no workers say nothing of a worker's rate.
        cpus: CPUs that the trial may use, over all ranks.
    """
    rates = [one / workers for workers, ceilings in loader_ceilings.items() if workers >= 1 for one in ceilings]
    if not rates or not compute_ceilings:
        return None
    fewest = math.ceil(min(compute_ceilings) / max(rates))
    most = math.ceil(max(compute_ceilings) / min(rates))
    return PredictedWorkers(fewest, most, max(1, cpus // ranks))


def above_ceiling(throughput: float, figures: Mapping[str, Any], kind: str) -> bool:
    """Whether a trial is faster than the `compute` or `loader` ceiling among its own figures; not without one."""
    ceiling = figures.get(f"{kind}_ceiling_samples_per_second")
    edges = (figures.get(f"{kind}_ceiling_lowest"), figures.get(f"{kind}_ceiling_highest"))
    return ceiling is not None and exceeds(throughput, ceiling, *edges)


def exceeds(throughput: float, ceiling: float, lowest: float | None = None, highest: float | None = None) -> bool:
    """Whether a throughput lies above its ceiling by more than the spread of the stretches that the ceiling is from.

    Such a ceiling is no limit: the host was disturbed while it was taken. Where the spread is smaller than what a
    window wanders by itself, or not known, that counts.

    Args:
        lowest, highest: the slowest and the quickest stretch; all in samples/s.
    """
    spread = 0.0 if lowest is None or highest is None else highest - lowest
    return throughput > ceiling + max(spread, WANDERS * ceiling)
