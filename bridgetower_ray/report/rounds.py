"""Ratios within the design of rounds: in each, every cell of an accelerator was measured once, on the same host.

log throughput = cell + round + residual. What drifts from round to round, or differs from host to host, falls out of a
difference within rounds, and all cells of the accelerator say how large a residual is.
"""

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

from bridgetower_ray.report.stats import CONFIDENCE, MOST_REPEATS, Ratio, t_quantile

UNEQUAL_BELOW = 0.5  # p: with few rounds the test sees little, and pooling what is unlike costs coverage
LENT_DEGREES = 2  # of the pooled residual to a pair's own; the coverage of both choices is simulated by `make bench`
Round = Hashable


@dataclass(frozen=True)
class WithinRounds:
    """A ratio, how it was made, and the standard error of its logarithm with its degrees of freedom."""

    ratio: Ratio
    method: str
    error: float
    degrees: int


class Rounds:
    """The measured throughputs of an accelerator's cells, by cell and round."""

    def __init__(self, throughputs: Mapping[tuple[str, Round], float]) -> None:
        """Keep those that share their round with another cell's; a round of one cell says nothing of a ratio.

        Args:
            throughputs: all positive.
        """
        sizes = Counter(when for _, when in throughputs)
        self._repeats = Counter(cell for cell, _ in throughputs)
        self._of_cell: dict[str, dict[Round, float]] = {}
        for (cell, when), value in throughputs.items():
            if sizes[when] > 1:
                self._of_cell.setdefault(cell, {})[when] = math.log(value)

    @property
    def residual(self) -> tuple[float, int]:
        """Variance of the log throughput within rounds, pooled over the cells, and its degrees of freedom."""
        return (self._residuals.variance, self._residuals.degrees) if self._of_cell else (0.0, 0)

    def ratio(self, numerator: str, denominator: str, confidence: float = CONFIDENCE) -> WithinRounds | None:
        """One cell over another; None unless all that was measured of the one was in rounds of the other, two or more.

        A cell that left the rounds early is compared within those that it was in.

        The residual is pooled over the cells, unless Bartlett's test speaks against one spread for all: then it is the
        pair's own, from its differences within rounds, steadied by the pooled one as if that had two degrees of freedom
        (a moderated t: G. K. Smyth, "Linear models and empirical Bayes methods", Statistical Applications in Genetics
        and Molecular Biology 3, 2004).
        """
        one, other = self._of_cell.get(numerator, {}), self._of_cell.get(denominator, {})
        shared = [when for when in one if when in other]
        count = len(shared)
        if count < 2 or count != min(self._repeats[numerator], self._repeats[denominator]):
            return None
        differences = [one[when] - other[when] for when in shared]
        mean = math.fsum(differences) / count
        pooled = self._residuals
        if self._equal_spreads:
            method = f"residual pooled over {len(self._of_cell)} cells, {pooled.degrees} degrees of freedom"
            return _interval(mean, math.sqrt(2 * pooled.variance / count), pooled.degrees, method, confidence)
        own = math.fsum((difference - mean) ** 2 for difference in differences)
        lent = max(0, min(LENT_DEGREES, pooled.degrees - (count - 1)))
        degrees = count - 1 + lent
        variance = (own + lent * 2 * pooled.variance) / degrees
        method = "residual of each pair, steadied by the others': the cells' spreads are not alike"
        return _interval(mean, math.sqrt(variance / count), degrees, method, confidence)

    @cached_property
    def _residuals(self) -> "_Residuals":
        """What least squares leave. The cells are eliminated first: there may be hundreds, and the rounds are few."""
        import numpy

        rounds = list(dict.fromkeys(when for logs in self._of_cell.values() for when in logs))
        place = {when: index for index, when in enumerate(rounds)}
        system, right = numpy.zeros((len(rounds), len(rounds))), numpy.zeros(len(rounds))
        for logs in self._of_cell.values():
            at, values = [place[when] for when in logs], numpy.array(list(logs.values()))
            system[numpy.ix_(at, at)] -= 1 / len(at)
            system[at, at] += 1.0
            right[at] += values - values.mean()
        effects = numpy.linalg.pinv(system) @ right
        sums = {}
        for cell, logs in self._of_cell.items():
            left = numpy.array([value - effects[place[when]] for when, value in logs.items()])
            sums[cell] = float(((left - left.mean()) ** 2).sum())
        observations = sum(map(len, self._of_cell.values()))
        degrees = observations - len(self._of_cell) - int(numpy.linalg.matrix_rank(system))
        return _Residuals(sums, degrees, math.fsum(sums.values()) / degrees if degrees > 0 else 0.0)

    @cached_property
    def _equal_spreads(self) -> bool:
        """Whether Bartlett's test on the cells' residuals does not speak against one spread for all.

        M. S. Bartlett, "Properties of sufficiency and statistical tests", Proceedings of the Royal Society A 160
        (1937), with each cell's share of the degrees of freedom that the fit leaves.
        """
        from scipy.special import chdtrc

        fit = self._residuals
        sums, count = fit.sums, len(fit.sums)
        if count < 3 or fit.degrees < 1 or fit.variance <= 0:
            return True
        if min(sums.values()) <= 0:
            return False
        each = fit.degrees / count
        excess = fit.degrees * math.log(fit.variance) - each * math.fsum(math.log(one / each) for one in sums.values())
        corrected = excess / (1 + (count / each - 1 / fit.degrees) / (3 * (count - 1)))
        return float(chdtrc(count - 1, corrected)) >= UNEQUAL_BELOW


@dataclass(frozen=True)
class _Residuals:
    """Each cell's sum of squares, and the variance of one residual with its degrees of freedom."""

    sums: Mapping[str, float]
    degrees: int
    variance: float


def rounds_needed(found: WithinRounds, rounds: int) -> int | None:
    """Rounds that would separate a ratio from 1 at the spread seen; None if no sensible number would."""
    difference, degrees_a_round = abs(math.log(found.ratio.value)), max(1.0, found.degrees / max(1, rounds - 1))
    for wanted in range(rounds + 1, MOST_REPEATS + 1):
        if t_quantile(degrees_a_round * (wanted - 1)) * found.error * math.sqrt(rounds / wanted) < difference:
            return wanted
    return None


def _interval(difference: float, error: float, degrees: int, method: str, confidence: float) -> WithinRounds:
    """From a difference of logarithms and its standard error."""
    margin = t_quantile(degrees, confidence) * error
    ratio = Ratio(math.exp(difference), math.exp(difference - margin), math.exp(difference + margin))
    return WithinRounds(ratio, method, error, degrees)
