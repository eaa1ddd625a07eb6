"""What `plan` prints."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bridgetower_ray.report.plan_price import Earlier, Price, Range, price_of
from bridgetower_ray.sweep.plan import Plan, PlannedCell, estimate_seconds
from bridgetower_ray.sweep.progress import duration


def show_plan(laid_out: Plan, earlier: Earlier, checked: bool, console: Console) -> None:
    """Print a plan.

    Args:
        earlier: trials of the same cells.
        checked: whether a cluster was looked at.
    """
    table = Table("setting", "outcome", "trials", "warm-up", "window", "resources of a trial", "cell", show_edge=False)
    for cell in laid_out.cells:
        trials = _repeats(laid_out) if cell.runnable and not cell.same_as else ""
        outcome = f"runs as {cell.same_as}" if cell.same_as else str(cell.outcome)
        warmup = f"{cell.cell.warmup_steps} steps" if cell.runnable else ""
        entries = (cell.setting, outcome, trials, warmup, _window(cell), _resources(cell), cell.cell.cell_id)
        table.add_row(*(Text(entry) for entry in entries))
    console.print(table)
    for warning in laid_out.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))
    excluded = f", {laid_out.excluded} combinations excluded" if laid_out.excluded else ""
    question = laid_out.spec.measure.question
    if question is None:
        console.print(f"{laid_out.runnable_cells} runnable cells, {len(laid_out.trials)} trials{excluded}")
        seconds = estimate_seconds(laid_out, earlier.seconds)
        known = "not known, no earlier run of these cells" if seconds is None else f"about {duration(seconds)}"
        console.print(f"time: {known}")
    else:
        console.print(f"{laid_out.runnable_cells} runnable cells{excluded}; asked for: {question.text}")
        for line in _price_lines(price_of(laid_out, question, earlier)):
            console.print(line)
    console.print("cluster checked" if checked else "cluster not checked (--address checks one)")


def _repeats(laid_out: Plan) -> str:
    measure = laid_out.spec.measure
    return f"{measure.least_repeats} to {measure.most_repeats}" if measure.question else str(measure.most_repeats)


def _price_lines(price: Price) -> Iterator[str]:
    """What a question is expected to take, and by what it is."""
    trials = price.trials
    yield f"trials: about {trials.expected:.0f} ({trials.low:.0f} to {trials.high:.0f})"
    yield f"accelerator hours: about {_about(price.accelerator_hours)}"
    if price.cost is not None:
        yield f"cost: about {_about(price.cost)}"
    low, expected, high = (
        duration(seconds) for seconds in (price.seconds.low, price.seconds.expected, price.seconds.high)
    )
    yield f"time: about {expected} ({low} to {high})"
    yield f"by this: {price.basis}"


def _about(price: Range) -> str:
    return f"{price.expected:,.3g} ({price.low:,.3g} to {price.high:,.3g})"


def _window(cell: PlannedCell) -> str:
    if not cell.runnable:
        return ""
    if cell.window_steps is None:
        return f"{cell.cell.training.num_train_epochs:g} epochs less the warm-up"
    return f"{cell.window_steps} steps{' (short)' if cell.short_window else ''}"


def _resources(cell: PlannedCell) -> str:
    return ", ".join(f"{name}: {amount:g}" for name, amount in cell.resources.items()) if cell.runnable else ""


def plan_object(laid_out: Plan, earlier: Earlier, checked: bool) -> dict[str, Any]:
    """The same for other tools; hours are those of single devices."""
    question = laid_out.spec.measure.question
    price = None if question is None else price_of(laid_out, question, earlier)
    seconds = price.seconds.expected if price else estimate_seconds(laid_out, earlier.seconds)
    return {
        "sweep": laid_out.spec.name,
        "cluster_checked": checked,
        "runnable_cells": laid_out.runnable_cells,
        "trials": round(price.trials.expected) if price else len(laid_out.trials),
        "question": question.model_dump() if question else None,
        "price": asdict(price) if price else None,
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
                "trials": laid_out.spec.measure.least_repeats if cell.runnable and not cell.same_as else 0,
                "most_trials": laid_out.spec.measure.most_repeats if cell.runnable and not cell.same_as else 0,
                "resources": cell.resources,
                "warmup_steps": cell.cell.warmup_steps,
                "window_steps": cell.window_steps,
                "short_window": cell.short_window,
            }
            for cell in laid_out.cells
        ],
    }
