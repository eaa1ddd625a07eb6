"""Ratios within the design of rounds: in each, every cell of an accelerator was measured once, on the same host.

log throughput = cell + round + residual. What drifts from round to round, or differs from host to host, falls out of a
difference within rounds, and all cells of the accelerator say how large a residual is.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bridgetower_ray.report.stats import CONFIDENCE, MOST_REPEATS, Ratio

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
        sizes: dict[Round, int] = {}
        for _, one in throughputs:
            sizes[one] = sizes.get(one, 0) + 1
        self._logs = {key: math.log(value) for key, value in throughputs.items() if sizes[key[1]] > 1}
        self.cells = list(dict.fromkeys(cell for cell, _ in self._logs))

    def ratio(self, numerator: str, denominator: str) -> WithinRounds | None:
        """One cell over another; None where fewer than two rounds have both, or nothing is left to tell the spread.

        The residual is pooled over the cells, unless Bartlett's test speaks against one spread for all: then it is the
        pair's own, from the differences within their common rounds, steadied by the pooled one as if that had two
        degrees of freedom (a moderated t: G. K. Smyth, "Linear models and empirical Bayes methods", Statistical
        Applications in Genetics and Molecular Biology 3, 2004).
        """
        differences = self._differences(numerator, denominator)
        count = len(differences)
        if count < 2:
            return None
        if self._equal_spreads:
            return self._pooled(numerator, denominator)
        mean = math.fsum(differences) / count
        own = math.fsum((one - mean) ** 2 for one in differences)
        lent = max(0, min(LENT_DEGREES, self._fit.degrees - (count - 1)))
        degrees = count - 1 + lent
        variance = (own + lent * 2 * self._fit.variance) / degrees
        method = "residual of each pair, steadied by the others': the cells' spreads are not alike"
        return _interval(mean, math.sqrt(variance / count), degrees, method)

    def rounds_needed(self, found: WithinRounds, rounds: int) -> int | None:
        """Rounds that would separate a ratio from 1 at the spread seen; None if no sensible number would."""
        from scipy import stats

        difference, degrees_a_round = abs(math.log(found.ratio.value)), max(1.0, found.degrees / max(1, rounds - 1))
        for wanted in range(rounds + 1, MOST_REPEATS + 1):
            quantile = float(stats.t.ppf(0.5 + CONFIDENCE / 2, degrees_a_round * (wanted - 1)))
            if quantile * found.error * math.sqrt(rounds / wanted) < difference:
                return wanted
        return None

    def _differences(self, one: str, other: str) -> list[float]:
        of_one = {when: value for (cell, when), value in self._logs.items() if cell == one}
        return [of_one[when] - value for (cell, when), value in self._logs.items() if cell == other and when in of_one]

    def _pooled(self, numerator: str, denominator: str) -> WithinRounds | None:
        fit = self._fit
        if fit.degrees < 1:
            return None
        contrast = fit.numpy.zeros(fit.covariance.shape[0])
        contrast[self.cells.index(numerator)], contrast[self.cells.index(denominator)] = 1.0, -1.0
        error = math.sqrt(max(0.0, float(contrast @ fit.covariance @ contrast)) * fit.variance)
        method = f"residual pooled over {len(self.cells)} cells, {fit.degrees} degrees of freedom"
        return _interval(float(contrast @ fit.effects), error, fit.degrees, method)

    @cached_property
    def _fit(self) -> "_Fit":
        """Least squares; of the effects only differences between cells of common rounds mean something."""
        import numpy

        rounds = list(dict.fromkeys(when for _, when in self._logs))
        design = numpy.zeros((len(self._logs), len(self.cells) + len(rounds)))
        for row, (cell, when) in enumerate(self._logs):
            design[row, self.cells.index(cell)] = design[row, len(self.cells) + rounds.index(when)] = 1.0
        observed = numpy.array(list(self._logs.values()))
        inverse = numpy.linalg.pinv(design)
        effects = inverse @ observed
        residuals = observed - design @ effects
        degrees = len(self._logs) - int(numpy.linalg.matrix_rank(design)) if self._logs else 0
        variance = float(residuals @ residuals) / degrees if degrees > 0 else 0.0
        return _Fit(numpy, effects, inverse @ inverse.T, residuals, degrees, variance)

    @cached_property
    def _equal_spreads(self) -> bool:
        """Whether Bartlett's test on the cells' residuals does not speak against one spread for all.

        M. S. Bartlett, "Properties of sufficiency and statistical tests", Proceedings of the Royal Society A 160
        (1937), with each cell's share of the degrees of freedom that the fit leaves.
        """
        from scipy import stats

        fit, sums = self._fit, dict.fromkeys(self.cells, 0.0)
        for (cell, _), residual in zip(self._logs, fit.residuals, strict=True):
            sums[cell] += float(residual) ** 2
        count = len(sums)
        if count < 3 or fit.degrees < 1 or fit.variance <= 0:
            return True
        if min(sums.values()) <= 0:
            return False
        each = fit.degrees / count
        excess = fit.degrees * math.log(fit.variance) - each * math.fsum(math.log(one / each) for one in sums.values())
        corrected = excess / (1 + (count / each - 1 / fit.degrees) / (3 * (count - 1)))
        return float(stats.chi2.sf(corrected, count - 1)) >= UNEQUAL_BELOW


@dataclass(frozen=True)
class _Fit:
    """`effects` are of (cells + rounds,); `covariance` times `variance` is theirs; `residuals` of (observations,)."""

    numpy: Any
    effects: Any
    covariance: Any
    residuals: Any
    degrees: int
    variance: float


def _interval(difference: float, error: float, degrees: int, method: str) -> WithinRounds:
    """From a difference of logarithms and its standard error."""
    from scipy import stats

    margin = float(stats.t.ppf(0.5 + CONFIDENCE / 2, degrees)) * error
    ratio = Ratio(math.exp(difference), math.exp(difference - margin), math.exp(difference + margin))
    return WithinRounds(ratio, method, error, degrees)
