"""From the store to what people read: results, the report on terminal and disk, and MLflow's own pages."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from bridgetower_ray.errors import UsageError
from bridgetower_ray.report.records import SweepResults, gather
from bridgetower_ray.report.render import document_of, show, summary_markdown, write_report
from bridgetower_ray.store.tracking import RunData, StoreUnavailable, Tracking
from bridgetower_ray.store.views import PARALLEL, chart_page, compare_page, prepared_views, server_address, ui_command
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.sweep.sweep_run import SweepRun


def publish(tracking: Tracking, name: str, sweep_run: str | None, folder: Path, console: Console) -> bool:
    """Print a sweep run's report, write it to `folder`/`name`, and present it in MLflow.

    Returns:
        Whether every cell was measured.

    Raises:
        UsageError: there is no such sweep or sweep run.
    """
    results, experiment_id = read_results(tracking, name, sweep_run)
    lines = ways_to_see(tracking.uri, experiment_id, [record.run_id for record in results.records])
    server = server_address(tracking.uri)
    document = document_of(results, lines, lambda runs: server + compare_page(experiment_id, runs))
    console.print()
    show(document, console)
    files = write_report(document, results, folder / name)
    console.print()
    for line in [*(f"report: {file}" for file in files), *lines]:
        console.print(Text(line), soft_wrap=True)
    views = prepared_views(list(results.sweep_run.spec.axis_values), results.sweep_run.id)
    try:
        tracking.present(experiment_id, summary_markdown(document, str((folder / name).resolve())), views)
    except StoreUnavailable as error:
        console.print(Text(f"MLflow's pages are not brought up to date: {error}", style="yellow"), soft_wrap=True)
    return results.complete


def ways_to_see(uri: str, experiment_id: str, run_ids: Sequence[str]) -> tuple[str, ...]:
    """The command that serves a local store, and the addresses of the prepared views and the compare page."""
    server, serve = server_address(uri), ui_command(uri)
    views = {
        "charts by setting": chart_page(experiment_id),
        "parallel plot": chart_page(experiment_id, PARALLEL),
        "runs compared": compare_page(experiment_id, run_ids),
    }
    lines = tuple(f"{what}: {server}{page}" for what, page in views.items())
    return (f"to see the runs: {serve}", *lines) if serve else lines


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
    described = described_by(tracking, runs)
    if described is None:
        raise UsageError(f"no trial of the sweep run {chosen} has ended yet")
    return gather(described, runs), experiment_id


def earlier_seconds(tracking: Tracking, name: str) -> dict[str, float]:
    """Seconds that a trial of each cell took in the newest sweep run, by cell id; empty if there is none."""
    experiment_id = tracking.experiment_id(name)
    newest = tracking.newest_sweep_run(experiment_id) if experiment_id else None
    if experiment_id is None or newest is None:
        return {}
    runs = tracking.runs(experiment_id, newest)
    return {
        run.tags["cell_id"]: run.metrics["trial_seconds"]
        for run in runs
        if run.tags.get("outcome") == Kind.MEASURED and "trial_seconds" in run.metrics
    }


def described_by(tracking: Tracking, runs: Sequence[RunData]) -> SweepRun | None:
    """The description in the newest run that was written to its end; a run of a killed driver has none."""
    written = [run for run in runs if "trial_seconds" in run.metrics]
    return tracking.describe(written[-1].run_id) if written else None
