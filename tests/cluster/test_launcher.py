"""`ray up cluster.yaml` as it is, on hosts that are this machine's own: real sshd, rsync and Ray.

Each host is a loopback address with a home, processes and Ray's folder of its own, by Linux's namespaces. `docker` is a
stand-in that writes down how it was called and runs the container's command on the host, where `pip` installs nothing.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ONE_CELL, ROOT
from tests.servers import free_port

HEAD, WORKERS = "127.0.0.11", ("127.0.0.12", "127.0.0.13")
ISOLATED = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
DOCKER = f"""#!{sys.executable}
import json, os, subprocess, sys
home = os.environ["HOME"]
with open(home + "/docker.log", "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "run":
    names = [one for before, one in zip(sys.argv, sys.argv[1:]) if before == "--env"]
    environment = dict(os.environ, **dict(name.split("=", 1) for name in names))
    environment["PATH"] = f"{{home}}/container:{Path(sys.executable).parent}:{{environment['PATH']}}"
    command = sys.argv[-1].replace("/tmp/", home + "/").replace("/bridgetower-ray", home + "/bridgetower-ray")
    own = "ray start --num-cpus=1 --object-store-memory=100000000 --dashboard-agent-listen-port=0 --node-ip-address="
    command = command.replace("ray start", own + os.environ["HOST_ADDRESS"])
    with open(home + "/container.log", "ab") as output:
        subprocess.Popen(["bash", "-c", command], env=environment, stdout=output, stderr=output, start_new_session=True)
"""
PIP = '#!/bin/sh\necho "$@" >> "$HOME/pip.log"\n'


def can_be_isolated() -> bool:
    tools = all(map(shutil.which, ("ssh", "ssh-keygen", "rsync", "unshare"))) and Path("/usr/sbin/sshd").exists()
    return tools and subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(
    not can_be_isolated(), reason="wants root, namespaces, openssh-server and rsync to play three hosts"
)


@dataclass(frozen=True)
class Hosts:
    """The folder with a home for each, and the key that opens them."""

    folder: Path

    @property
    def key(self) -> Path:
        return self.folder / "key"

    def home(self, address: str) -> Path:
        return self.folder / address

    def on(self, address: str, command: str) -> subprocess.CompletedProcess[str]:
        options = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
        line = ["ssh", "-i", str(self.key), *options, f"root@{address}", f"bash --login -c '{command}'"]
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts that answer to ssh; all that runs on one ends with it."""
    found = Hosts(tmp_path_factory.mktemp("hosts"))
    for name in ("key", "hostkey"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", found.folder / name], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    Path("/tmp/ray").mkdir(exist_ok=True)  # where Ray's launcher keeps its state
    with contextlib.ExitStack() as running:
        for address in (HEAD, *WORKERS):
            running.enter_context(_host(found, address))
        yield found


@contextlib.contextmanager
def _host(hosts: Hosts, address: str) -> Iterator[None]:
    home, config, users = hosts.home(address), hosts.folder / f"{address}.sshd", hosts.folder / f"{address}.passwd"
    for folder in (home / "ray", home / "tmp", home / "bin", home / "container"):
        folder.mkdir(parents=True)
    for file, script in ((home / "bin/docker", DOCKER), (home / "container/pip", PIP)):
        file.write_text(script)
        file.chmod(0o700)
    (home / ".profile").write_text(
        f"export HOST_ADDRESS={address} TMPDIR={home}/tmp RAY_TMPDIR=/tmp PATH={home}/bin:$PATH\n"
    )
    lines = Path("/etc/passwd").read_text().splitlines()
    users.write_text("".join(f"{line.replace(':/root:', f':{home}:', 1)}\n" for line in lines))
    config.write_text(
        f"ListenAddress {address}\nHostKey {hosts.folder}/hostkey\nAuthorizedKeysFile {hosts.key}.pub\n"
        "StrictModes no\nPermitRootLogin yes\nPidFile none\n"
    )
    apart = (
        f"mount --bind {users} /etc/passwd && mount --bind {home}/ray /tmp/ray && exec /usr/sbin/sshd -D -e -f {config}"
    )
    with (hosts.folder / f"{address}.log").open("wb") as log:
        host = subprocess.Popen([*ISOLATED, "bash", "-c", apart], stdout=log, stderr=log, start_new_session=True)
    try:
        patience = time.monotonic() + 30
        while hosts.on(address, "true").returncode:
            if host.poll() is not None or time.monotonic() > patience:
                pytest.skip(f"no ssh to {address}: {(hosts.folder / f'{address}.log').read_text()[-300:]}")
        yield
    finally:
        host.kill()
        host.wait()


def launcher_file(hosts: Hosts) -> Path:
    """`cluster.yaml` with these hosts' addresses, user and key; the head's environment is the tests' own."""
    text, port = (ROOT / "cluster.yaml").read_text(), free_port()
    (hosts.home(HEAD) / "bridgetower-ray-venv").symlink_to(Path(sys.executable).parent.parent)
    for there, here in (
        ("192.0.2.10", HEAD),
        ("192.0.2.21", WORKERS[0]),
        ("192.0.2.22", WORKERS[1]),
        ("    - 192.0.2.23  # A100 80GB, 8 GPUs\n", ""),
        ("ssh_user: ubuntu", "ssh_user: root"),
        ("~/.ssh/id_ed25519", str(hosts.key)),
        ("min_workers: 3", "min_workers: 2"),
        ("max_workers: 3", "max_workers: 2"),
        ("--head --port=6379", f"--head --port={port} --node-ip-address={HEAD} --dashboard-port={free_port()}"),
        ("RAY_HEAD_IP:6379", f"RAY_HEAD_IP:{port}"),
    ):
        assert there in text
        text = text.replace(there, here)
    file = hosts.folder / "cluster.yaml"
    file.write_text(text)
    return file


def nodes_that_train(hosts: Hosts) -> int:
    told = hosts.on(HEAD, "bridgetower-ray-venv/bin/bridgetower-ray doctor --address auto --json").stdout
    nodes = json.loads(told)["nodes"] if told.startswith("{") else []
    return sum(node["declared"].get("bridgetower_cpu", 0) > 0 for node in nodes)


def test_the_launcher_starts_every_host_and_a_sweep_runs_on_them(hosts: Hosts, folder: Path) -> None:
    source = hosts.folder / "source"
    shutil.copytree(
        ROOT, source, ignore=shutil.ignore_patterns(".venv", ".git", "reports", "mlruns", "*.db*", ".*cache")
    )
    up = ["ray", "up", str(launcher_file(hosts)), "--yes", "--no-config-cache"]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RAY_TMPDIR": str(folder),
    }
    done = subprocess.run(up, cwd=source, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    patience = time.monotonic() + 120
    while nodes_that_train(hosts) < len(WORKERS):
        assert time.monotonic() < patience, hosts.on(HEAD, "cat /tmp/ray/session_latest/logs/monitor.*").stdout[-5000:]
    for address in WORKERS:
        _, run = (json.loads(line) for line in (hosts.home(address) / "docker.log").read_text().splitlines())
        assert {"--pid=host", "--ipc=host", "nvcr.io/nvidia/pytorch:25.06-py3"} <= set(run)
        assert "-c" in (hosts.home(address) / "pip.log").read_text()
        own, pins = ((hosts.home(address) / name).read_text().splitlines() for name in ("own.txt", "pins.txt"))
        assert [line.partition("==")[0] for line in own] == ["torch", "numpy"]
        assert any(line.startswith("transformers==") for line in pins)
    (hosts.home(HEAD) / "sweep.yaml").write_text(ONE_CELL.replace("[0]", "[0, 1]"))
    ran = hosts.on(HEAD, "bridgetower-ray-venv/bin/bridgetower-ray run sweep.yaml --address auto")
    assert "2 of 2 cells measured" in ran.stdout, ran.stdout + ran.stderr
