"""`python -m bridgetower_ray.doctor.installed`: what this interpreter would train with, as one JSON object."""

import contextlib
import importlib
import importlib.util
import json
import platform
import sys

from bridgetower_ray.doctor.software import library_versions

NEEDED = ("transformers", "accelerate", "datasets", "tokenizers", "PIL")
NEEDED_ON_HPU = ("optimum.habana",)


def installed() -> dict[str, object]:
    """Versions, torch's build and devices, and what is missing.

    `media_pipeline_error` says why the media pipeline cannot be imported; it is empty if it can.
    """
    on_hpu = _importable("habana_frameworks.torch")
    needed = NEEDED + NEEDED_ON_HPU if on_hpu else NEEDED
    return {
        "executable": sys.executable,
        "python": platform.python_version(),
        "versions": library_versions(),
        "missing": [name for name in needed if not _importable(name)],
        "media_pipeline_error": _import_error("habana_frameworks.mediapipe.mediapipe"),
        **_torch(),
    }


def _torch() -> dict[str, object]:
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"torch_error": _one_line(error)}
    with contextlib.suppress(ImportError, OSError):
        importlib.import_module("habana_frameworks.torch")  # makes torch.hpu
    hpu = getattr(torch, "hpu", None)
    devices = torch.cuda.device_count() or (hpu.device_count() if hpu is not None else 0)
    return {"torch": str(torch.__version__), "torch_cuda": torch.version.cuda, "torch_devices": devices}


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # its parent is not there
        return False


def _import_error(module: str) -> str:
    try:
        importlib.import_module(module)
    except (ImportError, OSError) as error:  # OSError: a native library that is not there
        return _one_line(error)
    return ""


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(installed()) + "\n")
