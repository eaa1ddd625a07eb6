"""Who else was at work on the host while the window was open."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from bridgetower_ray.doctor.hardware import ask_tool

OWN_MARKS = ("raylet", "gcs_server", "ray::", "/ray/", "mlflow", "-m bridgetower_ray", "bin/bridgetower-ray")
NAMED = 3
SMALLEST_CORES = 0.05  # a process below this is not worth a name


@dataclass(frozen=True)
class HostUse:
    """CPU seconds used so far: by the whole host, by this trial, by each other process (pid and name); read `at`."""

    at: float
    host: float
    trial: float
    others: Mapping[tuple[int, str], float]


@dataclass(frozen=True)
class Neighbours:
    """Mean cores in use by others: by strangers, by this product's own Ray and MLflow; the busiest strangers."""

    foreign_cores: float
    own_services_cores: float
    busiest: tuple[str, ...]


def host_use() -> HostUse:
    """Read the counters; a few milliseconds, so call it outside the window.

    Busy time is user, nice, system, irq and softirq: neither waiting for a disk nor time that a hypervisor took.
    The trial is this process group, with the children it has reaped.
    """
    times = psutil.cpu_times()
    group = os.getpgrp()
    trial, others = 0.0, {}
    for process in psutil.process_iter(["pid", "name", "cpu_times", "cmdline"]):
        used = process.info["cpu_times"]
        if used is None:
            continue
        if _process_group(process.info["pid"]) == group:
            trial += used.user + used.system + used.children_user + used.children_system
        else:
            others[process.info["pid"], _name(process.info)] = used.user + used.system
    return HostUse(time.monotonic(), times.user + times.nice + times.system + times.irq + times.softirq, trial, others)


def _process_group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _name(info: Mapping[str, object]) -> str:
    """A process's name; with a mark in front if it is a part of this product's own services."""
    line = " ".join(info["cmdline"] or []) if isinstance(info["cmdline"], list) else ""
    own = any(mark in line for mark in OWN_MARKS)
    return f"{'own:' if own else ''}{info['name']}"


def neighbours(before: HostUse, after: HostUse) -> Neighbours:
    """What others used between two readings.

    Processes that began and ended in between are in the foreign share: the host's counters know them.
    """
    seconds = after.at - before.at
    used = {key: value - before.others.get(key, 0.0) for key, value in after.others.items()}
    own = sum(value for (_, name), value in used.items() if name.startswith("own:"))
    foreign = max(0.0, (after.host - before.host) - (after.trial - before.trial) - own)
    strangers = {key: value / seconds for key, value in used.items() if not key[1].startswith("own:")}
    busiest = sorted(strangers.items(), key=lambda one: -one[1])[:NAMED]
    return Neighbours(
        foreign / seconds,
        own / seconds,
        tuple(f"{name} ({pid}) {cores:.1f}" for (pid, name), cores in busiest if cores >= SMALLEST_CORES),
    )


def foreign_device_processes() -> tuple[str, ...]:
    """Processes on this host's NVIDIA devices that are not this trial's; empty where no tool can tell."""
    answer = ask_tool("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")
    lines = [line.partition(",") for line in answer]
    found = [(int(pid), Path(name.strip()).name) for pid, _, name in lines if pid.strip().isdigit()]
    return tuple(f"{name} ({pid})" for pid, name in found if _process_group(pid) != os.getpgrp())
