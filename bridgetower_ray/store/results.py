"""What the store holds of a sweep: its newest sweep run to go on with, its results to report on."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bridgetower_ray.errors import UsageError
from bridgetower_ray.report.plan_price import Earlier
from bridgetower_ray.report.records import SweepResults, gather, record_of
from bridgetower_ray.report.regressions import Arm, arms_of, read_arms
from bridgetower_ray.report.results_table import to_table
from bridgetower_ray.report.stopping import Ended
from bridgetower_ray.store.tracking import RunData, Tracking
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.sweep.plan import Plan
from bridgetower_ray.sweep.spec import load_spec
from bridgetower_ray.sweep.sweep_run import SweepRun, changed_parts, describe_sweep_run, new_sweep_run_id


def choose_sweep_run(
    plan: Plan, tracking: Tracking, experiment_id: str, fresh: bool, stack: dict[str, str]
) -> tuple[SweepRun, dict[tuple[str, int], RunData]]:
    """The sweep run to log to, and the trials of it that are measured already, by their keys.

    Args:
        stack: what the sweep run must keep from its first trial to its last.

    Raises:
        UsageError: the newest sweep run was begun with another stack.
    """
    tracking.close_stale(experiment_id, time.time_ns() // 1_000_000)
    newest = None if fresh else tracking.newest_sweep_run(experiment_id)
    sweep_run = describe_sweep_run(newest or new_sweep_run_id(), plan, stack)
    described = tracking.described(experiment_id, newest) if newest else None
    if described is not None:
        _refuse_other_stack(sweep_run.id, described.stack, sweep_run.stack)
        runnable = {trial.cell.accelerator.name for trial in plan.trials}
        # What was decided of an accelerator whose nodes have gone stands: nobody decides it anew.
        gone = {name: one for name, one in described.decisions.items() if name not in runnable}
        sweep_run = sweep_run.model_copy(update={"decisions": gone})
    done = {} if newest is None else _done(tracking, experiment_id, sweep_run, plan)
    tracking.describe(experiment_id, sweep_run)
    return sweep_run, done


def _done(tracking: Tracking, experiment_id: str, sweep_run: SweepRun, plan: Plan) -> dict[tuple[str, int], RunData]:
    wanted = {trial.key for trial in plan.trials}
    measured = measured_in(tracking.runs(experiment_id, sweep_run.id))
    return {key: run for key, run in measured.items() if key in wanted}


def measured_in(runs: Sequence[RunData]) -> dict[tuple[str, int], RunData]:
    """The measured trials among some runs, by their keys."""
    return {
        (run.tags["cell_id"], int(run.tags["repeat"])): run
        for run in runs
        if run.tags.get("outcome") == Kind.MEASURED and {"cell_id", "repeat"} <= set(run.tags)
    }


def ended_of(runs: Mapping[tuple[str, int], RunData]) -> dict[tuple[str, int], Ended]:
    """Trials as the rounds see them."""
    records = {key: record_of(run) for key, run in runs.items()}
    return {key: record.ended for key, record in records.items() if record is not None}


def _refuse_other_stack(sweep_run: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = changed_parts(before, now)
    if changed:
        raise UsageError(
            f"the sweep run {sweep_run} was begun with other software ({'; '.join(changed)}): its numbers would not "
            "be comparable; start another with --fresh"
        )


def read_results(tracking: Tracking, name: str, sweep_run: str | None = None) -> tuple[SweepResults, str]:
    """A sweep run's results and the id of its experiment; the newest sweep run unless one is named.

    Raises:
        UsageError: there is no such sweep or sweep run in the store, or nothing in it yet.
    """
    experiment_id = tracking.experiment_id(name)
    if experiment_id is None:
        there = ", ".join(tracking.experiment_names())
        raise UsageError(f"no sweep {name!r} in the tracking store; it has {there}")
    chosen = sweep_run or tracking.newest_sweep_run(experiment_id)
    if chosen is None:
        raise UsageError(f"the experiment {name!r} holds no sweep run")
    runs = tracking.runs(experiment_id, chosen)
    if not runs:
        known = ", ".join(tracking.sweep_run_ids(experiment_id))
        raise UsageError(f"the sweep {name!r} has no sweep run {chosen!r}; it has {known}")
    described = tracking.described(experiment_id, chosen)
    if described is None:
        raise UsageError(
            f"the store holds no description of the sweep run {chosen}; `run` the sweep again to give it one"
        )
    return gather(described, runs), experiment_id


def earlier_trials(tracking: Tracking, name: str) -> Earlier:
    """What the newest sweep run measured; nothing if there is none."""
    experiment_id = tracking.experiment_id(name)
    newest = tracking.newest_sweep_run(experiment_id) if experiment_id else None
    if experiment_id is None or newest is None:
        return Earlier()
    measured = ended_of(measured_in(tracking.runs(experiment_id, newest)))
    throughputs: dict[str, list[float]] = {}
    for (cell, _), one in measured.items():
        if one.throughput is not None:
            throughputs.setdefault(cell, []).append(one.throughput)
    return Earlier({cell: one.seconds for (cell, _), one in measured.items() if one.seconds}, throughputs)


def name_of_sweep(sweep: str) -> str:
    """The name of a sweep that is given by its name or its file."""
    return load_spec(Path(sweep))[0].name if sweep.endswith((".yaml", ".yml")) else sweep


def read_side(source: str, open_store: Callable[[], Tracking]) -> dict[str, Arm]:
    """The cells of one side of a comparison, by cell id.

    Args:
        source: a sweep's name or file, NAME@SWEEP_RUN, or a saved results.parquet, for which no store is opened.

    Raises:
        UsageError: there is no such sweep, sweep run or file.
    """
    if source.endswith(".parquet"):
        return read_arms(Path(source))
    name, _, sweep_run = source.partition("@")
    results, _ = read_results(open_store(), name_of_sweep(name), sweep_run or None)
    return arms_of(to_table(results))
