"""What a reader must know before trusting a trial's number, in words. Each limit stands here."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bridgetower_ray.report.diagnosis import above_ceiling
from bridgetower_ray.report.records import HEADLINE
from bridgetower_ray.sweep.cells import Cell

OTHERS_CORES, OTHERS_SHARE = 0.5, 0.05  # mean cores in use by others: the larger of the two
STOLEN_SHARE = 0.02  # of the cores' time
STALLED = {"cpu": 0.25, "memory": 0.01, "io": 0.10}  # of the window, in which something waited
THROTTLED_SHARE = 0.01  # of a quota's periods, of a device's readings, of the window
SWAPPED_BYTES = 2**20


def flags_of(measured: Mapping[str, Any], cell: Cell, environment: Mapping[str, Any]) -> tuple[str, ...]:
    """All that is doubtful about a trial of `cell` that gave these figures in that environment, as it recorded it."""
    niceness = environment.get("conditions", {}).get("niceness")
    return flags(measured, cell.steady_window_steps, cell.wanted_cpus, environment.get("cpus_usable"), niceness)


def flags(
    measured: Mapping[str, Any],
    steady_window_steps: int,
    wanted_cpus: int = 0,
    usable_cpus: int | None = None,
    niceness: str | None = None,
) -> tuple[str, ...]:
    """All that is doubtful about a trial.

    Args:
        measured: the figures that the trial gave.
        steady_window_steps: the fewest steps at which the loader's queues do not flatter it.
        wanted_cpus: ranks and workers of the trial.
        usable_cpus: CPUs that its processes were allowed to use; None where that is not known.
        niceness: of its ranks, as they recorded it.
    """
    crowded = usable_cpus is not None and wanted_cpus > usable_cpus
    found = [f"crowded: {wanted_cpus} ranks and workers shared {usable_cpus} CPUs"] if crowded else []
    if niceness is not None and int(niceness) > 0:
        found.append(f"niceness {niceness}: any ordinary process of the host was served first")
    steps = _number(measured, "window_steps")
    if steps is not None and steps < steady_window_steps:
        found.append(f"short window: {steps:.0f} steps, {steady_window_steps} or more wanted")
    if unsteady := measured.get("unsteady"):
        found.append(f"unsteady: {unsteady}")
    found += _others(measured)
    found += _withheld(measured, crowded)
    found += _devices(measured)
    found += _ceilings(measured)
    compiled = _number(measured, "graph_compilations")
    if compiled:
        found.append(f"recompiled: {compiled:.0f} graphs were compiled inside the window")
    left_to_host = _number(measured, "cpu_fallbacks")
    if left_to_host:
        found.append(f"left to the host: {left_to_host:.0f} operations of the device's in the window")
    utilisation = _number(measured, "model_flops_utilisation")
    if utilisation is not None and utilisation > 1:
        found.append(f"{utilisation:.0%} of the device's peak: the peak that was given is not this device's")
    loss = _number(measured, "train_loss")
    if loss is not None and not math.isfinite(loss):
        found.append("the loss is not finite")
    return tuple(found)


def _others(measured: Mapping[str, Any]) -> Iterator[str]:
    """Neighbours on the host and on the devices, and what of this sweep's own is large."""
    cpus = int(_number(measured, "cpus") or 0)
    foreign, own = _number(measured, "foreign_cpu_cores"), _number(measured, "own_services_cpu_cores")
    if contaminated := contamination(foreign or 0.0, cpus, _texts(measured, "foreign_processes")):
        yield contaminated
    if own is not None and own > _allowed_cores(cpus):
        yield f"this sweep's own Ray and driver used {own:.1f} of {cpus} cores in the window"
    if on_devices := _texts(measured, "foreign_device_processes"):
        yield f"contaminated: others were on the devices ({', '.join(on_devices)})"
    disturbed = _number(measured, "ceilings_foreign_cpu_cores")
    if disturbed is not None and disturbed > _allowed_cores(cpus):
        yield f"others used {disturbed:.1f} of {cpus} cores while the ceilings were taken"


def contamination(foreign_cores: float, cpus: int, busiest: Iterable[str]) -> str:
    """Words for a busy neighbour: a mean over half a core or 5 % of the cores, the larger; empty below that."""
    if foreign_cores <= _allowed_cores(cpus):
        return ""
    names = ", ".join(busiest)
    return (
        f"contaminated: others used {foreign_cores:.1f} of {cpus} cores in the window{f' ({names})' if names else ''}"
    )


def _allowed_cores(cpus: int) -> float:
    return max(OTHERS_CORES, OTHERS_SHARE * cpus)


def _withheld(measured: Mapping[str, Any], crowded: bool) -> Iterator[str]:
    """CPU time that a hypervisor or a quota took, and waiting that the kernel counted."""
    stolen, cpus = _number(measured, "stolen_cpu_cores"), _number(measured, "cpus")
    if stolen is not None and cpus and stolen > STOLEN_SHARE * cpus:
        yield f"stolen: a hypervisor gave {stolen:.1f} of {cpus:.0f} cores to others in the window"
    throttled = _number(measured, "throttled_periods_fraction")
    if throttled is not None and throttled > THROTTLED_SHARE:
        yield f"throttled: a CPU quota stopped processes in {throttled:.0%} of its periods"
    for what, most in STALLED.items():
        stalled = _number(measured, f"{what}_pressure_fraction")
        if stalled is not None and stalled > most and not (what == "cpu" and crowded):
            yield f"{what} pressure: something waited for {what} in {stalled:.0%} of the window"
    swapped = _number(measured, "swapped_bytes")
    if swapped is not None and swapped > SWAPPED_BYTES:
        yield f"swapped: {swapped / 2**20:,.0f} MiB moved to or from the swap in the window"


def _devices(measured: Mapping[str, Any]) -> Iterator[str]:
    """Devices that were slowed, that had errors, or whose sensors contradict each other."""
    share, reasons = _number(measured, "device_throttled_fraction") or 0.0, _texts(measured, "device_throttled")
    seconds, window = _number(measured, "device_throttled_seconds") or 0.0, _number(measured, "window_seconds")
    share = max(share, seconds / window) if window else share
    if share > THROTTLED_SHARE:
        yield f"throttled: devices were slowed in {share:.0%} of the window ({', '.join(reasons) or 'power or heat'})"
    if errors := _texts(measured, "device_errors"):
        yield f"device errors in the window: {', '.join(errors)}"
    counted, integrated = (_number(measured, f"device_energy_{name}") for name in ("joules", "by_power_joules"))
    if counted is not None and integrated is not None:
        yield f"the energy counter says {counted:,.0f} J, power over time {integrated:,.0f} J"


def _ceilings(measured: Mapping[str, Any]) -> Iterator[str]:
    throughput = _number(measured, HEADLINE)
    for kind in ("compute", "loader"):
        if throughput is not None and above_ceiling(throughput, measured, kind):
            ceiling = measured[f"{kind}_ceiling_samples_per_second"]
            yield f"{throughput:.1f} samples/s are above the {kind} ceiling of {ceiling:.1f}: it is no limit"


def _number(measured: Mapping[str, Any], name: str) -> float | None:
    value = measured.get(name)
    return float(value) if isinstance(value, int | float) else None


def _texts(measured: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = measured.get(name)
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()
