"""What each cell costs: energy, money and the chip's arithmetic, each with its interval over the repeats."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bridgetower_ray.report.efficiency import efficiency_figures
from bridgetower_ray.report.records import HEADLINE, CellResult, SweepResults
from bridgetower_ray.report.stats import geometric_mean, interval_of_mean
from bridgetower_ray.report.tables import Table, percent
from bridgetower_ray.sweep.accelerators import dense_bf16_peak
from bridgetower_ray.sweep.sweep_run import SweepRun


class Column(NamedTuple):
    """A figure by its metric's name, its title, and how a value of it is written."""

    name: str
    title: str
    form: Callable[[float], str]


COLUMNS = (
    Column("model_flops_utilisation", "MFU", percent),
    Column("compute_ceiling_flops_utilisation", "MFU of the compute ceiling", percent),
    Column("joules_per_sample", "J a sample", "{:,.2f}".format),
    Column("host_joules_per_sample", "host J a sample", "{:,.2f}".format),
    Column("samples_per_watt_hour", "samples a Wh", "{:,.0f}".format),
    Column("samples_per_dollar", "samples a dollar", "{:,.0f}".format),
)
PLOTTED = tuple(
    column
    for column in COLUMNS
    if column.name in ("model_flops_utilisation", "joules_per_sample", "samples_per_dollar")
)
NOTES = {
    "model_flops_utilisation": "MFU: the model's operations, forward and backward, over the devices' dense peak",
    "joules_per_sample": (
        "Energy: of the trial's devices, by their own counters; A100 and H100 look at their power a quarter of the "
        "time (arXiv 2312.02741), a GH200's counter is its module's, a MIG device has none of its own"
    ),
    "host_joules_per_sample": "Host energy: processors and memory of the whole host, by RAPL",
    "samples_per_dollar": "Money: by the price in the sweep file, of a node's devices in use",
}


def efficiency_table(results: SweepResults) -> Table | None:
    """Without the columns of which nothing is known; None where none is."""
    found = {one.cell.setting: efficiency(one, results.sweep_run) for one in results.measured}
    shown = [column for column in COLUMNS if any(figures.get(column.name) for figures in found.values())]
    if not shown:
        return None
    rows = tuple(
        (setting, tuple(_entry(figures.get(name, ()), form) for name, _, form in shown))
        for setting, figures in found.items()
    )
    notes = [f"{NOTES[name]}." for name, _, _ in shown if name in NOTES]
    notes += sorted({note for one in results.measured if (note := _peak_note(one, results.sweep_run))})
    titles = tuple(title for _, title, _ in shown)
    return Table("What a sample costs, and what of the chip it has", "setting", titles, rows, tuple(notes))


def efficiency(one: CellResult, sweep_run: SweepRun) -> dict[str, tuple[float, ...]]:
    """Each figure of every measured repeat, by the sweep file's prices and peaks; without those some repeat lacks."""
    name, devices = str(one.cell.axes["accelerator"]), one.cell.devices or 1
    peak = _peak(one, sweep_run)
    each = [
        efficiency_figures(record.figures, devices, peak[0] if peak else None, sweep_run.prices.get(name))
        for record in one.records
        if record.throughput and HEADLINE in record.figures
    ]
    names = [column.name for column in COLUMNS]
    return {
        figure: tuple(figures[figure] for figures in each)
        for figure in names
        if each and all(figure in figures for figures in each)
    }


def _peak(one: CellResult, sweep_run: SweepRun) -> tuple[float, str] | None:
    """TFLOP/s of a device and where they are given; None for a chip, or a precision, of which none is known."""
    name = str(one.cell.axes["accelerator"])
    if one.cell.settings.get("bf16") is not True:
        return None
    given = sweep_run.peaks.get(name)
    return (given, "the sweep file") if given else dense_bf16_peak(name, one.fact("env.device_names") or "")


def _peak_note(one: CellResult, sweep_run: SweepRun) -> str:
    peak = _peak(one, sweep_run)
    if peak is None or not one.values("flops_per_sample"):
        return ""
    return f"Peak of {one.cell.axes['accelerator']}: {peak[0]:g} TFLOP/s in bf16 ({peak[1]})."


def _entry(values: Sequence[float], form: Callable[[float], str]) -> str:
    """The mean of the repeats with its 95 % interval."""
    if not values:
        return ""
    interval = interval_of_mean(values)
    return form(geometric_mean(values)) + (f" [{form(interval[0])}, {form(interval[1])}]" if interval else "")
