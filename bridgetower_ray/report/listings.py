"""What `plan` and `doctor` print."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bridgetower_ray.cluster.progress import duration
from bridgetower_ray.doctor.facts import SHARED_MEMORY, NodeFacts
from bridgetower_ray.doctor.judgement import GIB, Finding, Node
from bridgetower_ray.store.redaction import redact
from bridgetower_ray.sweep.accelerators import MARKER_PREFIX, NODE_RESOURCE
from bridgetower_ray.sweep.plan import Plan, PlannedCell


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


def show_nodes(nodes: Iterable[Node], findings: Sequence[Finding], console: Console) -> None:
    """Each node with what it has, then what is wrong and what to do."""
    titles = ("node", "declares", "devices", "CPUs", "torch", "driver", "memory free", str(SHARED_MEMORY), "disk free")
    table = Table(*titles, show_edge=False)
    for node in nodes:
        table.add_row(*(Text(entry) for entry in _node_row(node)))
    console.print(table)
    for finding in findings:
        console.print(Text(redact(str(finding)), style="red" if finding.serious else "yellow"), soft_wrap=True)
    serious = sum(finding.serious for finding in findings)
    console.print(f"{serious} errors, {len(findings) - serious} warnings" if findings else "nothing wrong was found")


def _node_row(node: Node) -> tuple[str, ...]:
    declared = ", ".join(
        name.removeprefix(MARKER_PREFIX) if amount == 1 else f"{amount:g} {name}"
        for name, amount in node.declared.items()
        if name != NODE_RESOURCE and (name.startswith(MARKER_PREFIX) or name in ("HPU", "GPU"))
    )
    if not isinstance(node.facts, NodeFacts):
        return (node.name, declared, "?")
    facts = node.facts
    kinds = {name or "unknown": facts.devices.count(name) for name in facts.devices}
    room = (facts.memory_available, facts.shared_memory, facts.disk_free)
    memory, shared, disk = (f"{size / GIB:.1f} GiB" for size in room)
    devices = ", ".join(f"{count} x {name}" for name, count in kinds.items()) or "none"
    torch = facts.interpreter.torch or "none"
    return (node.name, declared, devices, str(facts.cpus), torch, facts.driver or "none", memory, shared, disk)


def nodes_object(nodes: Iterable[Node], findings: Iterable[Finding]) -> dict[str, Any]:
    """The same for machines."""
    return {
        "nodes": [
            {
                "node": node.name,
                "head": node.head,
                "declared": dict(node.declared),
                "facts": node.facts.model_dump() if isinstance(node.facts, NodeFacts) else None,
                "error": node.facts if isinstance(node.facts, str) else None,
            }
            for node in nodes
        ],
        "findings": [{"node": one.node, "serious": one.serious, "what": one.what, "do": one.do} for one in findings],
    }
