"""From the store to what people read: the report on terminal and disk, and MLflow's own pages."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from bridgetower_ray.report.render import document_of, show, summary_markdown, write_report
from bridgetower_ray.store.redaction import without_credentials
from bridgetower_ray.store.results import read_results
from bridgetower_ray.store.tracking import StoreUnavailable, Tracking
from bridgetower_ray.store.views import compare_page, prepared_views, server_address, ways_to_see


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
    document = document_of(results, lines, lambda runs: server + compare_page(experiment_id, runs), without_credentials)
    console.print()
    show(document, console)
    files = write_report(document, results, folder / name)
    console.print()
    for line in [*(f"report: {file}" for file in files), *lines]:
        console.print(Text(line), soft_wrap=True)
    views = prepared_views(list(results.sweep_run.axes), results.sweep_run.id)
    try:
        tracking.present(experiment_id, summary_markdown(document, str((folder / name).resolve())), views)
    except StoreUnavailable as error:
        console.print(Text(f"MLflow's pages are not brought up to date: {error}", style="yellow"), soft_wrap=True)
    return results.complete
