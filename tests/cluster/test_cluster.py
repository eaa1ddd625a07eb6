"""What a host declares of itself, and the cluster files, as far as these can be checked without the hosts."""

import json
import re
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml
from ray.core.generated import autoscaler_pb2

from bridgetower_ray.cluster.connection import simulated
from bridgetower_ray.cluster.nodes import _autoscaler_config
from bridgetower_ray.doctor.hardware import gaudi_name, gpu_name, local_resources
from bridgetower_ray.doctor.judgement import GIB, shared_memory_need
from bridgetower_ray.sweep.plan import make_plan
from bridgetower_ray.sweep.spec import load_spec
from tests.conftest import ROOT, SWEEPS, command


@pytest.mark.parametrize(
    ("product", "memory", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "81559", "h100"),
        ("NVIDIA H200", "143771", "h200"),
        ("NVIDIA A100-SXM4-80GB", "81920", "a100-80gb"),
        ("NVIDIA A100-SXM4-40GB", "40960", ""),
        ("NVIDIA GeForce RTX 4090", "24564", ""),
    ],
)
def test_a_gpu_is_told_by_its_name_and_its_memory(product: str, memory: str, name: str) -> None:
    assert gpu_name(product, memory) == name


@pytest.mark.parametrize(("product", "name"), [("HL-225", "gaudi2"), ("HL-325L", "gaudi3"), ("HL-205", ""), ("x", "")])
def test_a_gaudi_is_told_by_its_board(product: str, name: str) -> None:
    assert gaudi_name(product) == name


def test_a_host_without_devices_declares_itself_a_cpu_node(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert local_resources() == {"bridgetower_node": 1, "bridgetower_cpu": 1}


def test_a_host_with_devices_declares_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the vendors' tools print what those print."""
    for tool, lines in (("nvidia-smi", "NVIDIA A100-SXM4-80GB, 81920\\n" * 2), ("hl-smi", "HL-225\\n" * 8)):
        (folder / tool).write_text(f"#!/bin/sh\nprintf '{lines}'\n")
        (folder / tool).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    found = local_resources()
    assert (found["bridgetower_gaudi2"], found["bridgetower_a100-80gb"], found["HPU"]) == (1, 1, 8)


def test_doctor_prints_what_ray_start_wants(folder: Path) -> None:
    assert json.loads(command("doctor", "--resources", cwd=folder).stdout)["bridgetower_node"] == 1


def test_the_cluster_file_passes_rays_own_validation() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(yaml.safe_load((ROOT / "cluster.yaml").read_text())))


def test_every_host_lets_ray_join_nodes_whose_pythons_differ_in_the_patch_release() -> None:
    for kind in ("head", "worker"):
        (started,) = (line for line in launcher(kind) if "ray start" in line)
        assert "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL=minor" in started


@pytest.mark.parametrize("section", ["head_start_ray_commands", "worker_start_ray_commands"])
def test_the_cluster_files_commands_are_valid_shell(section: str) -> None:
    for line in yaml.safe_load((ROOT / "cluster.yaml").read_text())[section]:
        subprocess.run(["bash", "-n", "-c", line], check=True)


def test_the_runtime_environment_uploads_neither_results_nor_the_virtual_environment() -> None:
    environment = yaml.safe_load((ROOT / "sweeps" / "runtime_env.yaml").read_text())
    assert {"/.venv/", "/reports/", "/mlruns/", "/.git/"} <= set(environment["excludes"])
    assert environment["env_vars"]["RAY_JOB_STOP_SIGNAL"] == "SIGINT"


QUANTITIES = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
CONTAINER = {
    "type": "object",
    "required": ["name", "image", "resources"],
    "properties": {
        "name": {"type": "string"},
        "image": {"type": "string"},
        "env": {"type": "array", "items": {"type": "object", "required": ["name"]}},
        "ports": {"type": "array", "items": {"type": "object", "required": ["containerPort"]}},
        "securityContext": {"type": "object"},
        "resources": {
            "type": "object",
            "properties": {"requests": QUANTITIES, "limits": QUANTITIES},
            "additionalProperties": False,
        },
        "volumeMounts": {"type": "array", "items": {"type": "object", "required": ["name", "mountPath"]}},
    },
    "additionalProperties": False,
}
POD = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "required": ["containers"],
            "properties": {
                "containers": {"type": "array", "minItems": 1, "items": CONTAINER},
                "volumes": {"type": "array", "items": {"type": "object", "required": ["name"], "maxProperties": 2}},
                "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}},
                "hostPID": {"type": "boolean"},
            },
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
START_PARAMETERS = {"type": "object", "additionalProperties": {"type": "string"}}
RAY_CLUSTER = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayCluster"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object",
            "required": ["headGroupSpec"],
            "additionalProperties": False,
            "properties": {
                "rayVersion": {"type": "string"},
                "headGroupSpec": {
                    "type": "object",
                    "required": ["rayStartParams", "template"],
                    "properties": {"rayStartParams": START_PARAMETERS, "template": POD},
                    "additionalProperties": False,
                },
                "workerGroupSpecs": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"],
                        "properties": {
                            "groupName": {"type": "string"},
                            "replicas": {"type": "integer"},
                            "minReplicas": {"type": "integer"},
                            "maxReplicas": {"type": "integer"},
                            "rayStartParams": START_PARAMETERS,
                            "template": POD,
                        },
                        "additionalProperties": False,
                    },
                },
            },
        },
    },
}


