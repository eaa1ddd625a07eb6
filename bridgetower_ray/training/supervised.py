"""What a process does that runs under a supervisor."""

import ctypes
import os
import signal
import sys
from typing import NoReturn

from bridgetower_ray.training.events import EVENTS_FD

PROCESS_START = "BRIDGETOWER_RAY_PROCESS_START"  # how a rank came to be: `warm`, or `cold` and perhaps why
PR_SET_PDEATHSIG = 1


def die_with_supervisor() -> None:
    """Have the kernel end this process when the one that supervises it dies, however it dies.

    The signals that Ray's workers have blocked are heard again.
    """
    if EVENTS_FD in os.environ:
        die_with_parent()


def die_with_parent() -> None:
    """As `die_with_supervisor`, for a process that has nothing to say."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def leave(status: int) -> NoReturn:
    """End here and now: what libraries do at the interpreter's end can hang, or abort the process."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
