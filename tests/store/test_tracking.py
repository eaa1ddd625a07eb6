"""MLflow for real: a SQLite store, its runs, its failures, and the spool."""

import json
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest

from bridgetower_ray.errors import UsageError
from bridgetower_ray.store.location import default_uri
from bridgetower_ray.store.recorder import Replayed, replay
from bridgetower_ray.store.redaction import redact
from bridgetower_ray.store.results import choose_sweep_run, read_results
from bridgetower_ray.store.spool import Spool
from bridgetower_ray.store.tracking import StoreUnavailable, Tracking
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.plan import make_plan
from bridgetower_ray.sweep.spec import SweepSpec
from bridgetower_ray.sweep.sweep_run import TrialRecord
from tests.conftest import MINI
from tests.records import sweep_run_of

SpecOf = Callable[[str], SweepSpec]
MEASURED = Outcome(Kind.MEASURED)


def record_of(spec: SweepSpec, outcome: Outcome = MEASURED) -> TrialRecord:
    return TrialRecord(
        sweep_run=sweep_run_of(spec),
        trial=make_plan(spec).trials[0],
        started_ms=1_000_000,
        ended_ms=1_009_500,
        outcome=outcome,
        environment={
            "host": "one",
            "devices": ["CPU"],
            "asynchronous": False,
            "versions": {"torch": "2.13.0"},
            "model": {"parameters": 848385},
            "data": {"fingerprint": "f00d", "samples": 24, "samples_left_out": 0, "left_out": []},
            "effective": {"loader": "DataLoader", "total_batch": 4},
        },
        measured={"window_seconds": 2.0, "train_samples_per_second": 42.0},
        steps=tuple(
            {"step": n, "warmup": n < 3, "fetch_seconds": 0.1, "seconds": 0.2, "samples": 4, "epoch_start": n == 1}
            for n in range(1, 6)
        ),
        log="train",
    )


def write(tracking: Tracking, record: TrialRecord) -> tuple[str, str]:
    experiment = tracking.create_experiment(record.sweep_run.experiment)
    run_id = tracking.start(experiment, record.sweep_run.id, record.trial, record.attempt, record.started_ms)
    tracking.write(run_id, record)
    return experiment, run_id


def test_a_run_has_the_layout_that_the_ui_wants(folder: Path, spec_of: SpecOf) -> None:
    tracking = Tracking(default_uri(folder))
    _, run_id = write(tracking, record_of(spec_of(MINI)))
    run = mlflow.MlflowClient(tracking.uri).get_run(run_id)
    assert (run.info.run_name, run.info.status) == ("cpu · workers=0 · #1", "FINISHED")
    assert run.data.params["dataloader_num_workers"] == "0"
    assert run.data.params["setting"] == "cpu · workers=0"
    bare = {name for name in run.data.params if "." not in name}
    assert bare == {"accelerator", "dataloader_num_workers", "mediapipe_dataloader", "setting"}
    assert run.data.metrics["train_samples_per_second"] == 42.0
    assert {"cell_id", "sweep_run", "outcome"} <= set(run.data.tags)


def test_a_run_carries_its_steps_its_environment_its_log_and_what_it_takes_to_run_it_again(
    folder: Path, spec_of: SpecOf
) -> None:
    tracking = Tracking(default_uri(folder))
    record = record_of(spec_of(MINI))
    _, run_id = write(tracking, record)
    client = mlflow.MlflowClient(tracking.uri)
    names = sorted(artifact.path for artifact in client.list_artifacts(run_id))
    assert names == ["environment.json", "steps.parquet", "sweep.json", "train.log", "trial.json"]
    assert tracking.read_steps(run_id).to_pylist() == list(record.steps)
    assert tracking.describe(run_id) == record.sweep_run
    history = client.get_metric_history(run_id, "step/samples_per_second")
    assert [(point.step, point.value) for point in history] == [(step, 20.0) for step in range(1, 6)]


@pytest.mark.parametrize(("kind", "status"), [("failed", "FAILED"), ("interrupted", "KILLED"), ("timed_out", "FAILED")])
def test_an_outcome_becomes_mlflows_status(kind: str, status: str, folder: Path, spec_of: SpecOf) -> None:
    tracking = Tracking(default_uri(folder))
    _, run_id = write(tracking, record_of(spec_of(MINI), Outcome(Kind(kind), "why")))
    run = mlflow.MlflowClient(tracking.uri).get_run(run_id)
    assert (run.info.status, run.data.tags["outcome"], run.data.tags["reason"]) == (status, kind, "why")


def test_writing_a_record_twice_leaves_one_run_as_it_was(folder: Path, spec_of: SpecOf) -> None:
    tracking, record = Tracking(default_uri(folder)), record_of(spec_of(MINI))
    experiment, run_id = write(tracking, record)
    spool = Spool(folder / "spool")
    spool.save(record)
    assert replay(tracking, experiment, spool) == Replayed(written=1)
    assert list(spool.waiting()) == []
    assert [run.run_id for run in tracking.runs(experiment, record.sweep_run.id)] == [run_id]


