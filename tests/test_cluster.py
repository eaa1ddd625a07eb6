"""What a host declares of itself, and the cluster file, as far as both can be checked without the hosts."""

import json
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from bridgetower_ray.hardware import gaudi_name, gpu_name, local_resources
from tests.conftest import ROOT, command


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


@pytest.mark.parametrize("section", ["head_start_ray_commands", "worker_start_ray_commands"])
def test_the_cluster_files_commands_are_valid_shell(section: str) -> None:
    for line in yaml.safe_load((ROOT / "cluster.yaml").read_text())[section]:
        subprocess.run(["bash", "-n", "-c", line], check=True)


def test_the_runtime_environment_uploads_neither_results_nor_the_virtual_environment() -> None:
    environment = yaml.safe_load((ROOT / "sweeps" / "runtime_env.yaml").read_text())
    assert {"/.venv/", "/reports/", "/mlruns/", "/.git/"} <= set(environment["excludes"])
    assert environment["env_vars"]["RAY_JOB_STOP_SIGNAL"] == "SIGINT"
