"""Where a sweep stands while it runs, as values; and what shows them."""

import time
from dataclasses import dataclass, field
from typing import Protocol

from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.outcomes import Outcome


@dataclass
class TrialProgress:
    """A trial that is under way."""

    trial: Trial
    phase: str = "starting"
    node: str = ""
    step: int = 0
    total_steps: int | None = None
    samples_per_second: float | None = None

    @property
    def line(self) -> str:
        """Where the trial is, in one line."""
        steps = f"step {self.step}/{self.total_steps}" if self.total_steps else self.phase
        rate = f"{self.samples_per_second:.1f} samples/s" if self.samples_per_second is not None else ""
        return " ".join(part for part in (steps, rate, f"on {self.node}" if self.node else "") if part)


@dataclass(frozen=True)
class Outlook:
    """Trials that a sweep's question is expected to take in this run; the widest half-width left, as a share.

    `widest` is None before the first look, and once nothing is left to look at.
    """

    trials: int
    widest: float | None
    precision: float

    @property
    def text(self) -> str:
        """`widest ±4.1 % of ±3 %`."""
        return "" if self.widest is None else f"widest ±{100 * self.widest:.2g} % of ±{100 * self.precision:g} %"


@dataclass
class SweepProgress:
    """The sweep as it stands; `outlook` where it is not known how many trials it takes."""

    total: int
    outlook: Outlook | None = None
    ended: int = 0
    measured: int = 0
    running: dict[int, TrialProgress] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    @property
    def of_total(self) -> str:
        """`3/12`; `3/~12` where the total is what is expected."""
        return f"{self.ended}/{'~' if self.outlook else ''}{self.total}"

    def expect(self, outlook: Outlook) -> None:
        """Go by what is now expected."""
        self.outlook, self.total = outlook, max(outlook.trials, self.ended)

    def seconds_left(self) -> float | None:
        """From the pace so far; None before the first trial has ended."""
        if not self.ended:
            return None
        return (time.monotonic() - self.started) / self.ended * (self.total - self.ended)


class View(Protocol):
    """Shows a sweep's progress; a context manager around the sweep."""

    def __enter__(self) -> "View":
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """End."""

    def trial_began(self, sweep: SweepProgress, one: TrialProgress) -> None:
        """A trial has been given a place."""

    def moved(self, sweep: SweepProgress, one: TrialProgress) -> None:
        """A trial has said something."""

    def trial_ended(self, sweep: SweepProgress, one: TrialProgress, outcome: Outcome, figure: float | None) -> None:
        """A trial has its outcome; `figure` is its throughput in samples/s if it was measured."""


def duration(seconds: float) -> str:
    """`40 s`, `3 min`, `2 h 10 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
