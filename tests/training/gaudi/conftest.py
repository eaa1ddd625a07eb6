"""Stand-ins for what needs the chip or its driver, so that the real Gaudi packages can be tried without either.

The packages themselves, optimum-habana and habana-media-loader, are the real ones, in a folder that only these tests
have on their path (`make test` makes it): where Ray runs they must not be.
"""

import atexit
import ctypes
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import types
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.plan import make_plan
from bridgetower_ray.sweep.spec import SweepSpec

SYNAPSE_VERSION = "1.24.0"  # the one that optimum-habana 1.21.2 has been validated for
NATIVE_MODULES = (
    "av",
    "media_numpy_reader",
    "media_pipe_api",
    "media_pipe_nodes",
    "media_pipe_params",
    "media_pipe_proxy",
    "media_pipe_randomizer",
    "media_pipe_types",
    "media_random_biased_crop",
    "media_random_flip_cpu",
    "media_resize",
)


# torchvision is no part of Gaudi's software, but of what optimum-habana adapts; none goes with this torch build.
NATIVE_PACKAGES = ("habana_frameworks.torch.", "torchvision.")
MEMORY = {"InUse": 0, "MaxInUse": 0, "Limit": 0}
CONTENTS: dict[str, dict[str, Any]] = {"habana_frameworks.torch.hpu": {"memory_stats": lambda device=None: MEMORY}}
THERE = importlib.util.find_spec("optimum") is not None or "EXPECTED_GAUDI" in os.environ


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Not collected without the packages, unless they are said to be there."""
    return None if THERE else True


class NativeType(type):
    """A type of a native module; each name looked up on it is a member, the same object every time."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        member = cls()
        setattr(cls, name, member)
        return member


class Native(metaclass=NativeType):
    """An object of a native type: it has every field and method."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        field = Native()
        setattr(self, name, field)
        return field

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return Native()

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class NativeModule(types.ModuleType):
    """A module that has every type."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = NativeType(name, (Native,), {})
        setattr(self, name, made)
        return made


class NativeFinder(MetaPathFinder, Loader):
    """Finds every native module, and every part of the bridge between torch and the chip."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        native = fullname in NATIVE_MODULES or f"{fullname}.".startswith(NATIVE_PACKAGES)
        return ModuleSpec(fullname, self, is_package=True) if native else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return NativeModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module).update(CONTENTS.get(module.__name__, {}))


def install() -> None:
    """What optimum-habana and the media loader import or look for, without what they would do with a chip."""
    folder = Path(tempfile.mkdtemp(prefix="stand-ins-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    about = folder / f"habana_torch_plugin-{SYNAPSE_VERSION}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: habana-torch-plugin\nVersion: {SYNAPSE_VERSION}\n")
    # optimum-habana asks the `pip` that it finds which version is installed.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)]))
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    import habana_frameworks.mediapipe  # noqa: F401 - the real one, so that the stand-ins go beside it

    sys.meta_path.insert(0, NativeFinder())
    load: Callable[..., Any] = ctypes.CDLL
    ctypes.CDLL = lambda name, *rest, **named: Native() if name == "libmedia.so" else load(name, *rest, **named)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials for a Gaudi train on the CPU, by Gaudi's backend."""
    from bridgetower_ray.training import worker
    from bridgetower_ray.training.backends.gaudi import GaudiBackend

    monkeypatch.setattr(worker, "backend_for", lambda cell: GaudiBackend(on_hpu=False))


@pytest.fixture
def trial_of(tmp_path: Path) -> Callable[..., Trial]:
    """A small trial on one Gaudi, with the training settings that are given."""

    def make(**training: Any) -> Trial:
        settings = {"per_device_train_batch_size": 4, "max_steps": 9, "max_seq_length": 16, **training}
        spec = SweepSpec.model_validate_json(
            json.dumps(
                {
                    "name": "gaudi",
                    "model": "preset:tiny",
                    "dataset": {"path": "builtin:cartoons", "max_train_samples": 24},
                    "training": settings,
                    "measure": {"warmup_steps": 2, "repeats": 1, "ceilings": False},
                    "axes": {"accelerator": ["gaudi2"]},
                    "accelerators": {"gaudi2": {"devices": 1}},
                }
            )
        )
        return make_plan(spec).trials[0]

    return make


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Trial], list[dict[str, Any]]]:
    """Run a trial's one rank in this process; the events that it emitted, also when it raised (`run.events`)."""
    from bridgetower_ray.training.events import EVENTS_FD, Events
    from bridgetower_ray.training.job import Job
    from bridgetower_ray.training.worker import run_rank

    file = tmp_path / "events"

    def events() -> list[dict[str, Any]]:
        return [json.loads(line) for line in file.read_text().splitlines()]

    def carry_out(trial: Trial) -> list[dict[str, Any]]:
        monkeypatch.setenv(EVENTS_FD, str(os.open(file, os.O_WRONLY | os.O_CREAT)))
        run_rank(Job(trial=trial, base_folder=str(tmp_path)), Events(rank=0))
        return events()

    vars(carry_out)["events"] = events
    return carry_out


if THERE:
    install()
