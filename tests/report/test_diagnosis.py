"""Verdicts, predictions and flags, and the ceilings and neighbours they are made from."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridgetower_ray.cluster.progress import PlainView
from bridgetower_ray.doctor.neighbours import HostUse, host_use, neighbours
from bridgetower_ray.report.diagnosis import exceeds, predict_workers, takes_turns, verdict
from bridgetower_ray.report.flags import contamination, flags
from bridgetower_ray.report.limits import speedup_pairs, worker_advice
from bridgetower_ray.report.ranks import rank_figures
from bridgetower_ray.report.records import gather
from bridgetower_ray.report.tables import host_share_table, limits_table
from bridgetower_ray.store.location import default_uri
from bridgetower_ray.store.recorder import Recorder, Replayed, replay
from bridgetower_ray.store.results import read_results
from bridgetower_ray.store.spool import Spool
from bridgetower_ray.store.tracking import StoreUnavailable, Tracking
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.plan import make_plan
from bridgetower_ray.sweep.spec import SweepSpec
from tests.conftest import MINI
from tests.records import experiment_of, run_of, sweep_run_of

SpecOf = Callable[[str], SweepSpec]


@pytest.mark.parametrize(
    ("throughput", "compute", "loader", "turns", "expected"),
    [
        (50, 100, 52, False, "loader-bound"),
        (98, 100, 300, False, "compute-bound"),
        (97, 100, 105, False, "balanced"),
        (60, 100, 105, False, "host-contended"),
        (50, 100, 100, True, "serial"),
        (95, 100, 2000, True, "compute-bound"),
        (50, None, 100, False, None),
        (50, 100, None, True, None),
    ],
)
def test_the_verdict_follows_its_rule(
    throughput: float, compute: float | None, loader: float | None, turns: bool, expected: str | None
) -> None:
    assert verdict(throughput, compute, loader, turns) == expected


@pytest.mark.parametrize(("workers", "mediapipe", "expected"), [(0, False, True), (1, False, False), (0, True, False)])
def test_only_without_workers_do_loading_and_computing_take_turns(
    workers: int, mediapipe: bool, expected: bool
) -> None:
    assert takes_turns(workers, mediapipe) is expected


@pytest.mark.parametrize(("without", "with_workers"), [(336.5, 602.1), (227.5, 345.4)])
def test_the_published_gpu_cells_without_workers_are_serial(without: float, with_workers: float) -> None:
    """Taking turns, 1 / 336.5 = 1 / 602.1 + 1 / loader: the loader alone gives 763 a second, and 666."""
    loader = 1 / (1 / without - 1 / with_workers)
    assert verdict(without, with_workers, loader, takes_turns(0, mediapipe=False)) == "serial"


def test_the_predicted_workers_are_the_fewest_that_reach_the_compute_ceiling() -> None:
    predicted = predict_workers(100, {0: 500, 1: 40, 2: 76}, cpus=8, ranks=1)
    assert predicted is not None
    assert predicted.workers == math.ceil(100 / ((40 + 38) / 2)) == 3
    assert predicted.possible


def test_more_workers_than_cpus_are_said_to_be_out_of_reach() -> None:
    predicted = predict_workers(1000, {1: 40}, cpus=16, ranks=8)
    assert predicted is not None
    assert (predicted.workers, predicted.cpus_per_rank, predicted.possible) == (25, 2, False)


def test_cells_without_workers_predict_nothing() -> None:
    assert predict_workers(100, {0: 50}, cpus=8, ranks=1) is None


@pytest.mark.parametrize(
    ("cores", "cpus", "said"), [(0.5, 2, False), (0.6, 2, True), (0.6, 64, False), (3.3, 64, True)]
)
def test_a_busy_neighbour_is_one_over_half_a_core_or_a_twentieth(cores: float, cpus: int, said: bool) -> None:
    assert bool(contamination(cores, cpus, ["make (7) 1.0"])) is said


def test_flags_say_in_words_what_is_doubtful() -> None:
    found = flags(
        {
            "window_steps": 12,
            "foreign_cpu_cores": 1.5,
            "cpus": 2,
            "foreign_processes": ["make (7) 1.4"],
            "foreign_device_processes": ["game (8)"],
            "train_loss": math.nan,
        },
        steady_window_steps=40,
    )
    assert found == (
        "short window: 12 steps, 40 or more wanted",
        "contaminated: others used 1.5 of 2 cores in the window (make (7) 1.4)",
        "contaminated: others were on the devices (game (8))",
        "the loss is not finite",
    )
    assert flags({"window_steps": 40, "train_loss": 1.0}, 40) == ()


def test_recompilation_and_a_crowded_host_are_flagged() -> None:
    assert flags({"graph_compilations": 2}, 0, wanted_cpus=3, usable_cpus=2) == (
        "crowded: 3 ranks and workers shared 2 CPUs",
        "recompiled: 2 graphs were compiled inside the window",
    )
    assert flags({"graph_compilations": 0}, 0, wanted_cpus=2, usable_cpus=2) == ()


def steps_of(rank: int, fetches: list[float]) -> list[dict[str, Any]]:
    common = {"rank": rank, "seconds": 1.0, "samples": 4, "epoch_start": False}
    return [
        {**common, "step": number, "warmup": number == 1, "fetch_seconds": fetch}
        for number, fetch in enumerate(fetches, start=1)
    ]


def test_the_rank_that_is_last_to_have_its_batch_is_named() -> None:
    figures = rank_figures([*steps_of(0, [9, 0.1, 0.1, 0.4]), *steps_of(1, [0, 0.3, 0.5, 0.1])])
    assert figures == pytest.approx(
        {"rank_spread_fraction": (0.2 + 0.4 + 0.3) / 3, "slowest_rank": 1.0, "slowest_rank_share": 2 / 3}
    )


def test_one_rank_is_not_compared_with_itself() -> None:
    assert rank_figures(steps_of(0, [1, 2, 3])) == {}


def test_a_trial_that_is_served_after_everybody_else_is_flagged() -> None:
    """Ray's workers have niceness 15 of their own accord, and a trial's ranks inherit it."""
    assert flags({}, 0, niceness="15") == ("niceness 15: any ordinary process of the host was served first",)
    assert flags({}, 0, niceness="0") == ()
    assert flags({}, 0, niceness="-5") == ()


def test_neighbours_are_what_the_host_did_less_the_trial_less_our_own_services() -> None:
    before = HostUse(0.0, 100.0, 10.0, {(1, "raylet"): 5.0}, {(2, "make"): 1.0})
    after = HostUse(10.0, 130.0, 20.0, {(1, "raylet"): 7.0}, {(2, "make"): 13.0, (3, "sh"): 0.1})
    found = neighbours(before, after)
    assert found.foreign_cores == pytest.approx((30 - 10 - 2) / 10)
    assert found.own_services_cores == pytest.approx(0.2)
    assert found.busiest == ("make (2) 1.2",)


def test_a_worker_that_bears_another_title_now_has_used_no_more_for_it() -> None:
    """An idle worker of our Ray, which has used 50 s, is taken by another job: one second of that is the job's."""
    before = HostUse(0.0, 100.0, 10.0, {(1, "ray::IDLE"): 50.0, (2, "ray::IDLE"): 50.0}, {})
    after = HostUse(10.0, 112.0, 20.0, {(2, "ray::TrialActor"): 51.0}, {(1, "ray::RayTrainWorker"): 51.0})
    found = neighbours(before, after)
    assert (found.foreign_cores, found.own_services_cores) == pytest.approx((0.1, 0.1))
    assert found.busiest == ("ray::RayTrainWorker (1) 0.1",)


