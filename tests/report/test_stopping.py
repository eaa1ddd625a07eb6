"""When a sweep's question is answered: by known cases, and how often the intervals that it ends with hold the truth."""

import statistics
from collections.abc import Callable, Mapping, Sequence

import pytest

from bridgetower_ray.report.comparisons import compare
from bridgetower_ray.report.question_table import answers, question_table
from bridgetower_ray.report.records import SweepResults, gather
from bridgetower_ray.report.render import document_of, to_markdown
from bridgetower_ray.report.stopping import Ended, Pool, Why, course
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.sweep.question import Goal, Question
from bridgetower_ray.sweep.spec import SweepSpec
from bridgetower_ray.sweep.sweep_run import Decision
from tests.bench.coverage import Noise
from tests.bench.stopping import simulate
from tests.conftest import MINI
from tests.records import FakeRun, run_of, sweep_run_of

SpecOf = Callable[[str], SweepSpec]
ASKING = MINI.replace("repeats: 2", "precision: 5%, repeats: {max: 6}").replace("[0, 1]", "[0, 1, 2]")
POOL = Pool(("a", "b", "c"), ("a",), across=False)
SETTINGS = {"a": "cpu · workers=0", "b": "cpu · workers=1", "c": "cpu · workers=2"}
QUESTION = Question(precision=0.05, most=6)
# One per cent apart from round to round: narrow enough at the first look that has an interval.
QUIET = {"a": [100, 101, 100, 101, 100, 101], "b": [120, 119, 120, 121, 120, 119], "c": [90, 90.5, 91, 90, 90.5, 91]}
LOUD = {**QUIET, "b": [120, 180, 90, 200, 80, 160]}


def ended(values: Mapping[str, Sequence[float | None]], rounds: int) -> dict[tuple[str, int], Ended]:
    """The first rounds of some cells, on one host; None is a trial that failed."""
    return {
        (cell, when): Ended(value, "one")
        for cell, series in values.items()
        for when, value in enumerate(series[:rounds], start=1)
    }


def test_two_rounds_are_run_before_anything_is_decided() -> None:
    found = course(QUESTION, POOL, {})
    assert [found.wants("b", repeat) for repeat in (1, 2, 3, 6)] == [True, True, None, None]
    assert found.why is None


def test_a_look_waits_for_its_round_and_not_for_the_one_under_way() -> None:
    """Only the whole of the first round decides upon the third; nothing of the second does."""
    first = ended(QUIET, 1)
    assert course(QUESTION, POOL, first).wants("a", 3) is True
    assert course(QUESTION, POOL, {key: one for key, one in first.items() if key[0] != "c"}).wants("a", 3) is None
    partly = {**first, ("b", 2): Ended(1000.0, "one")}
    assert course(QUESTION, POOL, partly) == course(QUESTION, POOL, first)


def test_the_round_under_way_is_the_last_one_once_a_look_is_narrow() -> None:
    found = course(QUESTION, POOL, ended(QUIET, 2))
    assert (found.why, len(found.rounds)) == (Why.PRECISE, 3)
    assert [found.wants("a", repeat) for repeat in (3, 4)] == [True, False]
    assert course(QUESTION, POOL, ended(QUIET, 6)).rounds == found.rounds
    assert (found.ended_by, course(QUESTION, POOL, ended(QUIET, 3)).ended_by) == (None, Why.PRECISE)


def test_what_never_becomes_narrow_ends_with_the_most_rounds() -> None:
    found = course(QUESTION, POOL, ended(LOUD, 6))
    assert (found.why, len(found.rounds)) == (Why.MOST, 6)
    assert found.widest is not None
    assert found.widest > 0.05


def test_the_least_number_of_rounds_is_run_whatever_a_look_shows() -> None:
    found = course(QUESTION.model_copy(update={"least": 5}), POOL, ended(QUIET, 6))
    assert (found.why, len(found.rounds)) == (Why.PRECISE, 5)


def test_a_cell_that_fails_leaves_and_the_others_go_on() -> None:
    values: dict[str, list[float | None]] = {**QUIET, "c": [None] * 6}
    found = course(QUESTION, POOL, ended(values, 4))
    assert found.given_up == {"c": "not measured in 2 rounds"}
    assert [found.wants("c", repeat) for repeat in (3, 4)] == [True, False]
    assert found.why is Why.PRECISE


def test_a_cell_that_failed_once_stays() -> None:
    values: dict[str, list[float | None]] = {**LOUD, "c": [None, *LOUD["c"][1:]]}
    found = course(QUESTION, POOL, ended(values, 6))
    assert found.given_up == {}
    assert (found.why, found.asked("c")) == (Why.MOST, 6)


