"""The command line where nothing is trained: plan, schema, report, and requests it refuses."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import MINI, SWEEPS, command

IMPORTS = """
import sys
from click.testing import CliRunner
from bridgetower_ray.cli import main
result = CliRunner().invoke(main, ["plan", sys.argv[1]])
assert result.exit_code == 0, result.output
print([name for name in ("torch", "ray", "transformers", "datasets", "mlflow") if name in sys.modules])
"""


def test_plan_prints_every_cell_and_that_no_cluster_was_looked_at(folder: Path) -> None:
    done = command("plan", str(SWEEPS / "blog.yaml"), cwd=folder)
    assert done.returncode == 0
    assert "10 runnable cells, 30 trials, 6 combinations excluded" in done.stdout
    assert "cluster not checked" in done.stdout
    assert done.stdout.count("pruned(mediapipe_dataloader needs") == 2
    assert list(folder.iterdir()) == [], "a plan leaves nothing behind"


def test_plan_for_machines_has_an_object_a_cell(folder: Path) -> None:
    done = command("plan", str(SWEEPS / "blog.yaml"), "--json", cwd=folder)
    cells = json.loads(done.stdout)["cells"]
    assert [cell["outcome"] for cell in cells].count("runnable") == 10
    assert [cell["outcome"] for cell in cells].count("pruned") == 2
    assert cells[0]["resources"] == {"CPU": 1, "bridgetower_gaudi2": 0.001, "HPU": 8, "bridgetower_node": 1}


def test_plan_imports_neither_torch_nor_ray(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, str(SWEEPS / "smoke.yaml")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_schema_prints_the_json_schema(folder: Path) -> None:
    assert json.loads(command("schema", cwd=folder).stdout) == json.loads((SWEEPS / "sweep.schema.json").read_text())


REFUSED = {
    "unknown key": MINI.replace("max_steps", "max_step"),
    "a window without steps": MINI.replace("max_steps: 9", "max_steps: 3"),
    "an absent folder": MINI.replace("builtin:cartoons", "./absent"),
    "no runnable cell": MINI.replace("[false, true]", "[true]"),
    "no such accelerator here": MINI.replace("cpu", "gaudi2"),
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_a_sweep_that_cannot_run_is_one_line_status_two_and_nothing_started(text: str, folder: Path) -> None:
    (folder / "sweep.yaml").write_text(text)
    done = command("run", "sweep.yaml", cwd=folder)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert done.stderr.startswith("bridgetower-ray: ")
    assert not (folder / "reports").exists()
    assert "gaudi2" in text or not (folder / "mlflow.db").exists(), "only a look at a cluster comes after the store"


def test_a_tracking_server_that_is_not_there_is_refused_before_anything_starts(folder: Path) -> None:
    (folder / "sweep.yaml").write_text(MINI)
    done = command("run", "sweep.yaml", cwd=folder, MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert done.returncode == 2
    assert "tracking store http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cluster_that_is_not_there_is_refused(folder: Path) -> None:
    done = command(
        "plan",
        str(SWEEPS / "smoke.yaml"),
        "--address",
        "127.0.0.1:9",
        cwd=folder,
    )
    assert done.returncode == 2
    assert "no Ray cluster at 127.0.0.1:9" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--address", "ray://head:10001"], "a sweep does not run through Ray Client"),
        (["--wait-for-nodes", "soon"], "--wait-for-nodes: 'soon' is no time such as 90s, 10m or 1h"),
        (["--wait-for-nodes", "10m"], "--wait-for-nodes: a local Ray has no nodes to come; give --address"),
    ],
)
def test_a_run_asked_for_in_a_way_that_cannot_work_is_one_line(options: list[str], said: str, folder: Path) -> None:
    (folder / "sweep.yaml").write_text(MINI)
    done = command("run", "sweep.yaml", *options, cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_report_where_there_is_no_store_makes_none(folder: Path) -> None:
    done = command("report", "absent", cwd=folder)
    assert done.returncode == 2
    assert "no tracking store at" in done.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "--tracking-uri http://HOST:5000"),
        ({"MLFLOW_TRACKING_URI": "sqlite:////tmp/elsewhere/mlflow.db"}, "--reports"),
    ],
)
def test_in_a_ray_jobs_throw_away_folder_the_store_and_the_reports_must_lie_elsewhere(
    environment: dict[str, str], message: str, tmp_path: Path
) -> None:
    copy = tmp_path / "runtime_resources" / "working_dir_files" / "x"
    copy.mkdir(parents=True)
    (copy / "sweep.yaml").write_text(MINI)
    done = command("run", "sweep.yaml", cwd=copy, RAY_JOB_CONFIG_JSON_ENV_VAR="{}", **environment)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("store", ["http://127.0.0.1:9", "sqlite:////absent/mlflow.db", "sqlite:///other.db"])
def test_a_plan_needs_no_store_and_makes_none(store: str, folder: Path) -> None:
    (folder / "sweep.yaml").write_text(MINI)
    done = command("plan", "sweep.yaml", cwd=folder, MLFLOW_TRACKING_URI=store)
    assert done.returncode == 0, done.stderr
    assert "time: not known" in done.stdout
    assert [file.name for file in folder.iterdir()] == ["sweep.yaml"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("preset:tiny", "./absent", r"model: /.*/absent is not to be seen"),
        ("preset:tiny", "./empty", r"model: /.*/empty has no config.json that can be read"),
        ("preset:tiny", "./other", r"model: /.*/other is a clip, not a bridgetower"),
        ("max_train_samples: 24", "max_train_samples: 2", r"2 samples are less than one batch of 4"),
        ("max_steps: 9", "max_steps: 9, gradient_checkpointing: true", r"transformers has none for BridgeTower"),
        (
            "name: mini",
            "accelerators: {cpu: {python: ~/no/python}}\nname: mini",
            r"~/no/python: no such program",
        ),
        ("name: mini", "accelerators: {cpu: {python: no-such}}\nname: mini", r"python: no-such: no such program"),
        (
            "name: mini",
            "accelerators: {cpu: {python: ./old-python}}\nname: mini",
            r"python: ./old-python: it is Python 3.10, and trials want 3.11 or newer",
        ),
    ],
)
def test_what_this_host_can_know_is_known_at_plan(before: str, after: str, said: str, folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "other").mkdir()
    (folder / "other/config.json").write_text('{"model_type": "clip"}')
    (folder / "old-python").write_text("#!/bin/sh\necho 3 10\n")
    (folder / "old-python").chmod(0o700)
    (folder / "sweep.yaml").write_text(MINI.replace(before, after))
    done = command("plan", "sweep.yaml", cwd=folder)
    assert done.returncode == 2, done.stdout
    assert re.search(said, done.stderr)
    assert done.stderr.count("\n") == 1


def test_an_interpreter_beside_the_sweep_is_found_from_there(folder: Path) -> None:
    (folder / "python").symlink_to(sys.executable)
    (folder / "sweep.yaml").write_text(MINI + "accelerators: {cpu: {python: ./python}}\n")
    assert command("plan", "sweep.yaml", cwd=folder).returncode == 0


def test_an_interpreter_of_an_accelerator_that_is_elsewhere_is_not_looked_for_here(folder: Path) -> None:
    text = (SWEEPS / "blog.yaml").read_text().replace("devices: 8", "devices: 8, python: /opt/venv/bin/python")
    (folder / "sweep.yaml").write_text(text)
    assert command("plan", "sweep.yaml", cwd=folder).returncode == 0
