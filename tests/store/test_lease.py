"""The lease in the store: one driver on a sweep, on whatever host."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bridgetower_ray.errors import UsageError
from bridgetower_ray.store.lease import STALE_SECONDS, TAG, leased
from bridgetower_ray.store.location import default_uri
from bridgetower_ray.store.tracking import Tracking


@pytest.fixture
def store(folder: Path) -> tuple[Tracking, str]:
    tracking = Tracking(default_uri(folder))
    return tracking, tracking.create_experiment("mini")


def held_by(host: str, pid: int, age: float) -> str:
    return json.dumps({"id": "other", "host": host, "pid": pid, "began": 0.0, "renewed": time.time() - age})


def test_a_second_driver_is_refused_and_a_third_is_not_once_the_first_has_ended(store: tuple[Tracking, str]) -> None:
    with (
        leased(*store, "mini"),
        pytest.raises(UsageError, match=r"another .* at work on the sweep 'mini'"),
        leased(*store, "mini"),
    ):
        pass
    with leased(*store, "mini"):
        pass


def test_a_driver_on_another_host_holds_it_until_it_is_not_heard_of(store: tuple[Tracking, str]) -> None:
    tracking, experiment = store
    tracking.set_tag(experiment, TAG, held_by("another-host", 1, age=10))
    with pytest.raises(UsageError, match=r"process 1 on another-host, heard of \d+ s ago"), leased(*store, "mini"):
        pass
    tracking.set_tag(experiment, TAG, held_by("another-host", 1, age=STALE_SECONDS + 1))
    with leased(*store, "mini"):
        pass


def test_a_driver_of_this_host_that_was_killed_holds_nothing(store: tuple[Tracking, str]) -> None:
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    tracking, experiment = store
    tracking.set_tag(experiment, TAG, held_by(socket.gethostname(), gone.pid, age=1))
    with leased(*store, "mini"):
        pass


def test_a_tag_that_nobody_can_read_is_no_lease(store: tuple[Tracking, str]) -> None:
    tracking, experiment = store
    tracking.set_tag(experiment, TAG, "not json")
    with leased(*store, "mini"):
        pass
