"""Processes of this host: told apart from those that get their number later, and waited for until they are gone."""

import os
import time

import psutil

POLL_SECONDS = 0.02
SAME_START_SECONDS = 1.0  # the start of a process may have been noted in whole seconds


def is_gone(pid: int, began: float) -> bool:
    """Whether the process of that number that began then (seconds since 1970) has ended; False where nobody says."""
    try:
        return bool(abs(psutil.Process(pid).create_time() - began) > SAME_START_SECONDS)
    except psutil.NoSuchProcess:
        return True
    except (psutil.Error, ValueError, OverflowError):
        return False


def wait_until_gone(group: int, seconds: float) -> None:
    """Return once nothing of a killed process group is at work: the kernel ends a rank's own children in its own time.

    What has ended and whom nobody reaps, as where a container's first process does not, is gone.

    Args:
        seconds: how long to wait at most.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(_at_work_in(group, one) for one in psutil.process_iter()):
        time.sleep(POLL_SECONDS)


def _at_work_in(group: int, process: psutil.Process) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except (OSError, psutil.Error):
        return False
