"""Ratios within rounds: by known cases, and how often their intervals hold the truth."""

import itertools
import math
from collections.abc import Callable

import numpy
import pytest

from bridgetower_ray.report.comparisons import compare
from bridgetower_ray.report.records import gather
from bridgetower_ray.report.rounds import Rounds
from bridgetower_ray.report.stats import ratio_of_means
from bridgetower_ray.report.tables import speedup_tables
from bridgetower_ray.sweep.spec import SweepSpec
from tests.bench.coverage import EXPERIMENTS, Noise, held, rounds_of
from tests.conftest import MINI
from tests.records import run_of, sweep_run_of

SpecOf = Callable[[str], SweepSpec]


def test_a_drift_from_round_to_round_falls_out() -> None:
    """Each round is 10 % slower than the one before; the cells keep their ratio of 1.2 to within 0.1 %."""
    wobble = {(cell, when): 1 + 0.001 * ((cell == "b") ^ (when % 2)) for cell in "abc" for when in range(3)}
    values = {
        (cell, when): base * 0.9**when * wobble[cell, when]
        for cell, base in (("a", 100.0), ("b", 120.0), ("c", 90.0))
        for when in range(3)
    }
    found = Rounds(values).ratio("b", "a")
    assert found is not None
    assert found.ratio.low is not None
    assert found.ratio.high is not None
    assert 1.19 < found.ratio.low < 1.2 < found.ratio.high < 1.21
    by_arms = ratio_of_means([values["b", when] for when in range(3)], [values["a", when] for when in range(3)])
    assert by_arms.separated is False


def test_with_two_cells_it_is_students_t_on_their_differences() -> None:
    pairs = [(100.0, 103.0), (90.0, 95.0), (110.0, 111.0), (95.0, 99.0)]
    values = {("a", when): one for when, (one, _) in enumerate(pairs)}
    values |= {("b", when): other for when, (_, other) in enumerate(pairs)}
    found = Rounds(values).ratio("b", "a")
    assert found is not None
    differences = numpy.log([other / one for one, other in pairs])
    margin = 3.182446305284263 * differences.std(ddof=1) / 2  # t(0.975, 3)
    assert math.log(found.ratio.value) == pytest.approx(differences.mean())
    assert math.log(found.ratio.high or 0) == pytest.approx(differences.mean() + margin)


def test_a_cell_that_scatters_more_than_the_others_does_not_borrow_their_precision() -> None:
    generator = numpy.random.default_rng(3)
    spreads = {"a": 0.001, "b": 0.001, "c": 0.001, "d": 0.05}
    values = {
        (cell, when): math.exp(spread * generator.standard_normal())
        for cell, spread in spreads.items()
        for when in range(8)
    }
    quiet, loud = Rounds(values).ratio("b", "a"), Rounds(values).ratio("d", "a")
    assert quiet is not None
    assert loud is not None
    assert quiet.method.startswith("residual of each pair")
    assert quiet.error < 0.008 < 0.015 < loud.error


def test_a_repeat_that_failed_leaves_the_others_of_its_round_in_use() -> None:
    wobble = iter((0.1, -0.2, 0.15, -0.1, 0.05, 0.2, -0.15, 0.1, -0.05))
    values = {(cell, when): 10.0 + index + next(wobble) for index, cell in enumerate("abc") for when in range(3)}
    del values["b", 1]
    found = Rounds(values).ratio("c", "a")
    assert found is not None
    assert found.degrees == 8 - (3 + 3 - 1)
    fewer = Rounds(values).ratio("b", "a")
    assert fewer is not None
    logs = {key: math.log(value) for key, value in values.items()}
    differences = [logs["b", when] - logs["a", when] for when in (0, 2)]
    assert math.log(fewer.ratio.value) == pytest.approx(sum(differences) / 2)


