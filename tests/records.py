"""Makes sweep runs and MLflow-like runs for tests of the report, without training anything."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bridgetower_ray.report.records import SweepResults, gather
from bridgetower_ray.store.tracking import Tracking
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.plan import make_plan
from bridgetower_ray.sweep.spec import SweepSpec
from bridgetower_ray.sweep.sweep_run import SweepRun, describe_sweep_run

FACTS = {
    "model.parameters": "848385", "model.image": "64", "data.fingerprint": "f00d", "run.total_batch": "4",
    "run.total_steps": "90", "run.precision": "float32", "train.max_seq_length": "16", "measure.warmup_steps": "2",
    "train.dataloader_drop_last": "True", "env.host": "one", "env.torch": "2.13.0",
}  # fmt: skip


@dataclass(frozen=True)
class FakeRun:
    """An MLflow run, as the reader hands it on."""

    tags: Mapping[str, str]
    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=lambda: FACTS)
    run_id: str = "run"
    start_ms: int = 0


def sweep_run_of(spec: SweepSpec) -> SweepRun:
    return describe_sweep_run("20261201-000000-0000", make_plan(spec), {"torch": "2.13.0"})


def trials_of(spec: SweepSpec) -> tuple[Trial, ...]:
    """Repeat by repeat in the order of the cells, whatever order they would be run in."""
    return tuple(sorted(make_plan(spec).trials, key=lambda trial: (trial.repeat, trial.setting)))


def experiment_of(tracking: Tracking, spec: SweepSpec) -> str:
    """The experiment of a sweep, with a sweep run that is described."""
    experiment = tracking.create_experiment(spec.name)
    tracking.describe(experiment, sweep_run_of(spec))
    return experiment


def run_of(
    sweep_run: SweepRun,
    setting: str,
    repeat: int,
    throughput: float | None,
    *,
    start_ms: int = 0,
    outcome: str | None = None,
    reason: str = "",
    facts: Mapping[str, str] | None = None,
    **figures: float,
) -> FakeRun:
    cell = next(one for one in sweep_run.cells if one.setting == setting)
    kind = outcome or ("measured" if throughput is not None else "failed")
    tags = {"outcome": kind, "reason": reason, "cell_id": cell.cell_id, "repeat": str(repeat), "setting": setting}
    metrics = {} if throughput is None else {"train_samples_per_second": throughput}
    return FakeRun(tags, {**metrics, **figures}, {**FACTS, **(facts or {})}, f"{setting}-{repeat}", start_ms)


def results_of(sweep_run: SweepRun, throughputs: Mapping[str, list[float]]) -> SweepResults:
    """Every setting measured with these values, a repeat each."""
    runs = [
        run_of(sweep_run, setting, repeat, value)
        for setting, values in throughputs.items()
        for repeat, value in enumerate(values, start=1)
    ]
    return gather(sweep_run, runs)
