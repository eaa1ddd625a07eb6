"""What the environment may not decide, and what of it is on record."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from bridgetower_ray.sweep.plan import Plan
from bridgetower_ray.training.precision import SeenPrecision
from bridgetower_ray.training.variables import forget_unheard, on_record
from tests.conftest import MINI
from tests.training.test_training import events_of, train, write_job


def test_what_would_overrule_the_sweeps_settings_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("FSDP_VERSION", "2")
    forget_unheard()
    assert not {"ACCELERATE_MIXED_PRECISION", "FSDP_VERSION"} & os.environ.keys()


def test_what_changes_the_numbers_is_on_record_without_secrets_and_what_each_trial_sets() -> None:
    environment = {
        "NCCL_DEBUG": "INFO",
        "MALLOC_ARENA_MAX": "1",
        "HOME": "/root",
        "HF_TOKEN": "hf_secret",
        "CUDA_VISIBLE_DEVICES": "0",
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/a-folder",
        "OMP_NUM_THREADS": "4",
        "LD_PRELOAD": "libtcmalloc.so",
    }
    assert on_record(environment) == "LD_PRELOAD=libtcmalloc.so; MALLOC_ARENA_MAX=1; NCCL_DEBUG=INFO"
    assert on_record({}) == "none"


@pytest.mark.parametrize(("autocast", "words"), [(False, "float32"), (True, "bf16 autocast")])
def test_the_precision_is_that_of_the_pass_itself(autocast: bool, words: str) -> None:
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 4))
    seen = SeenPrecision(model)
    with torch.autocast("cpu", dtype=torch.bfloat16) if autocast else contextlib.nullcontext():
        model(torch.ones(1, 4))
    assert seen.words == words
    assert not model[1]._forward_hooks, "it looks once"


def test_a_trial_trains_as_the_sweep_says_whatever_the_shell_says(
    tmp_path: Path, plan_of: Callable[[str], Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    for name in ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "TORCHINDUCTOR_CACHE_DIR"):  # libraries set them here too
        monkeypatch.delenv(name, raising=False)
    done = train(write_job(plan_of(MINI).trials[0], tmp_path))
    recorded = events_of(done.stdout)["environment"][-1]
    assert recorded["effective"]["precision"] == "float32"
    handed = on_record({**os.environ, "MALLOC_ARENA_MAX": "2"})
    assert recorded["variables"] == handed, "nothing that a library sets for itself"


def test_bf16_that_is_asked_for_is_seen_in_the_pass(tmp_path: Path, plan_of: Callable[[str], Plan]) -> None:
    text = MINI.replace("max_steps: 9", "max_steps: 9, bf16: true")
    done = train(write_job(plan_of(text).trials[0], tmp_path))
    assert events_of(done.stdout)["environment"][-1]["effective"]["precision"] == "bf16 autocast"


def test_a_rank_imports_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    """A new name here is a cost to each rank of each trial: is it used?"""
    look = (
        "import sys; from bridgetower_ray.training.unused import hide_unused; hide_unused()\n"
        "import bridgetower_ray.training.worker\n"
        "print(*{name.partition('.')[0] for name, module in sys.modules.items() if module is not None})"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split()) - set(sys.stdlib_module_names)
    assert not loaded & {"sklearn", "scipy", "matplotlib", "mlflow", "ray", "flask", "sqlalchemy"}
