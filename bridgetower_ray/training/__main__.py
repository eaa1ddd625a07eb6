"""`python -m bridgetower_ray.training TRIAL.json`: one rank of one trial; JSON lines tell what happens."""

import os
import sys
import traceback
from pathlib import Path

from bridgetower_ray.errors import BridgetowerRayError, NodeError, UsageError
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.training.before_imports import settle
from bridgetower_ray.training.events import Events
from bridgetower_ray.training.job import Job
from bridgetower_ray.training.supervised import die_with_supervisor, leave

# CUDA has an error type for it; the CPU's allocator and the HPU's bridge say it in words.
OUT_OF_MEMORY_WORDS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "allocation failed",
)


def main() -> int:
    """Exit status 0 if the trial was measured, 1 if it failed, 2 if it could not be understood."""
    try:
        if len(sys.argv) != 2:
            raise UsageError("usage: python -m bridgetower_ray.training TRIAL.json")
        job = Job.read(Path(sys.argv[1]))
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    die_with_supervisor()
    events = Events(int(os.environ.get("RANK", "0")))
    events.phase("importing")
    return _measure(job, events)


def _measure(job: Job, events: Events) -> int:
    try:
        settle(job.trial, int(os.environ.get("LOCAL_RANK", "0")))
        # Imported here: what it reads from the environment must be there before torch is imported.
        from bridgetower_ray.training.worker import run_rank

        run_rank(job, events)
    except BridgetowerRayError as error:
        events.failed(Kind.FAILED, str(error), whole_node=isinstance(error, NodeError))
        sys.stderr.write(f"{error}\n")
        return 1
    except Exception as error:
        # Said to the supervisor in one line, and to the log in full.
        events.failed(Kind.OUT_OF_MEMORY if _is_out_of_memory(error) else Kind.FAILED, _in_one_line(error))
        traceback.print_exc()
        return 1
    events.ends()
    return 0


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(word in str(error).lower() for word in OUT_OF_MEMORY_WORDS)


def _in_one_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


if __name__ == "__main__":
    leave(main())
