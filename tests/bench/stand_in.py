"""`python -m tests.bench.stand_in TRIAL.json`: in place of a training, a millisecond's sleep for each step.

What it says to have measured follows from the trial alone: a cell's own throughput, with noise from repeat to repeat.
"""

import json
import os
import random
import sys
import time
from pathlib import Path


def main() -> None:
    """Say what a training says, after the time that a training would take."""
    started = time.monotonic()
    trial = json.loads(Path(sys.argv[1]).read_text())["trial"]
    training = trial["cell"]["training"]
    time.sleep(max(0.0, training["max_steps"] / 1000 - (time.monotonic() - started)))
    seconds = time.monotonic() - started
    samples_per_second = throughput(training["max_seq_length"], trial["repeat"])
    measured = {"event": "measured", "train_samples_per_second": samples_per_second, "stand_in_seconds": seconds}
    with os.fdopen(int(os.environ["BRIDGETOWER_RAY_EVENTS_FD"]), "w") as events:
        events.write(json.dumps(measured) + "\n")


def throughput(length: int, repeat: int) -> float:
    """Samples/s: 2 % more for each token fewer than 100, with a spread of 2 %."""
    return 1.02 ** (100 - length) * random.Random(f"{length} {repeat}").lognormvariate(0, 0.02)


if __name__ == "__main__":
    main()
