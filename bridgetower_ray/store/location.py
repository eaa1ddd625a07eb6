"""Where a sweep's results are kept: one name for each store, and whether it outlives a Ray job."""

import hashlib
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from filelock import FileLock, Timeout

from bridgetower_ray.data.cache import cache_root
from bridgetower_ray.errors import UsageError
from bridgetower_ray.store.redaction import DATABASES, without_credentials

SQLITE = "sqlite:///"
USUAL_PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
THIS_HOST = "localhost"
NAMED_SCHEMES = ("databricks", "uc")


def default_uri(folder: Path) -> str:
    """`MLFLOW_TRACKING_URI`, or a SQLite file in `folder`; a relative path in it is taken from `folder`."""
    return absolute_uri(os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db", folder)


def absolute_uri(uri: str, folder: Path) -> str:
    """A store's address that means the same in every folder.

    Raises:
        UsageError: it is a store that would be gone with the process.
    """
    scheme, separator, rest = uri.partition("://")
    if scheme.partition("+")[0] == "sqlite":
        path, question, options = rest.removeprefix("/").partition("?")
        if not path or path == ":memory:":
            raise UsageError(f"tracking store {uri}: a database in memory keeps nothing; name a file")
        return f"{SQLITE}{(folder / path).resolve()}{question}{options}"
    if uri.startswith("file:"):
        return (folder / unquote(urlsplit(uri).path)).resolve().as_uri()
    if not separator:
        named = uri.partition(":")[0] in NAMED_SCHEMES
        return uri if named else (folder / Path(uri).expanduser()).resolve().as_uri()
    return uri.rstrip("/")


def local_path(uri: str) -> Path | None:
    """The SQLite file, or the folder of a file store, of an absolute address; None for a server or a database."""
    if uri.startswith(SQLITE):
        return Path(uri.removeprefix(SQLITE).partition("?")[0])
    return Path(unquote(urlsplit(uri).path)) if uri.startswith("file:") else None


def identity(uri: str) -> str:
    """What two spellings of one store have in common: no credentials, options, driver or other names of this host."""
    path = local_path(uri)
    if path is not None:
        return str(path)
    plain = without_credentials(uri, mark="")
    try:
        parts = urlsplit(plain)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        return plain
    scheme = parts.scheme.partition("+")[0]
    scheme = "postgresql" if scheme == "postgres" else scheme
    host = THIS_HOST if host in _names_of_this_host() else host
    return f"{scheme}://{host}:{port or USUAL_PORTS.get(scheme, '')}{parts.path.rstrip('/')}"


def _names_of_this_host() -> set[str]:
    name = socket.gethostname().lower()
    return {THIS_HOST, "127.0.0.1", "::1", "0.0.0.0", name, name.partition(".")[0]}  # noqa: S104 - only compared


def store_key(uri: str) -> str:
    """12 hex digits that tell one store from another, however it is spelt."""
    return hashlib.sha256(identity(uri).encode()).hexdigest()[:12]


def former_store_key(uri: str) -> str:
    """The key of version 0.1, under which results may still wait."""
    return hashlib.sha256(uri.encode()).hexdigest()[:12]


@contextmanager
def only_driver(uri: str, name: str) -> Iterator[None]:
    """Refuse a second driver on the same sweep in the same store.

    Raises:
        UsageError: another driver is at work.
    """
    path = local_path(uri)
    folder = path.parent if path else cache_root()
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
        UsageError: this is a job, and the store, its artifacts or the report folder lie in its folder.
    """
    if not _inside_ray_job():
        return
    here = Path.cwd().resolve()
    root = artifact_root(uri)
    if any(path is not None and path.resolve().is_relative_to(here) for path in (local_path(uri), root)):
        raise UsageError(
            "in a Ray job the working folder is a throw-away copy: add `--tracking-uri http://HOST:5000`, "
            "or another store that outlives it, to the run"
        )
    if not reports.is_absolute() or reports.resolve().is_relative_to(here):
        raise UsageError(
            "in a Ray job the working folder is a throw-away copy: add `--reports /absolute/folder` to the run"
        )


def artifact_root(uri: str) -> Path | None:
    """The folder for the artifacts of a new experiment; None where the store, being a server, says itself."""
    path = local_path(uri)
    if path is not None:
        return path.parent / "mlruns" if uri.startswith(SQLITE) else path
    is_database = uri.partition("://")[0].partition("+")[0] in DATABASES
    return Path.cwd() / "mlruns" if is_database else None


def _inside_ray_job() -> bool:
    """Whether this is the entrypoint of `ray job submit`, in a copy of the folder that goes away."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ and "runtime_resources" in Path.cwd().parts


def check_exists(uri: str) -> None:
    """For those who only read: a local store that is not there is not made.

    Raises:
        UsageError: there is no such file, or it is no store of MLflow's.
    """
    path = local_path(uri)
    if path is not None and not path.exists():
        raise UsageError(f"no tracking store at {path}; run this where the sweep was run, or set MLFLOW_TRACKING_URI")
    if path is not None and uri.startswith(SQLITE) and not _has_experiments(path):
        raise UsageError(f"{path} is no MLflow store; run this where the sweep was run, or set MLFLOW_TRACKING_URI")


def _has_experiments(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
            found = database.execute("select 1 from sqlite_master where type = 'table' and name = 'experiments'")
            return found.fetchone() is not None
    except sqlite3.Error:
        return False
