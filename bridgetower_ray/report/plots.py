"""The report's plots as SVG text, drawn without a display."""

import io

from bridgetower_ray.report.comparisons import Grid
from bridgetower_ray.report.records import SweepResults
from bridgetower_ray.report.stats import interval_of_mean

# Okabe and Ito's colours, told apart by colour-blind readers, with hatches for black and white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
HATCHES = ("", "//", "..", "xx", "\\\\", "++")


def throughput_plot(results: SweepResults) -> str:
    """Bars of samples/s by accelerator and loader setting, with 95 % intervals where repeats give one."""
    from matplotlib.figure import Figure

    grid = Grid(results)
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    drawn = [loader for loader in grid.loaders if any(_value(grid, name, loader) for name in grid.accelerators)]
    width = 0.8 / max(len(drawn), 1)
    for place, loader in enumerate(drawn):
        positions = [index + (place - (len(drawn) - 1) / 2) * width for index in range(len(grid.accelerators))]
        heights = [_value(grid, name, loader) or 0 for name in grid.accelerators]
        colour, hatch = COLOURS[place % len(COLOURS)], HATCHES[place % len(HATCHES)]
        axes.bar(
            positions,
            heights,
            width * 0.92,
            label=loader or "throughput",
            color=colour,
            hatch=hatch,
            edgecolor="white",
        )
        _draw_intervals(axes, grid, loader, positions)
    axes.set_xticks(
        range(len(grid.accelerators)),
        [results.sweep_run.accelerator_labels[name] for name in grid.accelerators],
    )
    axes.set_ylabel("samples/s")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return _svg(figure, "Throughput in samples per second by accelerator and loader setting")


def _value(grid: Grid, accelerator: str, loader: str) -> float | None:
    one = grid.at(accelerator, loader)
    return None if one is None else one.throughput


def _draw_intervals(axes: object, grid: Grid, loader: str, positions: list[float]) -> None:
    for name, position in zip(grid.accelerators, positions, strict=True):
        one = grid.at(name, loader)
        interval = interval_of_mean(one.throughputs) if one is not None and one.measured else None
        if one is not None and one.throughput and interval:
            errors = [[one.throughput - interval[0]], [interval[1] - one.throughput]]
            axes.errorbar(position, one.throughput, yerr=errors, color="black", capsize=3, linewidth=1)  # type: ignore[attr-defined]


def _svg(figure: object, name: str) -> str:
    """Inline SVG with an accessible name and no metadata that changes from run to run."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "bridgetower-ray"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})  # type: ignore[attr-defined]
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
