"""Watches drivers that the tests start: what they have had started, what they have left."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from bridgetower_ray.report.records import SweepResults
from bridgetower_ray.store.location import default_uri
from bridgetower_ray.store.results import read_results
from bridgetower_ray.store.tracking import Tracking
from tests.conftest import MINI, start

LONG = MINI.replace("max_steps: 9", "max_steps: 100000").replace("max_seq_length: 16", "max_seq_length: 17")


def start_driver(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """`bridgetower-ray run sweep.yaml` in `folder`, its output in `folder`/log; `ranks_of(folder)` finds its ranks."""
    mark = {"TEST_DRIVER": str(folder), **environment}
    return start("run", "sweep.yaml", *arguments, cwd=folder, log=folder / "log", env=mark)


def results(folder: Path, name: str = "mini") -> SweepResults:
    """The newest sweep run in a folder's store."""
    return read_results(Tracking(default_uri(folder)), name)[0]


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Poll for what another process does; fail if it ends first."""
    while not condition():
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)


def ranks_of(mark: Path) -> list[psutil.Process]:
    """Training processes whose environment bears the mark of a driver, or of a cluster."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if "bridgetower_ray.training" in (process.info["cmdline"] or []) and _bears(process, mark)
    ]


def _bears(process: psutil.Process, mark: Path) -> bool:
    try:
        return process.environ().get("TEST_DRIVER") == str(mark)
    except psutil.Error:
        return False
