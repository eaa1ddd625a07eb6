"""The report's tables as plain text entries; how they are drawn is the renderer's business."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bridgetower_ray.report.comparisons import (
    Comparison,
    Grid,
    across_accelerators,
    across_loaders,
    over_baseline,
)
from bridgetower_ray.report.limits import speedup_pairs
from bridgetower_ray.report.records import CellResult, SweepResults
from bridgetower_ray.report.rounds import WithinRounds
from bridgetower_ray.sweep.outcomes import Kind

NOT_APPLICABLE = "n/a"
SAME = "·"


@dataclass(frozen=True)
class Table:
    """A titled table: `rows` are a label and an entry for each column; `links` are addresses of entries or labels."""

    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    notes: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)


def throughput_table(results: SweepResults) -> Table:
    """The published table's shape, in samples/s."""
    grid = Grid(results)
    rows = [[throughput_entry(grid.at(name, loader)) for loader in grid.loaders] for name in grid.accelerators]
    notes = ["Geometric mean of the repeats (lowest to highest)."] if results.measured else []
    reasons = {one.cell.reason for one in results.cells if one.cell.kind is Kind.PRUNED}
    notes += [f"{NOT_APPLICABLE}: {reason}." for reason in sorted(reasons)]
    return _table("Throughput, samples/s", results, grid, rows, notes)


def throughput_entry(one: CellResult | None) -> str:
    """A cell's number, or the word for why it has none."""
    if one is None:
        return ""
    if one.cell.kind is Kind.PRUNED:
        return NOT_APPLICABLE
    if one.throughput is None:
        return str(one.outcome.kind).replace("_", " ")
    values = one.throughputs
    spread = f" ({figure(min(values))}–{figure(max(values))})" if len(values) > 1 else ""
    return figure(one.throughput) + spread


def figure(value: float) -> str:
    """A throughput with one decimal, as the published table has them."""
    return f"{value:.1f}"


def speedup_tables(results: SweepResults) -> list[Table]:
    """Of three kinds: across accelerators, across loader settings, over the baseline. Empty ones are left out."""
    grid = Grid(results)
    first = grid.loaders[0] or results.cells[0].cell.setting
    # The first accelerator is what the others are references for; alone, it has none.
    kinds = [
        (f"Speedup over {_label(results, name)} at the same loader setting", across_accelerators(results, name))
        for name in grid.accelerators[1:]
    ]
    kinds += [
        (f"Speedup over {first} on the same accelerator", across_loaders(results)),
        (f"Speedup over the baseline, {results.sweep_run.baseline}", over_baseline(results)),
    ]
    tables: list[Table] = []
    for title, rows in kinds:
        if any(map(_with_ratio, rows)):
            table = _ratio_table(title, results, grid, rows)
            if tables and tables[-1].rows == table.rows:  # one accelerator, and the baseline is its first setting
                table = replace(tables.pop(), title=f"Speedup over {first}, which is also the baseline")
            tables.append(table)
    return tables


def _ratio_table(title: str, results: SweepResults, grid: Grid, rows: Sequence[Sequence[Comparison | None]]) -> Table:
    """Without the columns in which no device has a ratio, save the one that the others are compared with."""
    columns = [place for place in range(len(grid.loaders)) if _worth_showing([row[place] for row in rows])]
    kept = [[row[place] for place in columns] for row in rows]
    entries = [[_ratio_entry(one) for one in row] for row in kept]
    return _table(title, results, grid, entries, ratio_notes(kept), [grid.loaders[place] for place in columns])


def _worth_showing(column: Sequence[Comparison | None]) -> bool:
    return any(map(_has_ratio, column)) or all(one is None for one in column)


def _has_ratio(one: Comparison | None) -> bool:
    return one is not None and one.ratio is not None


def _with_ratio(row: Sequence[Comparison | None]) -> bool:
    return any(map(_has_ratio, row))


def _ratio_entry(one: Comparison | None) -> str:
    return SAME if one is None else one.text


def ratio_notes(rows: Sequence[Sequence[Comparison | None]]) -> list[str]:
    """What a reader must know of the ratios in a table."""
    found = [one for row in rows for one in row if one is not None]
    notes = []
    intervals = [one for one in found if one.ratio and one.ratio.low is not None]
    if any(one.within is None for one in intervals):
        notes.append("Ratio of geometric means with its 95 % interval (Welch's t on log throughput).")
    notes += sorted({_how_within(one, one.within) for one in intervals if one.within is not None})
    if any(one.ratio and one.ratio.separated is False for one in found):
        notes.append("~ the interval holds 1: the repeats do not tell the two apart.")
    notes += [_more_repeats(one) for one in found if one.ratio and one.ratio.separated is False]
    if any(one.ratio and one.ratio.low is None for one in found):
        notes.append("One repeat gives no interval: how sure such a ratio is, is not known.")
    differences = sorted({difference for one in found if one.ratio for difference in one.stack_differences})
    notes += [f"† unlike stacks: {'; '.join(differences)}."] if differences else []
    likes = sorted({one.like_setting for one in found if one.like_setting and one.ratio})
    notes += [f"‡ over its {like}, for it cannot have the same setting." for like in likes]
    unlike = sorted({one.why_not for one in found if one.why_not.startswith("other work")})
    return notes + [f"– no ratio across {reason}." for reason in unlike]


def _how_within(one: Comparison, within: WithinRounds) -> str:
    name = one.numerator.cell.axes["accelerator"]
    return (
        f"{name}: ratios within rounds (log throughput = cell + round + residual) with 95 % intervals; {within.method}."
    )


