"""`python -m bridgetower_ray.training.prepare TRIAL.json`: prepare this node; say as an event what is ready."""

import sys
from pathlib import Path

from bridgetower_ray.data.preparation import prepare
from bridgetower_ray.doctor.software import training_software
from bridgetower_ray.errors import BridgetowerRayError
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.training.events import Events
from bridgetower_ray.training.job import Job
from bridgetower_ray.training.supervised import die_with_supervisor, leave


def main() -> int:
    """Exit status 1 with one line if the node cannot be made ready."""
    events = Events(rank=0)
    die_with_supervisor()
    try:
        job = Job.read(Path(sys.argv[1]))
        ready = prepare(job.trial.cell, Path(job.base_folder), lambda words: events.emit("phase", phase=words))
    except (BridgetowerRayError, OSError) as error:
        events.failed(Kind.FAILED, str(error), whole_node=True)
        sys.stderr.write(f"{error}\n")
        return 1
    events.emit("prepared", prepared=ready.model_dump(mode="json"), software=training_software())
    return 0


if __name__ == "__main__":
    leave(main())
