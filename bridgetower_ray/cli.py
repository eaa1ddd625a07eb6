"""The commands: parse, call, print."""

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridgetower_ray import __version__
from bridgetower_ray.cluster.interruption import Interrupted, interruption
from bridgetower_ray.errors import BridgetowerRayError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from bridgetower_ray.report.plan_price import Earlier
    from bridgetower_ray.store.tracking import Tracking
    from bridgetower_ray.sweep.plan import Inventory, Plan
    from bridgetower_ray.sweep.spec import SweepSpec

# What a command needs beyond these is imported in it: each starts at once, and hears a signal from its first moment.

SWEEP = click.argument("sweep", type=click.Path(path_type=Path))
ADDRESS = click.option("--address", help="Ray cluster to use: auto on one of its nodes, or HOST:6379.")
REPORTS = click.option(
    "--reports",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder for reports.  [default: ./reports]",
)
TRACKING = click.option(
    "--tracking-uri",
    expose_value=False,
    callback=lambda _context, _option, uri: uri and os.environ.update(MLFLOW_TRACKING_URI=uri),
    help="MLflow's store.  [default: MLFLOW_TRACKING_URI, or mlflow.db in this folder]",
)
EXIT_NOT_ALL_MEASURED = 1
EXIT_USAGE = 2


