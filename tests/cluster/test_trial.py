"""The trial's actor, without a cluster: it is an ordinary object that Tune happens to call."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridgetower_ray.cluster import trial_actor as trial
from bridgetower_ray.cluster.trial_actor import TrialActor
from bridgetower_ray.cluster.trial_folder import own_folder
from bridgetower_ray.doctor.vendor_libraries import Reading
from bridgetower_ray.sweep.plan import Plan
from bridgetower_ray.training.job import Job
from tests.conftest import ONE_CELL

PlanOf = Callable[[str], Plan]


def actor(plan_of: PlanOf, folder: Path, **told: Any) -> TrialActor:
    job = Job(trial=plan_of(ONE_CELL).trials[0], base_folder=str(folder)).model_dump_json()
    return TrialActor({"trial": {"index": 0, "job": job, **told}})


def run_to_end(one: TrialActor) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All events, and the last report."""
    events: list[dict[str, Any]] = []
    while True:
        report = one.train()
        events += report["events"]
        if report["done"]:
            one.stop()
            return events, report


def test_a_node_with_another_state_of_the_code_gives_no_number(plan_of: PlanOf, folder: Path) -> None:
    events, report = run_to_end(actor(plan_of, folder, source="another"))
    assert report["outcome"]["kind"] == "failed"
    assert report["outcome"]["reason"].endswith("has another state of bridgetower-ray")
    assert events == []


def test_what_the_preparation_says_counts_however_long_it_takes_to_end(
    plan_of: PlanOf, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says, and that it has ended, come in different reports."""
    monkeypatch.setattr(trial, "REPORT_SECONDS", 0.05)
    monkeypatch.setattr(trial.TrialActor, "_ready", {})
    events, report = run_to_end(actor(plan_of, folder))
    assert report["outcome"]["kind"] == "measured"
    assert "measured" in {event["event"] for event in events}


def test_a_node_that_was_prepared_for_a_data_set_is_not_prepared_for_it_again(
    plan_of: PlanOf, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial.TrialActor, "_ready", {})
    run_to_end(actor(plan_of, folder))
    monkeypatch.setattr(trial, "PREPARE", ("-c", "raise SystemExit('prepared again')"))
    _, report = run_to_end(actor(plan_of, folder))
    assert report["outcome"]["kind"] == "measured"


def test_a_preparation_that_says_nothing_is_a_failed_trial(
    plan_of: PlanOf, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "PREPARE", ("-c", "pass"))
    monkeypatch.setattr(trial.TrialActor, "_ready", {})
    _, report = run_to_end(actor(plan_of, folder))
    assert report["outcome"]["reason"] == "the preparation ended without saying what is ready"


def test_what_a_node_refuses_is_asked_once(plan_of: PlanOf, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second trial ends at once with the first one's reason: nothing is started for it."""
    monkeypatch.setattr(trial.TrialActor, "_ready", {})
    monkeypatch.setattr(trial.TrialActor, "_refused", {})
    text = ONE_CELL.replace("builtin:cartoons, max_train_samples: 24", "./absent")
    job = Job(trial=plan_of(text).trials[0], base_folder=str(folder)).model_dump_json()
    _, first = run_to_end(TrialActor({"trial": {"index": 0, "job": job}}))
    assert "absent is not to be seen on this node" in first["outcome"]["reason"]
    monkeypatch.setattr(trial, "ProcessGroup", None)
    _, second = run_to_end(TrialActor({"trial": {"index": 1, "job": job}}))
    assert second["outcome"] == first["outcome"]


def test_a_preparation_that_does_not_end_is_ended_and_not_begun_again(
    plan_of: PlanOf, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial.TrialActor, "_ready", {})
    monkeypatch.setattr(trial.TrialActor, "_refused", {})
    code = (
        "import time\nfrom bridgetower_ray.training.events import Events\n"
        "Events(rank=0).emit('phase', phase='waiting for process 7')\ntime.sleep(600)"
    )
    monkeypatch.setattr(trial, "PREPARE", ("-c", code))
    text = ONE_CELL.replace("timeout_minutes: 5", "preparation_minutes: 0.1")
    one = plan_of(text).trials[0]
    job = Job(trial=one, base_folder=str(folder)).model_dump_json()
    _, first = run_to_end(TrialActor({"trial": {"index": 0, "job": job}}))
    assert first["outcome"] == {
        "kind": "timed_out",
        "reason": "the preparation was not done within 0.1 minutes; last: waiting for process 7",
    }
    monkeypatch.setattr(trial, "ProcessGroup", None)
    _, second = run_to_end(TrialActor({"trial": {"index": 1, "job": job}}))
    assert second["outcome"]["reason"] == first["outcome"]["reason"]


def test_an_interpreter_that_is_not_on_the_node_is_one_line(plan_of: PlanOf, folder: Path) -> None:
    text = ONE_CELL + "accelerators: {cpu: {python: ./venv/bin/python}}\n"
    job = Job(trial=plan_of(text).trials[0], base_folder=str(folder)).model_dump_json()
    _, report = run_to_end(TrialActor({"trial": {"index": 0, "job": job}}))
    assert report["outcome"]["reason"] == "python: ./venv/bin/python: no such program on this host"


def test_folders_of_killed_actors_go_with_the_next_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    make = "from bridgetower_ray.cluster.trial_folder import own_folder; print(own_folder())"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", make], env=environment, capture_output=True, text=True, check=True)
    left, mine = Path(done.stdout.strip()), own_folder()
    assert not left.exists()
    assert own_folder() != mine
    assert mine.is_dir(), "a folder of a living process stays"


def test_what_the_devices_are_stands_in_the_record_of_what_ran(
    plan_of: PlanOf, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for a vendor's library; the training is real."""

    class Library:
        def read(self) -> tuple[Reading, ...]:
            return (Reading(power_watts=300.0),)

        def facts(self) -> dict[str, str]:
            return {"device_power_limit_watts": "600"}

    monkeypatch.setattr(trial, "library_for", lambda accelerator: Library())
    events, _ = run_to_end(actor(plan_of, folder))
    told = [event["device_facts"] for event in events if event["event"] == "environment"]
    assert told
    assert told[-1] == {"device_power_limit_watts": "600"}
