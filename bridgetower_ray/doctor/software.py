"""Which code and which library versions are at work: what must be alike for results to be put side by side."""

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

PACKAGES = (
    "torch", "transformers", "accelerate", "optimum-habana", "habana-torch-plugin", "datasets", "tokenizers",
    "pillow", "numpy", "pyarrow", "ray", "mlflow",
)  # fmt: skip
TRAINING_PACKAGES = ("python", *(package for package in PACKAGES if package not in ("ray", "mlflow")))
TORCH_VERSION = re.compile(r"""^__version__ = ['"]([^'"]+)['"]""", re.MULTILINE)
NOT_HANDED_DOWN = ("MLFLOW_", "RAY_", "TUNE_")
PACKAGE_FOLDER = Path(__file__).resolve().parent.parent


@cache
def library_versions() -> dict[str, str]:
    """Versions of the packages that matter and are installed, and Python's; without importing any."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions | _torch_build()


def _torch_build() -> dict[str, str]:
    """torch's version with its build (`+cu126`), which the metadata of its wheels do not have."""
    found = importlib.util.find_spec("torch")
    file = Path(found.origin).parent / "version.py" if found and found.origin else None
    version = TORCH_VERSION.search(file.read_text()) if file and file.exists() else None
    return {"torch": version[1]} if version else {}


def training_software() -> dict[str, str]:
    """The versions that decide how fast a rank of this interpreter trains."""
    return {name: version for name, version in library_versions().items() if name in TRAINING_PACKAGES}


@cache
def source_hash() -> str:
    """12 hex digits of this package's source, which tell two states of the code apart with or without git."""
    digest = hashlib.sha256()
    for file in sorted(PACKAGE_FOLDER.rglob("*.py")):
        digest.update(file.relative_to(PACKAGE_FOLDER).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


@cache
def git_commit() -> str | None:
    """The commit this package is checked out at, with `+changes` if it is edited; None outside a checkout."""
    git = shutil.which("git")
    if git is None or not (PACKAGE_FOLDER.parent / ".git").exists():
        return None
    commit = _git(git, "rev-parse", "--short=12", "HEAD")
    edited = _git(git, "status", "--porcelain", "--", str(PACKAGE_FOLDER))
    return f"{commit}+changes" if commit and edited else commit or None


def _git(git: str, *arguments: str) -> str:
    done = subprocess.run([git, "-C", str(PACKAGE_FOLDER), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def stack() -> dict[str, str]:
    """What a sweep run must keep from its first trial to its last."""
    return {"bridgetower-ray source": source_hash(), **library_versions()}


def _stays_behind(name: str, value: str) -> bool:
    return name.startswith(NOT_HANDED_DOWN) or name == "SPT_NOENV" or (name, value[:4]) == ("PYTHONBREAKPOINT", "ray.")


def interpreter_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment in which any interpreter finds this package, as it would be without Ray around it.

    The tracking server's credentials stay behind as well.
    """
    kept = {name: value for name, value in inherited.items() if not _stays_behind(name, value)}
    # A checkout goes along to another interpreter; a site-packages folder would bring its neighbours with it.
    own = [] if PACKAGE_FOLDER.parent.name in ("site-packages", "dist-packages") else [str(PACKAGE_FOLDER.parent)]
    search_path = [*own, *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(search_path)}
