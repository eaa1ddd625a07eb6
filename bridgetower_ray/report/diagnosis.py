"""What holds a cell back, what is doubtful about it, and how many workers it would want. Pure arithmetic."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

BALANCED_WITHIN = 1.10
CONTENDED_BELOW = 0.80
REACHED = 0.90


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


def takes_turns(workers: int, mediapipe: bool) -> bool:
    """Whether nothing can be loaded while something is computed.

    Without workers the main process loads. On an asynchronous device it could do so while the device computes, but
    accelerate moves each batch with `non_blocking=False` (its `DataLoaderShard`), which waits for the device first.
    """
    return workers == 0 and not mediapipe


@dataclass(frozen=True)
class PredictedWorkers:
    """The fewest workers a rank whose loading would reach the compute ceiling, and how many CPUs a rank has.

    Made from `loader_ceilings / workers`, the mean rate of one worker; more workers than CPUs load no faster.
    """

    workers: int
    cpus_per_rank: int

    @property
    def possible(self) -> bool:
        """Whether the host has a CPU for each."""
        return self.workers <= self.cpus_per_rank


def predict_workers(
    compute_ceiling: float, loader_ceilings: Mapping[int, float], cpus: int, ranks: int
) -> PredictedWorkers | None:
    """Predict from measured ceilings, all in samples/s over all ranks.

    Args:
        loader_ceilings: by the number of workers a rank; those of no workers say nothing of a worker's rate.
        cpus: CPUs that the trial may use, over all ranks.
    """
    rates = [ceiling / workers for workers, ceiling in loader_ceilings.items() if workers >= 1]
    if not rates or compute_ceiling <= 0:
        return None
    return PredictedWorkers(math.ceil(compute_ceiling / (sum(rates) / len(rates))), max(1, cpus // ranks))


def contamination(foreign_cores: float, cpus: int, busiest: Iterable[str]) -> str:
    """Words for a busy neighbour: a mean over half a core or 5 % of the cores, the larger; empty below that."""
    if foreign_cores <= max(0.5, 0.05 * cpus):
        return ""
    names = ", ".join(busiest)
    return (
        f"contaminated: others used {foreign_cores:.1f} of {cpus} cores in the window{f' ({names})' if names else ''}"
    )


def flags(
    measured: Mapping[str, object], steady_window_steps: int, wanted_cpus: int = 0, usable_cpus: int | None = None
) -> tuple[str, ...]:
    """What a reader must know before trusting a trial's number, in words.

    Args:
        measured: the figures that the trial gave.
        steady_window_steps: the fewest steps at which the loader's queues do not flatter it.
        wanted_cpus: ranks and workers of the trial.
        usable_cpus: CPUs that its processes were allowed to use; None where that is not known.
    """
    found = []
    if usable_cpus is not None and wanted_cpus > usable_cpus:
        found.append(f"crowded: {wanted_cpus} ranks and workers shared {usable_cpus} CPUs")
    niceness = _number(measured.get("niceness"))
    if niceness is not None and niceness > 0:
        found.append(f"niceness {niceness:.0f}: any ordinary process of the host was served first")
    steps = _number(measured.get("window_steps"))
    if steps is not None and steps < steady_window_steps:
        found.append(f"short window: {steps:.0f} steps, {steady_window_steps} or more wanted")
    foreign, cpus = _number(measured.get("foreign_cpu_cores")), _number(measured.get("cpus"))
    if foreign is not None and cpus is not None:
        busiest = measured.get("foreign_processes")
        found.append(contamination(foreign, int(cpus), busiest if isinstance(busiest, list | tuple) else ()))
    on_devices = measured.get("foreign_device_processes")
    if isinstance(on_devices, list | tuple) and on_devices:
        found.append(f"contaminated: others were on the devices ({', '.join(map(str, on_devices))})")
    compiled = _number(measured.get("graph_compilations"))
    if compiled:
        found.append(f"recompiled: {compiled:.0f} graphs were compiled inside the window")
    loss = _number(measured.get("train_loss"))
    if loss is not None and not math.isfinite(loss):
        found.append("the loss is not finite")
    return tuple(flag for flag in found if flag)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
