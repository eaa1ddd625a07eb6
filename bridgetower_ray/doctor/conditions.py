"""Under which conditions the host runs a process: what changes its speed, and is no setting of a sweep."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import psutil

from bridgetower_ray.doctor.cgroups import ControlGroups
from bridgetower_ray.doctor.kernel_files import content

POLICIES = {
    os.SCHED_OTHER: "other",
    os.SCHED_BATCH: "batch",
    os.SCHED_IDLE: "idle",
    os.SCHED_FIFO: "fifo",
    os.SCHED_RR: "rr",
}
IO_CLASSES = {0: "none", 1: "realtime", 2: "best effort", 3: "idle"}
CPUS = Path("/sys/devices/system/cpu")
NODES = Path("/sys/devices/system/node")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")


def conditions() -> dict[str, str]:
    """Of this process, by name; one that cannot be read is absent.

    CPUs and NUMA nodes are in the kernel's list form (`0-3,8`), memory is in bytes.
    """
    own, groups, cpus = psutil.Process(), ControlGroups(), os.sched_getaffinity(0)
    cpu_quota, memory = groups.cpus(), groups.memory_bytes()
    found = {
        "niceness": str(own.nice()),
        "scheduling_policy": POLICIES.get(os.sched_getscheduler(0)),
        "io_class": IO_CLASSES.get(int(own.ionice().ioclass)),
        "cpu_affinity": as_list(cpus),
        "numa_nodes": _numa_nodes(cpus),
        "cgroup_cpus": "unlimited" if cpu_quota is None else f"{cpu_quota:g}",
        "cgroup_memory_bytes": "unlimited" if memory is None else str(memory),
        "cpu_governor": _governors(cpus),
        "turbo": _turbo(),
        "transparent_huge_pages": _chosen(content(HUGE_PAGES)),
        "allocator": _allocator(content(Path("/proc/self/maps"))),
    }
    return {name: value for name, value in found.items() if value}


def as_list(numbers: Iterable[int]) -> str:
    """`0-3,8`, as the kernel writes sets of CPUs."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def from_list(text: str) -> frozenset[int]:
    """The set that such a list stands for."""
    bounds = [part.partition("-") for part in text.strip().split(",") if part]
    return frozenset(number for low, _, high in bounds for number in range(int(low), int(high or low) + 1))


def cpus_of_numa_nodes() -> dict[int, frozenset[int]]:
    """The CPUs of each NUMA node; empty where the kernel does not say."""
    files = {int(folder.name[4:]): folder / "cpulist" for folder in NODES.glob("node[0-9]*")}
    return {number: from_list(content(file)) for number, file in sorted(files.items())}


def _numa_nodes(cpus: set[int]) -> str:
    return as_list(number for number, there in cpus_of_numa_nodes().items() if there & cpus)


def _governors(cpus: set[int]) -> str:
    found = {content(CPUS / f"cpu{number}" / "cpufreq" / "scaling_governor").strip() for number in cpus}
    return ", ".join(sorted(found - {""}))


def _turbo() -> str:
    boost, no_turbo = content(CPUS / "cpufreq" / "boost").strip(), content(CPUS / "intel_pstate" / "no_turbo").strip()
    return {"1": "on", "0": "off"}.get(boost) or {"1": "off", "0": "on"}.get(no_turbo) or ""


def _chosen(text: str) -> str:
    """`madvise` of `always [madvise] never`."""
    found = re.search(r"\[(\w+)\]", text)
    return found[1] if found else ""


def _allocator(maps: str) -> str:
    """The library that serves malloc, by the files that are mapped."""
    return next((name for name in ALLOCATORS if f"lib{name}" in maps), "libc") if maps else ""
