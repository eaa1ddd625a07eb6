"""Throughput beside a supervisor that reads devices, over that beside one that does not, interleaved.

The devices are four of a stand-in of NVML's C library under the real binding, which answers at once: what is timed is
what the reading costs this side, not what a driver makes of it. They are read at TIMES the rate of a trial: what a
reading costs adds up, and a host's own unrest between two slices is larger than what there is to be seen at that rate.
"""

import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scipy import stats

from bridgetower_ray.doctor.host_energy import HostEnergy
from bridgetower_ray.doctor.telemetry import READ_SECONDS, Telemetry
from bridgetower_ray.doctor.vendor_libraries import library_for
from bridgetower_ray.sweep.accelerators import ACCELERATORS
from tests.doctor.stand_ins import NVML, compiled

TIMES, PAIRS, SLICE_SECONDS, READINGS = 10, 800, 0.25, 300
# A training that takes steps for a while whenever it is asked to, and says how many a second.
TRAINING = f"""
import sys, time, torch
from bridgetower_ray.training.model import load_model
torch.set_num_threads(2)
model = load_model("preset:tiny", None, freeze_text_pooler=True)
optimizer = torch.optim.AdamW(model.parameters())
ids = torch.randint(4, 1000, (4, 16))
batch = dict(pixel_values=torch.rand(4, 3, 64, 64), input_ids=ids, attention_mask=torch.ones_like(ids))
for line in sys.stdin:
    started, steps = time.monotonic(), 0
    while time.monotonic() - started < {SLICE_SECONDS}:
        model(**batch, return_loss=True).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    print(steps / (time.monotonic() - started), flush=True)
"""


def main() -> None:
    """Print the ratio of throughputs with its interval, and the CPU time of one reading."""
    with tempfile.TemporaryDirectory() as folder:
        # By its own name the binding then finds the one that is loaded.
        ctypes.CDLL(str(compiled(Path(folder), "libnvidia-ml.so.1", NVML)))
        training = subprocess.Popen(
            [sys.executable, "-c", TRAINING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            _steps_a_second(training)
            ratios = [_ratio(training, with_it_first=bool(pair % 2)) for pair in range(PAIRS)]
        finally:
            training.kill()
        found = (statistics.median(ratios), *interval_of_median(sorted(ratios)))
        at_times = "{:.4f} [{:.4f}, {:.4f}]".format(*found)
        at_its_rate = "{:.4f} [{:.4f}, {:.4f}]".format(*(ratio ** (1 / TIMES) for ratio in found))
        print(f"throughput with telemetry / without, median of {PAIRS} pairs at {TIMES} times its rate: {at_times}")
        print(f"at its rate, a tenth of that: {at_its_rate} (aim: within 0.5 %)")
        cost = _seconds_of_a_reading()
        print(f"a reading of 4 devices: {1000 * cost:.2f} ms of CPU, {cost / READ_SECONDS:.3%} of a core at its rate")


def _ratio(training: subprocess.Popen[str], with_it_first: bool) -> float:
    """Steps a second with telemetry over those without, taken one after the other."""
    rates = {}
    for read in (with_it_first, not with_it_first):
        telemetry = Telemetry(library_for(ACCELERATORS["h100"]), HostEnergy(), READ_SECONDS / TIMES)
        if read:
            telemetry.start()
        rates[read] = _steps_a_second(training)
        telemetry.stop()
    return rates[True] / rates[False]


def interval_of_median(ordered: list[float]) -> tuple[float, float]:
    """95 % interval by order statistics: a host that is disturbed now and then gives outliers, and no normal errors."""
    place = int(stats.binom.ppf(0.025, len(ordered), 0.5))
    return ordered[place], ordered[-1 - place]


def _steps_a_second(training: subprocess.Popen[str]) -> float:
    assert training.stdin is not None
    assert training.stdout is not None
    training.stdin.write("go\n")
    training.stdin.flush()
    return float(training.stdout.readline())


def _seconds_of_a_reading() -> float:
    telemetry = Telemetry(library_for(ACCELERATORS["h100"]), HostEnergy())
    started = time.process_time()
    for _ in range(READINGS):
        telemetry.sample()
    assert telemetry.newest()["device_power_watts"] == 4 * 350
    return (time.process_time() - started) / READINGS
