"""Steady and unsteady windows: by drawn steps of known kinds, and how often a steady one is doubted."""

from typing import Any

import numpy
import pytest

from bridgetower_ray.report.flags import flags
from bridgetower_ray.report.steadiness import STRETCHES, pace_of

STEPS = 120


def steps_of(factors: Any, spread: float = 0.03, seed: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Steps of about 0.1 s, each times its factor."""
    generator = numpy.random.default_rng(seed)
    seconds = 0.1 * factors * numpy.exp(spread * generator.standard_normal(len(factors)))
    return [{"warmup": False, "epoch_start": False, "seconds": float(one), **more} for one in seconds]


def doubt_of(steps: list[dict[str, Any]]) -> str:
    pace = pace_of(steps)
    assert pace is not None
    return pace.doubt


@pytest.mark.parametrize(
    ("factors", "doubt"),
    [
        (numpy.ones(STEPS), ""),
        (numpy.linspace(1.0, 1.2, STEPS), "the pace fell by 12% through the window"),
        (numpy.linspace(1.2, 1.0, STEPS), "the pace rose by 1"),
        (numpy.repeat([1.0, 1.25], [70, 50]), "two levels: after 58% of the window the pace changed by -20%"),
        (numpy.repeat([1.0, 2.0, 1.0], [50, 10, 60]), "one stretch took 2.0 times as long as the others"),
        (numpy.tile([0.4, 1.6], STEPS // 2), ""),  # two workers that deliver in turn
        (numpy.where(numpy.isin(numpy.arange(STEPS), [3, 7, 56, 72, 84]), 9.0, 1.0), ""),  # batches with a large image
    ],
)
def test_what_is_unsteady_about_a_window_is_said(factors: Any, doubt: str) -> None:
    found = doubt_of(steps_of(factors))
    assert found.startswith(doubt)
    assert bool(found) == bool(doubt)


def test_the_first_steps_of_epochs_warm_up_and_other_ranks_are_no_part_of_it() -> None:
    steady = steps_of(numpy.ones(STEPS))
    slow = {"seconds": 9.0}
    left_out = [
        {**steady[0], **slow, "epoch_start": True},
        {**steady[0], **slow, "warmup": True},
        {**steady[0], **slow, "rank": 1},
    ]
    assert pace_of([*steady[:60], *left_out, *steady[60:]]) == pace_of(steady)


def test_a_window_of_few_steps_is_not_judged() -> None:
    assert pace_of(steps_of(numpy.ones(30))) is None


def test_steady_windows_are_seldom_doubted() -> None:
    doubted = [
        bool(doubt_of(steps_of(numpy.ones(STEPS), spread, seed))) for spread in (0.05, 0.3) for seed in range(500)
    ]
    assert sum(doubted) <= 10


def test_the_flag_has_the_picture_of_the_pace() -> None:
    pace = pace_of(steps_of(numpy.linspace(1.0, 1.5, STEPS), spread=0.0))
    assert pace is not None
    assert len(pace.picture) == STRETCHES
    assert (pace.picture[0], pace.picture[-1]) == ("█", "▁")
    assert flags({"unsteady": f"{pace.doubt} {pace.picture}"}, 0) == (f"unsteady: {pace.doubt} {pace.picture}",)