def test_a_real_busy_neighbour_is_seen_and_the_trials_own_children_are_not() -> None:
    """The reader runs in a process group of its own, with a child in it; a stranger outside burns a core."""
    code = """
import json, subprocess, sys, time
from bridgetower_ray.doctor.neighbours import host_use, neighbours
burn = "import time; end = time.process_time() + 1.0\\nwhile time.process_time() < end: pass"
before = host_use()
subprocess.run([sys.executable, "-c", burn])
after = host_use()
print(json.dumps([after.trial - before.trial, neighbours(before, after).foreign_cores]))
"""
    burn = [sys.executable, "-c", "while True: pass"]
    stranger = subprocess.Popen(burn, process_group=0)
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, process_group=0)
    finally:
        stranger.kill()
        stranger.wait()
    own_seconds, foreign_cores = eval(done.stdout)
    assert own_seconds >= 0.95, "the child's second, though it was reaped, is the trial's own"
    assert foreign_cores > 0.3


def test_this_process_is_in_its_own_trial() -> None:
    use = host_use()
    assert all(pid != os.getpid() for pid, _ in (*use.others, *use.own))


def recorded(folder: Path, spec: SweepSpec, events: list[dict[str, Any]], outcome: Outcome) -> Any:
    """What the store has of a trial that said `events` and ended with `outcome`."""
    tracking = Tracking(default_uri(folder))
    experiment = experiment_of(tracking, spec)
    plan = make_plan(spec)
    recorder = Recorder(
        plan.trials, sweep_run_of(spec).id, tracking, experiment, Spool(folder / "spool"), PlainView(lambda _: None)
    )
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
    tracking, spool = Tracking(default_uri(folder)), Spool(folder / "spool")
    experiment = experiment_of(tracking, spec)
    trials, view = make_plan(spec).trials, PlainView(lambda _: None)
    recorder = Recorder(trials, sweep_run_of(spec).id, tracking, experiment, spool, view)
    for index in range(2):
        recorder.began(index)
    recorder.heard(0, {"phase": "training", "node": "here", "events": [dict(MEASURED)]})
    recorder.drain()
    recorder.save_under_way("the sweep was stopped")
    assert replay(tracking, experiment, spool) == Replayed(written=2)
    kinds = sorted(str(one.outcome.kind) for one in read_results(tracking, spec.name)[0].records)
    assert kinds == ["interrupted", "measured"]


