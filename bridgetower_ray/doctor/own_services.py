"""Which processes of a host are this sweep's own: known by descent from its rank and by Ray's session, not by name."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

SESSION = re.compile(r"session_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d+_\d+")
# Of the workers of our raylet those that wait, and the actors of a sweep; any other is somebody's work.
OWN_WORKERS = ("ray::IDLE", "ray::TrialActor", "ray::_Claim", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
MOST_ANCESTORS = 50


@dataclass(frozen=True)
class Process:
    """A process of this host; `began` is in seconds since the epoch, `seconds` what it has used of the CPU."""

    pid: int
    parent: int
    group: int | None
    began: float
    name: str
    line: str
    seconds: float = 0.0


def own_services(processes: Mapping[int, Process], rank: int, driver: tuple[int, float] | None) -> set[int]:
    """Pids of what serves the sweep to which `rank` belongs: its supervisor, its Ray, its driver.

    Not its trial, nor another trial of the same Ray: that is a neighbour like any other.

    Args:
        driver: pid and start of the sweep's driver, if it runs on this host.
    """
    found = set()
    if driver is not None and driver[0] in processes and abs(processes[driver[0]].began - driver[1]) < 1:
        found.add(driver[0])
    above = list(_ancestors(processes, rank))
    raylet = next((one for one in above if one.name == "raylet"), None)
    if raylet is None:
        return found | {one.pid for one in above[:1]}
    found |= {one.pid for one in above[: above.index(raylet) + 1]}
    cluster = [one for one in processes.values() if _same_session(one, raylet)]
    found |= {one.pid for one in cluster}
    raylets = {one.pid for one in cluster if one.name == "raylet"} | {raylet.pid}
    children = [one for one in processes.values() if one.parent in raylets]
    return found | {one.pid for one in children if not one.line.startswith("ray::") or one.line.startswith(OWN_WORKERS)}


def _same_session(process: Process, raylet: Process) -> bool:
    """Whether it is a service of the raylet's session, a program of the same Ray: not whoever names the session."""
    session, programs = SESSION.search(raylet.line), raylet.line.partition("/core/")[0]
    started = process.line.split()[:3]  # a program, or an interpreter with its options
    return session is not None and session[0] in process.line and any(word.startswith(programs) for word in started)


def _ancestors(processes: Mapping[int, Process], pid: int) -> Iterator[Process]:
    """The nearest first, but not the host's first process."""
    for _ in range(MOST_ANCESTORS):
        parent = processes[pid].parent if pid in processes else 0
        if parent <= 1 or parent not in processes:
            return
        yield processes[parent]
        pid = parent
