"""What the kernel and a hypervisor kept from the processes of this host: read at both edges of the window."""

import re
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from bridgetower_ray.doctor.cgroups import ControlGroups
from bridgetower_ray.doctor.kernel_files import content

PRESSURE = Path("/proc/pressure")
TOTAL = re.compile(r"^some .*total=(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Withheld:
    """Counters since the host started, read `at`; None for one that the kernel does not keep.

    `stolen` are CPU seconds that a hypervisor gave to others, `stalled` seconds in which some process waited for
    `cpu`, `memory` or `io` (pressure stall information), `throttled` periods of a CPU quota and those in which it
    stopped something, `swapped` bytes moved to and from the swap.
    """

    at: float
    stolen: float | None
    stalled: Mapping[str, float]
    throttled: tuple[int, int] | None
    swapped: int | None


def withheld() -> Withheld:
    """Read the counters."""
    throttled, swap = ControlGroups().throttled(), _swapped_pages()
    return Withheld(
        at=time.monotonic(),
        stolen=getattr(psutil.cpu_times(), "steal", None),
        stalled=_stalled(),
        throttled=None if throttled is None else (throttled.periods, throttled.stopped),
        swapped=None if swap is None else swap * resource.getpagesize(),
    )


def between(before: Withheld, after: Withheld) -> dict[str, float]:
    """Figures for the record: cores, fractions of the time, bytes; one that is not known is absent."""
    seconds = after.at - before.at
    found: dict[str, float] = {}
    if before.stolen is not None and after.stolen is not None:
        found["stolen_cpu_cores"] = (after.stolen - before.stolen) / seconds
    for what in before.stalled.keys() & after.stalled.keys():
        found[f"{what}_pressure_fraction"] = (after.stalled[what] - before.stalled[what]) / seconds
    if before.throttled is not None and after.throttled is not None:
        periods, stopped = (later - earlier for earlier, later in zip(before.throttled, after.throttled, strict=True))
        found["throttled_periods_fraction"] = stopped / periods if periods > 0 else 0.0
    if before.swapped is not None and after.swapped is not None:
        found["swapped_bytes"] = float(after.swapped - before.swapped)
    return found


def _stalled() -> dict[str, float]:
    found = {what: TOTAL.search(content(PRESSURE / what)) for what in ("cpu", "memory", "io")}
    return {what: int(total[1]) / 1e6 for what, total in found.items() if total}


def _swapped_pages() -> int | None:
    counters = dict(line.split() for line in content(Path("/proc/vmstat")).splitlines())
    return int(counters["pswpin"]) + int(counters["pswpout"]) if "pswpin" in counters else None
