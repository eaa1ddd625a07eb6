"""What really ran: host, devices, driver, threads and versions, read off where the training is."""

import os
import platform
import socket
from typing import Any

import psutil
import torch

from bridgetower_ray.doctor.conditions import conditions
from bridgetower_ray.doctor.hardware import cpu_model, driver_version
from bridgetower_ray.doctor.software import git_commit, library_versions, source_hash
from bridgetower_ray.training.binding import USABLE_AT_START
from bridgetower_ray.training.supervised import PROCESS_START
from bridgetower_ray.training.variables import AT_START


def describe_environment(device_names: list[str]) -> dict[str, Any]:
    """Facts of this host and process; a fact that cannot be had is absent.

    Memory is in bytes. `cpus` are the host's logical CPUs, `cpus_usable` those the trial may run on.
    """
    facts = {
        "host": socket.gethostname(),
        "os": platform.platform(),
        "cpu_model": cpu_model(),
        "cpus": psutil.cpu_count(),
        "cpus_usable": USABLE_AT_START,
        "memory_bytes": psutil.virtual_memory().total,
        "devices": device_names,
        "driver": driver_version(),
        "torch_threads": torch.get_num_threads(),
        "variables": AT_START,
        "conditions": {**conditions(), "process_start": os.environ.get(PROCESS_START, "cold")},
        "code_commit": git_commit(),
        "code_hash": source_hash(),
        "versions": library_versions(),
    }
    return {name: fact for name, fact in facts.items() if fact is not None}
