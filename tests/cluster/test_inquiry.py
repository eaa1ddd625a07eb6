"""A sweep that asks for a precision: what it still wants, what it may spend, and that a broken one decides alike."""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridgetower_ray.cluster.connection import simulated
from bridgetower_ray.cluster.inquiry import Inquiry
from bridgetower_ray.cluster.progress import PlainView
from bridgetower_ray.cluster.tune_run import run_trials
from bridgetower_ray.errors import UsageError
from bridgetower_ray.report.efficiency import Spent
from bridgetower_ray.report.plan_price import Earlier, check_budget
from bridgetower_ray.report.records import SweepResults, gather
from bridgetower_ray.report.stopping import Ended, Why
from bridgetower_ray.store.location import default_uri
from bridgetower_ray.store.recorder import Recorder
from bridgetower_ray.store.results import choose_sweep_run, ended_of
from bridgetower_ray.store.spool import Spool
from bridgetower_ray.store.tracking import Tracking
from bridgetower_ray.store.writing import open_run
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.plan import Plan, make_plan
from bridgetower_ray.sweep.progress import Outlook
from bridgetower_ray.sweep.rehearsal import simulated_nodes
from bridgetower_ray.sweep.spec import SweepSpec
from bridgetower_ray.sweep.sweep_run import Decision, SweepRun, TrialRecord, describe_sweep_run
from tests.bench.scheduling import STAND_IN
from tests.bench.stand_in import throughput
from tests.conftest import MINI, command
from tests.records import trials_of

SpecOf = Callable[[str], SweepSpec]
ASKING = """\
name: asking
model: preset:tiny
dataset: {path: builtin:cartoons, max_train_samples: 8}
training: {max_steps: 100, per_device_train_batch_size: 4}
measure: {precision: 3%, repeats: {max: 9}, warmup_steps: 1, order_seed: 7}
axes:
  accelerator: [one, two]
  max_seq_length: [8, 9, 10]
accelerators: {one: {like: cpu, price_per_hour: 3.0}, two: {like: cpu, price_per_hour: 6.0, devices: 2}}
"""


def asked(plan: Plan, **budget: float) -> Inquiry:
    sweep_run = describe_sweep_run("20261201-000000-0000", plan, {})
    assert sweep_run.question is not None
    return Inquiry(sweep_run.question.model_copy(update=budget), sweep_run, plan.trials, {})


def carry_out(inquiry: Inquiry, seconds: float = 360.0, most: int = 10_000) -> list[Trial]:
    """Run what is wanted, in order, each trial as the stand-in would; returns what was run."""
    ran: list[Trial] = []
    done: set[tuple[str, int]] = set()
    while len(ran) < most:
        wanted = (one for one in inquiry.trials if one.key not in {*inquiry.before, *done} and inquiry.wants(one))
        if (trial := next(wanted, None)) is None:
            return ran
        ran.append(trial)
        done.add(trial.key)
        value = throughput(trial.cell.training.max_seq_length, trial.repeat)
        inquiry.heard(trial, Ended(value, trial.cell.accelerator.name, seconds))
    return ran


def test_no_accelerator_waits_for_anothers_round(spec_of: SpecOf) -> None:
    inquiry = asked(make_plan(spec_of(ASKING)))
    own = [trial for trial in inquiry.trials if trial.cell.accelerator.name == "one"]
    for trial in own[:3]:
        inquiry.heard(trial, Ended(100.0, "one"))
    assert [inquiry.wants(trial) for trial in own[3:12:3]] == [True, True, None]
    other = [trial for trial in inquiry.trials if trial.cell.accelerator.name == "two"]
    assert [inquiry.wants(trial) for trial in other[:9:3]] == [True, True, None]


def test_a_budget_is_not_overdrawn_and_says_so(spec_of: SpecOf) -> None:
    """A round of both takes 3 x (1 + 2) x 0.1 = 0.9 device hours, and 3 x (0.3 + 0.6) in money."""
    plan = make_plan(spec_of(ASKING.replace("3%", "0.1%")))
    for budget in ({"accelerator_hours": 2.8}, {"cost": 8.2}):
        inquiry = asked(plan, **budget)
        ran = carry_out(inquiry)
        spent = Spent()
        for trial in ran:
            spent.add(trial, 360.0)
        assert spent.accelerator_hours == pytest.approx(2.7)
        assert spent.cost == pytest.approx(8.1)
        assert {one.why for one in inquiry.decisions.values()} == {Why.BUDGET}
    assert {one.why for one in _unlimited(plan).decisions.values()} == {Why.MOST}


def _unlimited(plan: Plan) -> Inquiry:
    inquiry = asked(plan)
    carry_out(inquiry)
    return inquiry


