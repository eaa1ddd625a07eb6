"""Trials whose ranks are forked from a warm process over trials whose ranks start cold, in interleaved pairs.

Real trials of preset:tiny on real images. The throughput is each trial's own; the start is the time from the first
process to the first step, and the CPU that the ranks had used by then.
"""

import itertools
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bridgetower_ray.cluster.rank_environment import handed_to_ranks, rank_environment
from bridgetower_ray.cluster.supervision import ProcessGroup
from bridgetower_ray.cluster.trial_actor import TRAIN
from bridgetower_ray.cluster.warm_process import WarmProcess
from bridgetower_ray.data.preparation import prepare
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.sweep.plan import make_plan
from bridgetower_ray.sweep.spec import load_spec
from bridgetower_ray.training.job import Job
from tests.bench.telemetry_cost import interval_of_median

PAIRS = 12
SWEEP = """\
name: starts
model: preset:tiny
dataset: {path: builtin:cartoons, max_train_samples: 96}
training: {per_device_train_batch_size: 8, learning_rate: 1.0e-5, max_steps: 24, max_seq_length: 32}
measure: {warmup_steps: 4, repeats: 1, timeout_minutes: 5, ceilings: false}
accelerators: {cpu: {devices: DEVICES}}
axes:
  accelerator: [cpu]
  input_pipeline: [reference, fast, cached]
  dataloader_num_workers: [0, 2]
baseline: {accelerator: cpu, input_pipeline: reference, dataloader_num_workers: 0}
"""


@dataclass(frozen=True)
class Measured:
    """A trial's throughput in samples/s, and what its start took: seconds, and CPU seconds of all ranks."""

    throughput: float
    start_seconds: float
    start_cpu: float


def main() -> None:
    """Print the ratio warm over cold with its interval for each kind of trial and over all, and both starts."""
    order = random.Random(0)
    logs: list[float] = []
    starts: dict[bool, list[Measured]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="starts-") as name:
        folder = Path(name)
        for job in (job for devices in (1, 2) for job in _jobs(folder, devices)):
            warm = _warm_process(job, folder)
            found = [_pair(job, folder, warm, order) for _ in range(PAIRS)]
            warm.end()
            own = [math.log(one[True].throughput / one[False].throughput) for one in found]
            logs += own
            if job.trial.cell.devices == 1:
                for start, measured in itertools.product((True, False), found):
                    starts[start].append(measured[start])
            print(f"{job.trial.setting}, {job.trial.cell.devices} ranks: {_ratio(own)}", flush=True)
    print(f"all {len(logs)} pairs, throughput warm over cold: {_ratio(logs)} (aim: holds 1, within 3 %)")
    for start, measured in starts.items():
        seconds = statistics.median(one.start_seconds for one in measured)
        cpu = statistics.median(one.start_cpu for one in measured)
        print(f"{'warm' if start else 'cold'} start to first step: {seconds:.2f} s, {cpu:.2f} s of CPU")


def _jobs(folder: Path, devices: int) -> list[Job]:
    file = folder / "sweep.yaml"
    file.write_text(SWEEP.replace("DEVICES", str(devices)))
    cells = {trial.cell.cell_id: trial for trial in make_plan(load_spec(file)[0]).trials}
    return [Job(trial=one, base_folder=".", prepared=prepare(one.cell, Path())) for one in cells.values()]


def _warm_process(job: Job, folder: Path) -> WarmProcess:
    environment = rank_environment(handed_to_ranks(sys.executable, folder), 0, 1, 0)
    warm = WarmProcess(sys.executable, _job_file(job, folder), environment)
    assert warm.settled(100)
    assert warm.refusal == ""
    return warm


def _job_file(job: Job, folder: Path) -> Path:
    file = folder / "trial.json"
    file.write_text(job.model_dump_json())
    return file


def _pair(job: Job, folder: Path, warm: WarmProcess, order: random.Random) -> dict[bool, Measured]:
    starts = order.sample((True, False), 2)
    return {start: _measure(job, folder, warm if start else None) for start in starts}


def _measure(job: Job, folder: Path, warm: WarmProcess | None) -> Measured:
    started = time.monotonic()
    command = [sys.executable, *TRAIN, str(_job_file(job, folder))]
    group = ProcessGroup(command, job.trial.cell.devices, folder, warm=warm)
    start_seconds = start_cpu = throughput = math.nan
    while group.outcome is None:
        for event in group.wait(0.05):
            if event["event"] == "phase" and event["phase"] == "first_step":
                start_seconds, start_cpu = event["at"] - started, sum(map(_cpu_seconds, group.pids))
            throughput = event.get("train_samples_per_second", throughput)
    assert group.outcome.kind is Kind.MEASURED, group.outcome
    return Measured(throughput, start_seconds, start_cpu)


def _cpu_seconds(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


def _ratio(logs: Sequence[float]) -> str:
    """`1.002 [0.991, 1.013]`: median and its 95 % interval, which a host's unrest in a few pairs does not move."""
    return "{:.3f} [{:.3f}, {:.3f}]".format(
        *map(math.exp, (statistics.median(logs), *interval_of_median(sorted(logs))))
    )
