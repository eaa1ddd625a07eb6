"""What Ray's workers hand down to the processes that they start, and training alone would not have."""

import contextlib
import os
from pathlib import Path

from bridgetower_ray.doctor.kernel_files import content

RAYLET_PID = "RAY_RAYLET_PID"  # Ray tells each worker


def as_a_child_of_the_raylet(pid: int) -> None:
    """Give a process the niceness and the place before the kernel's out-of-memory killer that this host's Ray has.

    Ray makes its workers nice and the first to be killed; a raylet is as whoever started it. A niceness that may not be
    lowered stays, and is on record.
    """
    raylet = os.environ.get(RAYLET_PID, "")
    if not raylet.isdigit():
        return
    with contextlib.suppress(OSError):
        if score := content(Path("/proc", raylet, "oom_score_adj")):
            Path("/proc", str(pid), "oom_score_adj").write_text(score)
    with contextlib.suppress(OSError):
        niceness = os.getpriority(os.PRIO_PROCESS, int(raylet))
        if os.getpriority(os.PRIO_PROCESS, pid) != niceness:
            os.setpriority(os.PRIO_PROCESS, pid, niceness)