def test_a_budget_buys_no_more_by_being_run_again(spec_of: SpecOf) -> None:
    plan = make_plan(spec_of(ASKING.replace("3%", "0.1%")))
    whole = asked(plan, accelerator_hours=4.0)
    kept = {trial.key: Ended(100.0 + index, "one", 360.0) for index, trial in enumerate(carry_out(whole))}
    again = Inquiry(whole.question, whole.sweep_run, plan.trials, kept)
    assert carry_out(again) == []
    assert {name: one.rounds for name, one in again.decisions.items()} == {
        name: one.rounds for name, one in whole.decisions.items()
    }


def test_a_budget_holds_where_a_straggler_lets_two_rounds_be_decided_at_once(spec_of: SpecOf) -> None:
    """A round takes 0.3 device hours: of 0.7 there are two."""
    plan = make_plan(spec_of(ASKING.replace("3%", "0.1%").replace(", two]", "]")))
    inquiry = asked(plan, accelerator_hours=0.7)
    late, *others = (trial for trial in inquiry.trials if trial.repeat <= 2)
    for trial in (*others, late):
        inquiry.heard(trial, Ended(100.0 + trial.repeat, "one", 360.0))
    assert not any(inquiry.wants(trial) for trial in inquiry.trials if trial.repeat > 2)
    assert inquiry.decisions["one"].why == Why.BUDGET


def test_what_earlier_attempts_took_counts_against_the_budget(spec_of: SpecOf) -> None:
    plan = make_plan(spec_of(ASKING.replace("3%", "0.1%")))
    sweep_run = describe_sweep_run("20261201-000000-0000", plan, {})
    assert sweep_run.question is not None
    question = sweep_run.question.model_copy(update={"accelerator_hours": 2.8})
    inquiry = Inquiry(question, sweep_run, plan.trials, {}, Spent(accelerator_hours=0.5))
    rounds = Counter(trial.cell.accelerator.name for trial in carry_out(inquiry))
    assert rounds == {"one": 3 * 3, "two": 3 * 2}


@pytest.mark.parametrize("after", [1, 4, 7, 11])
def test_a_continued_sweep_wants_what_the_unbroken_one_did(after: int, spec_of: SpecOf) -> None:
    plan = make_plan(spec_of(ASKING))
    whole = asked(plan)
    unbroken = carry_out(whole)
    first = asked(plan)
    kept = {
        trial.key: Ended(throughput(trial.cell.training.max_seq_length, trial.repeat), trial.cell.accelerator.name)
        for trial in carry_out(first, most=after)
    }
    second = Inquiry(first.question, first.sweep_run, plan.trials, kept)
    left = carry_out(second)
    assert {trial.key for trial in unbroken} == {*kept, *(trial.key for trial in left)}
    assert second.decisions == whole.decisions
    assert second.outlook.trials == len(left)


def test_progress_says_how_wide_the_widest_interval_is(spec_of: SpecOf) -> None:
    inquiry = asked(make_plan(spec_of(ASKING.replace("3%", "0.5%"))))
    carry_out(inquiry, most=14)
    assert re.fullmatch(r"widest ±[\d.]+ % of ±0.5 %", inquiry.outlook.text)


@dataclass
class Breaking(Inquiry):
    """One whose driver breaks after so many trials."""

    breaks_after: int | None = None

    def heard(self, trial: Trial, ended: Ended) -> Outlook:
        if self.breaks_after == 0:
            raise RuntimeError("broken on purpose")
        self.breaks_after = None if self.breaks_after is None else self.breaks_after - 1
        return super().heard(trial, ended)


def stand_ins(plan: Plan, folder: Path, tracking: Tracking, experiment: str, most: int | None = None) -> SweepRun:
    """Run the plan, or what is left of it, with workers of known throughput; after `most` trials the driver breaks."""
    sweep_run, done = choose_sweep_run(plan, tracking, experiment, fresh=False, stack={})
    assert sweep_run.question is not None
    inquiry = Breaking(sweep_run.question, sweep_run, plan.trials, ended_of(done), breaks_after=most)
    trials = [trial for trial in plan.trials if trial.key not in done and inquiry.wants(trial) is not False]
    view = PlainView(lambda _: None)
    recorder = Recorder(trials, sweep_run.id, tracking, experiment, Spool(folder / "spool"), view, inquiry)
    run_trials(trials, folder, recorder, plan.spec.scheduling, {"worker": STAND_IN}, inquiry)
    return sweep_run


def results(tracking: Tracking, experiment: str, sweep_run: SweepRun) -> SweepResults:
    return gather(sweep_run, tracking.runs(experiment, sweep_run.id))