def test_a_cell_that_was_measured_outside_the_others_rounds_has_no_ratio_within_them() -> None:
    values = {(cell, when): 10.0 + when for cell, rounds in (("a", (0, 1, 2)), ("b", (1, 2, 3))) for when in rounds}
    values |= {("c", when): 9.0 for when in range(4)}
    assert Rounds(values).ratio("b", "a") is None


def test_cells_without_two_rounds_in_common_have_no_ratio_within_rounds() -> None:
    one_host = {("a", (1, "x")): 10.0, ("a", (2, "x")): 11.0}
    assert Rounds({**one_host, ("b", (1, "y")): 10.0, ("b", (2, "y")): 11.0}).ratio("a", "b") is None
    assert Rounds({("a", 1): 10.0, ("b", 1): 11.0}).ratio("a", "b") is None
    assert Rounds({}).ratio("a", "b") is None


def test_repeats_on_two_hosts_are_none_of_a_common_round(spec_of: SpecOf) -> None:
    """Left out of the ratio they would contradict the means beside it: such cells are compared by all their repeats."""
    sweep_run = sweep_run_of(spec_of(MINI.replace("repeats: 2", "repeats: 3")))
    hosts = {("0", 1): "a", ("0", 2): "a", ("0", 3): "b"}
    runs = [
        run_of(
            sweep_run,
            f"cpu · workers={workers}",
            repeat,
            100.0 + 30 * (repeat == 3) + repeat,
            facts={"env.host": hosts.get((workers, repeat), "a")},
        )
        for workers in ("0", "1")
        for repeat in (1, 2, 3)
    ]
    results = gather(sweep_run, runs)
    one, other = results.find("cpu · workers=1"), results.find("cpu · workers=0")
    assert one is not None
    assert other is not None
    found = compare(one, other, results)
    assert found.within is None
    assert found.ratio == ratio_of_means(one.throughputs, other.throughputs)


def test_hundreds_of_cells_are_one_small_system() -> None:
    values = {(str(cell), when): 10.0 + cell % 7 + when % 3 / 100 for cell in range(1000) for when in range(3)}
    del values["5", 1]
    found = Rounds(values).ratio("3", "4")
    assert found is not None
    assert found.degrees >= 2


def test_equal_values_are_certain_and_nothing_breaks() -> None:
    values = {(cell, when): 10.0 for cell in "abc" for when in range(2)}
    found = Rounds(values).ratio("a", "b")
    assert found is not None
    assert (found.ratio.low, found.ratio.high) == pytest.approx((1.0, 1.0))


def test_the_report_compares_within_rounds_and_says_so(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI.replace("[0, 1]", "[0, 1, 2]").replace("repeats: 2", "repeats: 3")))
    drift = {1: 100.0, 2: 90.0, 3: 81.0}
    runs = [
        run_of(sweep_run, f"cpu · workers={workers}", repeat, base * (1 + 0.05 * workers) + 0.1 * (workers ^ repeat))
        for workers, (repeat, base) in itertools.product(range(3), drift.items())
    ]
    results = gather(sweep_run, runs)
    one, other = results.find("cpu · workers=1"), results.find("cpu · workers=0")
    assert one is not None
    assert other is not None
    within, by_arms = compare(one, other, results), compare(one, other)
    assert within.ratio is not None
    assert by_arms.ratio is not None
    assert (within.ratio.separated, by_arms.ratio.separated) == (True, False)
    notes = speedup_tables(results)[0].notes
    assert any("within rounds" in note and "pooled over 3 cells, 4 degrees of freedom" in note for note in notes)


@pytest.mark.parametrize("noise", EXPERIMENTS, ids=str)
@pytest.mark.parametrize("cells", [3, 10])
def test_95_percent_intervals_hold_the_true_ratio_about_so_often(cells: int, noise: Noise) -> None:
    generator = numpy.random.default_rng(7)
    shares = [held(rounds_of(generator, cells, 3, noise), cells, noise) for _ in range(250)]
    assert 0.91 < numpy.mean([share for share, _ in shares]) < 0.985
