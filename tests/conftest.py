"""What the tests share: a cache of their own, sweep files, the command line as a user starts it."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

# Tests run in two processes on two cores: torch's own number of threads would be twice that.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from bridgetower_ray.sweep.plan import Plan, make_plan
from bridgetower_ray.sweep.spec import SweepSpec, load_spec

ROOT = Path(__file__).resolve().parent.parent
SWEEPS = ROOT / "sweeps"
MINI = """\
name: mini
model: preset:tiny
dataset: {path: builtin:cartoons, max_train_samples: 24}
training: {per_device_train_batch_size: 4, learning_rate: 1.0e-5, max_steps: 9, max_seq_length: 16}
measure: {warmup_steps: 2, repeats: 2, timeout_minutes: 5, ceilings: false}
axes:
  accelerator: [cpu]
  dataloader_num_workers: [0, 1]
  mediapipe_dataloader: [false, true]
baseline: {accelerator: cpu, dataloader_num_workers: 0}
"""
ONE_CELL = MINI.replace("[0, 1]", "[0]").replace("[false, true]", "[false]").replace("repeats: 2", "repeats: 1")


SHARING_FILES = ("test_browser.py", "test_job.py", "test_run.py")  # their tests share what takes long to set up


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand tests out one by one, but those of a sharing file together."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if Path(file).name in SHARING_FILES else nodeid

    return Scheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node cache for the session; no test reads or fills the user's own."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["BRIDGETOWER_RAY_CACHE"] = str(folder)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    os.environ.pop("RAY_ADDRESS", None)
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def spec_of(tmp_path: Path) -> Callable[[str], SweepSpec]:
    """Sweep text -> spec, through a file."""

    def load(text: str) -> SweepSpec:
        file = tmp_path / "sweep.yaml"
        file.write_text(text)
        return load_spec(file)[0]

    return load


@pytest.fixture
def plan_of(spec_of: Callable[[str], SweepSpec]) -> Callable[[str], Plan]:
    """Sweep text -> plan, without a cluster."""
    return lambda text: make_plan(spec_of(text))


def command(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `bridgetower-ray` as a user does; output and errors as text."""
    return subprocess.run(
        [sys.executable, "-m", "bridgetower_ray.cli", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def start(*arguments: str, cwd: Path, log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start `bridgetower-ray` in a session of its own, as a terminal would, its output in `log`."""
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "bridgetower_ray.cli", *arguments],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
