"""What people open, in a real browser: MLflow's pages on a real server, and the HTML report."""

import html
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from bridgetower_ray.store.location import default_uri
from bridgetower_ray.store.publishing import publish
from bridgetower_ray.store.results import read_results
from bridgetower_ray.store.tracking import Tracking
from bridgetower_ray.store.views import PARALLEL, chart_page, compare_page
from bridgetower_ray.sweep.spec import SweepSpec, load_spec
from tests.conftest import MINI
from tests.records import trials_of
from tests.servers import end, serve
from tests.store.test_tracking import record_of, write

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def browse(address: str, tmp_path: Path, *options: str) -> str:
    """The page as it stands once its scripts have run."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000"]
    done = subprocess.run(
        [*command, *options, "--dump-dom", address], capture_output=True, text=True, check=True, timeout=180
    )
    return done.stdout


def browse_for(address: str, wanted: list[str], tmp_path: Path) -> None:
    """Open a page until it shows all that is wanted: its charts come late, by requests that virtual time outruns."""
    for _ in range(6):
        page = browse(address, tmp_path, "--window-size=1900,1400")
        missing = [words for words in wanted if words not in page]
        if not missing:
            return
    pytest.fail(f"the page never showed {missing}")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that holds a finished sweep of two repeats a cell, and its report."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "sweep.yaml").write_text(MINI)
    spec = load_spec(folder / "sweep.yaml")[0]
    tracking = Tracking(default_uri(folder))
    for number, trial in enumerate(trials_of(spec)):
        figures = {"train_samples_per_second": 40.25 + 10 * number, "data_wait_fraction": 0.5}
        write(tracking, record_of(spec).model_copy(update={"trial": trial, "measured": figures}))
    publish(tracking, "mini", None, folder / "reports", Console(file=(folder / "printed").open("w"), width=200))
    return folder


@pytest.fixture(scope="session")
def server(store: Path) -> Iterator[str]:
    """The address of a real MLflow server on the store."""
    process, address = serve(store, "--backend-store-uri", default_uri(store))
    yield address
    end(process)


@needs_browser
def test_the_runs_table_has_our_runs(server: str, tmp_path: Path) -> None:
    browse_for(f"{server}/#/experiments/1/runs", ["cpu · workers=0 · #1", "cpu · workers=1 · #2"], tmp_path)


@needs_browser
def test_the_chart_view_shows_the_main_figure_by_setting_at_once(server: str, tmp_path: Path) -> None:
    mean_of_repeats, description = "50.25", "mini: 2 of 2 cells measured"
    wanted = ["Group: cpu · workers=0", "train_samples_per_second", mean_of_repeats, description]
    browse_for(f"{server}/{chart_page('1')}", wanted, tmp_path)


@needs_browser
def test_the_parallel_view_has_the_axes(server: str, tmp_path: Path) -> None:
    browse_for(f"{server}/{chart_page('1', PARALLEL)}", ["dataloader_num_workers"], tmp_path)


@needs_browser
def test_the_compare_page_opens_on_the_axes_and_the_headline(server: str, store: Path, tmp_path: Path) -> None:
    results, experiment = read_results(Tracking(default_uri(store)), "mini")
    address = f"{server}/{compare_page(experiment, [one.run_id for one in results.records])}"
    browse_for(address, ["Comparing 4 Runs", "dataloader_num_workers", "train_samples_per_second"], tmp_path)


@needs_browser
@pytest.mark.parametrize("width", [400, 1280])
def test_the_report_fits_a_phone_and_a_desk(width: int, store: Path, tmp_path: Path) -> None:
    """The page itself never scrolls sideways; a wide table scrolls in its own frame."""
    report = (store / "reports" / "mini" / "report.html").read_text()
    frame = f'<iframe id=f width={width} height=900 srcdoc="{html.escape(report)}"></iframe>'
    script = (
        "<script>f.onload=()=>{let d=f.contentDocument.documentElement;"
        "document.title='width '+d.scrollWidth+' of '+d.clientWidth}</script>"
    )
    (tmp_path / "page.html").write_text(f"<!doctype html><body>{frame}{script}")
    found = re.search(r"width (\d+) of (\d+)", browse((tmp_path / "page.html").as_uri(), tmp_path))
    assert found is not None
    assert int(found[1]) <= int(found[2])


def test_the_printed_addresses_are_those_of_the_views(store: Path) -> None:
    printed = (store / "printed").read_text()
    assert "to see the runs: mlflow ui --backend-store-uri sqlite:///" in printed
    assert f"charts by setting: http://127.0.0.1:5000/{chart_page('1')}" in printed
    assert "runs compared: http://127.0.0.1:5000/#/compare-runs?runs=%5B%22" in printed


def test_results_go_through_a_teams_server_with_artifacts_and_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec_of: Callable[[str], SweepSpec]
) -> None:
    """Basic auth from the environment; artifacts go through the server."""
    monkeypatch.setenv("MLFLOW_FLASK_SERVER_SECRET_KEY", "for this test only")
    monkeypatch.setenv("MLFLOW_AUTH_ADMIN_PASSWORD", "a long enough password")
    options = ("--backend-store-uri", default_uri(tmp_path), "--artifacts-destination", str(tmp_path / "artifacts"))
    process, address = serve(tmp_path, "--app-name", "basic-auth", *options)
    try:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "a long enough password")
        tracking = Tracking(address)
        record = record_of(spec_of(MINI))
        write(tracking, record)
        results, _ = read_results(tracking, "mini")
        assert results.records[0].throughput == 42.0
        assert tracking.read_steps(results.records[0].run_id).num_rows == 5
        assert list((tmp_path / "artifacts").rglob("steps.parquet"))
    finally:
        end(process)
