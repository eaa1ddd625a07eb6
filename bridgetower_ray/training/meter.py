"""The clock of a trial: what is waited for, what is computed, when the window opens and closes.

Knows no torch: what synchronises the device and the ranks is handed in, and so is the clock.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Step:
    """One optimizer step of one rank, by the host's clock.

    `fetch_seconds` is the host's time in the fetch of its batches; `seconds` runs from the end of the step
    before (or the opening of the window) to its own end. On an asynchronous device the fetch holds the copy to it,
    which waits for all that it still computes unless the copy is non-blocking: there it is no wait for data, a single
    step says when the host was done with it, and only sums over the window are the device's.
    """

    step: int
    warmup: bool
    fetch_seconds: float
    seconds: float
    samples: int
    epoch_start: bool


@dataclass(frozen=True)
class Window:
    """The measured stretch: when it opened by the meter's clock, seconds between its two edges, and its steps."""

    seconds: float
    steps: tuple[Step, ...]
    opened: float = 0.0

    @property
    def fetch_seconds(self) -> float:
        """Seconds that the host spent in fetches."""
        return sum(step.fetch_seconds for step in self.steps)

    @property
    def host_fetch_fraction(self) -> float:
        """Share of the window that the host spent in fetches: the data wait, on a synchronous device alone."""
        return self.fetch_seconds / self.seconds

    @property
    def epochs_begun(self) -> int:
        """Epoch boundaries inside the window."""
        return sum(step.epoch_start for step in self.steps)

    @property
    def epoch_boundary_seconds(self) -> float:
        """Fetch time of the steps that begin an epoch: the loader starts anew there."""
        return sum(step.fetch_seconds for step in self.steps if step.epoch_start)


class StepSink(Protocol):
    """Takes each step as it ends; must cost next to nothing, for it is called inside the window."""

    def __call__(self, step: Step, now: float) -> None:
        """`now` is the meter's clock, so that a sink need not read one."""


def _ignore(step: Step, now: float) -> None:
    del step, now


class Meter:
    """Times the steps of one rank; call `fetch_begins`, `fetch_ends`, `step_ends` in turn, step by step.

    The window opens after `warmup_steps` steps, before the fetch of the next, and closes after step
    `total_steps`; at each edge `settle` brings ranks and device to rest, and nothing does in between. `opens` is
    called just before the window opens, untimed.
    """

    def __init__(
        self,
        warmup_steps: int,
        total_steps: int,
        settle: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        sink: StepSink = _ignore,
        opens: Callable[[], None] = lambda: None,
    ) -> None:
        if not 0 <= warmup_steps < total_steps:
            raise ValueError(f"a window without steps: {warmup_steps} warm-up steps of {total_steps}")
        self._warmup_steps, self._total_steps = warmup_steps, total_steps
        self._settle, self._clock, self._sink, self._opens = settle, clock, sink, opens
        self._steps: list[Step] = []
        self._mark: float | None = None
        self._opened = self._closed = 0.0
        self._fetch_started = self._fetched = 0.0
        self._samples = 0
        self._epoch_start = False

    def epoch_begins(self) -> None:
        """The next fetch is the first of an epoch."""
        self._epoch_start = True

    def fetch_begins(self) -> None:
        """The host asks the loader for the batches of a step."""
        if len(self._steps) == self._warmup_steps:
            self._opens()
            self._settle()
            self._opened = self._mark = self._clock()
        self._fetch_started = self._clock()
        if self._mark is None:
            self._mark = self._fetch_started

    def fetch_ends(self, samples: int) -> None:
        """The batches of the step are there: `samples` of this rank."""
        self._fetched = self._clock()
        self._samples = samples

    def step_ends(self) -> None:
        """The step is done, its optimizer step included."""
        number = len(self._steps) + 1
        if number == self._total_steps:
            self._settle()
        now = self._clock()
        assert self._mark is not None  # noqa: S101 - fetch_begins comes first
        step = Step(
            step=number,
            warmup=number <= self._warmup_steps,
            fetch_seconds=self._fetched - self._fetch_started,
            seconds=now - self._mark,
            samples=self._samples,
            epoch_start=self._epoch_start,
        )
        self._steps.append(step)
        self._mark, self._epoch_start = now, False
        if number == self._total_steps:
            self._closed = now
        self._sink(step, now)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps so far, those of the warm-up first."""
        return tuple(self._steps)

    def window(self) -> Window:
        """The measurement.

        Raises:
            RuntimeError: the window has not closed: fewer steps ran than were announced.
        """
        if len(self._steps) != self._total_steps:
            raise RuntimeError(f"the window did not close: {len(self._steps)} of {self._total_steps} steps ran")
        steps = tuple(self._steps[self._warmup_steps :])
        return Window(self._closed - self._opened, steps, self._opened)
