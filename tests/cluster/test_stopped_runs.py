"""Sweeps that are killed, stopped, contended for, or given bad data: real processes, real signals."""

import os
import signal
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
    outcomes = {one.cell.setting: str(one.outcome) for one in first.to_measure}
    assert outcomes == {"cpu · workers=0": "failed(rank 0 was killed by SIGKILL)", "cpu · workers=1": "measured"}
    again = command("run", "sweep.yaml", cwd=folder)
    assert again.returncode == 0, again.stdout
    assert "[0/1] started   cpu · workers=0 · #1" in again.stdout
    assert results(folder).summary == "2 of 2 cells measured"


@pytest.mark.parametrize(("number", "send"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)])
def test_a_stopped_sweep_keeps_what_it_has_marks_the_rest_and_leaves_no_process(
    number: signal.Signals, send: Callable[[int, int], None], folder: Path
) -> None:
    """Ctrl-C reaches the whole foreground group, the local Ray too; SIGTERM the driver alone."""
    (folder / "sweep.yaml").write_text(LONG)
    log = folder / "log"
    driver = start("run", "sweep.yaml", cwd=folder, log=log, env={"TEST_DRIVER": str(folder)})
    wait_until(lambda: bool(ranks_of(folder)), driver, log)
    ranks = ranks_of(folder)
    send(driver.pid, number)
    assert driver.wait(timeout=120) == 130, log.read_text()
    assert "Traceback" not in log.read_text()
    assert [str(record.outcome.kind) for record in results(folder).records] == ["interrupted"]
    assert not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)


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
