"""The check for anyone with a GPU, with everything but the GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path


def gpu_check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bridgetower_ray.gpu_check", *arguments],
        cwd=folder,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_it_prints_a_table_and_writes_all_that_was_measured(folder: Path) -> None:
    done = gpu_check(folder, "--cpu", "--workers", "0", "--pipelines", "fast")
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| cpu")]
    assert row.startswith("| cpu · workers=0 · pipeline=fast | ")
    (record,) = json.loads((folder / "gpu-check.json").read_text())
    assert record["outcome"] == "measured"
    assert f"| {record['figures']['train_samples_per_second']:.1f} |" in row
    assert record["figures"]["compute_ceiling_samples_per_second"] > 0
    assert record["environment"]["devices"] == ["CPU"]


def test_what_the_time_does_not_allow_is_not_run_and_said_so(folder: Path) -> None:
    done = gpu_check(folder, "--cpu", "--workers", "0", "--pipelines", "fast", "--minutes", "0")
    assert done.returncode == 1
    assert "| cpu · workers=0 · pipeline=fast | not_run(no time was left) |" in done.stdout


def test_without_a_gpu_it_is_one_line_that_says_what_to_do(folder: Path) -> None:
    done = gpu_check(folder)
    assert done.returncode == 2
    assert "sees no CUDA device here; --cpu tries everything but the device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_request_at_fault_is_told_before_anything_runs(folder: Path) -> None:
    for wrong, said in ((["--workers", "-1"], "workers"), (["--output", "absent/file"], "absent/file: No such file")):
        done = gpu_check(folder, "--cpu", *wrong)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_it_needs_neither_ray_nor_mlflow() -> None:
    code = "import bridgetower_ray.gpu_check, sys; print({'ray', 'mlflow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
