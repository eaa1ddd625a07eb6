"""What really ran: host, devices, driver, threads and versions, read off where the training is."""

import os
import platform
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import psutil
import torch

from bridgetower_ray.provenance import git_commit, library_versions, source_hash


def describe_environment(device_names: list[str]) -> dict[str, Any]:
    """Facts of this host and process; a fact that cannot be had is absent.

    Memory is in bytes. `cpus` are the host's logical CPUs, `cpus_usable` those this process may run on.
    """
    facts = {
        "host": socket.gethostname(),
        "os": platform.platform(),
        "cpu_model": _cpu_model(),
        "cpus": psutil.cpu_count(),
        "cpus_usable": usable_cpus(),
        "memory_bytes": psutil.virtual_memory().total,
        "devices": device_names,
        "driver": _driver(),
        "torch_threads": torch.get_num_threads(),
        "code_commit": git_commit(),
        "code_hash": source_hash(),
        "versions": library_versions() | {"torch": str(torch.__version__)},
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def usable_cpus() -> int:
    """CPUs that this process may use: its affinity, or a container's quota where that is less."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, int(quota) // int(period)))


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _driver() -> str | None:
    """The device driver's version, from the vendor's tool that is there."""
    for command in (
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        ["hl-smi", "-Q", "driver_version", "-f", "csv,noheader"],
    ):
        tool = shutil.which(command[0])
        if tool:
            done = subprocess.run([tool, *command[1:]], capture_output=True, text=True, check=False, timeout=30)
            if done.returncode == 0 and done.stdout.strip():
                return done.stdout.splitlines()[0].strip()
    return None
