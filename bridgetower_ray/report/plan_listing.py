"""What `plan` prints."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bridgetower_ray.sweep.plan import Plan, PlannedCell
from bridgetower_ray.sweep.progress import duration


def show_plan(laid_out: Plan, seconds: float | None, checked: bool, console: Console) -> None:
    table = Table("setting", "outcome", "trials", "warm-up", "window", "resources of a trial", "cell", show_edge=False)
    for cell in laid_out.cells:
        trials = str(laid_out.spec.measure.repeats) if cell.runnable and not cell.same_as else ""
        outcome = f"runs as {cell.same_as}" if cell.same_as else str(cell.outcome)
        warmup = f"{cell.cell.warmup_steps} steps" if cell.runnable else ""
        entries = (cell.setting, outcome, trials, warmup, _window(cell), _resources(cell), cell.cell.cell_id)
        table.add_row(*(Text(entry) for entry in entries))
    console.print(table)
    for warning in laid_out.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))
    runnable = len(laid_out.trials) // laid_out.spec.measure.repeats
    excluded = f", {laid_out.excluded} combinations excluded" if laid_out.excluded else ""
    console.print(f"{runnable} runnable cells, {len(laid_out.trials)} trials{excluded}")
    console.print(
        "time: not known, no earlier run of these cells" if seconds is None else f"time: about {duration(seconds)}"
    )
    console.print("cluster checked" if checked else "cluster not checked (--address checks one)")


def _window(cell: PlannedCell) -> str:
    if not cell.runnable:
        return ""
    if cell.window_steps is None:
        return f"{cell.cell.training.num_train_epochs:g} epochs less the warm-up"
    return f"{cell.window_steps} steps{' (short)' if cell.short_window else ''}"


def _resources(cell: PlannedCell) -> str:
    return ", ".join(f"{name}: {amount:g}" for name, amount in cell.resources.items()) if cell.runnable else ""


def plan_object(laid_out: Plan, seconds: float | None, checked: bool) -> dict[str, Any]:
    return {
        "sweep": laid_out.spec.name,
        "cluster_checked": checked,
        "runnable_cells": len(laid_out.trials) // laid_out.spec.measure.repeats,
        "trials": len(laid_out.trials),
        "excluded_combinations": laid_out.excluded,
        "estimated_seconds": seconds,
        "warnings": list(laid_out.warnings),
        "cells": [
            {
                "cell_id": cell.cell.cell_id,
                "setting": cell.setting,
                "axes": cell.axes,
                "outcome": str(cell.outcome.kind),
                "reason": cell.outcome.reason,
                "same_as": cell.same_as,
                "trials": laid_out.spec.measure.repeats if cell.runnable and not cell.same_as else 0,
                "resources": cell.resources,
                "warmup_steps": cell.cell.warmup_steps,
                "window_steps": cell.window_steps,
                "short_window": cell.short_window,
            }
            for cell in laid_out.cells
        ],
    }