class _Commands(click.Group):
    """Turns this package's errors, and signals, into one line on standard error and an exit status."""

    def main(self, *args: Any, **extra: Any) -> Any:
        interruption.listen()
        return super().main(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        from bridgetower_ray.data.cache import settle_cache_root

        settle_cache_root()
        try:
            return super().invoke(ctx)
        except BridgetowerRayError as error:
            from bridgetower_ray.store.redaction import redact

            click.echo(f"bridgetower-ray: {redact(str(error))}", err=True)
            ctx.exit(EXIT_USAGE)
        except Interrupted:
            interruption.say()
            ctx.exit(interruption.status)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Measure how fast BridgeTower fine-tunes on the accelerators of a Ray cluster, and why."""


@main.command()
def schema() -> None:
    """Print the JSON Schema of a sweep file."""
    from bridgetower_ray.sweep.spec import sweep_schema

    click.echo(json.dumps(sweep_schema(), indent=2))


@main.command()
@click.argument("name", required=False)
def example(name: str | None) -> None:
    """Print an example sweep, or without a NAME which there are."""
    from bridgetower_ray.sweep.examples import example_names, example_text

    click.echo("\n".join(example_names()) if name is None else example_text(name), nl=name is None)


@main.command()
@click.argument("sweep", type=click.Path(path_type=Path), required=False)
@ADDRESS
@click.option("--resources", is_flag=True, help="Print what `ray start --resources` wants on this host, and no more.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def doctor(sweep: Path | None, address: str | None, resources: bool, as_json: bool) -> None:
    """Look at this host, or with --address at every node of a cluster: what is wrong, and what to do.

    Exit status 1 if something is so wrong that trials, of SWEEP if it is given, could not run.
    """
    from bridgetower_ray.doctor.hardware import local_resources

    if resources:
        click.echo(json.dumps(local_resources()))
        return
    from bridgetower_ray.cluster.survey import look_at_cluster, look_at_this_host
    from bridgetower_ray.doctor.judgement import examine
    from bridgetower_ray.doctor.listing import nodes_object, show_nodes
    from bridgetower_ray.store.redaction import redact
    from bridgetower_ray.sweep.spec import load_spec

    spec = load_spec(sweep)[0] if sweep is not None else None
    address = _address(address)
    nodes, plan = look_at_cluster(address, spec) if address else look_at_this_host(spec)
    findings = examine(nodes, plan)
    if as_json:
        click.echo(redact(json.dumps(nodes_object(nodes, findings), indent=2)))
    else:
        show_nodes(nodes, findings, _console(), redact)
    sys.exit(EXIT_NOT_ALL_MEASURED if any(one.serious for one in findings) else 0)


@main.command()
@SWEEP
@ADDRESS
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--published", is_flag=True, help="The published command beside SWEEP, flag by flag, instead.")
def plan(sweep: Path, address: str | None, as_json: bool, published: bool) -> None:
    """Print every cell of SWEEP with what will become of it. Starts nothing."""
    from bridgetower_ray.report.plan_listing import plan_object, show_plan
    from bridgetower_ray.report.plan_price import check_budget
    from bridgetower_ray.sweep.plan import make_plan
    from bridgetower_ray.sweep.spec import load_spec

    address = _address(address)
    spec, _ = load_spec(sweep)
    if published:
        _show_published_command(spec, as_json)
        return
    laid_out = make_plan(spec, _inventory(address), _rows(spec, address))
    earlier = _earlier(spec)
    if question := spec.measure.question:
        check_budget(laid_out, question, earlier)
    if as_json:
        click.echo(json.dumps(plan_object(laid_out, earlier, address is not None), indent=2))
    else:
        show_plan(laid_out, earlier, address is not None, _console())


def _show_published_command(spec: "SweepSpec", as_json: bool) -> None:
    from bridgetower_ray.report.published_command import command_table
    from bridgetower_ray.report.render import show_table
    from bridgetower_ray.sweep.plan import make_plan

    if as_json:
        raise UsageError("plan: --published has no --json")
    if spec.published is None:
        raise UsageError(f"plan --published: the sweep {spec.name!r} names no published benchmark (`published:`)")
    show_table(command_table(make_plan(spec)), _console())


@main.command()
@SWEEP
@ADDRESS
@REPORTS
@TRACKING
@click.option("--fresh", is_flag=True, help="Start another sweep run instead of continuing the newest.")
@click.option("--rehearse", is_flag=True, help="Go through every cell on this machine's CPU first; measures nothing.")
@click.option("--wait-for-nodes", "wait", metavar="TIME", help="Wait for nodes that are still to come, such as 10m.")
@click.option("--unlike-software", is_flag=True, help="Also where nodes differ in the major version of what trains.")
def run(
    sweep: Path,
    address: str | None,
    reports: Path | None,
    fresh: bool,
    rehearse: bool,
    wait: str | None,
    unlike_software: bool,
) -> None:
    """Run SWEEP, or what is left of its newest sweep run, and report on it."""
    from bridgetower_ray.sweep.plan import make_plan
    from bridgetower_ray.sweep.spec import load_spec

    address = _address(address)
    spec, _ = load_spec(sweep)
    wait_seconds = 0.0 if wait is None else _seconds(wait)
    # A faulty sweep is refused before Ray is imported, or a store or a cluster touched; a rehearsal has its own inputs.
    rows = None if rehearse else _rows(spec, address)
    laid_out = make_plan(spec, rows=rows)
    earlier = _earlier(spec, fresh) if spec.measure.budget is not None else None
    if earlier is not None and address is None and not rehearse:
        _check_budget_here(laid_out, earlier)
    from bridgetower_ray.run import publish_end, rehearse_sweep, run_sweep

    console = _console()
    with interruption.deferred():  # a database whose making is cut in two is of no use
        tracking = _tracking(reports)
    if rehearse:
        end = rehearse_sweep(spec, tracking, Path.cwd(), console)
    else:
        end = run_sweep(
            spec, tracking, Path.cwd(), address, rows, fresh, console, wait_seconds, unlike_software, earlier
        )
    if interruption.signal is not None:
        console.print(f"interrupted: {end.summary}; run it again to go on", soft_wrap=True)
        sys.exit(interruption.status)
    complete = publish_end(end, tracking, _report_folder(reports), console)
    sys.exit(0 if complete else EXIT_NOT_ALL_MEASURED)


@main.command()
@click.argument("sweep", required=False)
@click.option("--sweep-run", help="Which sweep run.  [default: the newest]")
@click.option("--published", help="Render a published benchmark instead, such as bridgetower-blog.")
@REPORTS
@TRACKING
def report(sweep: str | None, sweep_run: str | None, published: str | None, reports: Path | None) -> None:
    """Write the report of SWEEP, a sweep's name or its file, from MLflow alone."""
    if (sweep is None) == (published is None):
        raise UsageError("report takes the name of a sweep, or --published with the name of a benchmark")
    if published is not None:
        _report_published(published, reports, _console())
    elif sweep is not None:
        from bridgetower_ray.store.publishing import publish
        from bridgetower_ray.store.results import name_of_sweep

        tracking = _existing_tracking(reports)
        publish(tracking, name_of_sweep(sweep), sweep_run, _report_folder(reports), _console())


@main.command()
@click.argument("before")
@click.argument("after")
@TRACKING
@click.option("--fail-over", help="Exit status 1 if a cell is slower by more than this, such as 5%, failed or is gone.")
@click.option("--strict", is_flag=True, help="With --fail-over: also if a cell cannot be told.")
def compare(before: str, after: str, fail_over: str | None, strict: bool) -> None:
    """Compare two sweep runs cell by cell.

    BEFORE and AFTER are each a sweep's name or file, NAME@SWEEP_RUN, or a saved results.parquet.
    """
    from rich.text import Text

    from bridgetower_ray.report.cost_changes import cost_changes_table
    from bridgetower_ray.report.regressions import changes, changes_table, gate
    from bridgetower_ray.report.render import show_table
    from bridgetower_ray.store.results import read_side

    if strict and fail_over is None:
        raise UsageError("--strict belongs to --fail-over")
    limit = None if fail_over is None else _share(fail_over)
    found = changes(*(read_side(side, lambda: _existing_tracking(None)) for side in (before, after)))
    console = _console()
    show_table(changes_table(found), console)
    if costs := cost_changes_table(found):
        show_table(costs, console)
    if limit is not None:
        verdict = gate(found, limit, strict)
        console.print(Text(verdict.sentence, style="green" if verdict.passed else "red"), soft_wrap=True)
        sys.exit(0 if verdict.passed else EXIT_NOT_ALL_MEASURED)


def _share(text: str) -> float:
    """`5%` or `0.05` -> 0.05."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UsageError(f"--fail-over: {text!r} is no share such as 5% or 0.05")
    return value


def _seconds(text: str) -> float:
    """`90s`, `10m` or `1h` -> seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if found is None:
        raise UsageError(f"--wait-for-nodes: {text!r} is no time such as 90s, 10m or 1h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def _report_published(name: str, reports: Path | None, console: "Console") -> None:
    from rich.text import Text

    from bridgetower_ray.report.published import PUBLISHED, published_results
    from bridgetower_ray.report.render import document_of_published, show, write_report

    if name not in PUBLISHED:
        raise UsageError(f"no published benchmark {name!r}; there are {', '.join(PUBLISHED)}")
    document = document_of_published(PUBLISHED[name])
    show(document, console)
    for file in write_report(document, published_results(PUBLISHED[name]), _report_folder(reports) / name):
        console.print(Text(f"report: {file}"), soft_wrap=True)


def _address(given: str | None) -> str | None:
    return given or os.environ.get("RAY_ADDRESS") or None


def _console() -> "Console":
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=False)
    # A pipe has no width: tables are then as wide as they need to be.
    return console if console.is_terminal else Console(highlight=False, width=200)


def _rows(spec: "SweepSpec", address: str | None) -> int | None:
    """Samples, once all is looked at that this host can know; None where the nodes have the data."""
    if address:
        return None
    from bridgetower_ray.doctor.preflight import check_here

    return check_here(spec, Path.cwd())


def _inventory(address: str | None) -> "Inventory | None":
    if address is None:
        return None
    from bridgetower_ray.cluster.connection import connected
    from bridgetower_ray.cluster.nodes import inventory

    with connected(address):
        return inventory()


def _tracking(reports: Path | None) -> "Tracking":
    """The store; in a Ray job's throw-away folder only one that outlives it."""
    from bridgetower_ray.store.location import check_outlives_job, default_uri
    from bridgetower_ray.store.tracking import Tracking

    uri = default_uri(Path.cwd())
    check_outlives_job(uri, _report_folder(reports))
    return Tracking(uri)


def _existing_tracking(reports: Path | None) -> "Tracking":
    """The store, for those who only read."""
    from bridgetower_ray.store.location import check_exists, default_uri

    check_exists(default_uri(Path.cwd()))
    return _tracking(reports)


def _report_folder(reports: Path | None) -> Path:
    return reports or Path("reports")


def _check_budget_here(laid_out: "Plan", earlier: "Earlier") -> None:
    """Before a Ray of this host's own is started, which holds the accelerators of this host."""
    from bridgetower_ray.doctor.hardware import local_resources
    from bridgetower_ray.report.plan_price import check_budget

    here = local_resources()
    trials = tuple(trial for trial in laid_out.trials if trial.cell.accelerator.marker in here)
    if question := laid_out.spec.measure.question:
        check_budget(replace(laid_out, trials=trials), question, earlier)


def _earlier(spec: "SweepSpec", fresh: bool = False) -> "Earlier":
    """From the store, if there is one and it answers; a plan makes none, and needs none.

    Args:
        fresh: what was measured counts for how long it took alone.
    """
    from bridgetower_ray.report.plan_price import Earlier
    from bridgetower_ray.store.location import check_exists, default_uri

    uri = default_uri(Path.cwd())
    try:
        check_exists(uri)
        from bridgetower_ray.store.results import earlier_trials
        from bridgetower_ray.store.tracking import Tracking

        found = earlier_trials(Tracking(uri), spec.name)
        return replace(found, throughputs={}) if fresh else found
    except BridgetowerRayError:
        return Earlier()


if __name__ == "__main__":
    main()
