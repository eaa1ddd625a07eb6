"""What trials say becomes records: in a real store, on the disk, or on both."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridgetower_ray.cluster.progress import PlainView
from bridgetower_ray.store.location import default_uri
from bridgetower_ray.store.recorder import Recorder, Replayed, replay
from bridgetower_ray.store.results import read_results
from bridgetower_ray.store.spool import Spool
from bridgetower_ray.store.tracking import StoreUnavailable, Tracking
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.spec import SweepSpec
from tests.conftest import MINI
from tests.records import experiment_of, sweep_run_of, trials_of

SpecOf = Callable[[str], SweepSpec]


def a_recorder(folder: Path, spec: SweepSpec) -> tuple[Tracking, str, Recorder]:
    """A recorder of the sweep's trials over a real store in `folder`, with that store and the experiment."""
    tracking, view = Tracking(default_uri(folder)), PlainView(lambda _: None)
    experiment, spool = experiment_of(tracking, spec), Spool(folder / "spool")
    trials = trials_of(spec)
    return tracking, experiment, Recorder(trials, sweep_run_of(spec).id, tracking, experiment, spool, view)


def recorded(folder: Path, spec: SweepSpec, events: list[dict[str, Any]], outcome: Outcome) -> Any:
    """What the store has of a trial that said `events` and ended with `outcome`."""
    tracking, _, recorder = a_recorder(folder, spec)
    recorder.began(0)
    recorder.heard(0, {"phase": "training", "node": "here", "events": events})
    recorder.finished(0, outcome, "log")
    recorder.drain()
    return read_results(tracking, spec.name)[0].records[0]


MEASURED = {
    "event": "measured",
    "train_samples_per_second": 50.0,
    "window_steps": 7,
    "window_seconds": 1.0,
    "train_loss": 1.0,
}


@pytest.mark.parametrize("kind", [Kind.TIMED_OUT, Kind.OUT_OF_MEMORY, Kind.FAILED])
def test_a_ceiling_that_fails_leaves_the_cell_measured(kind: Kind, folder: Path, spec_of: SpecOf) -> None:
    record = recorded(folder, spec_of(MINI), [dict(MEASURED)], Outcome(kind, "in the ceilings"))
    assert record.throughput == 50.0
    assert record.outcome.reason == f"without a ceiling: {kind}(in the ceilings)"


def test_a_full_disk_loses_nothing_while_the_store_takes_results(folder: Path, spec_of: SpecOf) -> None:
    (folder / "spool").write_text("where the folder would be: nothing can be written or removed")
    assert recorded(folder, spec_of(MINI), [dict(MEASURED)], Outcome(Kind.MEASURED)).throughput == 50.0


@pytest.mark.parametrize("loader", ["torch.utils.data.dataloader.DataLoader", None])
def test_no_measured_run_carries_another_loader_under_the_media_pipelines_name(
    loader: str | None, folder: Path, spec_of: SpecOf
) -> None:
    """Whatever the rank says: the driver looks at what it said was at work."""
    text = MINI.replace("[cpu]", "[gaudi2]").replace("accelerator: cpu,", "accelerator: gaudi2,")
    spec = spec_of(text.replace("[false, true]", "[true]"))
    effective = {} if loader is None else {"loader": loader}
    events = [{"event": "environment", "devices": [], "asynchronous": True, "effective": effective}, dict(MEASURED)]
    record = recorded(folder, spec, events, Outcome(Kind.MEASURED))
    assert record.outcome.kind is Kind.FAILED
    assert "mediapipe_dataloader was asked for, but" in record.outcome.reason
    assert record.throughput is None


def test_what_is_measured_is_on_the_disk_as_soon_as_a_stop_is_asked_for(folder: Path, spec_of: SpecOf) -> None:
    """A driver that is killed right after loses nothing: the next one writes what it finds."""
    spec = spec_of(MINI)
    tracking, experiment, recorder = a_recorder(folder, spec)
    for index in range(2):
        recorder.began(index)
    recorder.heard(0, {"phase": "training", "node": "here", "events": [dict(MEASURED)]})
    recorder.drain()
    recorder.save_under_way("the sweep was stopped")
    assert replay(tracking, experiment, Spool(folder / "spool")) == Replayed(written=2)
    kinds = sorted(str(one.outcome.kind) for one in read_results(tracking, spec.name)[0].records)
    assert kinds == ["interrupted", "measured"]


