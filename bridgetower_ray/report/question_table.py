"""What a sweep that asked for a precision bought: how sure each ratio is, what it took, and why no more was run."""

from collections.abc import Iterator

from bridgetower_ray.report.comparisons import Comparison, compare
from bridgetower_ray.report.efficiency import SECONDS_PER_HOUR
from bridgetower_ray.report.records import CellResult, SweepResults
from bridgetower_ray.report.stats import repeats_for
from bridgetower_ray.report.stopping import RULE, Course, pools
from bridgetower_ray.report.tables import Table

UNANSWERED = "not answered yet"


def question_table(results: SweepResults) -> Table | None:
    """A row a ratio on one accelerator; None where the sweep asked for a count."""
    if results.sweep_run.question is None:
        return None
    rows = tuple(
        (f"{one.numerator.cell.setting} over {one.denominator.cell.setting}", _row(one, results.courses[name]))
        for name in results.courses
        for one in ratios_of(results, name)
    )
    notes = [f"Asked for: {results.sweep_run.question.text}.", RULE, *_left(results), *_took(results)]
    return Table(
        "What was asked, and what it took", "ratio", ("95 % interval", "±", "rounds", "ended by"), rows, tuple(notes)
    )


def ratios_of(results: SweepResults, accelerator: str) -> list[Comparison]:
    """Those that the question is about: over what the table compares with, or over the fastest cell."""
    if results.sweep_run.question is None:
        return []
    pool = pools(results.sweep_run)[accelerator]
    cells = [one for one in results.to_measure if one.cell.cell_id in pool.cells]
    if results.sweep_run.question.goal == "fastest":
        against = [max(cells, key=lambda one: one.throughput or 0.0)]
    else:
        against = [one for one in cells if one.cell.cell_id in pool.references]
    return [compare(one, other, results) for other in against for one in cells if one is not other]


def _row(one: Comparison, found: Course) -> tuple[str, ...]:
    width = one.ratio.half_width if one.ratio else None
    given_up = found.given_up.get(one.numerator.cell.cell_id)
    why = given_up or str(found.ended_by or UNANSWERED)
    return (one.text, "" if width is None else f"{width:.1%}", str(len(one.numerator.throughputs)), why)


def _left(results: SweepResults) -> Iterator[str]:
    """The cells that left the rounds early."""
    settings = {one.cell.cell_id: one.cell.setting for one in results.to_measure}
    for found in results.courses.values():
        for look in found.looks:
            for cell, why in sorted(look.given_up.items()):
                yield f"{settings[cell]} left after round {look.after + 1}: {why}."


def _took(results: SweepResults) -> Iterator[str]:
    """Device hours of each accelerator, and those of a fixed count whose Welch intervals would be as narrow."""
    for name, found in results.courses.items():
        cells = [one for one in results.to_measure if one.cell.axes["accelerator"] == name]
        hours = sum(map(_device_hours, cells))
        said = f"{name}: {len(found.rounds)} rounds, {found.ended_by or UNANSWERED}; {hours:,.3g} accelerator hours"
        repeats = _fixed_repeats(results, name)
        trials = sum(len(one.records) for one in cells)
        if repeats is not None and trials:
            fixed = hours / trials * repeats * len(cells)
            said += (
                f". The same count for every cell, compared by Welch's t: about {repeats} repeats, {fixed:,.3g} hours"
            )
        yield f"{said}."


def _device_hours(one: CellResult) -> float:
    return (
        (one.cell.devices or 1)
        * sum(record.figures.get("trial_seconds", 0.0) for record in one.records)
        / SECONDS_PER_HOUR
    )


def _fixed_repeats(results: SweepResults, name: str) -> int | None:
    """Repeats of each cell after which Welch's t makes the widest ratio as narrow as it is; None if none would."""
    found = [one for one in ratios_of(results, name) if one.ratio and one.ratio.half_width]
    widest = max((one.ratio.half_width or 0.0 for one in found if one.ratio), default=0.0)
    counts = [repeats_for(one.numerator.throughputs, one.denominator.throughputs, widest) for one in found]
    return max((count for count in counts if count), default=None) if None not in counts else None