def kuberay_groups() -> dict[str, Any]:
    groups = yaml.safe_load((ROOT / "cluster.kuberay.yaml").read_text())["spec"]["workerGroupSpecs"]
    return {group["groupName"]: group for group in groups}


def test_both_cluster_files_give_rays_workers_the_niceness_of_anybody_else() -> None:
    assert "RAY_worker_niceness=0" in launcher("head")[-1].split()
    assert "--env RAY_worker_niceness=0" in launcher("worker")[-1]
    for group in kuberay_groups().values():
        (container,) = group["template"]["spec"]["containers"]
        assert {"name": "RAY_worker_niceness", "value": "0"} in container["env"]


def test_both_cluster_files_show_the_ranks_the_hosts_processes() -> None:
    """The drivers name the host's pids; without them nobody can tell who else is on the devices."""
    (worker,) = (one for one in launcher("worker") if "docker run" in one)
    assert "--pid=host" in worker
    assert all(group["template"]["spec"]["hostPID"] is True for group in kuberay_groups().values())


def test_workers_take_the_heads_versions_of_what_decides_a_trial_but_torch() -> None:
    (worker,) = (one for one in launcher("worker") if "docker run" in one)
    assert "pip install --quiet -c /tmp/own.txt -c /tmp/pins.txt" in worker
    assert "--env PIP_CONSTRAINT= " in worker
    (pattern,) = re.findall(r"grep -E '(.*?)'", worker)
    pinned = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if re.match(pattern, line)]
    assert {line.partition("==")[0] for line in pinned} >= {"ray", "transformers", "accelerate", "datasets", "pillow"}
    assert not any(line.startswith(("torch", "numpy", "sympy")) for line in pinned)


def launcher(kind: str) -> list[str]:
    commands: list[str] = yaml.safe_load((ROOT / "cluster.yaml").read_text())[f"{kind}_start_ray_commands"]
    return commands


def test_the_kuberay_file_has_the_structure_of_the_custom_resource() -> None:
    """As KubeRay's types and Kubernetes' pod template have it, for the fields that the file may use."""
    jsonschema.validate(yaml.safe_load((ROOT / "cluster.kuberay.yaml").read_text()), RAY_CLUSTER)


def test_the_kuberay_nodes_declare_what_the_published_sweep_asks_for() -> None:
    nodes = []
    for group in kuberay_groups().values():
        # Ray's start command is built by a shell, so the JSON stands in quotes.
        declared = json.loads(json.loads(group["rayStartParams"]["resources"]))
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        nodes.append({"CPU": float(limits["cpu"]), "GPU": float(limits.get("nvidia.com/gpu", 0)), **declared})
    plan = make_plan(load_spec(SWEEPS / "blog.yaml")[0], nodes)
    assert sum(cell.runnable for cell in plan.cells) == 10


def test_the_kuberay_nodes_have_shared_memory_and_gaudi_its_huge_pages() -> None:
    plan = make_plan(load_spec(SWEEPS / "blog.yaml")[0])
    need = max(shared_memory_need(cell.cell) for cell in plan.cells)
    for name, group in kuberay_groups().items():
        pod = group["template"]["spec"]
        mounted = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        volume = next(one for one in pod["volumes"] if one["name"] == mounted["/dev/shm"])
        assert volume["emptyDir"]["medium"] == "Memory"
        assert int(volume["emptyDir"]["sizeLimit"].removesuffix("Gi")) * GIB > need
        assert ("hugepages-2Mi" in pod["containers"][0]["resources"]["limits"]) == (name == "gaudi2")


def test_a_rehearsal_leaves_alone_where_a_cluster_of_this_machine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-") as temporary:  # short: Ray keeps its sockets below
        monkeypatch.setenv("RAY_TMPDIR", temporary)
        address = Path(temporary, "ray", "ray_current_cluster")
        address.parent.mkdir()
        address.write_text("192.0.2.9:6379")
        with simulated([{"CPU": 1.0}]):
            assert address.read_text() == "192.0.2.9:6379"
        assert address.read_text() == "192.0.2.9:6379"


def test_ray_still_says_what_its_autoscaler_may_start() -> None:
    """A private interface: the version that takes it away turns this red."""
    try:
        with simulated([{"CPU": 1.0}]):
            assert _autoscaler_config() is None
        fields = autoscaler_pb2.ClusterConfig.DESCRIPTOR.fields_by_name
        group = autoscaler_pb2.NodeGroupConfig.DESCRIPTOR.fields_by_name
    except AttributeError as error:
        pytest.fail(f"ray {ray.__version__} has another interface than 2.60: {error}")
    assert "node_group_configs" in fields, f"ray {ray.__version__}"
    assert {"resources", "max_count"} <= set(group), f"ray {ray.__version__}"
