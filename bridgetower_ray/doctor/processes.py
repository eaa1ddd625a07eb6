"""Processes of this host, told apart from those that get their number later."""

import psutil

SAME_START_SECONDS = 1.0  # the start of a process may have been noted in whole seconds


def is_gone(pid: int, began: float) -> bool:
    """Whether the process of that number that began then (seconds since 1970) has ended; False where nobody says."""
    try:
        return bool(abs(psutil.Process(pid).create_time() - began) > SAME_START_SECONDS)
    except psutil.NoSuchProcess:
        return True
    except (psutil.Error, ValueError, OverflowError):
        return False
