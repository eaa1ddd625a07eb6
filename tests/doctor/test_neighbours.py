"""Who else was at work on the host: by known counters, and by a real busy process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridgetower_ray.doctor.neighbours import DeviceProcesses, HostUse, device_processes, host_use, neighbours


def test_neighbours_are_what_the_host_did_less_the_trial_less_our_own_services() -> None:
    before = HostUse(0.0, 100.0, 10.0, {(1, "raylet"): 5.0}, {(2, "make"): 1.0})
    after = HostUse(10.0, 130.0, 20.0, {(1, "raylet"): 7.0}, {(2, "make"): 13.0, (3, "sh"): 0.1})
    found = neighbours(before, after)
    assert found.foreign_cores == pytest.approx((30 - 10 - 2) / 10)
    assert found.own_services_cores == pytest.approx(0.2)
    assert found.busiest == ("make (2) 1.2",)


def test_a_worker_that_bears_another_title_now_has_used_no_more_for_it() -> None:
    """An idle worker of our Ray, which has used 50 s, is taken by another job: one second of that is the job's."""
    before = HostUse(0.0, 100.0, 10.0, {(1, "ray::IDLE"): 50.0, (2, "ray::IDLE"): 50.0}, {})
    after = HostUse(10.0, 112.0, 20.0, {(2, "ray::TrialActor"): 51.0}, {(1, "ray::RayTrainWorker"): 51.0})
    found = neighbours(before, after)
    assert (found.foreign_cores, found.own_services_cores) == pytest.approx((0.1, 0.1))
    assert found.busiest == ("ray::RayTrainWorker (1) 0.1",)


def test_a_real_busy_neighbour_is_seen_and_the_trials_own_children_are_not() -> None:
    """The reader runs in a process group of its own, with a child in it; a stranger outside burns a core."""
    code = """
import json, subprocess, sys, time
from bridgetower_ray.doctor.neighbours import host_use, neighbours
burn = "import time; end = time.process_time() + 1.0\\nwhile time.process_time() < end: pass"
before = host_use()
subprocess.run([sys.executable, "-c", burn])
after = host_use()
print(json.dumps([after.trial - before.trial, neighbours(before, after).foreign_cores]))
"""
    burn = [sys.executable, "-c", "while True: pass"]
    stranger = subprocess.Popen(burn, process_group=0)
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, process_group=0)
    finally:
        stranger.kill()
        stranger.wait()
    own_seconds, foreign_cores = eval(done.stdout)
    assert own_seconds >= 0.95, "the child's second, though it was reaped, is the trial's own"
    assert foreign_cores > 0.3


def test_this_process_is_in_its_own_trial() -> None:
    use = host_use()
    assert all(pid != os.getpid() for pid, _ in (*use.others, *use.own))


def test_pids_that_mean_nothing_here_are_no_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that does not share the host's pids: its own processes are named so too."""
    absent = 2**22 + 1
    lines = (f"{absent}, python", "1, /usr/bin/game", f"{os.getpid()}, us")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    (tmp_path / "nvidia-smi").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert device_processes() == DeviceProcesses(("game (1)",), hidden=1)
