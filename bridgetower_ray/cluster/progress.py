"""What a person sees while a sweep runs: a live table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.progress import SweepProgress, TrialProgress, View, duration

PLAIN_INTERVAL_SECONDS = 15.0


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
        self._write(f"[{sweep.of_total}] started   {one.trial.name}")

    def moved(self, sweep: SweepProgress, one: TrialProgress) -> None:
        """Say where it is, if it has been quiet for a while."""
        now, key = time.monotonic(), id(one)
        if now - self._last.setdefault(key, now) >= PLAIN_INTERVAL_SECONDS:
            self._last[key] = now
            self._write(f"[{sweep.of_total}] running   {one.trial.name}: {one.line}{_left(sweep)}")

    def trial_ended(self, sweep: SweepProgress, one: TrialProgress, outcome: Outcome, figure: float | None) -> None:
        """Say what became of it."""
        self._last.pop(id(one), None)
        self._write(f"[{sweep.of_total}] {_ending(one, outcome, figure)}{_left(sweep)}")


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
        total = f"about {sweep.total}" if sweep.outlook else sweep.total
        heading = Text(f"{sweep.ended} of {total} trials done{failed}{_left(sweep)}")
        self._live.update(Group(heading, table))


def _ending(one: TrialProgress, outcome: Outcome, figure: float | None) -> str:
    figure_text = "" if figure is None else f"  {figure:.1f} samples/s"
    reason = f": {outcome.reason}" if outcome.reason else ""
    return f"{outcome.kind:<9} {one.trial.name}{figure_text}{reason}"


def _left(sweep: SweepProgress) -> str:
    seconds = sweep.seconds_left()
    left = "" if seconds is None or sweep.ended == sweep.total else f"{duration(seconds)} left"
    parts = [part for part in (left, sweep.outlook.text if sweep.outlook else "") if part]
    return f"  ({', '.join(parts)})" if parts else ""
