"""What MLflow's UI shows of an experiment: two prepared views, and addresses that open them. Knows no mlflow.

The views are experiment tags that MLflow's own front end reads; the form is that of MLflow 3.17 and not documented.
"""

import json
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from bridgetower_ray.report.records import HEADLINE
from bridgetower_ray.store.redaction import without_credentials
from bridgetower_ray.sweep.outcomes import Kind

FIGURES = (
    HEADLINE,
    "data_wait_fraction",
    "compute_ceiling_samples_per_second",
    "loader_ceiling_samples_per_second",
)
VIEW_TAG = "mlflow.sharedViewState."
BARS, PARALLEL = "bars", "parallel"
SECTION = "bridgetower"
COMPARED_AT_ONCE = 100  # MLflow's compare page is slow beyond


def prepared_views(axes: Sequence[str], sweep_run: str) -> dict[str, str]:
    """Tags of the two views: a bar a setting with its repeats averaged, and the parallel plot over the axes.

    Both show what one sweep run measured; two views, since a parallel plot disappears when runs are grouped.
    """
    bars = [_chart("BAR", name, metricKey=name) for name in FIGURES]
    parallel = _chart("PARALLEL", "axes", selectedParams=list(axes), selectedMetrics=[HEADLINE], showAllRuns=False)
    grouped = {"aggregateFunction": "average", "groupByKeys": [{"mode": "param", "groupByData": "setting"}]}
    columns = [f"params.`{axis}`" for axis in axes] + [f"metrics.`{name}`" for name in FIGURES]
    columns += ["tags.`outcome`", "tags.`verdict`", "tags.`flags`"]
    return {
        VIEW_TAG + BARS: json.dumps(_state(sweep_run, columns, bars, grouped)),
        VIEW_TAG + PARALLEL: json.dumps(_state(sweep_run, columns, [parallel], None)),
    }


def _chart(kind: str, name: str, **settings: object) -> dict[str, object]:
    common = {"type": kind, "uuid": f"{kind}-{name}", "metricSectionId": SECTION, "runsCountToCompare": 100}
    return {**common, "deleted": False, "isGenerated": False, **settings}


def _section(identity: str, name: str, display: bool) -> dict[str, object]:
    """A section of charts. MLflow puts one of its own for `step/` on top unless there is one, so there is, folded."""
    return {"uuid": identity, "name": name, "display": display, "isReordered": True}


def _state(
    sweep_run: str, columns: Sequence[str], charts: Sequence[object], grouped: Mapping[str, object] | None
) -> dict[str, object]:
    return {
        "searchFilter": f"tags.sweep_run = '{sweep_run}' AND tags.outcome = '{Kind.MEASURED}'",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": list(columns),
        "runsHidden": [],
        "runsHiddenMode": "SHOW_ALL",
        "runsPinned": [],
        "compareRunSections": [_section(SECTION, "Throughput", True), _section("step", "step", False)],
        "compareRunCharts": list(charts),
        "groupBy": grouped,
    }


def chart_page(experiment_id: str, view: str = BARS) -> str:
    """The address, behind the server's, of a prepared view."""
    return (
        f"#/experiments/{experiment_id}/runs?viewStateShareKey={view}"
        "&compareRunsMode=CHART&workflowType=machine_learning"
    )


def compare_page(experiment_id: str, run_ids: Sequence[str]) -> str:
    """The address of MLflow's own compare page for some runs."""
    runs = quote(json.dumps(list(run_ids[:COMPARED_AT_ONCE]), separators=(",", ":")))
    experiments = quote(json.dumps([experiment_id]))
    return f"#/compare-runs?runs={runs}&experiments={experiments}"


def server_address(uri: str) -> str:
    """Where a browser finds the store: the server itself, or the one that `mlflow ui` starts on a local file."""
    return without_credentials(uri).rstrip("/") + "/" if uri.startswith("http") else "http://127.0.0.1:5000/"


def ui_command(uri: str) -> str | None:
    """The command that serves a local store; None where a server does already."""
    return None if uri.startswith("http") else f"mlflow ui --backend-store-uri {without_credentials(uri)}"


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
