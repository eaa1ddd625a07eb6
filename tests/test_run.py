"""Whole sweeps as a user runs them: real Ray, real training, real MLflow."""

import csv
import re
import subprocess
from pathlib import Path

import pytest

from bridgetower_ray.store.location import default_uri
from bridgetower_ray.store.tracking import Tracking
from tests.conftest import MINI, command
from tests.drivers import results


@pytest.fixture(scope="session")
def mini_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A folder in which the mini sweep has been run once, and what that printed."""
    folder = tmp_path_factory.mktemp("mini")
    (folder / "sweep.yaml").write_text(MINI)
    return folder, command("run", "sweep.yaml", cwd=folder)


def test_a_sweep_runs_from_the_file_to_the_report(mini_run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = mini_run
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mini: 2 of 2 cells measured" in done.stdout
    assert "n/a" in done.stdout
    assert f"mlflow ui --backend-store-uri sqlite:///{folder}/mlflow.db" in done.stdout
    assert sorted(file.name for file in (folder / "reports" / "mini").iterdir()) == [
        "report.html",
        "report.md",
        "results.csv",
        "results.parquet",
    ]


def test_progress_without_a_terminal_is_plain_lines(mini_run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = mini_run
    assert "\x1b" not in done.stdout
    assert re.search(r"^\[1/4\] measured  cpu · workers=\d · #1  \d+\.\d samples/s", done.stdout, re.MULTILINE)
    assert "Traceback" not in done.stderr


def test_every_trial_is_one_flat_run_with_its_outcome(
    mini_run: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = mini_run
    measured = results(folder)
    assert [record.outcome.kind for record in measured.records] == ["measured"] * 4
    assert {record.facts["run.loader"] for record in measured.records} == {"torch.utils.data.dataloader.DataLoader"}
    with (folder / "reports" / "mini" / "results.csv").open(newline="") as file:
        assert sum(row["outcome"] == "measured" for row in csv.DictReader(file)) == 4


NO_RAY = """
import sys

def refuse(event, arguments):
    if event == "subprocess.Popen" and "gcs_server" in str(arguments):
        raise RuntimeError("a Ray is being started")

sys.addaudithook(refuse)
"""


def test_running_again_measures_nothing_twice_and_starts_no_ray(
    mini_run: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder, _ = mini_run
    (tmp_path / "sitecustomize.py").write_text(NO_RAY)
    before = [record.run_id for record in results(folder).records]
    done = command("run", "sweep.yaml", cwd=folder, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "4 trials, 4 measured before are kept" in done.stdout
    assert [record.run_id for record in results(folder).records] == before


def test_a_sweep_run_compared_with_itself_has_not_changed(
    mini_run: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = mini_run
    sweep_run = results(folder).sweep_run.id
    done = command("compare", "mini", f"mini@{sweep_run}", "--fail-over", "1%", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("1.000 [") == 2
    assert command("compare", "mini", "mini@absent", cwd=folder).returncode == 2


def test_a_report_is_made_from_the_store_alone(
    mini_run: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder, _ = mini_run
    done = command("report", "mini", cwd=tmp_path, MLFLOW_TRACKING_URI=default_uri(folder))
    assert done.returncode == 0, done.stderr
    ours, first = (one / "reports" / "mini" / "results.csv" for one in (tmp_path, folder))
    assert ours.read_text() == first.read_text()


def test_continuing_with_other_software_is_refused_with_the_difference_named(
    mini_run: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    from bridgetower_ray.doctor.software import stack
    from bridgetower_ray.errors import UsageError
    from bridgetower_ray.store.results import choose_sweep_run
    from bridgetower_ray.sweep.plan import make_plan
    from bridgetower_ray.sweep.spec import load_spec

    folder, _ = mini_run
    tracking = Tracking(default_uri(folder))
    plan = make_plan(load_spec(folder / "sweep.yaml")[0])
    experiment = tracking.create_experiment("mini")
    other = {**stack(), "torch": "9.9"}
    with pytest.raises(UsageError, match=r"torch \S+ -> 9\.9.*--fresh"):
        choose_sweep_run(plan, tracking, experiment, fresh=False, stack=other)
    sweep_run, done = choose_sweep_run(plan, tracking, experiment, fresh=True, stack=other)
    assert sweep_run.id != results(folder).sweep_run.id
    assert done == {}
