"""How long `plan` takes, as a whole process, with no earlier run and with one."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 5
SWEEPS = Path(__file__).resolve().parents[2] / "sweeps"


def main() -> None:
    """Print the median of some runs in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bridgetower_ray.cli", "plan", str(SWEEPS / "blog.yaml")]
        seconds = []
        for _ in range(RUNS):
            started = time.monotonic()
            subprocess.run(command, cwd=folder, capture_output=True, check=True)
            seconds.append(time.monotonic() - started)
    print(f"plan sweeps/blog.yaml, median of {RUNS}: {statistics.median(seconds):.2f} s (aim 1.5 s)")
