"""Repeats -> means, ratios, intervals."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

CONFIDENCE = 0.95
MOST_REPEATS = 100  # beyond this, "more repeats" is no advice


@dataclass(frozen=True)
class Ratio:
    """A ratio of geometric means with its 95 % interval.

    `low` and `high` are None where an arm has a single repeat: one run says nothing of its own spread.
    """

    value: float
    low: float | None
    high: float | None

    @property
    def separated(self) -> bool | None:
        """Whether the interval excludes 1; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low > 1 or self.high < 1

    @property
    def half_width(self) -> float | None:
        """Of the interval, as a share of the ratio; None without an interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2 / self.value

    def at_least(self, half_width: float) -> "Ratio":
        """With an interval of no less than that share to either side."""
        if self.low is None or self.high is None:
            return self
        return Ratio(
            self.value, min(self.low, self.value * (1 - half_width)), max(self.high, self.value * (1 + half_width))
        )

    @property
    def text(self) -> str:
        """`1.28x [1.20, 1.37]`; `~` where the interval holds 1; no interval from single repeats."""
        if self.low is None or self.high is None:
            return f"{self.value:.2f}x (one repeat)"
        mark = "" if self.separated else "~ "
        return f"{mark}{self.value:.2f}x [{_bound(self.low)}, {_bound(self.high)}]"


def _bound(value: float) -> str:
    """Two decimals, or as many as show on which side of 1 it lies."""
    return next((text for digits in (2, 3, 4) if float(text := f"{value:.{digits}f}") != 1), f"{value:.4f}")


def geometric_mean(values: Sequence[float]) -> float:
    """Of one or more positive values."""
    return math.exp(sum(math.log(value) for value in values) / len(values))


def ratio_of_means(numerator: Sequence[float], denominator: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """Ratio of the geometric means of two independent arms, by Welch's t interval on the logarithms.

    B. L. Welch, "The generalization of 'Student's' problem when several different population variances are
    involved", Biometrika 34 (1947): degrees of freedom by Welch-Satterthwaite. Throughput is positive and its
    noise multiplicative, so the logarithm is the scale on which a t interval fits.

    Args:
        numerator, denominator: one value a repeat, all positive.
    """
    value = geometric_mean(numerator) / geometric_mean(denominator)
    if min(len(numerator), len(denominator)) < 2:
        return Ratio(value, None, None)
    if _without_spread(numerator, denominator):
        return Ratio(value, value, value)
    interval = _welch(numerator, denominator).confidence_interval(confidence)
    return Ratio(value, math.exp(interval.low), math.exp(interval.high))


def p_value_of_no_change(numerator: Sequence[float], denominator: Sequence[float]) -> float | None:
    """Welch's two-sided p value of equal geometric means; None where an arm has a single repeat."""
    if min(len(numerator), len(denominator)) < 2:
        return None
    if _without_spread(numerator, denominator):
        return 1.0 if numerator[0] == denominator[0] else 0.0
    return float(_welch(numerator, denominator).pvalue)


def _welch(numerator: Sequence[float], denominator: Sequence[float]) -> Any:
    """scipy's result of the test on the logarithms."""
    from scipy import stats

    return stats.ttest_ind(_logs(numerator), _logs(denominator), equal_var=False)


def _without_spread(*arms: Sequence[float]) -> bool:
    """Whether each arm has one value only: no error to divide by."""
    return all(len(set(arm)) == 1 for arm in arms)


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def repeats_needed(numerator: Sequence[float], denominator: Sequence[float]) -> int | None:
    """Repeats an arm that would separate these means from 1 at the spread seen; None if no sensible number would."""
    if min(len(numerator), len(denominator)) < 2:
        return None
    difference = abs(math.log(geometric_mean(numerator) / geometric_mean(denominator)))
    return _repeats_for_margin(numerator, denominator, difference, max(len(numerator), len(denominator)) + 1)


def repeats_for(numerator: Sequence[float], denominator: Sequence[float], half_width: float) -> int | None:
    """Repeats an arm after which Welch's interval is that narrow, at the spread seen; None if no sensible number."""
    if min(len(numerator), len(denominator)) < 2:
        return None
    return _repeats_for_margin(numerator, denominator, math.asinh(half_width), 2)


def _repeats_for_margin(
    numerator: Sequence[float], denominator: Sequence[float], difference: float, least: int
) -> int | None:
    """Found by trial with the t quantile of each number of repeats: an estimate, as good as the spread is."""
    variance = statistics.variance(_logs(numerator)) + statistics.variance(_logs(denominator))
    for repeats in range(least, MOST_REPEATS + 1):
        margin = t_quantile(2 * (repeats - 1)) * math.sqrt(variance / repeats)
        if margin < difference:
            return repeats
    return None


def interval_of_mean(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of a geometric mean, by Student's t on the logarithms; None for a single value."""
    if len(values) < 2:
        return None
    if _without_spread(values):
        return values[0], values[0]
    logs = _logs(values)
    mean, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    margin = t_quantile(len(logs) - 1) * error
    return math.exp(mean - margin), math.exp(mean + margin)


def t_quantile(degrees: float, confidence: float = CONFIDENCE) -> float:
    """Standard errors to each side of an estimate that an interval reaches, by Student's t.

    Of `scipy.special`: `scipy.stats` takes three times as long to import.
    """
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + confidence / 2))
