"""A run's story, from the spec to the report: what is left to do, doing it, and saying what was found."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from bridgetower_ray.cluster.claim import claimed, first_to_have
from bridgetower_ray.cluster.connection import connected, simulated
from bridgetower_ray.cluster.inquiry import Inquiry
from bridgetower_ray.cluster.nodes import nodes_for
from bridgetower_ray.cluster.progress import view_for
from bridgetower_ray.cluster.survey import look_at_nodes
from bridgetower_ray.doctor.judgement import unlike_majors
from bridgetower_ray.doctor.software import TRAINING_PACKAGES, source_hash, stack
from bridgetower_ray.errors import UsageError
from bridgetower_ray.report.efficiency import Spent
from bridgetower_ray.report.plan_price import Earlier, check_budget
from bridgetower_ray.store.lease import leased
from bridgetower_ray.store.location import former_store_key, only_driver, store_key
from bridgetower_ray.store.publishing import publish
from bridgetower_ray.store.recorder import Recorder, replay
from bridgetower_ray.store.results import choose_sweep_run, ended_of, measured_in
from bridgetower_ray.store.spool import Spool, spool_for
from bridgetower_ray.store.tracking import RunData, StoreUnavailable, Tracking
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.sweep.plan import Inventory, Plan, make_plan, missing
from bridgetower_ray.sweep.rehearsal import rehearsal_of, simulated_nodes
from bridgetower_ray.sweep.spec import SweepSpec
from bridgetower_ray.sweep.sweep_run import REHEARSAL_BANNER, SweepRun, describe_sweep_run, must_be_alike


@dataclass(frozen=True)
class SweepEnd:
    """What a `run` came to: trials that ended of those that were to be run, and results that wait on this host."""

    sweep_run: SweepRun
    ended: int
    trials: int
    waiting: int

    @property
    def summary(self) -> str:
        """`3 of 12 trials ended, and are kept`."""
        return f"{self.ended} of {self.trials} trials ended, and are kept"


def rehearse_sweep(spec: SweepSpec, tracking: Tracking, base_folder: Path, console: Console) -> SweepEnd:
    """Run every cell of a sweep, made small, on a cluster of this machine's own that claims to have its nodes."""
    plan = rehearsal_of(make_plan(spec))
    name = plan.spec.name
    console.print(f"{REHEARSAL_BANNER}; it logs to the experiment {name}", style="bold", markup=False, highlight=False)
    with only_driver(tracking.uri, name), simulated(simulated_nodes(plan)):
        return _carry_out(plan, tracking, base_folder, fresh=True, console=console)


def run_sweep(
    spec: SweepSpec,
    tracking: Tracking,
    base_folder: Path,
    address: str | None,
    rows: int | None,
    fresh: bool,
    console: Console,
    wait_seconds: float = 0.0,
    unlike_software: bool = False,
    earlier: Earlier | None = None,
) -> SweepEnd:
    """Run what is not yet measured of the newest sweep run, or a fresh one.

    Args:
        rows: samples of the data set; None where only the nodes can know.
        wait_seconds: how long to wait for nodes that some cell needs and the cluster does not have yet.
        unlike_software: go on where nodes differ in the major version of what trains.
        earlier: earlier trials, by which a budget that the least rounds do not fit is refused; None: none is.

    Raises:
        UsageError: before anything is started, if the sweep cannot be run as asked.
    """
    if wait_seconds and not address:
        raise UsageError("--wait-for-nodes: a local Ray has no nodes to come; give --address")
    with only_driver(tracking.uri, spec.name):
        settled = None if address or fresh else make_plan(spec, rows=rows)
        if settled is not None and _nothing_left(settled, tracking):
            return _carry_out_claimed(settled, tracking, base_folder, fresh, console)
        with connected(address):
            nodes = nodes_for(make_plan(spec, rows=rows), wait_seconds, console)
            plan = make_plan(spec, nodes, rows)
            if address and not unlike_software:
                _check_software(plan, nodes)
            if earlier is not None and spec.measure.question is not None:
                check_budget(plan, spec.measure.question, earlier)
            return _carry_out(plan, tracking, base_folder, fresh, console)


def _nothing_left(plan: Plan, tracking: Tracking) -> bool:
    """Whether every trial that the sweep file can mean, on whatever nodes, is measured: then no Ray need be started."""
    experiment_id = tracking.experiment_id(plan.spec.name)
    newest = tracking.newest_sweep_run(experiment_id) if experiment_id else None
    if experiment_id is None or newest is None:
        return False
    done = measured_in(tracking.runs(experiment_id, newest))
    inquiry = _inquiry(plan, describe_sweep_run(newest, plan, {}), done, tracking, experiment_id)
    return not _left(plan, done, inquiry)


def _check_software(plan: Plan, nodes: Inventory) -> None:
    """Refuse a sweep whose trials would differ in more than what they are to be compared in."""
    bundles = [one.resources for one in plan.cells if one.runnable]
    if sum(any(not missing(bundle, [node]) for bundle in bundles) for node in nodes) > 1:
        unlike = unlike_majors(look_at_nodes(plan.spec), plan)
        if unlike is not None:
            raise UsageError(f"{unlike.what}; {unlike.do}, or give --unlike-software")


def _carry_out(plan: Plan, tracking: Tracking, base_folder: Path, fresh: bool, console: Console) -> SweepEnd:
    with claimed(_claim(plan.spec.name, tracking)):
        return _carry_out_claimed(plan, tracking, base_folder, fresh, console)


def _claim(name: str, tracking: Tracking) -> str:
    """What a sweep's driver is known by on a cluster: the same sweep in another store is another."""
    return f"{name}@{store_key(tracking.uri)}"


