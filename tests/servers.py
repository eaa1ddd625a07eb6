"""A real `mlflow server`, started and ended."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(folder: Path, *options: str, port: int | None = None) -> tuple[subprocess.Popen[bytes], str]:
    """Start `mlflow server` in `folder` in a process group of its own; its address once it answers."""
    port = port or free_port()
    log = folder / "server.log"
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1", *options]
    settings = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **settings},
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    address = f"http://127.0.0.1:{port}"
    wait_for(f"{address}/health", server, log)
    return server, address


def wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Return once a server answers; fail if it ends first."""
    while True:
        assert server.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.2)
        else:
            return


def end(server: subprocess.Popen[bytes]) -> None:
    """End a server with all its processes."""
    os.killpg(server.pid, signal.SIGTERM)
    server.wait(timeout=60)
