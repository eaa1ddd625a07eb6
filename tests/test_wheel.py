"""The wheel by itself: built, put in a folder of its own, called from an empty one."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ONE_CELL, ROOT

CALL = "import sys; sys.path.insert(0, {site!r}); from bridgetower_ray.cli import main; main()"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel holds, and nothing of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # setuptools would leave its build folder in the checkout
    unpacked = shutil.ignore_patterns("__pycache__")
    for name in ("bridgetower_ray", "sweeps"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=unpacked)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*build, str(source)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site-packages")
    return folder / "site-packages"


def call(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line of the wheel, as its entry point calls it; a rank must find the same package."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", CALL.format(site=str(site)), *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )


def test_the_wheel_prints_its_example_sweeps(site: Path, folder: Path) -> None:
    assert {"smoke", "blog", "pipelines"} <= set(call(site, folder, "example").stdout.split())
    assert call(site, folder, "example", "smoke").stdout == (ROOT / "sweeps" / "smoke.yaml").read_text()
    unknown = call(site, folder, "example", "../pyproject")
    assert unknown.returncode == 2
    assert "no example '../pyproject'; there are" in unknown.stderr


def test_the_wheel_holds_every_room_and_no_test(site: Path) -> None:
    rooms = {folder.name for folder in (site / "bridgetower_ray").iterdir() if folder.is_dir()}
    assert {"sweep", "cluster", "store", "report", "doctor", "training", "data"} == rooms
    assert not (site / "tests").exists()


def test_the_wheel_plans_runs_and_reports_from_an_empty_folder(site: Path, folder: Path) -> None:
    (folder / "sweep.yaml").write_text(ONE_CELL)
    planned = call(site, folder, "plan", "sweep.yaml")
    assert "1 runnable cells" in planned.stdout, planned.stderr
    ran = call(site, folder, "run", "sweep.yaml")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 of 1 cells measured" in call(site, folder, "report", "mini").stdout
