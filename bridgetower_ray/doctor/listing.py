"""What `doctor` prints."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bridgetower_ray.doctor.facts import SHARED_MEMORY, NodeFacts
from bridgetower_ray.doctor.judgement import GIB, Finding, Node
from bridgetower_ray.sweep.accelerators import MARKER_PREFIX, NODE_RESOURCE


def show_nodes(
    nodes: Iterable[Node], findings: Sequence[Finding], console: Console, mask: Callable[[str], str]
) -> None:
    """Each node with what it has, then what is wrong and what to do; `mask` takes secrets out of a text."""
    titles = ("node", "declares", "devices", "CPUs", "torch", "driver", "memory free", str(SHARED_MEMORY), "disk free")
    table = Table(*titles, show_edge=False)
    for node in nodes:
        table.add_row(*(Text(entry) for entry in _node_row(node)))
    console.print(table)
    for finding in findings:
        console.print(Text(mask(str(finding)), style="red" if finding.serious else "yellow"), soft_wrap=True)
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
