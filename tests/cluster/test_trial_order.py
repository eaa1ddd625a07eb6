"""The order in which Tune is handed the trials, and what a sweep that breaks in the middle leaves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bridgetower_ray.cluster.connection import simulated
from bridgetower_ray.cluster.progress import PlainView
from bridgetower_ray.cluster.trial_order import SPARE, TrialOrder
from bridgetower_ray.cluster.tune_run import run_trials
from bridgetower_ray.store.location import default_uri
from bridgetower_ray.store.recorder import Recorder
from bridgetower_ray.store.spool import Spool
from bridgetower_ray.store.tracking import Tracking
from bridgetower_ray.sweep.plan import Plan, make_plan
from bridgetower_ray.sweep.rehearsal import simulated_nodes
from bridgetower_ray.sweep.spec import SweepSpec
from tests.bench.scheduling import STAND_IN
from tests.conftest import MINI

PlanOf = Callable[[str], Plan]
POOLS = MINI.replace("[cpu]", "[gaudi2, h100]").replace("accelerator: cpu", "accelerator: h100")


def handed(order: TrialOrder) -> list[int]:
    """What is handed out until enough waits."""
    found = []
    while (told := order.suggest("any")) is not None:
        found.append(told["trial"]["index"])
    return found


def test_trials_are_handed_out_in_the_plans_order_up_to_what_the_nodes_can_soon_take(plan_of: PlanOf) -> None:
    plan = plan_of(POOLS.replace("repeats: 2", "repeats: 20"))
    order = TrialOrder(plan.trials, simulated_nodes(plan), ".", {})
    first = handed(order)
    assert first == sorted(first)
    kinds = [plan.trials[index].cell.accelerator.name for index in first]
    assert (kinds.count("gaudi2"), kinds.count("h100")) == (SPARE + 1, SPARE + 1)


def test_a_pool_that_nothing_holds_up_is_handed_trials_while_another_waits_for_a_node(plan_of: PlanOf) -> None:
    plan = plan_of(POOLS.replace("repeats: 2", "repeats: 20"))
    order = TrialOrder(plan.trials, [], ".", {})
    ran = []
    waiting = handed(order)
    while (
        begins := next((one for one in waiting if plan.trials[one].cell.accelerator.name == "h100"), None)
    ) is not None:
        waiting.remove(begins)
        order.began(begins)
        ran.append(begins)
        waiting += handed(order)
    assert len(ran) == sum(trial.cell.accelerator.name == "h100" for trial in plan.trials)
    assert len(waiting) == SPARE


def test_a_trial_that_begins_again_makes_room_for_no_other(plan_of: PlanOf) -> None:
    plan = plan_of(POOLS.replace("repeats: 2", "repeats: 20"))
    order = TrialOrder(plan.trials, [], ".", {})
    first = handed(order)
    order.began(first[0])
    assert len(handed(order)) == 1
    order.began(first[0])
    assert handed(order) == []


def test_what_was_measured_is_kept_when_the_driver_itself_breaks(
    folder: Path, spec_of: Callable[[str], SweepSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception in the middle of Tune's loop: the trial under way is recorded with what it had said."""
    plan = make_plan(
        spec_of(MINI.replace("max_steps: 9", "max_steps: 500").replace("warmup_steps: 2", "warmup_steps: 1"))
    )
    tracking = Tracking(default_uri(folder))
    experiment = tracking.create_experiment("mini")
    view = PlainView(lambda _: None)
    recorder = Recorder(plan.trials, "broken", tracking, experiment, Spool(folder / "spool"), view)

    def broken(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(view, "trial_ended", broken)
    with simulated(simulated_nodes(plan)), pytest.raises(Exception, match="broken on purpose"):
        run_trials(plan.trials, folder, recorder, plan.spec.scheduling, {"worker": STAND_IN})
    runs = tracking.runs(experiment, "broken")
    assert [run.status for run in runs if run.status == "RUNNING"] == []
    assert runs[0].tags["outcome"] == "measured"
