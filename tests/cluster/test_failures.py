"""What can go wrong under a sweep, tried for real: processes killed, nodes removed, a store that goes away."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bridgetower_ray.cluster.claim import claimed, unlike_the_first
from bridgetower_ray.cluster.connection import LOCAL_OBJECT_STORE_BYTES, connected, simulated_head
from bridgetower_ray.store.location import default_uri
from bridgetower_ray.store.tracking import Tracking
from tests.conftest import MINI, ONE_CELL, command
from tests.data.test_data import write_images
from tests.drivers import ranks_of, results, start_driver, wait_until
from tests.servers import end, free_port, serve

SLOW = ONE_CELL.replace("max_steps: 9", "max_steps: 60")
NODE = {"bridgetower_node": 1, "bridgetower_cpu": 1}


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A real Ray cluster without a node that trains; `add_node` gives it some."""
    monkeypatch.setenv("TEST_DRIVER", str(tmp_path))
    with simulated_head() as head:
        yield head


def add_node(nodes: Any, env_vars: dict[str, str] | None = None, **resources: float) -> Any:
    memory = LOCAL_OBJECT_STORE_BYTES
    return nodes.add_node(num_cpus=2, resources={**NODE, **resources}, object_store_memory=memory, env_vars=env_vars)


def outcomes(folder: Path) -> list[str]:
    return sorted(str(record.outcome) for record in results(folder).records)


def attempts(folder: Path) -> list[str]:
    """Every run in the store, those that a later one has taken the place of too."""
    tracking = Tracking(default_uri(folder))
    runs = tracking.runs(tracking.create_experiment("mini"), results(folder).sweep_run.id)
    return [f"{run.tags['outcome']}({run.tags.get('reason', '')})" for run in runs]


def wrapper(folder: Path, script: str) -> None:
    """An interpreter `folder`/python for the training; it is given what the real one would be."""
    (folder / "python").write_text(f"#!/bin/sh\n{script.replace('PYTHON', sys.executable)}\n")
    (folder / "python").chmod(0o700)


def with_interpreter(text: str, folder: Path, devices: int = 1) -> str:
    return f"{text}accelerators: {{cpu: {{python: {folder / 'python'}, devices: {devices}}}}}\n"


def test_a_trial_whose_actor_is_killed_runs_again_and_is_counted_once(folder: Path) -> None:
    (folder / "sweep.yaml").write_text(SLOW)
    driver = start_driver(folder)
    wait_until(lambda: bool(ranks_of(folder)), driver, folder / "log")
    rank = ranks_of(folder)[0]
    actor = rank.parent()
    assert actor is not None
    actor.kill()
    assert driver.wait(timeout=300) == 0, (folder / "log").read_text()
    assert not rank.is_running(), "the ranks go with their actor"
    assert attempts(folder) == ["failed(its actor or node was lost; it began again)", "measured()"]
    assert results(folder).summary == "1 of 1 cells measured"


def test_a_trial_of_a_removed_node_runs_again_on_one_that_has_joined_since(folder: Path, nodes: Any) -> None:
    (folder / "sweep.yaml").write_text(SLOW)
    first = add_node(nodes)
    driver = start_driver(folder, "--address", nodes.address)
    wait_until(lambda: bool(ranks_of(folder)), driver, folder / "log")
    lost = ranks_of(folder)
    add_node(nodes)
    nodes.remove_node(first, allow_graceful=False)
    assert driver.wait(timeout=300) == 0, (folder / "log").read_text()
    assert not any(rank.is_running() for rank in lost)
    assert attempts(folder) == ["failed(its actor or node was lost; it began again)", "measured()"]


def test_a_sweep_whose_last_node_is_removed_ends_after_the_stated_wait(folder: Path, nodes: Any) -> None:
    endless = ONE_CELL.replace("max_steps: 9", "max_steps: 100000").replace("repeats: 1", "repeats: 2")
    (folder / "sweep.yaml").write_text(endless + "scheduling: {node_wait_minutes: 0.1}\n")
    only = add_node(nodes)
    driver = start_driver(folder, "--address", nodes.address)
    wait_until(lambda: bool(ranks_of(folder)), driver, folder / "log")
    nodes.remove_node(only, allow_graceful=False)
    assert driver.wait(timeout=300) == 1, (folder / "log").read_text()
    found = outcomes(folder)
    assert len(found) == 2
    assert all("none came within 0.1 minutes" in one for one in found)


