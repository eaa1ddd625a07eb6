"""MLflow for real: a SQLite store, its runs, its failures, and the spool."""

import json
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest
import yaml

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
from bridgetower_ray.sweep.sweep_run import SweepRun, TrialRecord
from tests.conftest import MINI
from tests.records import experiment_of, sweep_run_of, trials_of

SpecOf = Callable[[str], SweepSpec]
MEASURED = Outcome(Kind.MEASURED)
MINI_SPEC = SweepSpec.model_validate_json(json.dumps(yaml.safe_load(MINI)))


def record_of(spec: SweepSpec, outcome: Outcome = MEASURED) -> TrialRecord:
    return TrialRecord(
        sweep_run=sweep_run_of(spec).id,
        trial=trials_of(spec)[0],
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
    experiment = experiment_of(tracking, MINI_SPEC)
    run_id = tracking.start(experiment, record.sweep_run, record.trial, record.attempt, record.started_ms)
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
    assert names == ["environment.json", "steps.parquet", "train.log", "trial.json"]
    assert tracking.read_steps(run_id).to_pylist() == list(record.steps)
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
    assert [run.run_id for run in tracking.runs(experiment, record.sweep_run)] == [run_id]


def test_a_store_that_goes_away_leaves_the_results_in_the_spool(
    folder: Path, spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking, record = Tracking(default_uri(folder)), record_of(spec_of(MINI))
    experiment = experiment_of(tracking, MINI_SPEC)
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
    experiment = experiment_of(tracking, MINI_SPEC)
    tracking.start(experiment, record.sweep_run, record.trial, record.attempt, record.started_ms)
    assert tracking.close_stale(experiment, 2_000_000) == 1
    (run,) = tracking.runs(experiment, record.sweep_run)
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
    mlflow.MlflowClient(tracking.uri).delete_experiment(experiment_of(tracking, MINI_SPEC))
    with pytest.raises(UsageError, match="has been deleted"):
        experiment_of(tracking, MINI_SPEC)


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
    experiment = experiment_of(tracking, MINI_SPEC)
    spool = Spool(folder / "spool")
    refused = record.model_copy(update={"attempt": "refused", "measured": {"a(b=%": 1.0}})
    for one in (record, refused):
        spool.save(one)
    (folder / "spool/0.json").write_text("{")
    found = replay(tracking, experiment, spool)
    assert found.written == 1
    assert sorted(Path(file).name for file in found.set_aside) == ["0.set-aside", "refused.set-aside"]
    assert list(spool.waiting()) == []


def former(sweep_run: SweepRun) -> str:
    """A sweep run's description as version 0.1 kept it with every run: the whole sweep file, settings of its time."""
    cells = [cell.model_dump(mode="json", exclude={"settings", "devices"}) for cell in sweep_run.cells]
    spec = yaml.safe_load(MINI) | {"measure": {"repeats": 2}, "accelerators": {"cpu": {"price_per_hour": 2.5}}}
    spec["training"]["a_setting_of_its_time"] = True
    common = {"id": sweep_run.id, "baseline": sweep_run.baseline, "stack": sweep_run.stack}
    return json.dumps({**common, "spec": spec, "cells": cells, "accelerator_labels": {"cpu": "CPU"}})


def test_a_description_of_an_earlier_version_is_read_whatever_settings_it_names(folder: Path) -> None:
    tracking, record = Tracking(default_uri(folder)), record_of(MINI_SPEC)
    experiment = tracking.create_experiment("mini")
    run_id = tracking.start(experiment, record.sweep_run, record.trial, record.attempt, record.started_ms)
    tracking.write(run_id, record)
    file = folder / "sweep.json"
    file.write_text(former(sweep_run_of(MINI_SPEC)))
    mlflow.MlflowClient(tracking.uri).log_artifact(run_id, str(file))
    found = read_results(tracking, "mini")[0].sweep_run
    assert (found.axes, found.repeats, found.prices) == (MINI_SPEC.axis_values, 2, {"cpu": 2.5})


def test_a_waiting_record_of_an_earlier_version_is_written(folder: Path) -> None:
    tracking, record = Tracking(default_uri(folder)), record_of(MINI_SPEC)
    experiment, spool = experiment_of(tracking, MINI_SPEC), Spool(folder / "spool")
    file = spool.save(record)
    kept = json.loads(file.read_text()) | {"sweep_run": json.loads(former(sweep_run_of(MINI_SPEC)))}
    file.write_text(json.dumps(kept))
    assert replay(tracking, experiment, spool) == Replayed(written=1)
    assert read_results(tracking, "mini")[0].records[0].throughput == 42.0


def test_a_folder_that_was_renamed_reports_on_its_sweep_and_goes_on_with_it(folder: Path) -> None:
    before, after = folder / "before", folder / "after"
    before.mkdir()
    write(Tracking(default_uri(before)), record_of(MINI_SPEC))
    before.rename(after)
    tracking = Tracking(default_uri(after))
    assert read_results(tracking, "mini")[0].records[0].throughput == 42.0
    _, done = choose_sweep_run(make_plan(MINI_SPEC), tracking, "1", fresh=False, stack={"torch": "2.13.0"})
    assert len(done) == 1


def test_a_sweep_run_without_a_description_does_not_stop_the_next_start_which_gives_it_one(folder: Path) -> None:
    tracking, record = Tracking(default_uri(folder)), record_of(MINI_SPEC)
    experiment, _ = write(tracking, record)
    for name in tracking.tags(experiment):
        if "sweep_run" in name:
            mlflow.MlflowClient(tracking.uri).delete_experiment_tag(experiment, name)
    with pytest.raises(UsageError, match="no description of the sweep run"):
        read_results(tracking, "mini")
    choose_sweep_run(make_plan(MINI_SPEC), tracking, experiment, fresh=False, stack={"torch": "2.13.0"})
    assert read_results(tracking, "mini")[0].records[0].throughput == 42.0


def test_a_description_that_changes_leaves_nothing_of_the_former_one(folder: Path, spec_of: SpecOf) -> None:
    tracking = Tracking(default_uri(folder))
    experiment = experiment_of(tracking, MINI_SPEC)
    many = sweep_run_of(
        spec_of(MINI.replace("[0, 1]", str(list(range(200)))).replace("max_steps: 9", "max_steps: 9999"))
    )
    tracking.describe(experiment, many)
    assert tracking.described(experiment, many.id) == many
    tracking.describe(experiment, sweep_run_of(MINI_SPEC))
    assert tracking.described(experiment, many.id) == sweep_run_of(MINI_SPEC)
    assert sum("sweep_run" in name for name in tracking.tags(experiment)) == 2


def test_trials_that_an_older_sweep_run_left_running_are_closed_by_a_fresh_one(folder: Path) -> None:
    tracking, record = Tracking(default_uri(folder)), record_of(MINI_SPEC)
    experiment = experiment_of(tracking, MINI_SPEC)
    tracking.start(experiment, record.sweep_run, record.trial, record.attempt, record.started_ms)
    choose_sweep_run(make_plan(MINI_SPEC), tracking, experiment, fresh=True, stack={})
    assert [run.status for run in tracking.runs(experiment, record.sweep_run)] == ["KILLED"]


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