def test_where_nothing_could_be_measured_twice_nothing_more_is_run() -> None:
    found = course(QUESTION, POOL, ended({cell: [None] * 6 for cell in POOL.cells}, 6))
    assert (found.why, len(found.rounds)) == (Why.NOTHING, 3)


def test_a_ratio_to_another_accelerator_asks_for_each_sides_own_mean() -> None:
    """Within rounds all three drift alike and nothing is to be seen; against another accelerator it is."""
    drifting = {cell: [base * 0.9**when for when in range(6)] for cell, base in (("a", 100), ("b", 120), ("c", 90))}
    within = course(QUESTION, POOL, ended(drifting, 6))
    across = course(QUESTION, Pool(POOL.cells, POOL.references, across=True), ended(drifting, 6))
    assert (within.why, across.why) == (Why.PRECISE, Why.MOST)


def test_the_only_cell_of_a_sweep_is_asked_for_its_own_mean() -> None:
    alone = Pool(("b",), ("b",), across=False)
    assert course(QUESTION, alone, ended(QUIET, 6)).why is Why.PRECISE
    assert course(QUESTION, alone, ended(LOUD, 6)).why is Why.MOST


def test_cells_that_cannot_be_the_fastest_leave_and_the_last_one_ends_it() -> None:
    found = course(QUESTION.model_copy(update={"goal": "fastest"}), POOL, ended(QUIET, 6))
    assert found.given_up.keys() == {"a", "c"}
    assert "not the fastest: 0.8" in found.given_up["a"]
    assert found.why is Why.ONE_LEFT
    assert [found.asked(cell) for cell in POOL.cells] == [3, 3, 3]


def test_a_budget_ends_the_rounds() -> None:
    found = course(QUESTION, POOL, ended(LOUD, 6), most=4)
    assert (found.why, len(found.rounds)) == (Why.BUDGET, 4)


@pytest.mark.parametrize(
    ("cells", "noise", "goal"),
    [
        (3, Noise(equal=True, rounds="unlike", heavy=False), "table"),
        (5, Noise(equal=False, rounds="still", heavy=True), "table"),
        (10, Noise(equal=True, rounds="drift", heavy=False), "fastest"),
    ],
    ids=str,
)
def test_stopping_keeps_the_word_of_the_intervals(cells: int, noise: Noise, goal: Goal) -> None:
    """80 sweeps: a coverage of 96 % has a standard error of up to 2.2 % here; `make bench` simulates more."""
    sweeps = [simulate(cells, noise, goal, seed) for seed in range(80)]
    inside = [one.inside for one in sweeps if one.inside == one.inside]
    assert statistics.mean(inside) > 0.9
    assert statistics.mean(one.false for one in sweeps if one.false == one.false) < 0.1
    assert statistics.mean(one.lost for one in sweeps) < 0.05
    assert sum(one.trials for one in sweeps) < 0.8 * sum(one.fixed for one in sweeps)


def results_after(spec: SweepSpec, values: Mapping[str, Sequence[float | None]]) -> SweepResults:
    """Cells `a`, `b` and `c` are those with 0, 1 and 2 workers."""
    sweep_run = sweep_run_of(spec)
    runs: list[FakeRun] = [
        run_of(sweep_run, SETTINGS[cell], repeat, value, trial_seconds=36.0)
        for cell, series in values.items()
        for repeat, value in enumerate(series, start=1)
    ]
    return gather(sweep_run, runs)


def test_an_answered_cell_is_measured_with_the_rounds_that_it_was_asked_for(spec_of: SpecOf) -> None:
    found = results_after(spec_of(ASKING), {cell: series[:3] for cell, series in QUIET.items()})
    assert found.complete
    assert [one.repeats for one in found.measured] == [3, 3, 3]
    short = results_after(spec_of(ASKING), {**{cell: QUIET[cell][:4] for cell in "ab"}, "c": [90.0, None, 91.0, 90.0]})
    assert [one.cell.setting for one in short.to_measure if not one.measured] == ["cpu · workers=2"]


def test_no_interval_is_narrower_than_what_was_asked_for(spec_of: SpecOf) -> None:
    alike = {cell: [base] * 3 for cell, base in (("a", 100.0), ("b", 103.0), ("c", 110.0))}
    results = results_after(spec_of(ASKING), alike)
    a, b, c = results.measured
    near, far = compare(b, a, results).ratio, compare(c, a, results).ratio
    assert compare(b, a, results).repeats_needed is None, "what was asked for is too wide to tell them apart"
    assert near is not None
    assert far is not None
    assert near.half_width == pytest.approx(0.05)
    assert (near.separated, far.separated) == (False, True)