def test_a_run_waits_for_nodes_that_are_still_to_come(folder: Path, nodes: Any) -> None:
    (folder / "sweep.yaml").write_text(ONE_CELL)
    driver = start_driver(folder, "--address", nodes.address, "--wait-for-nodes", "10m")
    wait_until(lambda: "waiting for nodes: no node has" in (folder / "log").read_text(), driver, folder / "log")
    add_node(nodes)
    assert driver.wait(timeout=300) == 0, (folder / "log").read_text()


def test_a_sweep_has_one_driver_on_a_cluster_whatever_hosts_they_are_on(nodes: Any) -> None:
    with connected(nodes.address), claimed("mini@store"):
        code = (
            "import sys\nfrom bridgetower_ray.cluster.claim import claimed\n"
            "from bridgetower_ray.cluster.connection import connected\n"
            "with connected(sys.argv[1]), claimed('mini@store'): pass"
        )
        second = subprocess.run(
            [sys.executable, "-c", code, nodes.address], capture_output=True, text=True, check=False
        )
        assert "UsageError: another `bridgetower-ray run` is at work on mini@store on this cluster" in second.stderr
        assert unlike_the_first("mini@store", "the data set", {"fingerprint": "f00d"}, "one") == ""
        assert unlike_the_first("mini@store", "the software", {"torch": "2"}, "one") == ""
        assert unlike_the_first("mini@store", "the data set", {"fingerprint": "beef"}, "two") == (
            "the data set on node two is not that on node one: fingerprint f00d -> beef"
        )
    with connected(nodes.address), claimed("mini@store"):
        pass


def test_doctor_looks_at_every_node_and_names_what_is_wrong(folder: Path, nodes: Any) -> None:
    add_node(nodes, bridgetower_gaudi2=1, HPU=8)
    add_node(nodes)
    done = command("doctor", "--address", nodes.address, cwd=folder)
    assert done.returncode == 1
    assert "8 HPU" in done.stdout
    assert "is a stock build, which drives no Gaudi" in done.stdout
    assert "declares bridgetower_gaudi2, but no such device is there" in done.stdout


def test_a_node_whose_data_are_not_those_of_the_others_gives_no_number(folder: Path, nodes: Any) -> None:
    """Two nodes, each with a home of its own, in which the same path has other images."""
    for home, count in (("one", 24), ("other", 25)):
        (folder / home).mkdir()
        write_images(folder / home / "images", count=count)
        add_node(nodes, env_vars={"HOME": str(folder / home)})
    text = ONE_CELL.replace("builtin:cartoons, max_train_samples: 24", "~/images").replace("[0]", "[0, 1]")
    (folder / "sweep.yaml").write_text(text)
    done = command("run", "sweep.yaml", "--address", nodes.address, cwd=folder)
    assert done.returncode == 1
    assert re.search(r"the data set on node \S+ is not that on node \S+: fingerprint \w+ -> \w+", done.stdout)
    assert [one.partition("(")[0] for one in outcomes(folder)] == ["failed", "measured"]


def test_nodes_that_train_with_another_major_version_are_refused_unless_told(folder: Path, nodes: Any) -> None:
    """The second node's interpreter says that it has the next transformers; it trains with the one that is there."""
    (folder / "installed.py").write_text(
        "import json; from bridgetower_ray.doctor.installed import installed; said = installed()\n"
        "said['versions']['transformers'] = '5.0.0'; print(json.dumps(said))\n"
    )
    wrapper(folder, f'case "$2" in *installed) exec PYTHON {folder}/installed.py;; esac; exec PYTHON "$@"')
    add_node(nodes)
    add_node(nodes, bridgetower_other=1)
    text = with_interpreter(ONE_CELL, folder).replace("cpu: {python", "other: {like: cpu, python")
    (folder / "sweep.yaml").write_text(text.replace("[cpu]", "[cpu, other]"))
    done = command("run", "sweep.yaml", "--address", nodes.address, cwd=folder)
    assert done.returncode == 2, done.stdout
    assert re.search(r"unlike major versions train: transformers 4 \(.*\), 5 \(.*\); install the same", done.stderr)
    assert done.stderr.count("\n") == 1
    told = command("run", "sweep.yaml", "--address", nodes.address, "--unlike-software", cwd=folder)
    assert told.returncode == 0, told.stdout
    assert outcomes(folder) == ["measured", "measured"]


