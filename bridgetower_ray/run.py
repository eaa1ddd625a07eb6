"""`run`, from a spec to recorded results: which sweep run it continues, what is left to do, and doing it."""

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console

from bridgetower_ray.cluster import connection as cluster
from bridgetower_ray.cluster.progress import view_for
from bridgetower_ray.data.cache import cache_root
from bridgetower_ray.data.captions import check_local_source
from bridgetower_ray.doctor import software as provenance
from bridgetower_ray.errors import UsageError
from bridgetower_ray.store.recorder import Recorder, replay
from bridgetower_ray.store.results import described_by
from bridgetower_ray.store.spool import Spool, spool_for
from bridgetower_ray.store.tracking import RunData, Tracking, local_store_file
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.sweep.plan import Inventory, Plan, make_plan, missing
from bridgetower_ray.sweep.rehearsal import rehearsal_of, simulated_nodes
from bridgetower_ray.sweep.spec import SweepSpec
from bridgetower_ray.sweep.sweep_run import REHEARSAL_BANNER, SweepRun, describe_sweep_run, new_sweep_run_id

LOOK_SECONDS = 2.0  # between two looks at a cluster whose nodes are awaited


@dataclass(frozen=True)
class Session:
    """What a `run` came to."""

    sweep_run: SweepRun
    experiment_id: str
    interrupted: bool
    waiting: int


def rehearse_sweep(spec: SweepSpec, tracking: Tracking, base_folder: Path, console: Console) -> Session:
    """Run every cell of a sweep, made small, on a cluster of this machine's own that claims to have its nodes."""
    plan = rehearsal_of(make_plan(spec))
    name = plan.spec.name
    console.print(f"{REHEARSAL_BANNER}; it logs to the experiment {name}", style="bold", markup=False, highlight=False)
    with _only_driver(tracking.uri, name), cluster.simulated(simulated_nodes(plan)):
        return _carry_out(plan, tracking, base_folder, fresh=True, console=console)


def run_sweep(
    spec: SweepSpec,
    tracking: Tracking,
    base_folder: Path,
    address: str | None,
    fresh: bool,
    console: Console,
    wait_seconds: float = 0.0,
) -> Session:
    """Run what is not yet measured of the newest sweep run, or a fresh one.

    Args:
        wait_seconds: how long to wait for nodes that some cell needs and the cluster does not have yet.

    Raises:
        UsageError: before anything is started, if the sweep cannot be run as asked.
    """
    if wait_seconds and not (address or os.environ.get("RAY_ADDRESS")):
        raise UsageError("--wait-for-nodes: a local Ray has no nodes to come; give --address")
    rows = None if address else check_local_source(spec.dataset, base_folder)
    with _only_driver(tracking.uri, spec.name), cluster.connected(address):
        nodes = _nodes_for(make_plan(spec, rows=rows), wait_seconds, console)
        return _carry_out(make_plan(spec, nodes, rows), tracking, base_folder, fresh, console)


def _nodes_for(plan: Plan, wait_seconds: float, console: Console) -> Inventory:
    """The cluster's nodes once every cell can be held, or the wait is over."""
    until = time.monotonic() + wait_seconds
    told = False
    while True:
        nodes = cluster.inventory()
        waiting = sorted({lacking for trial in plan.trials if (lacking := missing(trial.resources, nodes))})
        if not waiting or time.monotonic() >= until:
            return nodes
        if not told:
            console.print(f"waiting for nodes: {'; '.join(waiting)}", markup=False, highlight=False)
            told = True
        time.sleep(LOOK_SECONDS)


def _carry_out(plan: Plan, tracking: Tracking, base_folder: Path, fresh: bool, console: Console) -> Session:
    with cluster.claimed(_claim(plan.spec.name, tracking)):
        return _carry_out_claimed(plan, tracking, base_folder, fresh, console)


def _claim(name: str, tracking: Tracking) -> str:
    """What a sweep's driver is known by on a cluster: the same sweep in another store is another."""
    return f"{name}@{_store_key(tracking.uri)}"


