"""What is wrong with a node, and what to do. Nodes with devices are described here; this host is looked at for real."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridgetower_ray.cluster.survey import _interpreter_for
from bridgetower_ray.doctor.facts import NodeFacts, node_facts
from bridgetower_ray.doctor.judgement import GIB, Finding, Node, examine, shared_memory_need, unlike_majors
from bridgetower_ray.sweep.plan import Plan, lay_out
from bridgetower_ray.sweep.spec import SweepSpec, load_spec
from tests.conftest import MINI, SWEEPS, command

SpecOf = Callable[[str], SweepSpec]
GAUDI_TORCH = {"torch": "2.6.0+hpu_1.21.2-4.git603340c", "torch_devices": 8}
GPU_TORCH = {"torch": "2.8.0a0+5228986c39.nv25.06", "torch_cuda": "12.9", "torch_devices": 8}
EVERY_NODE = {"CPU": 96, "bridgetower_cpu": 1, "bridgetower_node": 1}
GAUDI = {**EVERY_NODE, "HPU": 8, "bridgetower_gaudi2": 1}
H100 = {**EVERY_NODE, "GPU": 8, "bridgetower_h100": 1}


def facts(interpreter: dict[str, Any] | None = None, **changes: Any) -> NodeFacts:
    trains = {"executable": "python", "python": "3.11.7", "torch": "2.13.0+cpu", **(interpreter or {})}
    room = {"memory_available": 900 * GIB, "disk_free": 900 * GIB, "shared_memory": 500 * GIB}
    software = {"python": "3.11.7", "ray": "2.60.0", "source": "abc", "nvidia_container": ""}
    host = {
        "host": "h",
        "devices": (),
        "driver": "1",
        "cpus": 96,
        "cpu_model": "Xeon",
        "device_processes": (),
        "niceness": 0,
    }
    return NodeFacts.model_validate({**host, **room, **software, "interpreter": trains, **changes})


def head() -> Node:
    return Node("head", {"CPU": 8}, facts(), head=True)


def gaudi(interpreter: dict[str, Any] | None = None, **changes: Any) -> Node:
    own = {**GAUDI_TORCH, **(interpreter or {})}
    return Node("gaudi", GAUDI, facts(own, **{"devices": ("gaudi2",) * 8, **changes}))


def h100(interpreter: dict[str, Any] | None = None, name: str = "h100", **changes: Any) -> Node:
    own = {**GPU_TORCH, **(interpreter or {})}
    return Node(name, H100, facts(own, **{"devices": ("h100",) * 8, **changes}))


def blog(*declared: dict[str, float]) -> Plan:
    return lay_out(load_spec(SWEEPS / "blog.yaml")[0], declared)


def serious(findings: list[Finding]) -> list[str]:
    return [finding.what for finding in findings if finding.serious]


def test_nodes_that_are_as_they_should_be_give_no_finding() -> None:
    assert examine([head(), gaudi(), h100(driver="another")]) == []


@pytest.mark.parametrize(
    ("node", "what"),
    [
        (gaudi(ray="2.59.0"), "Ray 2.59.0, the head has 2.60.0"),
        (gaudi(python="3.10.2"), "Python 3.10.2, the head has 3.11.7"),
        (gaudi(source="xyz"), "another state of bridgetower-ray than the head's"),
        (gaudi({"torch": "2.6.0"}), "torch 2.6.0 is a stock build, which drives no Gaudi"),
        (gaudi({"torch_devices": 0}), "torch 2.6.0+hpu_1.21.2-4.git603340c sees no device"),
        (gaudi(devices=()), "declares bridgetower_gaudi2, but no such device is there"),
        (gaudi(devices=("gaudi2",) * 4), "declares HPU: 8, but 4 are there"),
        (gaudi({"torch_error": "ImportError: libhpu"}), "python cannot train: ImportError: libhpu"),
        (gaudi({"error": "cannot be started: No such file"}), "python cannot train: cannot be started: No such file"),
        (h100({"torch": "2.8.0+cpu", "torch_cuda": None}), "torch 2.8.0+cpu is a build without CUDA"),
        (
            h100({"torch": "2.8.0", "torch_cuda": None}, nvidia_container="2.8.0a0+5228986c39"),
            "NVIDIA's torch was replaced by the stock build 2.8.0",
        ),
        (gaudi({"missing": ("optimum.habana",)}), "python cannot train: optimum.habana missing"),
    ],
)
def test_what_would_keep_a_trial_from_running_is_an_error(node: Node, what: str) -> None:
    assert serious(examine([head(), node])) == [what]


def test_a_node_that_could_not_look_at_itself_is_an_error_that_says_what_to_do() -> None:
    (finding,) = examine([head(), Node("worker", H100, "ModuleNotFoundError: No module named 'bridgetower_ray'")])
    assert str(finding).startswith("error: worker: could not look at itself: ModuleNotFoundError")
    assert finding.do == "install bridgetower-ray for the Python that runs Ray there"


def test_a_node_that_failed_otherwise_is_not_told_to_install_anything() -> None:
    (finding,) = examine([head(), Node("worker", H100, "GetTimeoutError: Get timed out")])
    assert finding.do == "look at the node's Ray logs"


def test_a_stock_torch_that_drives_the_gpu_is_a_warning_in_nvidias_container() -> None:
    found = examine([head(), h100({"torch": "2.8.0+cu128"}, nvidia_container="2.8.0a0+5228986c39")])
    assert [one.serious for one in found] == [False]


def test_a_node_with_devices_is_judged_by_the_interpreter_of_its_accelerator(spec_of: SpecOf) -> None:
    text = MINI.replace("[cpu]", "[cpu, gaudi2]")
    both = spec_of(text + "accelerators: {cpu: {python: /cpu/python}, gaudi2: {python: /gaudi/python}}\n")
    assert _interpreter_for(GAUDI, both) == "/gaudi/python"
    assert _interpreter_for(EVERY_NODE, both) == "/cpu/python"
    assert _interpreter_for(H100, spec_of(text)) is None


def test_a_niceness_is_a_warning_where_something_trains() -> None:
    (finding,) = examine([Node("head", {"CPU": 8}, facts(niceness=15), head=True), gaudi(niceness=15)])
    assert (finding.node, finding.serious) == ("gaudi", False)
    assert finding.what == "ranks would run with niceness 15: any ordinary process is served first"


def test_an_interpreter_that_is_too_old_is_an_error(folder: Path) -> None:
    old = folder / "python3.10"
    old.write_text("#!/bin/sh\necho 3 10\n")
    old.chmod(0o700)
    error = node_facts(str(old)).interpreter.error
    assert serious(examine([head(), gaudi({"error": error})])) == [
        f"python cannot train: python: {old}: it is Python 3.10, and trials want 3.11 or newer"
    ]


def test_gaudis_that_are_not_numbered_from_0_want_a_variable() -> None:
    some = {"modules": (4, 5, 6, 7), "devices": ("gaudi2",) * 8}
    (finding,) = examine([head(), gaudi(**some)])
    assert finding.do == "start Ray with HABANA_VISIBLE_MODULES=4,5,6,7 in its environment"
    assert examine([head(), gaudi(**some, visible_modules="4,5,6,7")]) == []
    assert examine([head(), gaudi(modules=tuple(range(8)))]) == []


def test_processes_that_a_container_cannot_see_are_a_warning() -> None:
    (finding,) = examine([head(), h100(hidden_device_processes=3)])
    assert not finding.serious
    assert finding.what == "3 processes on the devices cannot be seen from this container"


def test_unlike_major_versions_stop_a_sweep_of_both_nodes_and_no_other() -> None:
    four, five = ({"versions": {"transformers": version, "torch": "2.8.0"}} for version in ("4.55.4", "5.2.0"))
    nodes = [head(), gaudi(four), h100(five)]
    (finding,) = (one for one in examine(nodes, blog(GAUDI, H100)) if "major" in one.what)
    assert finding.serious
    assert finding.what == "unlike major versions train: transformers 4 (gaudi), 5 (h100)"
    assert unlike_majors(nodes, blog(GAUDI)) is None
    assert unlike_majors([head(), gaudi(four), h100(four)], blog(GAUDI, H100)) is None
    (warning,) = (one for one in examine(nodes) if "major" in one.what)
    assert not warning.serious


def test_a_patch_release_of_python_is_a_warning() -> None:
    assert [one.serious for one in examine([head(), gaudi(python="3.11.9")])] == [False]


def test_the_media_pipeline_is_an_error_only_where_the_sweep_wants_it() -> None:
    node = gaudi({"media_pipeline_error": "OSError: libmedia.so"})
    assert serious(examine([head(), node])) == []
    assert serious(examine([head(), node, h100()], blog(GAUDI, H100, {**H100, "bridgetower_a100-80gb": 1}))) == [
        "the media pipeline cannot be imported: OSError: libmedia.so"
    ]


def test_queues_that_do_not_fit_into_shared_memory_are_an_error_with_both_sizes() -> None:
    node = h100(shared_memory=64 * 2**20)
    found = serious(examine([head(), node], blog(H100)))
    assert found[0] == "/dev/shm holds 0.0625 GiB, the loaders' queues need 1.86 GiB"


def test_the_need_of_shared_memory_counts_every_ranks_queue() -> None:
    cells = {planned.setting: planned.cell for planned in blog(H100).cells}
    batch = 48 * (3 * 294 * 294 * 4 + 2 * 8 * 128)
    assert shared_memory_need(cells["h100 · workers=2"]) == 8 * (2 * 2 + 1) * batch
    assert shared_memory_need(cells["h100 · workers=0"]) == 0


def test_other_processes_on_the_devices_are_a_warning() -> None:
    found = examine([head(), h100(device_processes=("python (7)",))])
    assert [(one.serious, one.what) for one in found] == [(False, "others are on the devices: python (7)")]


def test_nodes_of_one_kind_that_differ_are_told_apart() -> None:
    found = examine([head(), h100(), h100(name="other", driver="2", cpus=64)])
    assert [(one.node, one.what) for one in found] == [("other", "differs from h100: driver 2, not 1; CPUs 64, not 96")]


def test_cells_that_no_node_can_hold_are_one_error_for_each_lack() -> None:
    found = examine([head(), h100()], blog(H100))
    assert len(serious(found)) == 2
    assert "which 4 cells need: gaudi2 · workers=0" in "".join(serious(found))


def test_this_host_is_looked_at_for_real() -> None:
    found = node_facts()
    assert found.interpreter.torch
    assert found.interpreter.versions["transformers"]
    assert found.interpreter.media_pipeline_error.startswith("ModuleNotFoundError")
    assert (found.cpus, found.shared_memory > 0) == (os.cpu_count(), True)


def test_an_interpreter_that_says_nothing_is_told(folder: Path) -> None:
    (folder / "python").write_text("#!/bin/sh\n")
    (folder / "python").chmod(0o700)
    assert node_facts(str(folder / "python")).interpreter.error == "did not say what it has"


def test_an_interpreter_that_is_not_there_is_told() -> None:
    assert node_facts("/absent/python").interpreter.error == "python: /absent/python: no such program on this host"


def test_doctor_of_a_sweep_that_can_not_run_here_says_why_and_exits_1(folder: Path) -> None:
    done = command("doctor", str(SWEEPS / "blog.yaml"), cwd=folder)
    assert done.returncode == 1
    assert "error: the cluster: no node has bridgetower_gaudi2" in done.stdout
    assert "3 errors, 0 warnings" in done.stdout


def test_doctor_of_a_sweep_that_can_run_here_exits_0(folder: Path) -> None:
    (folder / "sweep.yaml").write_text(MINI)
    done = command("doctor", "sweep.yaml", "--json", cwd=folder)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["findings"] == []


def test_doctor_with_an_interpreter_that_cannot_train_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sweep.yaml").write_text(MINI + "accelerators: {cpu: {python: /absent/python}}\n")
    done = command("doctor", "sweep.yaml", cwd=folder)
    assert done.returncode == 1
    assert "python: /absent/python: no such program on this host" in done.stdout
