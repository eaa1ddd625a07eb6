"""Who is ours on a host: the made-up process tables of hosts, and a real Ray's."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from bridgetower_ray.doctor.neighbours import host_use
from bridgetower_ray.doctor.own_services import Process, own_services

RAY = "/venv/lib/python3.11/site-packages/ray"
SESSION = "session_2026-12-02_10-00-00_123456_77"
OTHER = "session_2026-12-01_09-00-00_123456_12"


def process(pid: int, parent: int, line: str, name: str = "", began: float = 0.0) -> Process:
    return Process(pid, parent, pid, began, name or line.partition(" ")[0].rpartition("/")[2], line)


def table() -> Iterator[Process]:
    yield process(1, 0, "/sbin/init")
    yield process(70, 1, "-bash")
    yield process(77, 70, "/venv/bin/python3 /venv/bin/bridgetower-ray run x", "bridgetower-ray", began=100.0)
    yield process(80, 77, f"{RAY}/core/src/ray/gcs/gcs_server --log_dir=/tmp/ray/{SESSION}/logs")
    yield process(81, 77, f"{RAY}/core/src/ray/raylet/raylet --store=/tmp/ray/{SESSION}/sockets/plasma_store")
    yield process(82, 81, "ray::DashboardAgent")
    yield process(83, 81, "ray::IDLE")
    yield process(84, 81, "ray::TrialActor.step", "ray::TrialActor")
    yield process(85, 84, "/venv/bin/python -m bridgetower_ray.training trial.json", "python")
    yield process(90, 81, "ray::RayTrainWorker", "ray::RayTrainWork")
    yield process(91, 81, "ray::TrialActor.step", "ray::TrialActor")
    yield process(92, 91, "/venv/bin/python -m bridgetower_ray.training other.json", "python")
    yield process(95, 1, f"{RAY}/core/src/ray/raylet/raylet --store=/tmp/ray/{OTHER}/sockets/plasma_store")
    yield process(96, 95, "ray::RayTrainWorker")
    yield process(97, 70, f"python3 burn.py /ray/ mlflow raylet gcs_server {SESSION}", "python3")
    yield process(98, 70, "/venv/bin/python3 /venv/bin/bridgetower-ray run another", "bridgetower-ray")


def test_ours_is_what_the_rank_descends_from_and_what_its_ray_runs_for_itself() -> None:
    processes = {one.pid: one for one in table()}
    assert own_services(processes, 85, (77, 100.0)) == {77, 80, 81, 82, 83, 84, 91}


@pytest.mark.parametrize("pid", [90, 92, 95, 96, 97, 98, 70])
def test_a_foreign_ray_worker_a_second_trial_and_whoever_bears_our_names_are_neighbours(pid: int) -> None:
    processes = {one.pid: one for one in table()}
    assert pid not in own_services(processes, 85, (77, 100.0))


def test_a_pid_that_the_driver_had_and_another_has_now_is_a_neighbours() -> None:
    processes = {one.pid: one for one in table()}
    assert 77 not in own_services(processes, 85, (77, 5.0))


def test_a_trial_by_hand_has_its_supervisor_only() -> None:
    processes = {
        1: process(1, 0, "init"),
        2: process(2, 1, "bash"),
        3: process(3, 2, "torchrun"),
        4: process(4, 3, "x"),
    }
    assert own_services(processes, 4, None) == {3}


def test_a_real_neighbour_that_calls_itself_a_part_of_ray_is_a_stranger() -> None:
    names = ["/ray/", "mlflow", "raylet", "-m bridgetower_ray"]
    burn = subprocess.Popen([sys.executable, "-c", "while True: pass", *names], process_group=0)
    try:
        use = host_use()
    finally:
        burn.kill()
        burn.wait()
    assert burn.pid in {pid for pid, _ in use.others}