def test_a_store_that_did_not_answer_is_left_alone_for_a_while(
    folder: Path, spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def away(*_: object) -> str:
        asked.append(1)
        raise StoreUnavailable("gone")

    monkeypatch.setattr(Tracking, "start", away)
    _, _, recorder = a_recorder(folder, spec_of(MINI))
    for index in range(3):
        recorder.began(index)
    recorder.drain()
    assert len(asked) == 1


def test_without_a_disk_the_store_is_asked_even_if_it_did_not_answer_just_before(
    folder: Path, spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(MINI)
    (folder / "spool").write_text("")
    tracking, _, recorder = a_recorder(folder, spec)
    with monkeypatch.context() as away:
        away.setattr(Tracking, "start", lambda *_: (_ for _ in ()).throw(StoreUnavailable("gone")))
        recorder.began(0)
        recorder.drain()
    recorder.heard(0, {"phase": "training", "node": "here", "events": [dict(MEASURED)]})
    recorder.finished(0, Outcome(Kind.MEASURED))
    recorder.drain()
    assert recorder.unkept == []
    assert read_results(tracking, spec.name)[0].records[0].throughput == 50.0


def test_a_trial_that_begins_again_closes_the_attempt_that_was_lost(folder: Path, spec_of: SpecOf) -> None:
    tracking, experiment, recorder = a_recorder(folder, spec_of(MINI))
    recorder.began(0)
    recorder.began(0)
    recorder.heard(0, {"phase": "training", "node": "here", "events": [dict(MEASURED)]})
    recorder.finished(0, Outcome(Kind.MEASURED))
    recorder.drain()
    runs = tracking.runs(experiment, "20261201-000000-0000")
    assert [run.status for run in runs] == ["FAILED", "FINISHED"]
    assert len(read_results(tracking, "mini")[0].records) == 1


def test_an_attempt_that_is_lost_after_its_window_closed_is_measured_and_not_run_again(
    folder: Path, spec_of: SpecOf
) -> None:
    tracking, experiment, recorder = a_recorder(folder, spec_of(MINI))
    recorder.began(0)
    recorder.heard(0, {"phase": "training", "node": "here", "events": [dict(MEASURED)]})
    recorder.began(0)
    assert recorder.ended[0].kind is Kind.MEASURED
    recorder.finished(0, Outcome(Kind.FAILED, "the second attempt is nobody's business"))
    recorder.drain()
    (run,) = tracking.runs(experiment, "20261201-000000-0000")
    assert (run.tags["outcome"], run.metrics["train_samples_per_second"]) == ("measured", 50.0)
    assert "actor or node was lost" in run.tags["reason"]


def test_a_trial_that_ends_well_without_a_measurement_is_failed(folder: Path, spec_of: SpecOf) -> None:
    record = recorded(folder, spec_of(MINI), [], Outcome(Kind.MEASURED))
    assert str(record.outcome) == "failed(the training ended without a measurement)"


def test_verdict_and_flags_are_tags_of_the_run(folder: Path, spec_of: SpecOf) -> None:
    ceilings = {
        "event": "figures",
        "compute_ceiling_samples_per_second": 100.0,
        "loader_ceiling_samples_per_second": 99.0,
    }
    environment = {"event": "environment", "asynchronous": False, "devices": ["CPU"], "effective": {}}
    busy = {**MEASURED, "foreign_cpu_cores": 1.9, "cpus": 2}
    record = recorded(folder, spec_of(MINI), [environment, busy, ceilings], Outcome(Kind.MEASURED))
    tracking = Tracking(default_uri(folder))
    (run,) = tracking.runs(tracking.create_experiment("mini"), "20261201-000000-0000")
    assert run.tags["verdict"] == "serial"
    assert record.flags == ("contaminated: others used 1.9 of 2 cores in the window",)
    assert record.figures["compute_ceiling_samples_per_second"] == 100.0
