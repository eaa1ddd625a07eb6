"""CPUs and threads of the ranks: by described hosts, and by a real rank on this one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bridgetower_ray.doctor.hardware import usable_cpus
from bridgetower_ray.errors import TrialError
from bridgetower_ray.sweep.plan import Plan
from bridgetower_ray.training.binding import by_cores, near, worker_threads
from tests.conftest import MINI

PlanOf = Callable[[str], Plan]
# Two sockets of four cores with two threads each: 0-3 and 8-11, 4-7 and 12-15, as Linux numbers them.
SIBLINGS = {cpu: frozenset({cpu % 8, cpu % 8 + 8}) for cpu in range(16)}
NODES = {0: frozenset({0, 1, 2, 3, 8, 9, 10, 11}), 1: frozenset({4, 5, 6, 7, 12, 13, 14, 15})}
ALL = NODES[0] | NODES[1]


def test_each_rank_has_whole_cores_of_its_own_near_its_device() -> None:
    chosen = by_cores(ALL, near(NODES, (1, 1, 0, 0), ranks=4), SIBLINGS)
    assert chosen == [{4, 5, 12, 13}, {6, 7, 14, 15}, {0, 1, 8, 9}, {2, 3, 10, 11}]


@pytest.mark.parametrize("known", [(), (0, None, 1, 1), (0, 7, 1, 1)])
def test_where_the_devices_places_are_not_known_ranks_take_the_sockets_in_turn(known: tuple[int | None, ...]) -> None:
    assert near(NODES, known, ranks=4) == [NODES[0], NODES[1], NODES[0], NODES[1]]


def test_ranks_whose_devices_share_a_place_share_its_cores_and_leave_the_far_ones() -> None:
    chosen = by_cores(ALL, near(NODES, (0, 0, 0, 0), ranks=4), SIBLINGS)
    assert chosen == [{0, 8}, {1, 9}, {2, 10}, {3, 11}]


def test_more_ranks_than_cores_nearby_take_others() -> None:
    chosen = by_cores(ALL, near(NODES, (0,) * 8, ranks=8), SIBLINGS)
    assert frozenset().union(*chosen[:4]) == NODES[0]
    assert frozenset().union(*chosen[4:]) == NODES[1]


def test_no_core_has_two_ranks() -> None:
    chosen = by_cores(ALL, near(NODES, (), ranks=3), SIBLINGS)
    assert [len(one) for one in chosen] == [4, 4, 4]
    assert len(frozenset().union(*chosen)) == 12


def test_fewer_cores_than_ranks_are_refused() -> None:
    with pytest.raises(TrialError, match="3 ranks want a core each, 2 are there"):
        by_cores(frozenset({0, 1}), [frozenset({0, 1})] * 3, {0: frozenset({0}), 1: frozenset({1})})


def test_loader_workers_have_the_ranks_threads_but_torchs_one_where_there_is_no_limit(plan_of: PlanOf) -> None:
    threads = [
        worker_threads(
            plan_of(MINI.replace("training: {", f"training: {{cpu_threads_per_rank: {said}, ")).trials[0].cell
        )
        for said in ("3", "auto")
    ]
    assert threads == [3, 1]


@pytest.mark.parametrize(("binding", "threads"), [("none", "3"), ("cores", "auto"), ("numa", "auto")])
def test_a_rank_is_bound_and_has_its_threads_before_torch_is_imported(
    binding: str, threads: str, plan_of: PlanOf, tmp_path: Path
) -> None:
    text = MINI.replace("training: {", f"training: {{cpu_binding: {binding}, cpu_threads_per_rank: {threads}, ")
    trial = plan_of(text).trials[0]
    trial = trial.model_copy(update={"cell": trial.cell.model_copy(update={"devices": 2})})
    (tmp_path / "trial.json").write_text(trial.model_dump_json())
    look = (
        "import json, os, sys; from bridgetower_ray.sweep.cells import Trial\n"
        "from bridgetower_ray.training.before_imports import settle\n"
        "settle(Trial.model_validate_json(open(sys.argv[1]).read()), 1)\n"
        "print(json.dumps([sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'], 'torch' in sys.modules]))"
    )
    command = [sys.executable, "-c", look, str(tmp_path / "trial.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cpus, told, torch_is_there = json.loads(done.stdout)
    usable = sorted(os.sched_getaffinity(0))
    assert told == (threads if threads != "auto" else str(max(1, len(usable) // 2)))
    assert len(cpus) == (len(usable) // 2 if binding == "cores" and len(usable) % 2 == 0 else len(cpus))
    assert set(cpus) <= set(usable)
    assert torch_is_there is False


def test_a_bound_rank_knows_how_many_cpus_the_trial_has(tmp_path: Path) -> None:
    """What one rank is bound to is not what the trial's ranks and workers share."""
    look = (
        "import os; from bridgetower_ray.training.environment import describe_environment\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "said = describe_environment(['CPU']); print(said['cpus_usable'], said['conditions']['cpu_affinity'])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    usable, affinity = done.stdout.split()
    assert (int(usable), affinity) == (usable_cpus(), str(min(os.sched_getaffinity(0))))
