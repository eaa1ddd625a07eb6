"""`python -m tests.bench.stand_in TRIAL.json`: in place of a training, a millisecond's sleep for each step."""

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    """Say what a training says, after the time that a training would take."""
    started = time.monotonic()
    training = json.loads(Path(sys.argv[1]).read_text())["trial"]["cell"]["training"]
    time.sleep(max(0.0, training["max_steps"] / 1000 - (time.monotonic() - started)))
    seconds = time.monotonic() - started
    measured = {"event": "measured", "train_samples_per_second": 1.0, "stand_in_seconds": seconds}
    with os.fdopen(int(os.environ["BRIDGETOWER_RAY_EVENTS_FD"]), "w") as events:
        events.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    main()
