"""Compiled graphs that are kept on the node: the variables that have the libraries do it, and torch doing it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.sweep.plan import Plan
from bridgetower_ray.training.compile_caches import (
    INDUCTOR,
    KEPT,
    RECIPES,
    TRITON,
    compile_cache,
    declare_compile_caches,
)
from tests.conftest import MINI

PlanOf = Callable[[str], Plan]
COMPILED = MINI.replace("max_steps: 9", "max_steps: 9, torch_compile: true")


@pytest.fixture(autouse=True)
def undeclared(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (INDUCTOR, KEPT, RECIPES, TRITON):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def cell_of(plan_of: PlanOf, text: str) -> Cell:
    return plan_of(text).trials[0].cell


def test_a_gaudis_recipes_are_kept_in_the_form_that_its_bridge_reads(plan_of: PlanOf, cache: Path) -> None:
    """`<path>,<clear it at the start>,<megabytes>`, as Gaudi's documentation of its runtime flags has it."""
    cell = cell_of(plan_of, MINI.replace("cpu", "gaudi2"))
    declare_compile_caches(cell, 1)
    path, clear, megabytes = os.environ[RECIPES].split(",")
    assert Path(path).is_relative_to(cache / "compiled")
    assert (clear, megabytes.isdigit()) == ("false", True)
    assert compile_cache() == "kept"


def test_what_the_host_says_of_its_caches_stays(plan_of: PlanOf) -> None:
    os.environ[RECIPES] = ",false,1024,false"  # its default: no cache
    cell = cell_of(plan_of, MINI.replace("cpu", "gaudi2"))
    declare_compile_caches(cell, 1)
    assert os.environ[RECIPES] == ",false,1024,false"
    assert compile_cache() == "none"


@pytest.mark.parametrize(
    ("text", "recorded"), [(MINI, None), (COMPILED.replace("ceilings:", "compile_cache: false, ceilings:"), "none")]
)
def test_nothing_is_declared_where_nothing_is_to_be_kept(text: str, recorded: str | None, plan_of: PlanOf) -> None:
    cell = cell_of(plan_of, text)
    declare_compile_caches(cell, 1)
    assert not {INDUCTOR, TRITON, RECIPES} & os.environ.keys()
    assert compile_cache() == recorded


def test_the_next_trial_of_a_repeat_finds_what_torch_has_compiled(plan_of: PlanOf, tmp_path: Path) -> None:
    """Not on CUDA: there, too, torch's own cache is asked first. Each repeat has its own."""
    code = """
import sys
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.training.before_imports import settle
from bridgetower_ray.training.compile_caches import compile_cache
settle(Trial.model_validate_json(sys.argv[1]), 0)
import torch
from torch._dynamo.utils import counters
torch.compile(lambda x: (x.sin() * x).sum())(torch.ones(64))
print(counters["inductor"]["fxgraph_cache_miss"], counters["inductor"]["fxgraph_cache_hit"], compile_cache())
"""
    # Which instructions the host's compiler knows is not tried out: that takes longer than all else.
    environment = {**os.environ, "BRIDGETOWER_RAY_CACHE": str(tmp_path / "cache"), "TORCHINDUCTOR_VEC_ISA_OK": "0"}

    def compiled(text: str, repeat: int) -> str:
        trial = next(one for one in plan_of(text).trials if one.repeat == repeat).model_dump_json()
        command = [sys.executable, "-c", code, trial]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert [compiled(COMPILED, repeat) for repeat in (1, 1, 2)] == ["1 0 kept\n", "0 1 kept\n", "1 0 kept\n"]
    assert len(list((tmp_path / "cache" / "compiled").glob("torch-*/inductor-*"))) == 2
    own = COMPILED.replace("ceilings:", "compile_cache: false, ceilings:")
    environment["TMPDIR"] = str(tmp_path)
    assert compiled(own, 1) == "1 0 none\n"