def test_a_store_that_did_not_answer_is_left_alone_for_a_while(
    folder: Path, spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(MINI)
    tracking, spool = Tracking(default_uri(folder)), Spool(folder / "spool")
    experiment = experiment_of(tracking, spec)
    asked = []

    def away(*_: object) -> str:
        asked.append(1)
        raise StoreUnavailable("gone")

    monkeypatch.setattr(Tracking, "start", away)
    recorder = Recorder(
        make_plan(spec).trials, sweep_run_of(spec).id, tracking, experiment, spool, PlainView(lambda _: None)
    )
    for index in range(3):
        recorder.began(index)
    recorder.drain()
    assert len(asked) == 1


def test_without_a_disk_the_store_is_asked_even_if_it_did_not_answer_just_before(
    folder: Path, spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(MINI)
    (folder / "spool").write_text("")
    tracking = Tracking(default_uri(folder))
    experiment = experiment_of(tracking, spec)
    trials, view = make_plan(spec).trials, PlainView(lambda _: None)
    recorder = Recorder(trials, sweep_run_of(spec).id, tracking, experiment, Spool(folder / "spool"), view)
    with monkeypatch.context() as away:
        away.setattr(Tracking, "start", lambda *_: (_ for _ in ()).throw(StoreUnavailable("gone")))
        recorder.began(0)
        recorder.drain()
    recorder.heard(0, {"phase": "training", "node": "here", "events": [dict(MEASURED)]})
    recorder.finished(0, Outcome(Kind.MEASURED))
    recorder.drain()
    assert recorder.unkept == []
    assert read_results(tracking, spec.name)[0].records[0].throughput == 50.0


def a_recorder(folder: Path, spec: SweepSpec) -> tuple[Tracking, str, Recorder]:
    tracking, view = Tracking(default_uri(folder)), PlainView(lambda _: None)
    experiment, spool = experiment_of(tracking, spec), Spool(folder / "spool")
    trials = make_plan(spec).trials
    return tracking, experiment, Recorder(trials, sweep_run_of(spec).id, tracking, experiment, spool, view)


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


def with_ceilings(sweep_run: Any, setting: str, throughput: float, compute: float, loader: float) -> list[Any]:
    workers = setting.partition("workers=")[2][0]
    facts = {
        "env.cpus_usable": "8",
        "run.ranks": "1",
        "env.asynchronous": "True",
        "run.dataloader_num_workers": workers,
    }
    figures = {
        "compute_ceiling_samples_per_second": compute,
        "loader_ceiling_samples_per_second": loader,
        "data_wait_fraction": 1 - throughput / compute,
    }
    return [
        run_of(sweep_run, setting, repeat, throughput * (1 + repeat / 1000), facts=facts, **figures)
        for repeat in (1, 2)
    ]


def test_the_report_says_how_much_of_a_speedup_is_the_hosts_doing(spec_of: SpecOf) -> None:
    text = MINI.replace("[cpu]", "[gaudi2, h100]").replace("accelerator: cpu", "accelerator: h100")
    sweep_run = sweep_run_of(spec_of(text))
    runs = with_ceilings(sweep_run, "gaudi2 · workers=0", 600, 900, 620)
    runs += with_ceilings(sweep_run, "h100 · workers=0", 300, 750, 310)
    runs += with_ceilings(sweep_run, "h100 · workers=1", 580, 750, 590)
    results = gather(sweep_run, runs)
    pair = next(iter(speedup_pairs(results)))
    assert (pair.compute_only.value, pair.host_factor.value) == pytest.approx((1.2, 2.0 / 1.2))
    table = host_share_table(results)
    assert table is not None
    assert table.rows[0][1][1:] == ("1.20x [1.20, 1.20]", "1.67x [1.66, 1.67]")


def test_the_limits_table_has_verdict_and_estimate(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    runs = with_ceilings(sweep_run, "cpu · workers=1", 300, 750, 310)
    table = limits_table(gather(sweep_run, runs))
    assert table is not None
    assert table.rows[0][1] == ("300.4", "750.0", "310.0", "60%*", "loader-bound")
    assert any("estimate" in note for note in table.notes)


def test_a_cell_above_a_ceiling_gets_no_verdict_no_advice_and_no_share_from_it(spec_of: SpecOf) -> None:
    text = MINI.replace("[cpu]", "[gaudi2, h100]").replace("accelerator: cpu", "accelerator: h100")
    sweep_run = sweep_run_of(spec_of(text))
    runs = with_ceilings(sweep_run, "gaudi2 · workers=1", 600, 500, 900)
    runs += with_ceilings(sweep_run, "h100 · workers=1", 300, 750, 310)
    results = gather(sweep_run, runs)
    above = results.find("gaudi2 · workers=1")
    assert above is not None
    assert (above.verdict, above.compute_ceiling, above.loader_ceiling) == (None, None, 900)
    assert list(speedup_pairs(results)) == []
    assert [advice.subject for advice in worker_advice(results)] == ["h100"]
    table = limits_table(results)
    assert table is not None
    assert table.rows[0][1][1] == "500.0 exceeded"


@pytest.mark.parametrize(
    ("throughput", "lowest", "highest", "expected"),
    [
        (101, 99.5, 100.5, False),
        (103, 99.5, 100.5, True),
        (109, 95, 105, False),
        (111, 95, 105, True),
        (103, None, None, True),
    ],
)
def test_a_ceiling_is_exceeded_by_more_than_its_spread(
    throughput: float, lowest: float | None, highest: float | None, expected: bool
) -> None:
    assert exceeds(throughput, 100, lowest, highest) is expected


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ({"cpus": 8, "own_services_cpu_cores": 0.9}, "this sweep's own Ray and driver used 0.9 of 8 cores"),
        ({"cpus": 8, "stolen_cpu_cores": 0.5}, "stolen: a hypervisor gave 0.5 of 8 cores"),
        ({"throttled_periods_fraction": 0.4}, "throttled: a CPU quota stopped processes in 40% of its periods"),
        ({"memory_pressure_fraction": 0.05}, "memory pressure: something waited for memory in 5% of the window"),
        ({"io_pressure_fraction": 0.2}, "io pressure"),
        ({"cpu_pressure_fraction": 0.5}, "cpu pressure"),
        ({"swapped_bytes": 5 * 2**20}, "swapped: 5 MiB"),
        (
            {"device_throttled_fraction": 0.5, "device_throttled": ["power cap"]},
            "slowed in 50% of the window (power cap)",
        ),
        ({"device_throttled_seconds": 6.0, "window_seconds": 10.0}, "slowed in 60% of the window (power or heat)"),
        ({"device_errors": ["2 uncorrected memory"]}, "device errors in the window: 2 uncorrected memory"),
        ({"device_energy_joules": 900.0, "device_energy_by_power_joules": 500.0}, "energy counter says 900 J"),
        ({"cpus": 8, "ceilings_foreign_cpu_cores": 2.0}, "while the ceilings were taken"),
        ({"model_flops_utilisation": 1.4}, "140% of the device's peak"),
        (
            {"train_samples_per_second": 26.3, "compute_ceiling_samples_per_second": 21.3},
            "26.3 samples/s are above the compute ceiling of 21.3: it is no limit",
        ),
    ],
)
def test_what_was_taken_from_a_trial_is_flagged(measured: dict[str, Any], words: str) -> None:
    (flag,) = flags(measured, 0)
    assert words in flag


def test_little_of_everything_is_no_flag() -> None:
    little = {
        "cpus": 8, "own_services_cpu_cores": 0.1, "stolen_cpu_cores": 0.01, "throttled_periods_fraction": 0.0,
        "memory_pressure_fraction": 0.0, "io_pressure_fraction": 0.01, "swapped_bytes": 0.0,
        "device_throttled_seconds": 0.0, "window_seconds": 10.0, "model_flops_utilisation": 0.4,
    }  # fmt: skip
    assert flags(little, 0) == ()


def test_a_crowded_host_waits_for_its_cpus_by_its_own_doing() -> None:
    assert flags({"cpu_pressure_fraction": 0.5}, 0, wanted_cpus=3, usable_cpus=2) == (
        "crowded: 3 ranks and workers shared 2 CPUs",
    )


def test_the_advice_names_the_workers_that_would_reach_the_device(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    runs = with_ceilings(sweep_run, "cpu · workers=1", 300, 750, 310)
    (advice,) = worker_advice(gather(sweep_run, runs))
    assert advice.sentence == "cpu: 3 workers a rank would load as fast as the device computes."