def _carry_out_claimed(plan: Plan, tracking: Tracking, base_folder: Path, fresh: bool, console: Console) -> SweepEnd:
    name = plan.spec.name
    experiment_id = tracking.create_experiment(name)
    tracking.check_artifacts(experiment_id)
    with leased(tracking, experiment_id, name):
        spool = spool_for(store_key(tracking.uri), name)
        for waiting in (spool_for(former_store_key(tracking.uri), name), spool):
            _write_what_waits(tracking, experiment_id, waiting, console)
        sweep_run, done = choose_sweep_run(plan, tracking, experiment_id, fresh, stack())
        inquiry = _inquiry(plan, sweep_run, done, tracking, experiment_id)
        trials = _left(plan, done, inquiry)
        if trials:
            _go_by(done.values(), _claim(name, tracking))
        _announce(console, plan, sweep_run, len(done))
        ended = _run(trials, inquiry, sweep_run, plan.spec, tracking, experiment_id, spool, base_folder, console)
        if inquiry is not None:
            with contextlib.suppress(StoreUnavailable):  # all but a budget's the report makes anew
                decisions = {**sweep_run.decisions, **inquiry.decisions}
                tracking.describe(experiment_id, sweep_run.model_copy(update={"decisions": decisions}))
        waits = _write_what_waits(tracking, experiment_id, spool, console)
        return SweepEnd(sweep_run, ended, inquiry.outlook.trials if inquiry else len(trials), waits)


def _inquiry(
    plan: Plan,
    sweep_run: SweepRun,
    done: Mapping[tuple[str, int], RunData],
    tracking: Tracking,
    experiment_id: str,
) -> Inquiry | None:
    """Where the sweep asks a question, what is known of it already."""
    if sweep_run.question is None:
        return None
    already = Spent()
    if sweep_run.question.has_budget:
        by_key = {trial.key: trial for trial in plan.trials}
        kept = {run.run_id for run in done.values()}
        for run in tracking.runs(experiment_id, sweep_run.id):
            trial = by_key.get((run.tags.get("cell_id", ""), int(run.tags.get("repeat", 0))))
            if trial is not None and run.run_id not in kept:
                already.add(trial, run.metrics.get("trial_seconds", 0.0))
    return Inquiry(sweep_run.question, sweep_run, plan.trials, ended_of(done), already)


def _left(plan: Plan, done: Mapping[tuple[str, int], RunData], inquiry: Inquiry | None) -> list[Trial]:
    """The trials that are not measured, and may be wanted."""
    missing_ones = (trial for trial in plan.trials if trial.key not in done)
    return [trial for trial in missing_ones if inquiry is None or inquiry.wants(trial) is not False]


def _write_what_waits(tracking: Tracking, experiment_id: str, spool: Spool, console: Console) -> int:
    """Returns how many results wait on."""
    replayed = replay(tracking, experiment_id, spool)
    for file in replayed.set_aside:
        console.print(
            Text(f"set aside: {file}: it cannot be read, or the store refuses it", style="red"), soft_wrap=True
        )
    return replayed.waiting


def _run(
    trials: Sequence[Trial],
    inquiry: Inquiry | None,
    sweep_run: SweepRun,
    spec: SweepSpec,
    tracking: Tracking,
    experiment_id: str,
    spool: Spool,
    base_folder: Path,
    console: Console,
) -> int:
    """Returns how many trials ended by themselves."""
    if not trials:
        return 0
    # Ray Tune takes a second to import, which a sweep with nothing left to do need not wait for.
    from bridgetower_ray.cluster.tune_run import run_trials

    with view_for(console) as view:
        recorder = Recorder(trials, sweep_run.id, tracking, experiment_id, spool, view, inquiry)
        how = {"claim": _claim(spec.name, tracking), "source": source_hash()}
        run_trials(trials, base_folder, recorder, spec.scheduling, how, inquiry)
    for name in recorder.unkept:
        console.print(
            f"lost: {name}: neither the store nor this host's disk took its result", style="red", markup=False
        )
    return sum(one.kind is not Kind.INTERRUPTED for one in recorder.ended.values())


def _go_by(measured: Iterable[RunData], claim: str) -> None:
    """Nodes that are prepared from now on must have what the sweep run has been measured with."""
    for run in measured:
        versions = {name: run.params[f"env.{name}"] for name in TRAINING_PACKAGES if f"env.{name}" in run.params}
        if "data.fingerprint" in run.params and versions:
            alike = must_be_alike(run.params["accelerator"], run.params["data.fingerprint"], versions)
            for what, value in alike.items():
                first_to_have(claim, what, value, run.tags.get("node", "?"))


def _announce(console: Console, plan: Plan, sweep_run: SweepRun, done: int) -> None:
    for warning in plan.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False, highlight=False)
    for cell in plan.cells:
        if cell.outcome.kind is Kind.UNAVAILABLE:
            console.print(
                f"unavailable: {cell.setting}: {cell.outcome.reason}",
                style="yellow",
                markup=False,
                highlight=False,
            )
    kept = f", {done} measured before are kept" if done else ""
    what = sweep_run.question.text if sweep_run.question else f"{len(plan.trials)} trials"
    console.print(f"sweep run {sweep_run.id}: {what}{kept}", markup=False, highlight=False)


def publish_end(end: SweepEnd, tracking: Tracking, folder: Path, console: Console) -> bool:
    """Say what a `run` came to; returns whether every cell was measured. A store that is gone costs the report only."""
    if end.waiting:
        console.print(
            f"{end.waiting} results wait on this host: the tracking store did not take them; the next `run` writes them"
        )
    try:
        return publish(tracking, end.sweep_run.experiment, end.sweep_run.id, folder, console)
    except StoreUnavailable as error:
        console.print(Text(f"no report: {error}", style="red"), soft_wrap=True)
        return False