def test_a_broken_and_continued_sweep_decides_as_the_unbroken_one(folder: Path, spec_of: SpecOf) -> None:
    """Real Ray and MLflow around workers of known throughput; the decisions are made anew from MLflow alone."""
    plan = make_plan(spec_of(ASKING.replace(", two]", "]").replace("[8, 9, 10]", "[8, 9]").replace("max: 9", "max: 5")))
    tracking = Tracking(default_uri(folder))
    whole, broken = (tracking.create_experiment(name) for name in ("whole", "broken"))
    with simulated(simulated_nodes(plan)):
        unbroken = results(tracking, whole, stand_ins(plan, folder, tracking, whole))
        with pytest.raises(Exception, match="broken on purpose"):
            stand_ins(plan, folder, tracking, broken, most=3)
        continued = results(tracking, broken, stand_ins(plan, folder, tracking, broken))
    assert unbroken.courses["one"].rounds == continued.courses["one"].rounds
    assert unbroken.courses["one"].ended_by is not None
    assert unbroken.complete
    assert [one.throughputs for one in unbroken.measured] == [one.throughputs for one in continued.measured]
    assert {len(one.throughputs) for one in unbroken.measured} == {len(unbroken.courses["one"].rounds)}


def test_what_was_decided_of_an_accelerator_stands_once_its_nodes_have_gone(folder: Path, spec_of: SpecOf) -> None:
    spec = spec_of(ASKING)
    tracking = Tracking(default_uri(folder))
    experiment = tracking.create_experiment(spec.name)
    first, _ = choose_sweep_run(make_plan(spec), tracking, experiment, fresh=False, stack={})
    record = TrialRecord(
        sweep_run=first.id, trial=trials_of(spec)[0], started_ms=1, ended_ms=2, outcome=Outcome(Kind.INTERRUPTED)
    )
    tracking.write(open_run(tracking, experiment, record), record)
    decided = {name: Decision(rounds=3, widest=0.5, why="the budget", over_budget=True) for name in ("one", "two")}
    tracking.describe(experiment, first.model_copy(update={"decisions": decided}))
    nodes = simulated_nodes(make_plan(spec))
    left = [node for node in nodes if "bridgetower_one" in node]
    again, _ = choose_sweep_run(make_plan(spec, left), tracking, experiment, fresh=False, stack={})
    assert again.id == first.id
    assert again.decisions == {"two": decided["two"]}


def test_a_plan_says_what_the_question_is_expected_to_take(folder: Path) -> None:
    (folder / "sweep.yaml").write_text(ASKING)
    listed = command("plan", "sweep.yaml", cwd=folder).stdout
    assert "asked for: each ratio within ±3 %, in 2 to 9 rounds" in listed
    assert "a spread of 3% is assumed (1.5% to 6%); 5 minutes a trial are assumed" in listed
    found = json.loads(command("plan", "sweep.yaml", "--json", cwd=folder).stdout)
    assert found["question"]["precision"] == 0.03
    price = found["price"]
    assert price["trials"]["low"] < price["trials"]["expected"] <= price["trials"]["high"] == 54
    assert price["cost"]["expected"] == pytest.approx(price["trials"]["expected"] / 2 * (3 + 6) * 5 / 60)


def test_a_budget_that_the_least_rounds_do_not_fit_is_refused_with_the_price_of_a_round(folder: Path) -> None:
    (folder / "sweep.yaml").write_text(ASKING.replace("precision: 3%", "precision: 3%, budget: {cost: 0.3}"))
    refused = command("plan", "sweep.yaml", cwd=folder)
    assert refused.returncode == 2
    assert "a round takes about 0.23 in money (6 trials), and the least are 2 rounds" in refused.stderr


def test_a_run_on_this_host_is_refused_before_anything_is_made(folder: Path) -> None:
    """By the accelerators that are here: another one's rounds are not run."""
    text = (
        MINI.replace("[cpu]", "[cpu, h100]")
        .replace("repeats: 2", "precision: 3%, budget: {accelerator_hours: 0.03}")
        .replace("max_train_samples: 24", "max_train_samples: 64")
    )
    (folder / "sweep.yaml").write_text(text)
    refused = command("run", "sweep.yaml", cwd=folder)
    assert refused.returncode == 2
    assert "a round takes about 0.017 accelerator hours (2 trials)" in refused.stderr
    assert not (folder / "mlflow.db").exists()


def test_least_rounds_that_are_measured_already_are_held_by_any_budget(spec_of: SpecOf) -> None:
    plan = make_plan(spec_of(ASKING))
    question = plan.spec.measure.question
    assert question is not None
    tight = question.model_copy(update={"accelerator_hours": 1e-6})
    with pytest.raises(UsageError, match="the budget of 1e-06 does not hold them"):
        check_budget(plan, tight, Earlier())
    check_budget(plan, tight, Earlier(throughputs={one.cell.cell_id: [1.0, 2.0] for one in plan.trials}))


def test_the_fastest_of_one_cell_is_refused(folder: Path) -> None:
    text = MINI.replace("repeats: 2", "precision: 3%, goal: fastest").replace("[0, 1]", "[0]")
    (folder / "sweep.yaml").write_text(text.replace("[false, true]", "[false]"))
    refused = command("plan", "sweep.yaml", cwd=folder)
    assert refused.returncode == 2
    assert "no accelerator has two cells" in refused.stderr
