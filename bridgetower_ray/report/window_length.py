"""How long windows would best be: what a longer one tells, against what another trial costs.

Between trials the throughput varies by what differs from start to start, and by what a window of that length leaves
open. A trial of window w and everything else t costs t + w, and leaves the variance b + v / w: for the same certainty
w = sqrt(t v / b) takes the least time (T. Kalibera and R. Jones, "Rigorous benchmarking in reasonable time", ISMM 2013,
section 6, with two levels).
"""

import math
import operator
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from bridgetower_ray.doctor.telemetry import SHORTEST_ENERGY_SECONDS
from bridgetower_ray.report.records import CellResult, SweepResults
from bridgetower_ray.report.steadiness import FEWEST_STEPS
from bridgetower_ray.report.tables import percent
from bridgetower_ray.sweep.cells import MEDIA_PREFETCHED_BATCHES, STEADY_QUEUES

FEWEST_DEGREES = 10  # of the residual: with fewer its variance may be off by several times
WORTH = 0.15  # of the accelerator time, below which nothing is said
LONGEST = 4.0  # times the windows that there were: further on is guessed


@dataclass(frozen=True)
class WindowLength:
    """Of an accelerator's trials, means: seconds in the window and elsewhere, and variances of the log throughput.

    `between` is the variance from start to start, `within` that of a window of that length; `least` is the shortest
    window, in seconds, that gives all that these gave.
    """

    accelerator: str
    window: float
    elsewhere: float
    between: float
    within: float
    least: float

    @property
    def best(self) -> float:
        """Seconds of the window that would take the least time for the same certainty, within sensible bounds."""
        most = LONGEST * self.window
        free = math.sqrt(self.elsewhere * self.within * self.window / self.between) if self.between > 0 else most
        return min(most, max(self.least, free))

    @property
    def saving(self) -> float:
        """Share of the accelerator time that windows of that length would save."""
        return 1 - self._time(self.best) / self._time(self.window)

    def _time(self, window: float) -> float:
        """Seconds for a certainty, but for a factor."""
        return (self.elsewhere + window) * (self.between + self.within * self.window / window)

    @property
    def sentence(self) -> str:
        """What it takes, and what would take less."""
        spent = f"{self.window:.3g} s in their windows and {self.elsewhere:.3g} s elsewhere"
        spread, of_windows = math.sqrt(self.between + self.within), math.sqrt(self.within)
        return (
            f"{self.accelerator}: trials spend {spent}, and vary by {spread:.1%}, of which the length of their windows "
            f"alone explains {of_windows:.1%}: windows of about {self.best:.2g} s would make ratios as sure in "
            f"{percent(self.saving)} less time."
        )


def window_lengths(results: SweepResults) -> Iterator[WindowLength]:
    """One for each accelerator of which enough trials say how they vary."""
    for name, rounds in results.rounds.items():
        cells = [one for one in results.measured if one.cell.axes["accelerator"] == name]
        variance, degrees = rounds.residual
        within = [error**2 for one in cells for error in one.values("window_standard_error")]
        if degrees < FEWEST_DEGREES or len(within) < sum(len(one.throughputs) for one in cells):
            continue
        windows = [value for one in cells for value in one.values("window_seconds")]
        trials = [value for one in cells for value in one.values("trial_seconds")]
        left_open = statistics.fmean(within)
        if len(windows) == len(trials) == len(within) and left_open <= variance:  # else it is alike in all trials
            window = statistics.fmean(windows)
            elsewhere = statistics.median(map(operator.sub, trials, windows))  # a node is prepared once
            yield WindowLength(name, window, elsewhere, variance - left_open, left_open, max(map(_least_window, cells)))


def _least_window(one: CellResult) -> float:
    """Seconds of the fewest steps whose pace can be told and beside which the loader's queues are small."""
    queued = one.workers * int(one.fact("run.dataloader_prefetch_factor") or 0)
    if one.cell.axes.get("mediapipe_dataloader"):
        queued = MEDIA_PREFETCHED_BATCHES
    steps = max(FEWEST_STEPS, STEADY_QUEUES * queued)
    seconds = steps * (one.mean("window_seconds") or 0.0) / (one.mean("window_steps") or math.inf)
    return max(seconds, SHORTEST_ENERGY_SECONDS) if one.mean("joules_per_sample") else seconds


def window_advice(results: SweepResults) -> Iterator[str]:
    """What is worth saying."""
    return (one.sentence for one in window_lengths(results) if one.saving >= WORTH)
