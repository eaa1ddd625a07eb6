"""Sweeps that are killed, stopped, contended for, or given bad data: real processes, real signals."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from bridgetower_ray.store.location import default_uri
from bridgetower_ray.store.tracking import Tracking
from tests.conftest import MINI, ONE_CELL, command, start
from tests.data.test_data import write_images
from tests.drivers import LONG, ranks_of, results, wait_until


def test_a_killed_rank_is_a_failed_trial_and_the_next_run_measures_just_that_one(folder: Path) -> None:
    (folder / "sweep.yaml").write_text(
        MINI.replace("repeats: 2", "repeats: 1").replace("max_steps: 9", "max_steps: 60")
    )
    log = folder / "log"
    driver = start("run", "sweep.yaml", cwd=folder, log=log, env={"TEST_DRIVER": str(folder)})
    wait_until(lambda: bool(ranks_of(folder)), driver, log)
    ranks_of(folder)[0].kill()
    assert driver.wait(timeout=300) == 1
    first = results(folder)
    outcomes = {str(one.outcome): one.cell.setting for one in first.to_measure}
    assert outcomes.keys() == {"failed(rank 0 was killed by SIGKILL)", "measured"}
    killed = outcomes["failed(rank 0 was killed by SIGKILL)"]
    again = command("run", "sweep.yaml", cwd=folder)
    assert again.returncode == 0, again.stdout
    assert f"[0/1] started   {killed} · #1" in again.stdout
    assert results(folder).summary == "2 of 2 cells measured"


@pytest.mark.parametrize(
    ("number", "send", "status"),
    [(signal.SIGINT, os.killpg, 130), (signal.SIGTERM, os.kill, 143), (signal.SIGHUP, os.killpg, 130)],
)
def test_a_stopped_sweep_keeps_what_it_has_marks_the_rest_and_leaves_no_process(
    number: signal.Signals, send: Callable[[int, int], None], status: int, folder: Path
) -> None:
    """Ctrl-C and a closed terminal reach the whole foreground group, the local Ray too; SIGTERM the driver alone."""
    (folder / "sweep.yaml").write_text(LONG)
    log = folder / "log"
    driver = start("run", "sweep.yaml", cwd=folder, log=log, env={"TEST_DRIVER": str(folder)})
    wait_until(lambda: bool(ranks_of(folder)), driver, log)
    ranks = ranks_of(folder)
    send(driver.pid, number)
    send(driver.pid, number)  # impatience changes nothing
    assert driver.wait(timeout=120) == status, log.read_text()
    if number != signal.SIGHUP:
        assert log.read_text().count("interrupted: 0 of 4 trials ended") == 1
    assert "Traceback" not in log.read_text()
    assert [str(record.outcome.kind) for record in results(folder).records] == ["interrupted"]
    assert not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)


def listens(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has taken SIGINT over."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1 and int(caught.split()[1], 16) >> 14 & 1)


MOMENTS: dict[str, Callable[[Path, subprocess.Popen[bytes]], bool]] = {
    "at once": lambda folder, driver: listens(driver),
    "the store is made": lambda folder, driver: (folder / "mlflow.db").exists(),
    "Ray starts": lambda folder, driver: any("gcs_server" in one.name() for one in children(driver)),
    "trials are announced": lambda folder, driver: "sweep run" in (folder / "log").read_text(),
}


def children(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(driver.pid).children(recursive=True)
    return []


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_told_to_stop_at_any_moment_says_one_line_and_leaves_nothing(moment: str, folder: Path) -> None:
    (folder / "sweep.yaml").write_text(ONE_CELL)
    log = folder / "log"
    driver = start("run", "sweep.yaml", cwd=folder, log=log)
    wait_until(lambda: MOMENTS[moment](folder, driver), driver, log)
    started = children(driver)
    os.killpg(driver.pid, signal.SIGINT)
    os.killpg(driver.pid, signal.SIGINT)
    assert driver.wait(timeout=120) == 130, log.read_text()
    said = [line for line in log.read_text().splitlines() if not line.startswith(("sweep run", "warning", "["))]
    assert len(said) == 1
    assert "interrupted" in said[0]
    psutil.wait_procs(started, timeout=30)
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in started)
    if (folder / "mlflow.db").exists():
        assert command("plan", "sweep.yaml", cwd=folder).returncode == 0, "what is there of the store can be read"


def test_a_driver_killed_outright_leaves_a_sweep_that_the_next_one_repairs(folder: Path) -> None:
    (folder / "sweep.yaml").write_text(LONG)
    log = folder / "log"
    driver = start("run", "sweep.yaml", cwd=folder, log=log, env={"TEST_DRIVER": str(folder)})
    wait_until(lambda: bool(ranks_of(folder)), driver, log)
    ranks = ranks_of(folder)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait(timeout=60)
    psutil.wait_procs(ranks, timeout=60)
    assert not any(rank.is_running() for rank in ranks), "the ranks go with whoever started them"
    (folder / "sweep.yaml").write_text(ONE_CELL)
    assert command("run", "sweep.yaml", cwd=folder).returncode == 0
    experiment = Tracking(default_uri(folder)).create_experiment("mini")
    tags = [run.tags["outcome"] for run in Tracking(default_uri(folder)).runs(experiment, results(folder).sweep_run.id)]
    assert sorted(tags) == ["interrupted", "measured"]


def test_a_second_driver_on_the_same_sweep_is_refused(folder: Path) -> None:
    (folder / "sweep.yaml").write_text(LONG)
    log = folder / "log"
    driver = start("run", "sweep.yaml", cwd=folder, log=log)
    wait_until(lambda: "sweep run" in log.read_text(), driver, log)
    second = command("run", "sweep.yaml", cwd=folder)
    os.killpg(driver.pid, signal.SIGINT)
    driver.wait(timeout=120)
    assert second.returncode == 2
    assert "another `bridgetower-ray run` is at work on the sweep 'mini'" in second.stderr


def test_a_folder_of_ones_own_images_says_what_was_left_out(folder: Path) -> None:
    write_images(folder / "images", count=40, truncated=1)
    text = MINI.replace("builtin:cartoons, max_train_samples: 24", "./images").replace("repeats: 2", "repeats: 1")
    (folder / "sweep.yaml").write_text(text.replace("[0, 1]", "[1]").replace("workers: 0}", "workers: 1}"))
    done = command("run", "sweep.yaml", cwd=folder)
    assert done.returncode == 0, done.stdout
    assert "cannot be read: 1: 39.jpg (" in done.stdout


def test_a_node_that_cannot_be_prepared_fails_its_trials_with_the_reason(folder: Path) -> None:
    write_images(folder / "images", count=20, truncated=6)
    text = MINI.replace("builtin:cartoons, max_train_samples: 24", "./images").replace("repeats: 2", "repeats: 1")
    (folder / "sweep.yaml").write_text(text)
    done = command("run", "sweep.yaml", cwd=folder)
    assert done.returncode == 1
    assert "6 of 20 samples of ./images cannot be read" in done.stdout
    assert "0 of 2 cells measured" in done.stdout
