"""All of MLflow: one writer and one reader. Nothing else in this package knows that results live there."""

import contextlib
import io
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import pyarrow
import pyarrow.parquet
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from bridgetower_ray.errors import BridgetowerRayError, UsageError
from bridgetower_ray.store import run_content
from bridgetower_ray.store.description import described_in, description_tags, outdated_tags
from bridgetower_ray.store.location import absolute_uri, artifact_root
from bridgetower_ray.store.redaction import redact, without_credentials
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.sweep_run import SweepRun, TrialRecord

STATUS = {Kind.MEASURED: "FINISHED", Kind.REHEARSED: "FINISHED", Kind.INTERRUPTED: "KILLED"}
LOG_BATCH_METRICS = 1000  # MLflow's limit for one call
LOG_BATCH_PARAMS = 100
NOTE_LENGTH = 15_000  # of an experiment's description; MLflow cuts tags at 20,000
PAGE = 500
MOST_TRIED = 5  # runs of which a description of version 0.1 is asked for
FINAL_ERRORS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST")
# These change what a client writes, and where: a user's shell is not to decide it.
NOT_OURS = (
    "MLFLOW_ENABLE_ASYNC_LOGGING",
    "MLFLOW_EXPERIMENT_NAME",
    "MLFLOW_EXPERIMENT_ID",
    "MLFLOW_RUN_ID",
    "MLFLOW_RUN_CONTEXT",
)
# MLflow's own patience with a server that is away is minutes a call, in which the driver would hear no trial.
PATIENCE = {
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


class StoreUnavailable(BridgetowerRayError):
    """The tracking store did not take what it was given; what was measured is to be kept elsewhere meanwhile."""


class StoreRefused(StoreUnavailable):
    """It never will: the store answered, and finds fault with what it was given."""


@dataclass(frozen=True)
class RunData:
    """One MLflow run, as read."""

    run_id: str
    status: str
    start_ms: int
    end_ms: int | None
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]