def _carry_out_claimed(plan: Plan, tracking: Tracking, base_folder: Path, fresh: bool, console: Console) -> Session:
    name = plan.spec.name
    experiment_id = tracking.create_experiment(name)
    spool = spool_for(_store_key(tracking.uri), name)
    replay(tracking, experiment_id, spool)
    sweep_run, done = choose_sweep_run(plan, tracking, experiment_id, fresh)
    _go_by_data_of(done.values(), _claim(name, tracking))
    trials = [trial for trial in plan.trials if trial.key not in done]
    _announce(console, plan, sweep_run, len(done))
    interrupted = _run(trials, sweep_run, plan.spec, tracking, experiment_id, spool, base_folder, console)
    _, waiting = replay(tracking, experiment_id, spool)
    return Session(sweep_run, experiment_id, interrupted, waiting)


def _run(
    trials: Sequence[Trial],
    sweep_run: SweepRun,
    spec: SweepSpec,
    tracking: Tracking,
    experiment_id: str,
    spool: Spool,
    base_folder: Path,
    console: Console,
) -> bool:
    if not trials:
        return False
    # Ray Tune takes a second to import, which a sweep with nothing left to do need not wait for.
    from bridgetower_ray.cluster.tune_run import run_trials

    with view_for(console) as view:
        recorder = Recorder(trials, sweep_run, tracking, experiment_id, spool, view)
        how = {"claim": _claim(spec.name, tracking), "source": provenance.source_hash()}
        run_trials(trials, base_folder, recorder, spec.scheduling, how)
    for name in recorder.unkept:
        console.print(
            f"lost: {name}: neither the store nor this host's disk took its result", style="red", markup=False
        )
    return len(recorder.ended) < len(trials) or any(one.kind is Kind.INTERRUPTED for one in recorder.ended.values())


def choose_sweep_run(
    plan: Plan, tracking: Tracking, experiment_id: str, fresh: bool
) -> tuple[SweepRun, dict[tuple[str, int], RunData]]:
    """The sweep run to log to, and the trials of it that are measured already, by their keys."""
    stack = provenance.stack()
    newest = None if fresh else tracking.newest_sweep_run(experiment_id)
    if newest is None:
        return describe_sweep_run(new_sweep_run_id(), plan, stack), {}
    tracking.close_stale(experiment_id, newest, time.time_ns() // 1_000_000)
    runs = tracking.runs(experiment_id, newest)
    described = described_by(tracking, runs)
    if described is not None:
        _refuse_other_stack(newest, described.stack, stack)
    wanted = {trial.key for trial in plan.trials}
    done = {key: run for key, run in _measured(runs).items() if key in wanted}
    return describe_sweep_run(newest, plan, stack), done


def _measured(runs: Sequence[RunData]) -> dict[tuple[str, int], RunData]:
    return {
        (run.tags["cell_id"], int(run.tags["repeat"])): run
        for run in runs
        if run.tags.get("outcome") == Kind.MEASURED and {"cell_id", "repeat"} <= set(run.tags)
    }


def _go_by_data_of(measured: Iterable[RunData], claim: str) -> None:
    """Nodes that are prepared from now on must have the data that the sweep run has been measured on."""
    for run in measured:
        if "data.fingerprint" in run.params:
            cluster.first_fingerprint(claim, run.params["data.fingerprint"], run.tags.get("node", "?"))
            return


def _refuse_other_stack(sweep_run: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = [
        f"{name} {before.get(name, '-')} -> {now.get(name, '-')}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    if changed:
        raise UsageError(
            f"the sweep run {sweep_run} was begun with other software ({'; '.join(changed)}): its numbers would not "
            "be comparable; start another with --fresh"
        )


@contextmanager
def _only_driver(uri: str, name: str) -> Iterator[None]:
    """Refuse a second driver on the same sweep in the same store."""
    file = local_store_file(uri)
    folder = file.parent if file else cache_root()
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f".{name}-{_store_key(uri)}.lock")
    try:
        with lock.acquire(timeout=0):
            yield
    except Timeout:
        raise UsageError(f"another `bridgetower-ray run` is at work on the sweep {name!r} in this store") from None


def _store_key(uri: str) -> str:
    return hashlib.sha256(uri.encode()).hexdigest()[:12]


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
    console.print(f"sweep run {sweep_run.id}: {len(plan.trials)} trials{kept}", markup=False, highlight=False)
