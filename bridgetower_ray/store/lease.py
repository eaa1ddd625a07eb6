"""One driver on a sweep, held in the store itself: what keeps hosts apart that share a server and no cluster."""

import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from bridgetower_ray.doctor.processes import is_gone
from bridgetower_ray.errors import UsageError
from bridgetower_ray.store.location import local_path
from bridgetower_ray.store.tracking import StoreUnavailable, Tracking

TAG = "bridgetower_ray.driver"
RENEWED_SECONDS = 20.0
STALE_SECONDS = 90.0  # a driver that has not renewed its lease for so long is taken for dead
CONTEST_SECONDS = 1.0  # after which the last of two who took it at once has it


@contextmanager
def leased(tracking: Tracking, experiment_id: str, name: str) -> Iterator[None]:
    """Hold the lease of an experiment, renewed from a thread.

    Raises:
        UsageError: another driver holds it, here or on another host.
    """
    identity = secrets.token_hex(8)
    _refuse_holder(_read(tracking, experiment_id), name)
    _renew(tracking, experiment_id, identity)
    if local_path(tracking.uri) is None:
        time.sleep(CONTEST_SECONDS)
        holder = _read(tracking, experiment_id)
        if holder.get("id") != identity:
            _refuse_holder(holder, name)
    ended = threading.Event()
    keeper = threading.Thread(target=_keep, args=(tracking, experiment_id, identity, ended), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join(timeout=RENEWED_SECONDS)
        with contextlib.suppress(StoreUnavailable):
            if _read(tracking, experiment_id).get("id") == identity:
                tracking.set_tag(experiment_id, TAG, "{}")


def _read(tracking: Tracking, experiment_id: str) -> dict[str, Any]:
    try:
        found = json.loads(tracking.tags(experiment_id).get(TAG, "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _renew(tracking: Tracking, experiment_id: str, identity: str) -> None:
    own = psutil.Process()
    lease = {
        "id": identity,
        "host": socket.gethostname(),
        "pid": own.pid,
        "began": own.create_time(),
        "renewed": time.time(),
    }
    tracking.set_tag(experiment_id, TAG, json.dumps(lease))


def _keep(tracking: Tracking, experiment_id: str, identity: str, ended: threading.Event) -> None:
    while not ended.wait(RENEWED_SECONDS):
        with contextlib.suppress(StoreUnavailable):  # a store that is away can be taken by nobody else either
            _renew(tracking, experiment_id, identity)


def _refuse_holder(holder: dict[str, Any], name: str) -> None:
    age = time.time() - float(holder.get("renewed", 0))
    if not holder or age > STALE_SECONDS or _is_gone(holder):
        return
    raise UsageError(
        f"another `bridgetower-ray run` is at work on the sweep {name!r} in this store: process {holder.get('pid')} on "
        f"{holder.get('host')}, heard of {age:.0f} s ago; a dead one's lease ends after {STALE_SECONDS:.0f} s"
    )


def _is_gone(holder: dict[str, Any]) -> bool:
    """Whether the holder was a process of this host that has ended."""
    if holder.get("host") != socket.gethostname():
        return False
    try:
        return is_gone(int(holder["pid"]), float(holder["began"]))
    except (KeyError, TypeError, ValueError):
        return False
