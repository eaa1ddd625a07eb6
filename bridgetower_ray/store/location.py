"""Where a sweep's results are kept: which store, whether it outlives a Ray job, and that one driver writes to it."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from bridgetower_ray.data.cache import cache_root
from bridgetower_ray.errors import UsageError


def default_uri(folder: Path) -> str:
    """`MLFLOW_TRACKING_URI`, or a SQLite file in `folder`."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.resolve() / 'mlflow.db'}"


def local_store_file(uri: str) -> Path | None:
    """The file of a SQLite store, None for any other."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def store_key(uri: str) -> str:
    """12 hex digits that tell one store from another."""
    return hashlib.sha256(uri.encode()).hexdigest()[:12]


@contextmanager
def only_driver(uri: str, name: str) -> Iterator[None]:
    """Refuse a second driver on the same sweep in the same store.

    Raises:
        UsageError: another driver is at work.
    """
    file = local_store_file(uri)
    folder = file.parent if file else cache_root()
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f".{name}-{store_key(uri)}.lock")
    try:
        with lock.acquire(timeout=0):
            yield
    except Timeout:
        raise UsageError(f"another `bridgetower-ray run` is at work on the sweep {name!r} in this store") from None


def check_outlives_job(uri: str, reports: Path) -> None:
    """Refuse what would be lost with a Ray job's working folder, which is a throw-away copy.

    Raises:
        UsageError: this is a job, and the store or the report folder lies in its folder.
    """
    if not _inside_ray_job():
        return
    file = local_store_file(uri)
    if file is not None and file.is_relative_to(Path.cwd()):
        raise UsageError(
            "in a Ray job the working folder is a throw-away copy: add `--tracking-uri http://HOST:5000`, "
            "or another store that outlives it, to the run"
        )
    if not reports.is_absolute() or reports.is_relative_to(Path.cwd()):
        raise UsageError(
            "in a Ray job the working folder is a throw-away copy: add `--reports /absolute/folder` to the run"
        )


def _inside_ray_job() -> bool:
    """Whether this is the entrypoint of `ray job submit`, in a copy of the folder that goes away."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ and "runtime_resources" in Path.cwd().parts


def check_exists(uri: str) -> None:
    """For those who only read: a SQLite file that is not there is not made.

    Raises:
        UsageError: there is no such file.
    """
    file = local_store_file(uri)
    if file is not None and not file.exists():
        raise UsageError(f"no tracking store at {file}; run this where the sweep was run, or set MLFLOW_TRACKING_URI")
