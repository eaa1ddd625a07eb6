"""The node's cache of prepared things: built once under a lock, moved into place whole, then only read."""

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from bridgetower_ray.errors import UsageError

VARIABLE = "BRIDGETOWER_RAY_CACHE"
UNFINISHED = ".unfinished-"


def cache_root() -> Path:
    """`BRIDGETOWER_RAY_CACHE`, or ~/.cache/bridgetower-ray; absolute."""
    return Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "bridgetower-ray").expanduser().absolute()


def settle_cache_root() -> None:
    """Make a relative `BRIDGETOWER_RAY_CACHE` absolute here, for the processes that begin in other folders."""
    if os.environ.get(VARIABLE):
        os.environ[VARIABLE] = str(cache_root())


def cached_folder(name: str, build: Callable[[Path], None], progress: Callable[[str], None] = lambda _: None) -> Path:
    """The cache's folder `name`, built by `build(folder)` if it is not there yet.

    Processes that ask at once wait for the one that builds; a builder that dies leaves nothing behind
    that could be taken for the finished folder, and what it leaves goes with the next build. A finished folder is for
    all to read whom the umask of its builder lets.

    Args:
        progress: is told who is waited for.

    Raises:
        UsageError: the cache cannot be written.
    """
    root = cache_root()
    target = root / name
    if target.is_dir():
        return target
    with _building(target, progress):
        if not target.is_dir():
            _remove_unfinished(root, name)
            _build(target, build)
    return target


def _build(target: Path, build: Callable[[Path], None]) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=f"{target.name}{UNFINISHED}", dir=target.parent))
    try:
        build(unfinished)
        _share(unfinished)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def _building(target: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Be the only one that builds `target`; who it is stands beside it for those who wait."""
    lock, holder = FileLock(target.with_name(f"{target.name}.lock")), target.with_name(f"{target.name}.builder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        progress(f"waiting for {_read(holder)}, which makes the same ready")
        lock.acquire()
    except PermissionError as error:
        where = error.filename or target.parent
        raise UsageError(f"{VARIABLE}: {where} cannot be written: {error.strerror}") from None
    try:
        holder.write_text(f"process {os.getpid()} on {socket.gethostname()}")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _read(holder: Path) -> str:
    try:
        return holder.read_text()
    except OSError:
        return "another process"


def _remove_unfinished(root: Path, name: str) -> None:
    """Folders whose builder died: their lock is free, or is this process's own."""
    for folder in root.glob(f"*{UNFINISHED}*"):
        of = folder.name.rpartition(UNFINISHED)[0]
        if of == name:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        with suppress(Timeout, OSError), FileLock(root / f"{of}.lock").acquire(timeout=0):
            shutil.rmtree(folder, ignore_errors=True)


def _share(folder: Path) -> None:
    """Take off what makes a temporary folder its maker's alone."""
    umask = os.umask(0)
    os.umask(umask)
    for path in (folder, *folder.rglob("*")):
        readable = 0o777 if path.is_dir() else 0o666
        path.chmod(path.stat().st_mode | (readable & ~umask))
