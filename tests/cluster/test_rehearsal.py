"""A rehearsal goes through everything and measures nothing."""

import csv
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest

from bridgetower_ray.errors import UsageError
from bridgetower_ray.store.location import default_uri
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.sweep.plan import make_plan
from bridgetower_ray.sweep.rehearsal import rehearsal_of, simulated_nodes
from bridgetower_ray.sweep.spec import SweepSpec, load_spec
from tests.conftest import MINI, SWEEPS, command

MIXED = MINI.replace("[cpu]", "[gaudi2, h100]").replace("accelerator: cpu,", "accelerator: h100,")


def test_every_cell_keeps_its_name_its_place_and_its_resources() -> None:
    plan = make_plan(load_spec(SWEEPS / "blog.yaml")[0])
    small = rehearsal_of(plan)
    assert [cell.setting for cell in small.cells] == [cell.setting for cell in plan.cells]
    assert [cell.resources for cell in small.cells] == [cell.resources for cell in plan.cells]
    assert [cell.outcome.kind for cell in small.cells].count(Kind.PRUNED) == 2
    assert len(small.trials) == 10
    assert {trial.cell.model for trial in small.trials} == {"preset:tiny"}
    assert {trial.cell.devices for trial in small.trials} == {2}
    assert {trial.cell.accelerator.device for trial in small.trials} == {"cpu"}
    assert len({trial.cell.cell_id for trial in small.trials}) == 10


def test_the_simulated_nodes_hold_just_what_the_sweep_asks_for() -> None:
    nodes = simulated_nodes(rehearsal_of(make_plan(load_spec(SWEEPS / "blog.yaml")[0])))
    assert nodes[0] == {"CPU": 1, "HPU": 8, "bridgetower_gaudi2": 1, "bridgetower_node": 1}
    assert [node.get("GPU") for node in nodes] == [None, 8, 8]


def test_a_sweep_may_not_take_a_rehearsals_name(spec_of: Callable[[str], SweepSpec]) -> None:
    with pytest.raises(UsageError, match=r":1: names that end in -rehearsal are for rehearsals"):
        spec_of(MINI.replace("name: mini", "name: mini-rehearsal"))


def test_a_rehearsal_runs_every_cell_and_can_not_be_taken_for_a_measurement(folder: Path) -> None:
    (folder / "sweep.yaml").write_text(MIXED.replace("[0, 1]", "[0]"))
    done = command("run", "sweep.yaml", "--rehearse", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mini-rehearsal: 3 of 3 cells rehearsed" in done.stdout
    assert done.stdout.count("REHEARSAL on a CPU: no figure here is a measurement") == 2
    reports = folder / "reports" / "mini-rehearsal"
    assert "REHEARSAL" in (reports / "report.html").read_text()
    assert "REHEARSAL" in (reports / "report.md").read_text()
    with (reports / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["outcome"] for row in rows) == ["pruned", "rehearsed", "rehearsed", "rehearsed"]
    assert {row["train_samples_per_second"] for row in rows} == {""}
    assert {row["run.loader"] for row in rows if row["mediapipe_dataloader"] == "True"} == {"stand-in", ""}
    client = mlflow.MlflowClient(default_uri(folder))
    experiment = client.get_experiment_by_name("mini-rehearsal")
    assert client.get_experiment_by_name("mini") is None
    assert "REHEARSAL" in experiment.tags["mlflow.note.content"]
    for run in client.search_runs([experiment.experiment_id]):
        assert "train_samples_per_second" not in run.data.metrics
        assert run.data.metrics["rehearsal_train_samples_per_second"] > 0
