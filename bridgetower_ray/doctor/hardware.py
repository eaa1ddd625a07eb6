"""What this host has: accelerators, by their vendors' own tools, and processors."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import psutil

from bridgetower_ray.doctor.cgroups import ControlGroups
from bridgetower_ray.doctor.kernel_files import content
from bridgetower_ray.sweep.accelerators import ACCELERATORS, NODE_RESOURCE

VISIBLE_MODULES = "HABANA_VISIBLE_MODULES"  # what Ray numbers a node's Gaudis by, where its raylet has it
A100_80GB_MIB = 75_000  # both A100s call themselves A100; the memory tells the 80 GB one


def local_resources() -> dict[str, float]:
    """The custom resources that `ray start --resources` should declare on this host."""
    resources: dict[str, float] = {NODE_RESOURCE: 1, ACCELERATORS["cpu"].marker: 1}
    for name in sorted({name for name in devices() if name in ACCELERATORS}):
        resources[ACCELERATORS[name].marker] = 1
    gaudis = _gaudis()
    return resources | ({"HPU": len(gaudis)} if gaudis else {})


def devices() -> list[str]:
    """The accelerator that each device of this host is; empty for one that this tool does not know."""
    return [*_gpus(), *_gaudis()]


def driver_version() -> str | None:
    """The device driver's version; None where no vendor's tool says one."""
    for tool, *query in (
        ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        ("hl-smi", "-Q", "driver_version", "-f", "csv,noheader"),
    ):
        if lines := ask_tool(tool, *query):
            return lines[0]
    return None


def _gpus() -> list[str]:
    lines = ask_tool("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    return [gpu_name(*line.rsplit(",", 1)) for line in lines if "," in line]


def gpu_name(product: str, memory_mib: str) -> str:
    """The accelerator that `nvidia-smi` calls `product`; empty for one this tool does not know."""
    for name in ("h200", "h100"):
        if re.search(rf"\b{name}\b", product, re.IGNORECASE):
            return name
    is_a100 = re.search(r"\ba100\b", product, re.IGNORECASE)
    return "a100-80gb" if is_a100 and int(memory_mib) > A100_80GB_MIB else ""


def _gaudis() -> list[str]:
    return [gaudi_name(line) for line in ask_tool("hl-smi", "-Q", "name", "-f", "csv,noheader") if gaudi_name(line)]


def module_ids() -> tuple[int, ...]:
    """The numbers of this host's Gaudis, by which HABANA_VISIBLE_MODULES names them."""
    lines = ask_tool("hl-smi", "-Q", "module_id", "-f", "csv,noheader")
    return tuple(sorted(int(line) for line in lines if line.isdigit()))


def gaudi_name(product: str) -> str:
    """The accelerator that `hl-smi` calls `product`: HL-22x and HL-23x are Gaudi2, HL-3xx Gaudi3, HL-20x the first."""
    if re.search(r"HL-?2[23]\d", product, re.IGNORECASE):
        return "gaudi2"
    return "gaudi3" if re.search(r"HL-?3\d\d", product, re.IGNORECASE) else ""


def usable_cpus() -> int:
    """CPUs that this process may use: its affinity, or a container's quota where that is less."""
    allowed, quota = len(os.sched_getaffinity(0)), ControlGroups().cpus()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def cpu_model() -> str | None:
    """The processor's name; None where the kernel does not say."""
    lines = content(Path("/proc/cpuinfo")).splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def system_sample() -> dict[str, float]:
    """What the host is doing now; `cpu_percent` is since the last call."""
    return {"cpu_percent": psutil.cpu_percent(interval=None), "memory_used_bytes": psutil.virtual_memory().used}


def ask_tool(tool: str, *arguments: str) -> list[str]:
    """The lines that a vendor's tool prints; none where it is not there, fails or does not end."""
    path = shutil.which(tool)
    if path is None:
        return []
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []
