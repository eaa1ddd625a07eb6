"""A signal at a moment when Python drops what its handler raises."""

import subprocess
import sys

# The signal comes in a finalizer; then the process waits for nothing else, as a driver waits for a trial.
DROPPED = """
import os, select, signal
from bridgetower_ray.cluster.interruption import Interrupted, interruption

class Held:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

interruption.listen()
try:
    with interruption.raising():
        Held()
        print("the finalizer dropped it", flush=True)
        select.select([], [], [], 60)
except Interrupted:
    print("raised", interruption.status)
"""


def test_an_interruption_that_a_finalizer_drops_is_raised_once_more() -> None:
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["the finalizer dropped it", "raised 130"]
    assert done.stderr == ""
