"""What a sweep that asked for a precision bought: how sure each ratio is, what it took, and why no more was run."""

from collections.abc import Iterator

from bridgetower_ray.report.comparisons import Comparison, compare
from bridgetower_ray.report.efficiency import SECONDS_PER_HOUR
from bridgetower_ray.report.records import CellResult, SweepResults
from bridgetower_ray.report.stats import repeats_for
from bridgetower_ray.report.stopping import RULE, Why, pools
from bridgetower_ray.report.tables import Table

UNANSWERED = "not answered yet"
ROUNDING = 1e-9


def question_table(results: SweepResults) -> Table | None:
    """A row a ratio on one accelerator; None where the sweep asked for a count."""
    if results.sweep_run.question is None:
        return None
    rows = tuple(
        (f"{one.numerator.cell.setting} over {one.denominator.cell.setting}", _row(one, results, name))
        for name in results.courses
        for one in ratios_of(results, name)
    )
    notes = [f"Asked for: {results.sweep_run.question.text}.", RULE, *_left(results), *_took(results)]
    columns = ("95 % interval", "±", "rounds", "ended by")
    return Table("What was asked, and what it took", "ratio", columns, rows, tuple(notes))


def ratios_of(results: SweepResults, accelerator: str) -> list[Comparison]:
    """Those that the question is about: over what the table compares with, or over the fastest cell."""
    if results.sweep_run.question is None:
        return []
    pool = pools(results.sweep_run)[accelerator]
    cells = [one for one in results.to_measure if one.cell.cell_id in pool.cells]
    if results.sweep_run.question.goal == "fastest":
        left = [one for one in cells if one.cell.cell_id not in results.courses[accelerator].given_up]
        against = [max(left or cells, key=lambda one: one.throughput or 0.0)]
    else:
        against = [one for one in cells if one.cell.cell_id in pool.references]
    return [
        compare(one, other, results)
        for place, other in enumerate(against)
        for one in cells
        if one not in against[: place + 1]
    ]


def widest_of(results: SweepResults, accelerator: str) -> float | None:
    """The widest half-width of those ratios, as a share; None without any."""
    widths = [one.ratio.half_width for one in ratios_of(results, accelerator) if one.ratio]
    return max((width for width in widths if width is not None), default=None)


def why_ended(results: SweepResults, accelerator: str) -> str:
    """Why an accelerator's rounds ended; the last ones may have reached what their looks had not foreseen."""
    found, widest = results.courses[accelerator], widest_of(results, accelerator)
    if found.ended_by is None:
        return UNANSWERED
    if found.ended_by is Why.MOST and results.sweep_run.question and widest is not None:
        reached = widest <= results.sweep_run.question.precision * (1 + ROUNDING)
        return f"{Why.PRECISE}, with {Why.MOST}" if reached else str(Why.MOST)
    return str(found.ended_by)


def _row(one: Comparison, results: SweepResults, accelerator: str) -> tuple[str, ...]:
    width = one.ratio.half_width if one.ratio else None
    given_up = results.courses[accelerator].given_up.get(one.numerator.cell.cell_id)
    why = given_up or why_ended(results, accelerator)
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
        said = f"{name}: {len(found.rounds)} rounds, {why_ended(results, name)}; {hours:,.3g} accelerator hours"
        repeats = _fixed_repeats(results, name)
        trials = sum(len(one.records) for one in cells)
        if repeats is not None and trials:
            fixed = hours / trials * repeats * len(cells)
            said += f". A fixed count, compared by Welch's t: about {repeats} repeats of each cell, {fixed:,.3g} hours"
        yield f"{said}."


def _device_hours(one: CellResult) -> float:
    seconds = sum(record.figures.get("trial_seconds", 0.0) for record in one.records)
    return (one.cell.devices or 1) * seconds / SECONDS_PER_HOUR


def _fixed_repeats(results: SweepResults, name: str) -> int | None:
    """Repeats of each cell after which Welch's t makes the widest ratio as narrow as it is; None if none would."""
    widest = widest_of(results, name)
    if not widest:
        return None
    pairs = [(one.numerator.throughputs, one.denominator.throughputs) for one in ratios_of(results, name) if one.ratio]
    counts = [repeats_for(*pair, widest) for pair in pairs]
    return max((count for count in counts if count), default=None) if None not in counts else None
