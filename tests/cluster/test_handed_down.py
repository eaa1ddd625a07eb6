"""What a rank has that an actor's supervisor starts, beside what the same process has when it is started by hand."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from bridgetower_ray.cluster.supervision import ProcessGroup

# What a rank says of itself. Variables that the shell and the interpreter set anew in each process are not compared.
LOOK = """
import json, os, resource, signal
from bridgetower_ray.training.supervised import die_with_supervisor
die_with_supervisor()
limits = {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")}
umask = os.umask(0)
said = {
    "environment": dict(os.environ),
    "niceness": os.getpriority(os.PRIO_PROCESS, 0),
    "policy": os.sched_getscheduler(0),
    "affinity": sorted(os.sched_getaffinity(0)),
    "umask": umask,
    "limits": limits,
    "oom": open("/proc/self/oom_score_adj").read(),
    "blocked": sorted(int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "ignored": sorted(int(one) for one in signal.valid_signals() if signal.getsignal(one) == signal.SIG_IGN),
}
print("said " + json.dumps(said), flush=True)
"""
OURS = {
    "BRIDGETOWER_RAY_EVENTS_FD", "BRIDGETOWER_RAY_PROCESS_START", "PYTHONUNBUFFERED", "TOKENIZERS_PARALLELISM",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "TMPDIR", "PATH", "PYTHONPATH",
}  # fmt: skip
OF_THE_SHELL = {"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "PYTEST_CURRENT_TEST"}


def by_hand() -> dict[str, Any]:
    # This process has imported Ray and MLflow, and may have been Ray's driver, which have left variables.
    own = ("RAY_", "MLFLOW_", "PYTHONBREAKPOINT")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    command = [sys.executable, "-c", LOOK]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return said_in(done.stdout)


def said_in(text: str) -> dict[str, Any]:
    (line,) = (line for line in text.splitlines() if line.startswith("said "))
    found: dict[str, Any] = json.loads(line.removeprefix("said "))
    return found


def of_an_actor(folder: Path) -> dict[str, Any]:
    """A rank under a supervisor in an actor of a real Ray, which gives its workers niceness 15."""

    class Supervisor:
        def look(self) -> str:
            group = ProcessGroup([sys.executable, "-c", LOOK], 1, folder)
            group.wait(60)
            return group.log()

    remote: Any = ray.remote(num_cpus=0)(Supervisor)
    return said_in(ray.get(remote.remote().look.remote()))


@contextlib.contextmanager
def nice_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Ray of this machine with Ray's own niceness for its workers, in a folder whose name is not too long for it."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        monkeypatch.setenv("RAY_worker_niceness", "15")
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=80 * 2**20)
        try:
            yield
        finally:
            ray.shutdown()


def test_a_rank_has_what_the_same_process_has_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain = by_hand()
    with nice_ray(monkeypatch):
        rank = of_an_actor(tmp_path)
    one, other = rank.pop("environment"), plain.pop("environment")
    different = {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
    assert different - OURS - OF_THE_SHELL == set()
    if os.geteuid() == 0:  # nobody else may lower a niceness
        assert rank == plain
    else:
        assert {**rank, "niceness": 0} == {**plain, "niceness": 0}
