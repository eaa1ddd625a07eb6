"""What scheduling costs: real Ray, Tune and MLflow around a worker of known duration."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bridgetower_ray.cluster.connection import simulated
from bridgetower_ray.cluster.inquiry import Inquiry
from bridgetower_ray.cluster.progress import PlainView
from bridgetower_ray.cluster.tune_run import run_trials
from bridgetower_ray.store.location import default_uri
from bridgetower_ray.store.recorder import Recorder
from bridgetower_ray.store.spool import Spool
from bridgetower_ray.store.tracking import RunData, Tracking
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.plan import Plan, make_plan
from bridgetower_ray.sweep.rehearsal import simulated_nodes
from bridgetower_ray.sweep.spec import load_spec
from bridgetower_ray.sweep.sweep_run import describe_sweep_run

MOST_ROUNDS = 12
STAND_IN = ("-m", "tests.bench.stand_in")
SWEEP = """\
name: scheduling
model: preset:tiny
dataset: {{path: builtin:cartoons, max_train_samples: 8}}
training: {{max_steps: {milliseconds}, per_device_train_batch_size: 4}}
measure: {{repeats: {repeats}, warmup_steps: 1}}
axes:
  accelerator: [{names}]
  max_seq_length: {lengths}
accelerators:
{accelerators}
"""


@dataclass(frozen=True)
class Cost:
    """What a run of stand-ins took, in seconds; `driver_bytes` is the driver's memory at its end.

    `start` runs to the first trial, `preparing` is what a node's first trial took beyond its worker, `fixed` what the
    others did.
    """

    wall: float
    ideal: float
    start: float
    preparing: float
    fixed: float
    trials: int
    driver_bytes: int


def main() -> None:
    """Print the makespan, the fixed cost of a trial, and how both grow with the number of trials."""
    one = run_stand_ins(accelerators=4, lengths=25, repeats=1, milliseconds=range(2000, 6000, 160))
    print(f"4 accelerators x 25 trials of 2 to 6 s: makespan {one.wall:.1f} s, ideal {one.ideal:.1f} s, ", end="")
    print(f"ratio {one.wall / one.ideal:.3f} (aim 1.10)")
    print(f"of it {one.start:.1f} s until the first trial began, {one.preparing:.1f} s to prepare a node")
    print(f"fixed cost of a trial beyond its worker, after a node's first: {one.fixed:.2f} s (aim 0.5 s)")
    asking = run_stand_ins(
        accelerators=4, lengths=5, repeats=MOST_ROUNDS, milliseconds=range(2000, 6000, 800), precision="3%"
    )
    print(f"4 accelerators x 5 cells that ask for 3 %: {asking.trials} trials, makespan {asking.wall:.1f} s, ", end="")
    print(f"ideal {asking.ideal:.1f} s, ratio {asking.wall / asking.ideal:.3f} (aim 1.15)", flush=True)
    for repeats in (25, 100, 500):
        many = run_stand_ins(accelerators=4, lengths=5, repeats=repeats, milliseconds=[100] * 5, nodes_each=2)
        mib, each = many.driver_bytes / 2**20, (many.wall - many.start) / many.trials
        print(
            f"{many.trials} trials on 8 nodes: the first after {many.start:.0f} s, then {each:.3f} s a trial, ", end=""
        )
        print(f"driver {mib:.0f} MiB", flush=True)


def run_stand_ins(
    accelerators: int,
    lengths: int,
    repeats: int,
    milliseconds: Sequence[int],
    nodes_each: int = 1,
    precision: str | None = None,
) -> Cost:
    """Run one stand-in for each accelerator, length and repeat, on nodes of their own.

    Args:
        precision: asked for in place of that many repeats, which then are the most.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = _plan(folder, accelerators, lengths, repeats, precision)
        trials = [_lasting(trial, milliseconds[index % lengths]) for index, trial in _numbered(plan)]
        tracking = Tracking(default_uri(folder))
        experiment = tracking.create_experiment(plan.spec.name)
        view = PlainView(lambda _: None)
        asked = describe_sweep_run("bench", plan, {})
        inquiry = Inquiry(asked.question, asked, trials, {}) if asked.question else None
        recorder = Recorder(trials, "bench", tracking, experiment, Spool(folder / "spool"), view, inquiry)
        with simulated([node for node in simulated_nodes(plan) for _ in range(nodes_each)]):
            started, started_at = time.monotonic(), time.time()
            run_trials(trials, folder, recorder, plan.spec.scheduling, {"worker": STAND_IN}, inquiry)
            wall = time.monotonic() - started
        runs = tracking.runs(experiment, "bench")
    pools = [[run for run in runs if run.params["accelerator"] == name] for name in plan.spec.accelerator_names]
    ideal = max(sum(_worker_seconds(pool)) / nodes_each for pool in pools)
    fixed = sum(map(_fixed_cost, pools)) / len(pools)
    first = [pool[0] for pool in pools]
    start = min(run.start_ms for run in first) / 1000 - started_at
    preparing = max(run.metrics["trial_seconds"] - run.metrics["stand_in_seconds"] for run in first)
    return Cost(wall, ideal, start, preparing, fixed, len(runs), psutil.Process().memory_info().rss)


def _plan(folder: Path, accelerators: int, lengths: int, repeats: int, precision: str | None) -> Plan:
    names = [f"stand-in-{number}" for number in range(accelerators)]
    text = SWEEP.format(
        milliseconds=1000,
        repeats=repeats if precision is None else f"{{max: {repeats}}}, precision: {precision}",
        names=", ".join(names),
        lengths=list(range(8, 8 + lengths)),
        accelerators="\n".join(f"  {name}: {{like: cpu}}" for name in names),
    )
    (folder / "sweep.yaml").write_text(text)
    return make_plan(load_spec(folder / "sweep.yaml")[0])


def _numbered(plan: Plan) -> list[tuple[int, Trial]]:
    """Trials with their number within their accelerator, so that each pool has each duration once."""
    count: dict[str, int] = {}
    numbered = []
    for trial in plan.trials:
        name = trial.cell.accelerator.name
        numbered.append((count.get(name, 0), trial))
        count[name] = count.get(name, 0) + 1
    return numbered


def _lasting(trial: Trial, milliseconds: int) -> Trial:
    training = trial.cell.training.model_copy(update={"max_steps": milliseconds})
    return trial.model_copy(update={"cell": trial.cell.model_copy(update={"training": training})})


def _worker_seconds(runs: Sequence[RunData]) -> list[float]:
    return [run.metrics["stand_in_seconds"] for run in runs]


def _fixed_cost(runs: Sequence[RunData]) -> float:
    """Seconds that a trial took its node beyond its worker, from the first trial's end to the last one's."""
    ends = [run.end_ms / 1000 for run in runs if run.end_ms is not None]
    return (max(ends) - min(ends) - sum(_worker_seconds(runs)[1:])) / (len(runs) - 1)
