"""What a sweep that asked for a precision bought: how sure each ratio is, what it took, and why no more was run."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from bridgetower_ray.report.comparisons import Comparison, compare
from bridgetower_ray.report.efficiency import SECONDS_PER_HOUR
from bridgetower_ray.report.records import CellResult, SweepResults
from bridgetower_ray.report.stats import repeats_for
from bridgetower_ray.report.stopping import RULE, Course, Why
from bridgetower_ray.report.tables import Table
from bridgetower_ray.sweep.question import Question

UNANSWERED = "not answered yet"
ROUNDING = 1e-9


@dataclass(frozen=True)
class Answer:
    """What an accelerator's rounds came to: the ratios that the question is about, and why the rounds ended."""

    accelerator: str
    course: Course
    ratios: tuple[Comparison, ...]
    question: Question

    @property
    def widest(self) -> float | None:
        """The widest half-width of the ratios, as a share; None without any."""
        widths = [one.ratio.half_width for one in self.ratios if one.ratio]
        return max((width for width in widths if width is not None), default=None)

    @cached_property
    def why(self) -> str:
        """Why the rounds ended; the last ones may have reached what their looks had not foreseen."""
        if self.course.ended_by is None:
            return UNANSWERED
        if self.course.ended_by is Why.MOST and self.widest is not None:
            reached = self.widest <= self.question.precision * (1 + ROUNDING)
            return f"{Why.PRECISE}, with {Why.MOST}" if reached else str(Why.MOST)
        return str(self.course.ended_by)


def answers(results: SweepResults) -> list[Answer]:
    """One an accelerator; none where the sweep asks for a count."""
    question = results.sweep_run.question
    if question is None:
        return []
    return [Answer(name, found, _ratios(results, question, found), question) for name, found in results.courses.items()]


def _ratios(results: SweepResults, question: Question, found: Course) -> tuple[Comparison, ...]:
    """Over what the table compares with, or over the fastest cell."""
    cells = [one for one in results.to_measure if one.cell.cell_id in found.pool.cells]
    if question.goal == "fastest":
        left = [one for one in cells if one.cell.cell_id not in found.given_up]
        against = [max(left or cells, key=lambda one: one.throughput or 0.0)]
    else:
        against = [one for one in cells if one.cell.cell_id in found.pool.references]
    return tuple(
        compare(one, other, results)
        for place, other in enumerate(against)
        for one in cells
        if one not in against[: place + 1]
    )


def question_table(results: SweepResults) -> Table | None:
    """A row a ratio on one accelerator; None where the sweep asked for a count."""
    if results.sweep_run.question is None:
        return None
    found = answers(results)
    rows = tuple(
        (f"{one.numerator.cell.setting} over {one.denominator.cell.setting}", _row(one, answer))
        for answer in found
        for one in answer.ratios
    )
    took = [_took(results, answer) for answer in found]
    notes = (f"Asked for: {results.sweep_run.question.text}.", RULE, *_left(results), *took)
    columns = ("95 % interval", "±", "rounds", "ended by")
    return Table("What was asked, and what it took", "ratio", columns, rows, notes)


def _row(one: Comparison, answer: Answer) -> tuple[str, ...]:
    width = one.ratio.half_width if one.ratio else None
    why = answer.course.given_up.get(one.numerator.cell.cell_id) or answer.why
    return (one.text, "" if width is None else f"{width:.1%}", str(len(one.numerator.throughputs)), why)


def _left(results: SweepResults) -> Iterator[str]:
    """The cells that left the rounds early."""
    settings = {one.cell.cell_id: one.cell.setting for one in results.to_measure}
    for found in results.courses.values():
        for look in found.looks:
            for cell, why in sorted(look.given_up.items()):
                yield f"{settings[cell]} left after round {look.after + 1}: {why}."


def _took(results: SweepResults, answer: Answer) -> str:
    """Device hours of an accelerator, and those of a fixed count whose Welch intervals would be as narrow."""
    cells = [one for one in results.to_measure if one.cell.axes["accelerator"] == answer.accelerator]
    hours, trials = sum(map(_device_hours, cells)), sum(len(one.records) for one in cells)
    said = f"{answer.accelerator}: {len(answer.course.rounds)} rounds, {answer.why}; {hours:,.3g} accelerator hours"
    repeats = _fixed_repeats(answer)
    if repeats is not None and trials:
        fixed = hours / trials * repeats * len(cells)
        said += f". A fixed count, compared by Welch's t: about {repeats} repeats of each cell, {fixed:,.3g} hours"
    return f"{said}."


def _device_hours(one: CellResult) -> float:
    seconds = sum(record.figures.get("trial_seconds", 0.0) for record in one.records)
    return (one.cell.devices or 1) * seconds / SECONDS_PER_HOUR


def _fixed_repeats(answer: Answer) -> int | None:
    """Repeats of each cell after which Welch's t makes the widest ratio as narrow as it is; None if none would."""
    if not answer.widest:
        return None
    pairs = [(one.numerator.throughputs, one.denominator.throughputs) for one in answer.ratios if one.ratio]
    counts = [repeats_for(*pair, answer.widest) for pair in pairs]
    return max((count for count in counts if count), default=None) if None not in counts else None
