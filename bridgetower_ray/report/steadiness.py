"""Whether a window went at one pace, by the steps that it is made of: a trend, two levels, a stretch that fell out."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

STRETCHES = 12
FEWEST_STEPS = 3 * STRETCHES
BATCHES = 10
TREND, LEVELS, FALLS_OUT = 0.05, 0.10, 0.30  # shares of the pace that are worth a word
IN_ORDER = 0.9  # Spearman's rank correlation of 12 stretches with their order; by chance in fewer than 1 of 10,000
APART = 6.0  # times the spread within levels that two levels, or one stretch, are apart: the best split is searched for
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Pace:
    """Seconds a step in consecutive stretches of a window, without the slowest quarter of each stretch's steps.

    A single slow step is most often a batch with a large image, which is the data's doing and the same in every trial.
    """

    seconds: tuple[float, ...]

    @property
    def picture(self) -> str:
        """The pace, samples/s, as a line of bars from the slowest to the quickest stretch."""
        paces = [1 / one for one in self.seconds]
        low, span = min(paces), max(paces) - min(paces)
        return "".join(BARS[round((one - low) / span * (len(BARS) - 1))] if span else BARS[-1] for one in paces)

    @property
    def doubt(self) -> str:
        """What is unsteady about it, in words; empty where nothing is."""
        return self._trend() or self._levels() or self._stretch()

    def _trend(self) -> str:
        third = len(self.seconds) // 3
        change = statistics.fmean(self.seconds[:third]) / statistics.fmean(self.seconds[-third:]) - 1
        if abs(change) < TREND or abs(_rank_correlation(self.seconds)) < IN_ORDER:
            return ""
        return f"the pace {'rose' if change > 0 else 'fell'} by {abs(change):.0%} through the window"

    def _levels(self) -> str:
        splits = range(2, len(self.seconds) - 1)
        at = min(splits, key=lambda place: _scatter(self.seconds[:place]) + _scatter(self.seconds[place:]))
        before, after = self.seconds[:at], self.seconds[at:]
        gap = statistics.fmean(before) / statistics.fmean(after) - 1
        within = ((_scatter(before) + _scatter(after)) / (len(self.seconds) - 2)) ** 0.5
        if abs(gap) < LEVELS or abs(statistics.fmean(before) - statistics.fmean(after)) < APART * within:
            return ""
        return f"two levels: after {at / len(self.seconds):.0%} of the window the pace changed by {gap:+.0%}"

    def _stretch(self) -> str:
        usual = statistics.median(self.seconds)
        spread = statistics.median(abs(one - usual) for one in self.seconds)
        worst = max(self.seconds)
        if worst / usual - 1 < FALLS_OUT or worst - usual < APART * 1.4826 * spread:
            return ""
        return f"one stretch took {worst / usual:.1f} times as long as the others"


def pace_of(steps: Iterable[Mapping[str, Any]]) -> Pace | None:
    """The pace of a trial's window by its first rank's steps; None for one too short to tell.

    Steps that begin an epoch are left out: what a loader's new start costs is on record by itself.
    """
    seconds = [
        step["seconds"]
        for step in steps
        if not step["warmup"] and not step["epoch_start"] and not step.get("rank") and step["seconds"] > 0
    ]
    if len(seconds) < FEWEST_STEPS:
        return None
    edges = [round(place * len(seconds) / STRETCHES) for place in range(STRETCHES + 1)]
    return Pace(tuple(_usual(seconds[start:end]) for start, end in pairwise(edges)))


def standard_error(steps: Iterable[Mapping[str, Any]]) -> float | None:
    """Of the mean step of a trial's window, as a share of it, by its first rank; None for a window too short to tell.

    Without steps that begin an epoch, which come at the same places in every trial. By the means of consecutive batches
    of steps, for steps that follow one another are not independent (A. M. Law, "Simulation Modeling and Analysis", on
    batch means).
    """
    seconds = [
        step["seconds"] for step in steps if not step["warmup"] and not step.get("epoch_start") and not step.get("rank")
    ]
    size = len(seconds) // BATCHES
    if len(seconds) < FEWEST_STEPS:
        return None
    means = [statistics.fmean(seconds[place * size : (place + 1) * size]) for place in range(BATCHES)]
    return statistics.stdev(means) / math.sqrt(BATCHES) / statistics.fmean(means)


def _usual(seconds: Sequence[float]) -> float:
    """The mean of all but the slowest quarter."""
    return statistics.fmean(sorted(seconds)[: len(seconds) - math.ceil(len(seconds) / 4)])


def _scatter(values: Sequence[float]) -> float:
    """Sum of squared deviations from the mean."""
    mean = statistics.fmean(values)
    return sum((one - mean) ** 2 for one in values)


def _rank_correlation(values: Sequence[float]) -> float:
    """Spearman's, of values with their order; equal values have ranks as they come."""
    ranks = [0] * len(values)
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        ranks[place] = rank
    return statistics.correlation(range(len(values)), ranks) if len(set(values)) > 1 else 0.0
