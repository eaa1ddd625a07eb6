"""Who else was at work on the host while the window was open."""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from bridgetower_ray.doctor.hardware import ask_tool
from bridgetower_ray.doctor.own_services import Process, own_services

NAMED = 3
SMALLEST_CORES = 0.05  # a process below this is not worth a name


@dataclass(frozen=True)
class HostUse:
    """CPU seconds used so far: by the whole host, by this trial, by each other process (pid and name); read `at`.

    `own` are the sweep's own services, `others` are strangers.
    """

    at: float
    host: float
    trial: float
    own: Mapping[tuple[int, str], float]
    others: Mapping[tuple[int, str], float]


@dataclass(frozen=True)
class Neighbours:
    """Mean cores in use by others: by strangers, by this sweep's own Ray and driver; the busiest strangers."""

    foreign_cores: float
    own_services_cores: float
    busiest: tuple[str, ...]


def host_use(driver: tuple[int, float] | None = None) -> HostUse:
    """Read the counters; a few milliseconds, so call it outside the window.

    Busy time is user, nice, system, irq and softirq: neither waiting for a disk nor time that a hypervisor took.
    The trial is this process group, with the children it has reaped.

    Args:
        driver: pid and start of the sweep's driver, if it runs on this host.
    """
    times = psutil.cpu_times()
    group = os.getpgrp()
    processes = {one.pid: one for one in _processes(group)}
    own = own_services(processes, os.getpid(), driver)
    rest = {(one.pid, one.name): one for one in processes.values() if one.group != group}
    return HostUse(
        at=time.monotonic(),
        host=times.user + times.nice + times.system + times.irq + times.softirq,
        trial=sum(one.seconds for one in processes.values() if one.group == group),
        own={key: one.seconds for key, one in rest.items() if one.pid in own},
        others={key: one.seconds for key, one in rest.items() if one.pid not in own},
    )


def _processes(group: int) -> Iterator[Process]:
    """Those whose CPU time can be read; a member of the trial's group with that of the children it has reaped."""
    for process in psutil.process_iter(["pid", "ppid", "name", "cpu_times", "cmdline", "create_time"]):
        info = process.info
        used = info["cpu_times"]
        if used is not None:
            its_group = _process_group(info["pid"])
            reaped = used.children_user + used.children_system if its_group == group else 0.0
            line = " ".join(info["cmdline"] or [])
            seconds = used.user + used.system + reaped
            yield Process(info["pid"], info["ppid"], its_group, info["create_time"], info["name"], line, seconds)


def _process_group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def neighbours(before: HostUse, after: HostUse) -> Neighbours:
    """What others used between two readings.

    Processes that began and ended in between are in the foreign share: the host's counters know them.
    """
    seconds = after.at - before.at
    # By pid alone: Ray gives a worker another title with each task, and a worker that waited was ours.
    earlier = {pid: value for (pid, _), value in (*before.own.items(), *before.others.items())}
    own = sum(value - earlier.get(pid, 0.0) for (pid, _), value in after.own.items())
    foreign = max(0.0, (after.host - before.host) - (after.trial - before.trial) - own)
    used = {key: (value - earlier.get(key[0], 0.0)) / seconds for key, value in after.others.items()}
    busiest = sorted(used.items(), key=lambda one: -one[1])[:NAMED]
    return Neighbours(
        foreign / seconds,
        own / seconds,
        tuple(f"{name} ({pid}) {cores:.1f}" for (pid, name), cores in busiest if cores >= SMALLEST_CORES),
    )


@dataclass(frozen=True)
class DeviceProcesses:
    """What is on this host's NVIDIA devices: strangers by name, and how many processes cannot be seen from here.

    A container that does not share the host's pids is told pids that mean nothing in it, of its own processes too.
    """

    foreign: tuple[str, ...]
    hidden: int


def device_processes() -> DeviceProcesses:
    """Those that are not this trial's; nothing where no tool can tell."""
    answer = ask_tool("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")
    lines = [line.partition(",") for line in answer]
    found = [(int(pid), Path(name.strip()).name) for pid, _, name in lines if pid.strip().isdigit()]
    groups = {pid: _process_group(pid) for pid, _ in found}
    foreign = tuple(f"{name} ({pid})" for pid, name in found if groups[pid] not in (None, os.getpgrp()))
    return DeviceProcesses(foreign, sum(group is None for group in groups.values()))
