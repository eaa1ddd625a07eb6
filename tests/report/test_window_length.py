"""How long windows would best be, from trials of which it is known what makes them vary."""

import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from bridgetower_ray.report.findings import findings
from bridgetower_ray.report.records import SweepResults, gather
from bridgetower_ray.report.steadiness import standard_error
from bridgetower_ray.report.window_length import WindowLength, window_advice, window_lengths
from bridgetower_ray.sweep.spec import SweepSpec
from tests.conftest import MINI
from tests.records import run_of, sweep_run_of

SpecOf = Callable[[str], SweepSpec]
SETTINGS = ("cpu · workers=0", "cpu · workers=1")


def results_of(spec: SweepSpec, between: float, within: float, repeats: int = 400, **more: Any) -> SweepResults:
    """Trials of 20 s, half of it in their windows of 100 steps, that vary by two standard deviations."""
    generator = numpy.random.default_rng(1)
    sweep_run = sweep_run_of(spec)
    figures = {
        "window_standard_error": within, "window_seconds": 10.0, "trial_seconds": 20.0, "window_steps": 100.0, **more
    }  # fmt: skip
    return gather(
        sweep_run,
        [
            run_of(sweep_run, setting, repeat, 50.0 * math.exp(math.hypot(between, within) * draw), **figures)
            for repeat in range(1, repeats + 1)
            for setting, draw in zip(SETTINGS, generator.standard_normal(2), strict=True)
        ],
    )


def test_the_best_window_is_where_the_time_for_a_certainty_is_least() -> None:
    for between, within in ((0.02, 0.01), (0.01, 0.02), (0.03, 0.002)):
        found = WindowLength("cpu", 10.0, 15.0, between**2, within**2, least=0.01)
        times = {window: found._time(window) for window in numpy.geomspace(0.1, 40, 2000)}
        assert found.best == pytest.approx(min(times, key=lambda window: times[window]), rel=0.01)


def test_no_window_is_advised_that_is_too_short_to_tell_its_pace_or_far_from_those_seen() -> None:
    assert WindowLength("cpu", 10.0, 15.0, 0.1**2, 0.001**2, least=3.6).best == 3.6
    assert WindowLength("cpu", 10.0, 15.0, 0.0, 0.01**2, least=3.6).best == 40.0


def test_windows_that_are_much_too_long_are_said_to_be(spec_of: SpecOf) -> None:
    results = results_of(spec_of(MINI), between=0.02, within=0.002)
    (sentence,) = window_advice(results)
    assert sentence.startswith("cpu: trials spend 10 s in their windows and 10 s elsewhere, and vary by 2.")
    assert sentence in findings(results)
    (found,) = window_lengths(results)
    assert found.best == pytest.approx(3.6)
    assert found.saving == pytest.approx(1 - 13.6 / 20, abs=0.03)


def test_what_is_alike_in_all_trials_is_no_reason_for_longer_windows(spec_of: SpecOf) -> None:
    """Then windows seem to leave more open than trials differ by: a common trend, or the same slow steps."""
    results = results_of(spec_of(MINI), between=0.005, within=0.0)
    runs = [
        run_of(
            results.sweep_run,
            one.setting,
            one.repeat,
            one.throughput,
            **{**one.figures, "window_standard_error": 0.1},  # type: ignore[arg-type]
        )
        for one in results.records
    ]
    loud = gather(results.sweep_run, runs)
    assert list(window_lengths(loud)) == []


def test_no_window_is_advised_that_would_be_flagged_or_have_no_energy(spec_of: SpecOf) -> None:
    queues = {"run.dataloader_num_workers": "4", "run.dataloader_prefetch_factor": "1"}
    (queued,) = window_lengths(results_of(spec_of(MINI), between=0.02, within=0.002, facts=queues))
    (powered,) = window_lengths(results_of(spec_of(MINI), between=0.02, within=0.002, joules_per_sample=3.0))
    assert (queued.best, powered.best) == (pytest.approx(8.0), 10.0)


def test_windows_that_are_about_right_are_no_matter(spec_of: SpecOf) -> None:
    assert list(window_advice(results_of(spec_of(MINI), between=0.02, within=0.02))) == []


@pytest.mark.parametrize("given", [{"repeats": 4}, {"window_standard_error": math.nan}])
def test_too_few_trials_or_windows_too_short_give_no_advice(given: dict[str, Any], spec_of: SpecOf) -> None:
    assert list(window_lengths(results_of(spec_of(MINI), between=0.02, within=0.002, **given))) == []


def test_the_standard_error_of_a_window_is_that_of_its_mean() -> None:
    """Also where steps that follow one another are alike: their own spread would say too little."""
    generator = numpy.random.default_rng(2)
    errors, means = [], []
    for _ in range(300):
        alike = numpy.repeat(generator.standard_normal(100), 4)
        seconds = 0.1 * numpy.exp(0.2 * alike)
        steps = [{"warmup": False, "seconds": float(one)} for one in seconds]
        error = standard_error([{"warmup": True, "seconds": 9.0}, *steps, {**steps[0], "rank": 1, "seconds": 9.0}])
        assert error is not None
        errors.append(error)
        means.append(seconds.mean())
    assert numpy.mean(errors) == pytest.approx(numpy.std(means) / numpy.mean(means), rel=0.1)


def test_a_window_of_few_steps_has_no_standard_error() -> None:
    assert standard_error([{"warmup": False, "seconds": 0.1}] * 30) is None