def test_a_sweep_run_does_not_go_on_with_other_software_in_an_accelerators_own_interpreter(folder: Path) -> None:
    """The driver's libraries stay as they were; those of `python:` are upgraded between two starts."""
    packages = folder / "packages/pillow-99.0.dist-info"
    script = f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages.parent}" exec {sys.executable} "$@"\n'
    (folder / "python").write_text(script)
    (folder / "python").chmod(0o700)
    (folder / "sweep.yaml").write_text(with_interpreter(ONE_CELL, folder))
    assert command("run", "sweep.yaml", cwd=folder).returncode == 0
    packages.mkdir(parents=True)
    (packages / "METADATA").write_text("Metadata-Version: 2.1\nName: pillow\nVersion: 99.0\n")
    (folder / "sweep.yaml").write_text(with_interpreter(ONE_CELL, folder).replace("repeats: 1", "repeats: 2"))
    done = command("run", "sweep.yaml", cwd=folder)
    assert done.returncode == 1
    assert re.search(
        r"the software that trains on cpu on node \S+ is not that on node \S+: pillow \S+ -> 99.0", done.stdout
    )
    assert [one.partition("(")[0] for one in outcomes(folder)] == ["failed", "measured"]


def test_ranks_that_hang_and_ignore_sigterm_are_ended_with_their_workers_and_the_node_is_free_again(
    folder: Path,
) -> None:
    (folder / "hang.py").write_text(
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.fork()\n"
        f"open(os.path.join({str(folder)!r}, f'pid-{{os.getpid()}}'), 'w').close()\n"
        "time.sleep(600)\n"
    )
    wrapper(folder, f'[ "$2" = bridgetower_ray.training ] && exec PYTHON {folder}/hang.py; exec PYTHON "$@"')
    text = MINI.replace("timeout_minutes: 5", "timeout_minutes: 0.05, start: cold").replace("repeats: 2", "repeats: 1")
    (folder / "sweep.yaml").write_text(with_interpreter(text, folder, devices=2))
    done = command("run", "sweep.yaml", cwd=folder)
    assert done.returncode == 1
    assert outcomes(folder) == ["timed_out(not done within 0.05 minutes)"] * 2
    pids = [int(file.name.removeprefix("pid-")) for file in folder.glob("pid-*")]
    assert len(pids) == 2 * 2 * 2, "two trials of two ranks with a child each"
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_trial_that_runs_out_of_memory_is_told_so_and_the_others_go_on(folder: Path) -> None:
    """The kernel refuses the memory for real: the interpreter that trains runs under a limit."""
    wrapper(folder, 'ulimit -v 4000000; exec PYTHON "$@"')
    text = ONE_CELL.replace("max_train_samples: 24", "max_train_samples: 260").replace(
        "per_device_train_batch_size: 4, ", ""
    )
    text = text.replace("max_seq_length: 16", "max_seq_length: 256")
    text = text.replace("[0]\n", "[0]\n  per_device_train_batch_size: [4, 256]\n")
    (folder / "sweep.yaml").write_text(with_interpreter(text, folder))
    done = command("run", "sweep.yaml", cwd=folder)
    assert done.returncode == 1
    assert outcomes(folder)[0] == "measured", done.stdout
    assert outcomes(folder)[1].startswith("out_of_memory")


def test_results_wait_on_disk_while_the_server_is_away_and_are_written_once_at_the_next_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    options = ("--backend-store-uri", default_uri(folder), "--artifacts-destination", str(folder / "artifacts"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    server, address = serve(folder, *options, port=port)
    (folder / "sweep.yaml").write_text(SLOW)
    driver = start_driver(folder, "--tracking-uri", address)
    wait_until(lambda: bool(ranks_of(folder)), driver, folder / "log")
    end(server)
    assert driver.wait(timeout=300) != 0
    log = (folder / "log").read_text()
    assert "[1/1] measured" in log
    assert "1 results wait on this host" in log
    server, _ = serve(folder, *options, port=port)
    try:
        again = command("run", "sweep.yaml", "--tracking-uri", address, cwd=folder)
        assert again.returncode == 0, again.stdout + again.stderr
        assert "started" not in again.stdout
        runs = Tracking(address).runs("1", results_of(address).sweep_run.id)
        assert [run.tags["outcome"] for run in runs] == ["measured"]
    finally:
        end(server)


def results_of(address: str) -> Any:
    from bridgetower_ray.store.results import read_results

    return read_results(Tracking(address), "mini")[0]
