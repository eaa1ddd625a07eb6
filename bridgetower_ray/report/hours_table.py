"""Where the accelerator hours of a sweep went, phase by phase."""

from collections import Counter

from bridgetower_ray.report.efficiency import SECONDS_PER_HOUR
from bridgetower_ray.report.records import Record, SweepResults, phase_figure
from bridgetower_ray.report.tables import Table, percent

PHASES = {
    "preparing": "node preparation",
    "starting": "process start",
    "importing": "imports",
    "loading": "loading",
    "first_step": "first step",
    "warm_up": "warm-up",
    "measuring": "window",
    "ceilings": "ceilings",
    "ending": "end",
}


def hours_table(results: SweepResults) -> Table | None:
    """Of every trial that left its phases, those without a result too; None where none did."""
    seconds: dict[str, Counter[str]] = {}
    for one in results.cells:
        if one.cell.same_as is None:
            spent = seconds.setdefault(str(one.cell.axes["accelerator"]), Counter())
            for record in one.records:
                spent.update(_device_seconds(record, one.cell.devices or 1))
    known = {name: spent for name, spent in seconds.items() if spent.total() > 0}
    if not known:
        return None
    shown = [phase for phase in PHASES if any(spent[phase] for spent in known.values())]
    labels = results.sweep_run.accelerator_labels
    rows = tuple((labels.get(name, name), _row(spent, shown)) for name, spent in known.items())
    notes = (
        "Device hours of the trials, those without a result too, without what passed between them.",
        "First step: with what is compiled for it. Window: what is measured.",
    )
    return Table("Where an accelerator hour went", "device", ("hours", *(PHASES[one] for one in shown)), rows, notes)


def _device_seconds(record: Record, devices: int) -> dict[str, float]:
    return {phase: devices * record.figures.get(phase_figure(phase), 0.0) for phase in PHASES}


def _row(spent: Counter[str], shown: list[str]) -> tuple[str, ...]:
    total = spent.total()
    return (f"{total / SECONDS_PER_HOUR:,.3g}", *(percent(spent[phase] / total) for phase in shown))
