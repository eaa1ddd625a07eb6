"""The report's plots as SVG text, drawn without a display."""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridgetower_ray.report.comparisons import Grid
from bridgetower_ray.report.efficiency_table import PLOTTED, efficiency
from bridgetower_ray.report.limits import WORKERS
from bridgetower_ray.report.records import CellResult, SweepResults
from bridgetower_ray.report.stats import geometric_mean, interval_of_mean

# Okabe and Ito's colours, told apart by colour-blind readers, with hatches and markers for black and white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
HATCHES = ("", "//", "..", "xx", "\\\\", "++")
MARKERS = ("o", "s", "^", "D", "v", "P")
WIDTH = 7.2
MOST_CELLS = 40  # more bars than that tell nobody anything


def plots(results: SweepResults) -> Iterator[str]:
    """Throughput; where a step's time goes; scaling with workers; costs. Each only where there is something to show."""
    if not results.measured or len(results.measured) > MOST_CELLS:
        return
    yield throughput_plot(results)
    if any(one.mean("data_wait_fraction") is not None for one in results.measured):
        yield step_time_plot(results)
    if len(results.sweep_run.axes.get(WORKERS, ())) > 1:
        yield scaling_plot(results)
    costs = {one.cell.setting: efficiency(one, results.sweep_run) for one in results.measured}
    for column in PLOTTED:
        known = {setting: figures[column.name] for setting, figures in costs.items() if figures.get(column.name)}
        if known:
            yield cost_plot(column.title, known)


def throughput_plot(results: SweepResults) -> str:
    """Bars of samples/s by accelerator and loader setting, with 95 % intervals and both ceilings."""
    grid = Grid(results)
    drawn = [loader for loader in grid.loaders if any(_measured(grid, name, loader) for name in grid.accelerators)]
    figure, axes = _figure(3.8)
    width = 0.8 / len(drawn)
    for place, loader in enumerate(drawn):
        positions = [index + (place - (len(drawn) - 1) / 2) * width for index in range(len(grid.accelerators))]
        cells = [_measured(grid, name, loader) for name in grid.accelerators]
        heights = [one.throughput or 0 if one else 0 for one in cells]
        style = {"color": COLOURS[place % len(COLOURS)], "hatch": HATCHES[place % len(HATCHES)], "edgecolor": "white"}
        axes.bar(positions, heights, width * 0.92, label=loader or "throughput", **style)
        for position, one in zip(positions, cells, strict=True):
            if one is not None:
                _draw_interval(axes, one, position)
                _draw_ceilings(axes, one, position, width)
    axes.set_xticks(range(len(grid.accelerators)), _labels(results, grid))
    _limit_height(axes, results)
    axes.set_ylabel("samples/s")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
    return _svg(figure, "Throughput in samples/s by accelerator and loader setting, with intervals and ceilings")


def _draw_interval(axes: Any, one: CellResult, position: float) -> None:
    interval = interval_of_mean(one.throughputs)
    if one.throughput and interval:
        errors = [[one.throughput - interval[0]], [interval[1] - one.throughput]]
        axes.errorbar(position, one.throughput, yerr=errors, color="black", capsize=3, linewidth=1)


def _draw_ceilings(axes: Any, one: CellResult, position: float, width: float) -> None:
    """A solid tick at the compute ceiling, a dashed one at the loader's."""
    for ceiling, style in ((one.compute_ceiling, "-"), (one.loader_ceiling, ":")):
        if ceiling:
            axes.hlines(ceiling, position - width * 0.44, position + width * 0.44, color="black", linestyle=style)


def _limit_height(axes: Any, results: SweepResults) -> None:
    """Room for throughputs, their intervals within reason, and compute ceilings; the rest may be out of sight."""
    highest = max(max(one.throughput or 0, one.compute_ceiling or 0) for one in results.measured)
    intervals = [interval_of_mean(one.throughputs) for one in results.measured]
    highest = max(highest, *(min(interval[1], 1.5 * highest) for interval in intervals if interval), 0)
    axes.set_ylim(0, highest * 1.1)
    if any(one.compute_ceiling for one in results.measured):
        axes.set_title("line: compute ceiling, dotted: loader ceiling (where in range)", fontsize="small", loc="left")


def step_time_plot(results: SweepResults) -> str:
    """For each cell the time of one step: computing and the rest below, waiting for data above."""
    cells = [one for one in results.measured if one.mean("data_wait_fraction") is not None]
    figure, axes = _figure(0.9 + 0.34 * len(cells))
    names = [one.cell.setting for one in cells]
    steps = [(one.mean("window_seconds") or 0) / max(one.mean("window_steps") or 1, 1) * 1000 for one in cells]
    waits = [step * (one.mean("data_wait_fraction") or 0) for step, one in zip(steps, cells, strict=True)]
    computes = [step - wait for step, wait in zip(steps, waits, strict=True)]
    axes.barh(names, computes, color=COLOURS[0], edgecolor="white", label="compute and the rest")
    axes.barh(names, waits, left=computes, color=COLOURS[1], hatch="//", edgecolor="white", label="data wait")
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds a step")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
    return _svg(figure, "Where the time of one step goes in each cell: computing, and waiting for data")


def scaling_plot(results: SweepResults) -> str:
    """Samples/s over the number of workers, a line for each accelerator and other setting."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for one in results.measured:
        others = [part for part in one.cell.setting.split(" · ") if not part.startswith("workers=")]
        workers = one.cell.axes[WORKERS]
        if one.throughput is not None and isinstance(workers, int) and "mediapipe" not in others:
            lines.setdefault(" · ".join(others), []).append((workers, one.throughput))
    figure, axes = _figure(3.2)
    for place, (name, points) in enumerate(lines.items()):
        xs, ys = zip(*sorted(points), strict=True)
        axes.plot(xs, ys, marker=MARKERS[place % len(MARKERS)], color=COLOURS[place % len(COLOURS)], label=name)
    axes.set_xticks(sorted({workers for points in lines.values() for workers, _ in points}))
    axes.set_xlabel("loader workers a rank")
    axes.set_ylabel("samples/s")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
    return _svg(figure, "Throughput in samples per second over the number of loader workers")


def cost_plot(title: str, known: Mapping[str, Sequence[float]]) -> str:
    """One figure of what a sample costs, a bar a setting, with 95 % intervals over the repeats."""
    means = [geometric_mean(values) for values in known.values()]
    figure, axes = _figure(0.9 + 0.34 * len(known))
    axes.barh(list(known), means, color=COLOURS[2], edgecolor="white")
    for place, (values, mean) in enumerate(zip(known.values(), means, strict=True)):
        if interval := interval_of_mean(values):
            # An interval that leaves the plot says enough by leaving it.
            errors = [[mean - interval[0]], [min(interval[1], 2 * max(means)) - mean]]
            axes.errorbar(mean, place, xerr=errors, color="black", capsize=3, linewidth=1)
    axes.set_xlim(0, 1.5 * max(means))
    axes.invert_yaxis()
    axes.set_xlabel(title)
    return _svg(figure, f"{title} of each cell, with intervals")


def _measured(grid: Grid, accelerator: str, loader: str) -> CellResult | None:
    one = grid.at(accelerator, loader)
    return one if one is not None and one.throughput is not None else None


def _labels(results: SweepResults, grid: Grid) -> list[str]:
    return [results.sweep_run.accelerator_labels.get(name, name) for name in grid.accelerators]


def _figure(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Any, name: str) -> str:
    """Inline SVG with an accessible name and no metadata that changes from run to run."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
