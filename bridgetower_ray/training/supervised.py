"""What a process does that runs under a supervisor."""

import ctypes
import os
import select
import signal
import sys
from typing import NoReturn

from bridgetower_ray.training.events import EVENTS_FD

PROCESS_START = "BRIDGETOWER_RAY_PROCESS_START"  # how a rank came to be: `warm`, or `cold` and perhaps why
PR_SET_PDEATHSIG = 1


def die_with_supervisor() -> None:
    """Have the kernel end this process when the one that supervises it dies, however it dies.

    If it has died before this was asked for, this process ends now. The signals that Ray's workers have blocked are
    heard again.
    """
    if EVENTS_FD in os.environ:
        die_with_parent()
        if _is_heard_by_nobody(int(os.environ[EVENTS_FD])):
            os._exit(1)


def _is_heard_by_nobody(events: int) -> bool:
    """Whether the reading end of a pipe is closed, which the supervisor alone has."""
    pipe = select.poll()
    pipe.register(events, 0)
    return any(found & select.POLLERR for _, found in pipe.poll(0))


def die_with_parent() -> None:
    """As `die_with_supervisor`, for a process that has nothing to say."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def leave(status: int) -> NoReturn:
    """End here and now: what libraries do at the interpreter's end can hang, or abort the process."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
