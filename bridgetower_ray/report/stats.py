"""Repeats -> means, ratios, intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
    from scipy import stats

    value = geometric_mean(numerator) / geometric_mean(denominator)
    if min(len(numerator), len(denominator)) < 2:
        return Ratio(value, None, None)
    logs = [[math.log(one) for one in arm] for arm in (numerator, denominator)]
    error, freedom = _welch(logs[0], logs[1])
    if error == 0:
        return Ratio(value, value, value)
    margin = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * error
    return Ratio(value, value * math.exp(-margin), value * math.exp(margin))


def p_value_of_no_change(numerator: Sequence[float], denominator: Sequence[float]) -> float | None:
    """Welch's two-sided p value of equal geometric means; None where an arm has a single repeat."""
    from scipy import stats

    if min(len(numerator), len(denominator)) < 2:
        return None
    logs = [[math.log(one) for one in arm] for arm in (numerator, denominator)]
    error, freedom = _welch(logs[0], logs[1])
    difference = abs(sum(logs[0]) / len(logs[0]) - sum(logs[1]) / len(logs[1]))
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * stats.t.sf(difference / error, freedom))


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _welch(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Standard error of the difference of means, and its degrees of freedom."""
    parts = [_variance(arm) / len(arm) for arm in (one, other)]
    total = sum(parts)
    if total == 0:
        return 0.0, 1.0
    return math.sqrt(total), total**2 / sum(
        part**2 / (len(arm) - 1) for part, arm in zip(parts, (one, other), strict=True)
    )


def repeats_needed(numerator: Sequence[float], denominator: Sequence[float]) -> int | None:
    """Repeats an arm that would separate these means from 1 at the spread seen; None if no sensible number would.

    Found by trial with the t quantile of each number of repeats: an estimate, as good as the spread is.
    """
    from scipy import stats

    if min(len(numerator), len(denominator)) < 2:
        return None
    logs = [[math.log(one) for one in arm] for arm in (numerator, denominator)]
    difference = abs(sum(logs[0]) / len(logs[0]) - sum(logs[1]) / len(logs[1]))
    variance = _variance(logs[0]) + _variance(logs[1])
    for repeats in range(max(len(numerator), len(denominator)) + 1, MOST_REPEATS + 1):
        margin = float(stats.t.ppf(0.5 + CONFIDENCE / 2, 2 * (repeats - 1))) * math.sqrt(variance / repeats)
        if margin < difference:
            return repeats
    return None


def interval_of_mean(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of a geometric mean, by Student's t on the logarithms; None for a single value."""
    from scipy import stats

    if len(values) < 2:
        return None
    logs = [math.log(value) for value in values]
    margin = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(logs) - 1)) * math.sqrt(_variance(logs) / len(logs))
    mean = geometric_mean(values)
    return mean * math.exp(-margin), mean * math.exp(margin)
