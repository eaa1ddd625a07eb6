"""What one node is: its devices, its software, its room. Found out on the node itself."""

import os
import platform
import shutil
import socket
import subprocess
from pathlib import Path

import psutil
from pydantic import Field

from bridgetower_ray.data.cache import cache_root
from bridgetower_ray.doctor.hardware import VISIBLE_MODULES, cpu_model, devices, driver_version, module_ids
from bridgetower_ray.doctor.interpreter import interpreter
from bridgetower_ray.doctor.neighbours import device_processes
from bridgetower_ray.doctor.software import interpreter_environment, library_versions, source_hash
from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.settings import Strict

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where torch's loaders put their batches
INTERPRETER_SECONDS = 120.0


class Interpreter(Strict):
    """What the interpreter that runs the training has, and which packages it lacks.

    `error` says why that could not be found out.
    """

    executable: str
    error: str = ""
    python: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    missing: tuple[str, ...] = ()
    torch: str = ""
    torch_error: str = ""
    torch_cuda: str | None = None
    torch_devices: int = 0
    media_pipeline_error: str = ""


class NodeFacts(Strict):
    """A node as it found itself. Sizes are in bytes; `devices` names each device, empty for an unknown one.

    `niceness` is that of the process which looked; `modules` are the numbers of its Gaudis, `visible_modules` what its
    environment says of them.
    """

    host: str
    python: str
    ray: str
    source: str
    devices: tuple[str, ...]
    driver: str | None
    cpus: int
    cpu_model: str
    niceness: int
    memory_available: int
    disk_free: int
    shared_memory: int
    device_processes: tuple[str, ...]
    hidden_device_processes: int = 0
    modules: tuple[int, ...] = ()
    visible_modules: str = ""
    nvidia_container: str
    interpreter: Interpreter


def node_facts(python: str | None = None, base: str = ".") -> NodeFacts:
    """Look at this host.

    Args:
        python: the interpreter that trains here; this process's own by default.
        base: the folder that a relative path of it starts from.
    """
    cache = cache_root()
    on_devices = device_processes()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    return NodeFacts(
        host=socket.gethostname(),
        python=platform.python_version(),
        ray=library_versions().get("ray", ""),
        source=source_hash(),
        devices=tuple(devices()),
        driver=driver_version(),
        cpus=psutil.cpu_count() or 1,
        cpu_model=cpu_model() or "",
        niceness=os.getpriority(os.PRIO_PROCESS, 0),
        memory_available=psutil.virtual_memory().available,
        disk_free=shutil.disk_usage(existing).free,
        shared_memory=shutil.disk_usage(SHARED_MEMORY).total if SHARED_MEMORY.exists() else 0,
        device_processes=on_devices.foreign,
        hidden_device_processes=on_devices.hidden,
        modules=module_ids(),
        visible_modules=os.environ.get(VISIBLE_MODULES, ""),
        nvidia_container=os.environ.get("NVIDIA_PYTORCH_VERSION", ""),
        interpreter=_interpreter(python, Path(base)),
    )


def _interpreter(named: str | None, base: Path) -> Interpreter:
    try:
        python = interpreter(named, base)
    except UsageError as refusal:
        return Interpreter(executable=str(named), error=str(refusal))
    command = [python, "-m", "bridgetower_ray.doctor.installed"]
    try:
        done = subprocess.run(
            command,
            env=interpreter_environment(os.environ),
            capture_output=True,
            text=True,
            check=False,
            timeout=INTERPRETER_SECONDS,
        )
        if done.returncode == 0:
            return Interpreter.model_validate_json(done.stdout.splitlines()[-1])
        error = (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1]
    except OSError as failure:
        error = f"cannot be started: {failure.strerror}"
    except (IndexError, ValueError):
        error = "did not say what it has"
    except subprocess.TimeoutExpired:
        error = f"did not answer within {INTERPRETER_SECONDS:g} s"
    return Interpreter(executable=python, error=error)