class Tracking:
    """The store, as a sweep sees it."""

    def __init__(self, uri: str) -> None:
        """Connect, creating a SQLite store that is not there yet.

        Raises:
            UsageError: the store cannot be reached or opened.
        """
        for setting, value in PATIENCE.items():
            os.environ.setdefault(setting, value)
        for name in NOT_OURS:
            os.environ.pop(name, None)
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self.uri = uri = absolute_uri(uri, Path.cwd())
        with _few_retries():
            try:
                self._client = mlflow.MlflowClient(uri)
                self._client.search_experiments(max_results=1)
            except Exception as error:
                raise UsageError(f"tracking store {without_credentials(uri)}: {_one_line(error)}") from None

    def experiment_names(self) -> list[str]:
        """The experiments that there are, newest first."""
        with _unavailable():
            return [experiment.name for experiment in self._client.search_experiments()]

    def experiment_id(self, name: str) -> str | None:
        """The experiment of that name, None if there is none."""
        with _unavailable():
            found = self._client.get_experiment_by_name(name)
        if found is not None and found.lifecycle_stage != "active":
            raise UsageError(f"the MLflow experiment {name!r} has been deleted; restore it, or rename the sweep")
        return None if found is None else str(found.experiment_id)

    def create_experiment(self, name: str) -> str:
        """The experiment of that name, created if there is none."""
        existing = self.experiment_id(name)
        if existing is not None:
            return existing
        root = artifact_root(self.uri)
        location = root.resolve().as_uri() if root else None
        with _unavailable():
            return str(self._client.create_experiment(name, artifact_location=location))

    def check_artifacts(self, experiment_id: str) -> None:
        """Write a small file where the experiment's artifacts go.

        Raises:
            UsageError: they cannot be written from here.
        """
        with _unavailable():
            root = str(self._client.get_experiment(experiment_id).artifact_location)
        remedy = "start the server with --artifacts-destination, so that artifacts go through it (--serve-artifacts)"
        scheme = root.partition(":")[0]
        if scheme == root or (scheme == "file" and not self.uri.startswith(("sqlite", "file"))):
            _check_writable(Path(root.removeprefix("file://")), remedy)
            return
        with tempfile.TemporaryDirectory() as name:
            probe = Path(name) / "writable.txt"
            probe.write_text("that this could be written was found out before the first trial\n")
            try:
                repository = get_artifact_repository(root, tracking_uri=self.uri)
                repository.log_artifact(str(probe), "bridgetower-ray")
            except Exception as error:  # whatever a storage's own library raises
                where = without_credentials(root)
                raise UsageError(f"artifacts cannot be written to {where}: {_one_line(error)}; {remedy}") from None

    def tags(self, experiment_id: str) -> Mapping[str, str]:
        """The tags of an experiment."""
        with _unavailable():
            return dict(self._client.get_experiment(experiment_id).tags)

    def set_tag(self, experiment_id: str, name: str, value: str) -> None:
        """Give an experiment a tag."""
        with _unavailable():
            self._client.set_experiment_tag(experiment_id, name, value)

    def describe(self, experiment_id: str, sweep_run: SweepRun) -> None:
        """Keep what a report must know of a sweep run beside its records, in place of what was kept before."""
        there = self.tags(experiment_id)
        for name, value in description_tags(sweep_run).items():
            if there.get(name) != value:
                self.set_tag(experiment_id, name, value)
        outdated = outdated_tags(self.tags(experiment_id), sweep_run.id)
        with contextlib.suppress(MlflowException, OSError):  # what an older server cannot delete is never read
            for name in outdated:
                self._client.delete_experiment_tag(experiment_id, name)

    def described(self, experiment_id: str, sweep_run: str) -> SweepRun | None:
        """What is kept of a sweep run beside its records; None if that cannot be read, or is not there."""
        found = described_in(self.tags(experiment_id), sweep_run)
        return found or self._described_by_its_runs(experiment_id, sweep_run)

    def _described_by_its_runs(self, experiment_id: str, sweep_run: str) -> SweepRun | None:
        """As version 0.1 kept it: a file with every run that ended, where artifacts lay then."""
        ended = [run for run in self.runs(experiment_id, sweep_run) if "trial_seconds" in run.metrics]
        for run in reversed(ended[-MOST_TRIED:]):
            with tempfile.TemporaryDirectory() as folder, contextlib.suppress(StoreUnavailable, ValueError):
                with _unavailable():
                    file = self._client.download_artifacts(run.run_id, "sweep.json", folder)
                return SweepRun.model_validate_json(Path(file).read_text())
        return None

    def present(self, experiment_id: str, description: str, views: Mapping[str, str]) -> None:
        """Give an experiment its description, in Markdown, and its prepared views."""
        for name, value in {"mlflow.note.content": without_credentials(description)[:NOTE_LENGTH], **views}.items():
            self.set_tag(experiment_id, name, value)

    def start(self, experiment_id: str, sweep_run: str, trial: Trial, attempt: str, started_ms: int) -> str:
        """Open the run of a trial that begins; returns its id."""
        tags = {
            "mlflow.runName": trial.name,
            "sweep_run": sweep_run,
            "cell_id": trial.cell.cell_id,
            "repeat": str(trial.repeat),
            "setting": trial.setting,
            "attempt": attempt,
            "outcome": str(Kind.RUNNING),
        }
        with _unavailable():
            run = self._client.create_run(experiment_id, start_time=started_ms, tags=tags)
            return str(run.info.run_id)

    def find_attempt(self, experiment_id: str, attempt: str) -> str | None:
        """The run that an attempt has opened already."""
        with _unavailable():
            runs = self._client.search_runs([experiment_id], f"tags.attempt = '{attempt}'", max_results=1)
            return str(runs[0].info.run_id) if runs else None

    def write(self, run_id: str, record: TrialRecord) -> None:
        """Fill a run with all that a record holds and close it. Writing a record again changes nothing."""
        with _unavailable():
            params = [Param(name, value) for name, value in run_content.params(record).items()]
            for start in range(0, len(params), LOG_BATCH_PARAMS):
                self._client.log_batch(run_id, params=params[start : start + LOG_BATCH_PARAMS])
            points = run_content.metrics(record)
            metrics = [Metric(one.name, one.value, record.ended_ms, one.step) for one in points]
            for start in range(0, len(metrics), LOG_BATCH_METRICS):
                self._client.log_batch(run_id, metrics=metrics[start : start + LOG_BATCH_METRICS])
            self._log_artifacts(run_id, record)
            self._tag(run_id, run_content.judgement_tags(record) | run_content.source_tags(record))
            self._log_data_set(run_id, record)
            self._close(run_id, record.outcome, record.ended_ms)

    def _log_data_set(self, run_id: str, record: TrialRecord) -> None:
        """So that MLflow's own data set column and filter know what a run was trained on."""
        data = (record.environment or {}).get("data")
        if data is None:
            return
        source = json.dumps(record.trial.cell.dataset.model_dump(exclude_none=True))
        profile = json.dumps({"samples": data["samples"], "samples_left_out": data["samples_left_out"]})
        name = record.trial.cell.dataset.path
        data_set = Dataset(name, data["fingerprint"], "bridgetower-ray", source, profile=profile)
        self._client.log_inputs(run_id, [DatasetInput(data_set, [InputTag("mlflow.data.context", "training")])])

    def _log_artifacts(self, run_id: str, record: TrialRecord) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "trial.json").write_text(run_content.as_json(run_content.trial_file(record)))
            (folder / "train.log").write_text(redact(record.log))
            if record.environment is not None:
                (folder / "environment.json").write_text(run_content.as_json(record.environment))
            if record.steps:
                pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(record.steps)), folder / "steps.parquet")
            self._client.log_artifacts(run_id, str(folder))

    def _close(self, run_id: str, outcome: Outcome, ended_ms: int) -> None:
        self._tag(run_id, run_content.outcome_tags(outcome))
        self._client.set_terminated(run_id, STATUS.get(outcome.kind, "FAILED"), end_time=ended_ms)

    def _tag(self, run_id: str, tags: Mapping[str, str]) -> None:
        self._client.log_batch(run_id, tags=[RunTag(name, value) for name, value in tags.items()])

    def close_stale(self, experiment_id: str, ended_ms: int) -> int:
        """Close trials of any sweep run that a driver left running when it died; returns how many. Hold the lease."""
        with _unavailable():
            condition = "attributes.status = 'RUNNING' AND tags.sweep_run LIKE '%'"
            stale = list(self._pages(experiment_id, condition))
            for run in stale:
                self._close(run.run_id, Outcome(Kind.INTERRUPTED, "its driver died"), ended_ms)
            return len(stale)

    def newest_sweep_run(self, experiment_id: str) -> str | None:
        """The sweep run that began last; None if the experiment holds none."""
        with _unavailable():
            condition, order = "tags.sweep_run LIKE '%'", ["attributes.start_time DESC"]
            found = self._client.search_runs([experiment_id], condition, max_results=1, order_by=order)
            return str(found[0].data.tags["sweep_run"]) if found else None

    def sweep_run_ids(self, experiment_id: str) -> list[str]:
        """Sweep runs of an experiment, newest first."""
        with _unavailable():
            runs = self._pages(experiment_id, "tags.sweep_run LIKE '%'")
            return sorted({run.tags["sweep_run"] for run in runs}, reverse=True)

    def runs(self, experiment_id: str, sweep_run: str) -> list[RunData]:
        """All runs of a sweep run, oldest first."""
        with _unavailable():
            return self._runs(experiment_id, sweep_run)

    def _runs(self, experiment_id: str, sweep_run: str) -> list[RunData]:
        return sorted(self._pages(experiment_id, f"tags.sweep_run = '{sweep_run}'"), key=lambda run: run.start_ms)

    def _pages(self, experiment_id: str, condition: str) -> Iterator[RunData]:
        token = None
        while True:
            page = self._client.search_runs([experiment_id], condition, max_results=PAGE, page_token=token)
            yield from (_run_data(run) for run in page)
            token = page.token
            if not token:
                return

    def read_steps(self, run_id: str) -> pyarrow.Table:
        """The raw steps of a run."""
        with tempfile.TemporaryDirectory() as folder, _unavailable():
            file = self._client.download_artifacts(run_id, "steps.parquet", folder)
            return pyarrow.parquet.read_table(io.BytesIO(Path(file).read_bytes()))


@contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except MlflowException as error:
        kind = StoreRefused if error.error_code in FINAL_ERRORS else StoreUnavailable
        raise kind(f"the tracking store did not answer: {_one_line(error)}") from error
    except OSError as error:
        raise StoreUnavailable(f"the tracking store did not answer: {_one_line(error)}") from error


def _check_writable(folder: Path, remedy: str) -> None:
    """A path that the server names: the artifacts would be written to it on this host, whatever it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"artifacts cannot be written to {folder} from this host: {error.strerror}; {remedy}"
        ) from None
    if not folder.is_absolute():
        raise UsageError(f"artifacts would be written to {folder} in whatever folder this runs; {remedy}")


@contextmanager
def _few_retries() -> Iterator[None]:
    """Do not wait minutes to learn that an address is wrong."""
    settings = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _one_line(error: Exception) -> str:
    return redact((str(error).strip().splitlines() or [type(error).__name__])[0])[:300]


def _run_data(run: Any) -> RunData:
    return RunData(
        run_id=run.info.run_id,
        status=run.info.status,
        start_ms=run.info.start_time,
        end_ms=run.info.end_time,
        tags=dict(run.data.tags),
        params=dict(run.data.params),
        metrics=dict(run.data.metrics),
    )
