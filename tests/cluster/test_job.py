"""`ray job submit`, as the README has it, against a real `ray start --head`."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.conftest import ONE_CELL, ROOT
from tests.drivers import ranks_of, results
from tests.servers import end, free_port, wait_for

BIN = Path(sys.executable).parent
ENDLESS = ONE_CELL.replace("max_steps: 9", "max_steps: 100000").replace("max_seq_length: 16", "max_seq_length: 17")
SUBMISSION = re.compile(r"raysubmit_\w+")


@dataclass(frozen=True)
class Head:
    """A Ray head whose jobs work on `folder`'s sweep, with the store and the reports beside it in `kept`.

    Ray's files are in `temporary`: a job finds its cluster by a file there, where another test's Ray may write its own.
    """

    address: str
    folder: Path
    kept: Path
    temporary: Path

    def ray(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(BIN / "ray"), "job", arguments[0], "--address", self.address, *arguments[1:]]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=300)

    def submit(self, *options: str) -> subprocess.CompletedProcess[str]:
        entrypoint = ["bridgetower-ray", "run", "sweeps/mini.yaml"]
        store = ["--tracking-uri", f"sqlite:///{self.kept / 'mlflow.db'}", "--reports", str(self.kept / "reports")]
        environment = ["--working-dir", ".", "--runtime-env", "sweeps/runtime_env.yaml"]
        return self.ray("submit", *options, *environment, "--", *entrypoint, *store)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    folder, kept = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("kept")
    (folder / "sweeps").mkdir()
    (folder / "sweeps" / "mini.yaml").write_text(ONE_CELL)
    (folder / "sweeps" / "runtime_env.yaml").write_text((ROOT / "sweeps" / "runtime_env.yaml").read_text())
    for clutter in (".venv", "reports", "mlruns"):
        (folder / clutter).mkdir()
        (folder / clutter / "large").write_bytes(b"not to be uploaded")
    port, dashboard, client, agent = free_port(), free_port(), free_port(), free_port()
    temporary = tempfile.mkdtemp(prefix="ray-")  # short: Ray keeps its sockets in it
    resources = subprocess.run([BIN / "bridgetower-ray", "doctor", "--resources"], capture_output=True, text=True)
    options = [f"--port={port}", f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}"]
    # Jobs are started by this agent; on its usual port another test's Ray may have one.
    options += [f"--dashboard-agent-listen-port={agent}", f"--temp-dir={temporary}"]
    # The module search path leads a job, which runs in a copy of the folder, to the package under test.
    own = {"RAY_AUTH_MODE": "disabled", "TEST_DRIVER": str(kept), "PATH": f"{BIN}:{os.environ['PATH']}"}
    log = kept / "head.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [BIN / "ray", "start", "--head", "--block", "--num-cpus=2", f"--resources={resources.stdout}", *options],
            env={**os.environ, **own},
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    address = f"http://127.0.0.1:{dashboard}"
    wait_for(f"{address}/api/version", process, log)
    os.environ["RAY_AUTH_MODE"] = "disabled"
    one = Head(address, folder, kept, Path(temporary))
    # The agent comes up after the dashboard.
    answers = (one.ray("submit", "--", "true") for _ in range(30))
    assert any(answer.returncode == 0 for answer in answers), log.read_text()
    yield one
    del os.environ["RAY_AUTH_MODE"]
    end(process)
    shutil.rmtree(temporary, ignore_errors=True)


def test_a_job_uploads_little_is_stopped_cleanly_and_continued_by_the_next(head: Head) -> None:
    (head.folder / "sweeps" / "mini.yaml").write_text(ENDLESS)
    submitted = SUBMISSION.search(head.submit("--no-wait").stdout)
    assert submitted is not None
    while not ranks_of(head.kept):
        assert "FAILED" not in head.ray("status", submitted[0]).stdout
        time.sleep(0.5)
    ranks = ranks_of(head.kept)
    stopped = head.ray("stop", submitted[0])
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    # Ray gives a driver three seconds to stop; where that is too little, the ranks go with their actors.
    _, left = psutil.wait_procs(ranks, timeout=60)
    assert left == []
    assert {str(record.outcome.kind) for record in results(head.kept).records} == {"interrupted"}
    (head.folder / "sweeps" / "mini.yaml").write_text(ENDLESS.replace("max_steps: 100000", "max_steps: 9"))
    again = head.submit()
    assert again.returncode == 0, again.stdout
    assert "[1/1] measured  cpu · workers=0 · #1" in again.stdout
    assert "mini: 1 of 1 cells measured" in again.stdout
    assert "Traceback" not in again.stdout + again.stderr
    assert (head.kept / "reports" / "mini" / "report.html").is_file()
    assert uploaded(head, again.stdout + again.stderr) == {"sweeps/mini.yaml", "sweeps/runtime_env.yaml"}


def uploaded(head: Head, said: str) -> set[str]:
    """The files of the package that a submission says it uploaded, from the copy that the job ran in."""
    package = re.search(r"gcs://(_ray_pkg_\w+)\.zip", said)
    assert package is not None
    copies = head.temporary.glob(f"session_*/runtime_resources/working_dir_files/{package[1]}")
    copy = max(copies, key=lambda folder: folder.stat().st_mtime)
    return {str(file.relative_to(copy)) for file in copy.rglob("*") if file.is_file()}


def test_a_job_that_would_lose_its_results_is_refused_with_what_to_add(head: Head) -> None:
    entrypoint = ["bridgetower-ray", "run", "sweeps/mini.yaml"]
    refused = head.ray("submit", "--working-dir", ".", "--runtime-env", "sweeps/runtime_env.yaml", "--", *entrypoint)
    assert refused.returncode != 0
    assert "add `--tracking-uri http://HOST:5000`" in refused.stdout
