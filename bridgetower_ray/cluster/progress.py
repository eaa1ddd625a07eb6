"""What a person sees while a sweep runs: a live table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.outcomes import Kind, Outcome

PLAIN_INTERVAL_SECONDS = 15.0


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


@dataclass
class SweepProgress:
    """The sweep as it stands."""

    total: int
    ended: int = 0
    measured: int = 0
    running: dict[int, TrialProgress] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

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


def view_for(console: Console) -> View:
    """The live view for a terminal, plain lines for a file or a job's log."""
    return LiveView(console) if console.is_terminal else PlainView(console.print)


class PlainView:
    """One line when a trial begins, moves (now and then) and ends."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._last: dict[int, float] = {}

    def __enter__(self) -> "PlainView":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def trial_began(self, sweep: SweepProgress, one: TrialProgress) -> None:
        """Say that it started."""
        self._write(f"[{sweep.ended}/{sweep.total}] started   {one.trial.name}")

    def moved(self, sweep: SweepProgress, one: TrialProgress) -> None:
        """Say where it is, if it has been quiet for a while."""
        now, key = time.monotonic(), id(one)
        if now - self._last.setdefault(key, now) >= PLAIN_INTERVAL_SECONDS:
            self._last[key] = now
            self._write(f"[{sweep.ended}/{sweep.total}] running   {one.trial.name}: {one.line}{_left(sweep)}")

    def trial_ended(self, sweep: SweepProgress, one: TrialProgress, outcome: Outcome, figure: float | None) -> None:
        """Say what became of it."""
        self._last.pop(id(one), None)
        self._write(f"[{sweep.ended}/{sweep.total}] {_ending(one, outcome, figure)}{_left(sweep)}")


class LiveView:
    """Ended trials scroll by; the running ones stand in a table below them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def trial_began(self, sweep: SweepProgress, one: TrialProgress) -> None:
        """Show it in the table."""
        del one
        self._draw(sweep)

    def moved(self, sweep: SweepProgress, one: TrialProgress) -> None:
        """Show where it is."""
        del one
        self._draw(sweep)

    def trial_ended(self, sweep: SweepProgress, one: TrialProgress, outcome: Outcome, figure: float | None) -> None:
        """Move it from the table to the lines above."""
        style = "green" if outcome.kind in (Kind.MEASURED, Kind.REHEARSED) else "red"
        self._console.print(Text(_ending(one, outcome, figure), style=style))
        self._draw(sweep)

    def _draw(self, sweep: SweepProgress) -> None:
        table = Table("running trial", "phase", "step", "samples/s", "node", box=None, pad_edge=False)
        for one in sweep.running.values():
            steps = f"{one.step}/{one.total_steps}" if one.total_steps else ""
            rate = "" if one.samples_per_second is None else f"{one.samples_per_second:.1f}"
            table.add_row(one.trial.name, one.phase, steps, rate, one.node)
        failed = f", {sweep.ended - sweep.measured} of them failed" if sweep.ended > sweep.measured else ""
        heading = Text(f"{sweep.ended} of {sweep.total} trials done{failed}{_left(sweep)}")
        self._live.update(Group(heading, table))


def _ending(one: TrialProgress, outcome: Outcome, figure: float | None) -> str:
    figure_text = "" if figure is None else f"  {figure:.1f} samples/s"
    reason = f": {outcome.reason}" if outcome.reason else ""
    return f"{outcome.kind:<9} {one.trial.name}{figure_text}{reason}"


def _left(sweep: SweepProgress) -> str:
    seconds = sweep.seconds_left()
    return "" if seconds is None or sweep.ended == sweep.total else f"  ({duration(seconds)} left)"


def duration(seconds: float) -> str:
    """`40 s`, `3 min`, `2 h 10 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