def _more_repeats(one: Comparison) -> str:
    names = f"{one.numerator.cell.setting} / {one.denominator.cell.setting}"
    needed = one.repeats_needed
    return (
        f"{names}: about {needed} repeats each would." if needed else f"{names}: no sensible number of repeats would."
    )


def limits_table(results: SweepResults) -> Table | None:
    """Throughput beside its ceilings, with the verdict; None where no cell has a ceiling."""
    kinds = ("compute_ceiling_samples_per_second", "loader_ceiling_samples_per_second")
    with_ceiling = [one for one in results.measured if any(one.mean(kind) for kind in kinds)]
    rows = tuple((one.cell.setting, _limits_row(one)) for one in with_ceiling)
    exceeded = any(one.above(kind) for one in with_ceiling for kind in ("compute", "loader"))
    notes = (
        "Compute ceiling: the same training loop on one resident batch.",
        "Loader ceiling: the loader with nothing computed.",
        "In brackets the slowest and the quickest of the stretches that a ceiling was taken in.",
        *(("Exceeded: faster than the ceiling by more than its spread, which then says nothing.",) if exceeded else ()),
        *(("Data wait * is an estimate: 1 - throughput / compute ceiling.",) if _any_estimate(results) else ()),
    )
    columns = ("samples/s", "compute ceiling", "loader ceiling", "data wait", "held back by")
    return Table("What holds each cell back", "setting", columns, rows, notes) if rows else None


def _limits_row(one: CellResult) -> tuple[str, ...]:
    star = "*" if one.asynchronous else ""
    waited = percent(one.mean("data_wait_fraction"))
    return (
        optional(one.throughput),
        _ceiling_entry(one, "compute"),
        _ceiling_entry(one, "loader"),
        waited + star if waited else "",
        str(one.verdict or ""),
    )


def _ceiling_entry(one: CellResult, kind: str) -> str:
    """The mean of the repeats with the slowest and the quickest stretch of any; marked where it is no limit."""
    if one.mean(f"{kind}_ceiling_samples_per_second") is None:
        return ""
    return ceiling_text(one, kind) + (" exceeded" if one.above(kind) else "")


def ceiling_text(one: CellResult, kind: str) -> str:
    """`85.3 (80.1–90.2)`: a `compute` or `loader` ceiling that the cell has, never as if it were exact."""
    edges = one.ceiling_range(kind)
    spread = f" ({figure(edges[0])}–{figure(edges[1])})" if edges else ""
    return optional(one.mean(f"{kind}_ceiling_samples_per_second")) + spread


def _any_estimate(results: SweepResults) -> bool:
    return any(one.asynchronous for one in results.measured)


def host_share_table(results: SweepResults) -> Table | None:
    """Each pair's speedup end to end and on compute alone, and the factor that is the host's doing."""
    pairs = list(speedup_pairs(results))
    rows = tuple(
        (
            f"{pair.comparison.numerator.cell.setting} over {pair.comparison.denominator.cell.setting}",
            (pair.comparison.text, pair.compute_only.text, pair.host_factor.text),
        )
        for pair in pairs
    )
    columns = ("end to end", "compute only", "the host's doing")
    note = "End to end = compute only times what the host's loading adds or takes."
    return Table("How much of each speedup is the chip's", "pair", columns, rows, (note,)) if rows else None


def cell_table(results: SweepResults, address_of: Callable[[Sequence[str]], str] | None = None) -> Table:
    """Every cell of the plan with what became of it.

    Args:
        address_of: the address that shows some MLflow runs, by their ids.
    """
    rows = tuple((one.cell.setting, _cell_row(one)) for one in results.cells)
    columns = ("outcome", "held back by", "repeats", "samples/s", "window", "loader", "flags", "cell")
    links = {
        one.cell.setting: address_of([record.run_id for record in one.records])
        for one in results.cells
        if address_of is not None and one.records
    }
    return Table("Every cell", "setting", columns, rows, links=links)


def _cell_row(one: CellResult) -> tuple[str, ...]:
    return (
        f"as {one.cell.same_as}" if one.cell.same_as else str(one.outcome),
        str(one.verdict or ""),
        "" if one.cell.kind is Kind.PRUNED else f"{len(one.throughputs)} of {one.repeats}",
        ", ".join(figure(value) for value in one.throughputs),
        _window(one),
        _loader(one),
        "; ".join(one.flags),
        one.cell.cell_id,
    )


def optional(value: float | None) -> str:
    """A throughput; empty if it is not known."""
    return "" if value is None else figure(value)


def percent(fraction: float | None) -> str:
    """A fraction in per cent; empty if it is not known."""
    return "" if fraction is None else f"{fraction:.0%}"


def _window(one: CellResult) -> str:
    steps, seconds = one.mean("window_steps"), one.mean("window_seconds")
    return "" if steps is None or seconds is None else f"{steps:.0f} steps, {seconds:.1f} s"


def _loader(one: CellResult) -> str:
    return " and ".join(sorted(loader.rpartition(".")[2] for loader in one.facts("run.loader")))


def _table(
    title: str,
    results: SweepResults,
    grid: Grid,
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    loaders: Sequence[str] | None = None,
) -> Table:
    labels = [_label(results, name) for name in grid.accelerators]
    columns = tuple(loader or "throughput" for loader in loaders or grid.loaders)
    labelled = tuple((label, tuple(row)) for label, row in zip(labels, rows, strict=True))
    return Table(title, "device", columns, labelled, tuple(notes))


def _label(results: SweepResults, accelerator: str) -> str:
    return results.sweep_run.accelerator_labels.get(accelerator, accelerator)