def test_a_store_that_goes_away_leaves_the_results_in_the_spool(
    folder: Path, spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking, record = Tracking(default_uri(folder)), record_of(spec_of(MINI))
    experiment = tracking.create_experiment("mini")
    spool = Spool(folder / "spool")
    spool.save(record)
    spool.save(record.model_copy(update={"attempt": "another"}))
    asked = []

    def away(*_: object) -> str:
        asked.append(1)
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(Tracking, "start", away)
        assert replay(tracking, experiment, spool) == Replayed(waiting=2)
    assert len(asked) == 1, "one refusal is enough to know"
    assert replay(tracking, experiment, spool) == Replayed(written=2)
    assert read_results(tracking, "mini")[0].records[0].throughput == 42.0


def test_runs_that_a_dead_driver_left_running_are_closed_as_interrupted(folder: Path, spec_of: SpecOf) -> None:
    tracking, record = Tracking(default_uri(folder)), record_of(spec_of(MINI))
    experiment = tracking.create_experiment("mini")
    tracking.start(experiment, record.sweep_run.id, record.trial, record.attempt, record.started_ms)
    assert tracking.close_stale(experiment, record.sweep_run.id, 2_000_000) == 1
    (run,) = tracking.runs(experiment, record.sweep_run.id)
    assert (run.status, run.tags["outcome"], run.end_ms) == ("KILLED", "interrupted", 2_000_000)


def test_an_unreachable_server_is_one_line_without_the_password() -> None:
    with pytest.raises(UsageError) as caught:
        Tracking("http://user:hunter22@127.0.0.1:9")
    assert "tracking store http://***@127.0.0.1:9" in str(caught.value)
    assert "hunter22" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_store_file_that_cannot_be_opened_is_one_line(folder: Path) -> None:
    (folder / "mlflow.db").write_text("no database")
    with pytest.raises(UsageError, match="tracking store sqlite"):
        Tracking(default_uri(folder))


def test_an_unknown_sweep_is_told_with_those_there_are(folder: Path, spec_of: SpecOf) -> None:
    tracking = Tracking(default_uri(folder))
    write(tracking, record_of(spec_of(MINI)))
    with pytest.raises(UsageError, match="no sweep 'other' in the tracking store; it has mini"):
        read_results(tracking, "other")
    with pytest.raises(UsageError, match=r"has no sweep run 'x'; it has 20261201"):
        read_results(tracking, "mini", "x")


def test_an_experiment_without_a_sweep_run_is_told_so(folder: Path) -> None:
    tracking = Tracking(default_uri(folder))
    tracking.create_experiment("empty")
    with pytest.raises(UsageError, match="holds no sweep run"):
        read_results(tracking, "empty")


def test_a_deleted_experiment_is_told_so(folder: Path) -> None:
    tracking = Tracking(default_uri(folder))
    mlflow.MlflowClient(tracking.uri).delete_experiment(tracking.create_experiment("mini"))
    with pytest.raises(UsageError, match="has been deleted"):
        tracking.create_experiment("mini")


def test_secrets_of_the_environment_reach_neither_text_nor_artifact(
    folder: Path, spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret_value")
    assert redact("token hf_secret_value at https://me:pw@host/x") == "token *** at https://***@host/x"
    tracking = Tracking(default_uri(folder))
    record = record_of(spec_of(MINI), Outcome(Kind.FAILED, "401 for hf_secret_value"))
    _, run_id = write(tracking, record.model_copy(update={"log": "using hf_secret_value"}))
    client = mlflow.MlflowClient(tracking.uri)
    assert "hf_secret" not in json.dumps(client.get_run(run_id).to_dictionary())
    written = [Path(client.download_artifacts(run_id, one.path)) for one in client.list_artifacts(run_id)]
    assert not any(b"hf_secret" in file.read_bytes() for file in written)


def test_artifacts_that_cannot_be_written_from_here_are_found_before_the_first_trial(folder: Path) -> None:
    tracking = Tracking(default_uri(folder))
    tracking.check_artifacts(tracking.create_experiment("fine"))
    client = mlflow.MlflowClient(default_uri(folder))
    faulty = client.create_experiment("faulty", artifact_location="file:///proc/absent/mlruns")
    with pytest.raises(UsageError, match=r"artifacts cannot be written to .*--artifacts-destination"):
        tracking.check_artifacts(faulty)


def test_a_waiting_record_that_is_no_good_is_set_aside_and_the_rest_goes_on(folder: Path, spec_of: SpecOf) -> None:
    tracking, record = Tracking(default_uri(folder)), record_of(spec_of(MINI))
    experiment = tracking.create_experiment("mini")
    spool = Spool(folder / "spool")
    refused = record.model_copy(update={"attempt": "refused", "measured": {"a(b=%": 1.0}})
    for one in (record, refused):
        spool.save(one)
    (folder / "spool/0.json").write_text("{")
    found = replay(tracking, experiment, spool)
    assert found.written == 1
    assert sorted(Path(file).name for file in found.set_aside) == ["0.set-aside", "refused.set-aside"]
    assert list(spool.waiting()) == []


def test_a_run_without_its_description_does_not_stop_the_next_start(folder: Path, spec_of: SpecOf) -> None:
    spec = spec_of(MINI)
    tracking, record = Tracking(default_uri(folder)), record_of(spec)
    write(tracking, record)
    other = record.model_copy(update={"attempt": "another", "started_ms": record.started_ms + 1})
    experiment, run_id = write(tracking, other)
    for file in (folder / "mlruns").rglob("sweep.json"):
        if run_id in file.parts:
            file.unlink()
    assert read_results(tracking, "mini")[0].sweep_run.id == record.sweep_run.id
    for file in (folder / "mlruns").rglob("sweep.json"):
        file.unlink()
    choose_sweep_run(make_plan(spec), tracking, experiment, fresh=False, stack={"torch": "2.13.0"})


def test_the_shells_own_mlflow_settings_change_nothing(
    folder: Path, spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ENABLE_ASYNC_LOGGING", "true")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "elsewhere")
    monkeypatch.setenv("MLFLOW_RUN_ID", "f00d")
    tracking = Tracking(default_uri(folder))
    write(tracking, record_of(spec_of(MINI)))
    assert tracking.experiment_id("elsewhere") is None
    assert read_results(tracking, "mini")[0].records[0].figures["train_samples_per_second"] == 42.0