def test_the_report_says_what_was_bought(spec_of: SpecOf) -> None:
    results = results_after(spec_of(ASKING), {cell: series[:3] for cell, series in QUIET.items()})
    table = question_table(results)
    assert table is not None
    assert [row[1][2:] for row in table.rows] == [("3", "precise enough")] * 2
    assert all(row[1][1] == "5.0%" for row in table.rows)
    assert any("cpu: 3 rounds, precise enough; 0.09 accelerator hours" in note for note in table.notes)
    text = to_markdown(document_of(results))
    assert "asked for each ratio within ±5 %, in 2 to 6 rounds; 3 rounds, the widest within ±5.0%" in text


def test_the_report_says_that_a_question_is_not_answered_yet(spec_of: SpecOf) -> None:
    table = question_table(results_after(spec_of(ASKING), {cell: series[:1] for cell, series in QUIET.items()}))
    assert table is not None
    assert {row[1][3] for row in table.rows} == {"not answered yet"}
    assert not results_after(spec_of(ASKING), {cell: series[:2] for cell, series in LOUD.items()}).complete


def test_the_report_names_the_cells_that_left_and_why(spec_of: SpecOf) -> None:
    spec = spec_of(ASKING.replace("repeats: {max: 6}", "repeats: {max: 6}, goal: fastest"))
    table = question_table(results_after(spec, {cell: series[:3] for cell, series in QUIET.items()}))
    assert table is not None
    assert any(note.startswith("cpu · workers=0 left after round 3: not the fastest") for note in table.notes)
    assert table.rows[0][0] == "cpu · workers=0 over cpu · workers=1"


def test_a_cell_that_left_is_not_called_the_fastest(spec_of: SpecOf) -> None:
    """The rounds become slower while two are told apart; the third, which was in the first ones alone, looks best."""
    asking = ASKING.replace("precision: 5%, repeats: {max: 6}", "precision: 0.1%, repeats: {max: 9}, goal: fastest")
    values = {
        cell: [base * 0.95**when * (1 + 0.004 * ((when + shift) % 3)) for when in range(9)]
        for shift, (cell, base) in enumerate({"a": 100, "b": 100, "c": 95}.items())
    }
    whole = results_after(spec_of(asking), values).courses["cpu"]
    asked = {cell: whole.asked(one) for cell, one in zip("abc", cell_ids(spec_of), strict=True)}
    assert asked["c"] < asked["a"] == asked["b"]
    found = results_after(spec_of(asking), {cell: series[: asked[cell]] for cell, series in values.items()})
    assert max(found.measured, key=lambda one: one.throughput or 0).cell.setting == SETTINGS["c"]
    assert f"Fastest: {SETTINGS['c']}" not in to_markdown(document_of(found))


def cell_ids(spec_of: SpecOf) -> list[str]:
    return [cell.cell_id for cell in sweep_run_of(spec_of(ASKING)).cells if cell.setting in SETTINGS.values()]


def test_a_recorded_budget_ends_the_rounds_of_the_report_too(spec_of: SpecOf) -> None:
    results = results_after(spec_of(ASKING), {cell: series[:3] for cell, series in LOUD.items()})
    assert results.courses["cpu"].ended_by is None
    over = {"cpu": Decision(rounds=3, widest=0.5, why="the budget", over_budget=True)}
    sweep_run = results.sweep_run.model_copy(update={"decisions": over})
    again = gather(sweep_run, [FakeRun(one.tags, one.metrics, one.params) for one in runs_of(results)])
    assert again.courses["cpu"].ended_by is Why.BUDGET
    assert again.complete


def test_an_accelerator_whose_node_has_gone_has_its_course_in_the_report(spec_of: SpecOf) -> None:
    results = results_after(spec_of(ASKING), {cell: series[:3] for cell, series in LOUD.items()})
    gone = tuple(one.model_copy(update={"kind": Kind.UNAVAILABLE}) for one in results.sweep_run.cells)
    sweep_run = results.sweep_run.model_copy(update={"cells": gone})
    again = gather(sweep_run, [FakeRun(one.tags, one.metrics, one.params) for one in runs_of(results)])
    assert again.courses["cpu"].rounds == results.courses["cpu"].rounds
    assert again.courses["cpu"].ended_by is None
    assert len(answers(again)[0].ratios) == len(answers(results)[0].ratios) > 0


def runs_of(results: SweepResults) -> list[FakeRun]:
    return [
        run_of(results.sweep_run, one.cell.setting, record.repeat, record.throughput)
        for one in results.to_measure
        for record in one.records
    ]
