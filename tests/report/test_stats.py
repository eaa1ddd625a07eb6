"""The interval keeps what it promises."""

import math

import numpy as np
import pytest

from bridgetower_ray.report.stats import geometric_mean, interval_of_mean, ratio_of_means, repeats_needed

EXPERIMENTS = 2000
SPREAD = 0.03


def simulate(repeats: int, spread_ratio: float, true_ratio: float) -> list[bool | None]:
    """For each simulated experiment whether its interval holds the true ratio."""
    rng = np.random.default_rng(20261201)
    one = np.exp(rng.normal(math.log(true_ratio), SPREAD, (EXPERIMENTS, repeats)))
    other = np.exp(rng.normal(0, SPREAD * spread_ratio, (EXPERIMENTS, repeats)))
    ratios = [ratio_of_means(list(a), list(b)) for a, b in zip(one, other, strict=True)]
    return [bool(ratio.low <= true_ratio <= ratio.high) for ratio in ratios if ratio.low and ratio.high]


@pytest.mark.parametrize("repeats", [3, 5])
@pytest.mark.parametrize("spread_ratio", [1.0, 3.0])
def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says(repeats: int, spread_ratio: float) -> None:
    held = simulate(repeats, spread_ratio, true_ratio=1.28)
    assert 0.93 <= sum(map(bool, held)) / EXPERIMENTS <= 0.975


@pytest.mark.parametrize("repeats", [3, 5])
@pytest.mark.parametrize("spread_ratio", [1.0, 3.0])
def test_equal_arms_are_seldom_called_different(repeats: int, spread_ratio: float) -> None:
    held = simulate(repeats, spread_ratio, true_ratio=1.0)
    assert 1 - sum(map(bool, held)) / EXPERIMENTS <= 0.06


def test_welchs_interval_is_scipys() -> None:
    from scipy import stats

    one, other = [101.0, 99.0, 103.0], [80.0, 85.0, 78.0]
    ratio = ratio_of_means(one, other)
    test = stats.ttest_ind(np.log(one), np.log(other), equal_var=False).confidence_interval(0.95)
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(test.low), math.exp(test.high)))


def test_a_single_repeat_has_no_interval() -> None:
    ratio = ratio_of_means([120.0], [100.0, 101.0])
    assert (ratio.low, ratio.high, ratio.separated) == (None, None, None)
    assert interval_of_mean([120.0]) is None


def test_equal_values_give_an_interval_of_no_width() -> None:
    assert ratio_of_means([2.0, 2.0], [1.0, 1.0]).separated is True
    assert ratio_of_means([1.0, 1.0], [1.0, 1.0]).separated is False


def test_the_geometric_mean_is_one() -> None:
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)


def test_the_repeats_that_would_separate_two_arms_do_separate_them() -> None:
    one, other = [100.0, 106.0, 103.0], [100.0, 95.0, 105.0]
    needed = repeats_needed(one, other)
    assert needed is not None
    assert needed > 3
    assert repeats_needed([100.0, 101.0], [100.0, 101.0]) is None
