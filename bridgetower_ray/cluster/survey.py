"""Has the nodes of a cluster, or this host alone, look at themselves for `doctor`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgetower_ray.cluster.connection import connected
from bridgetower_ray.cluster.handed_down import as_a_child_of_the_raylet
from bridgetower_ray.cluster.nodes import ask_every_node, inventory, living_nodes
from bridgetower_ray.doctor.facts import NodeFacts, node_facts
from bridgetower_ray.doctor.hardware import local_resources
from bridgetower_ray.doctor.judgement import Node
from bridgetower_ray.sweep.accelerators import count_devices
from bridgetower_ray.sweep.plan import Plan, lay_out
from bridgetower_ray.sweep.spec import SweepSpec

HEAD_RESOURCE = "node:__internal_head__"  # Ray's own mark of the head


def look_at_this_host(spec: SweepSpec | None) -> tuple[list[Node], Plan | None]:
    """This host as a cluster of one, without Ray."""
    declared = local_resources()
    facts = node_facts(_interpreter_for(declared, spec))
    resources = {"CPU": facts.cpus, "GPU": count_devices(facts.devices, "GPU"), **declared}
    return [Node(facts.host, resources, facts, head=True)], lay_out(spec, [resources]) if spec else None


def look_at_cluster(address: str, spec: SweepSpec | None) -> tuple[list[Node], Plan | None]:
    """Every node of the cluster at `address`, each asked once."""
    with connected(address):
        return look_at_nodes(spec), lay_out(spec, inventory()) if spec else None


def look_at_nodes(spec: SweepSpec | None) -> list[Node]:
    """Every node of the connected cluster, each asked once."""
    described = {node["NodeID"]: node for node in living_nodes()}
    arguments = {key: (_interpreter_for(node["Resources"], spec), str(Path.cwd())) for key, node in described.items()}
    answers = ask_every_node(_facts_as_a_rank, arguments)
    return [_node(described[key], answer) for key, answer in answers.items()]


def _facts_as_a_rank(python: str | None, base: str) -> NodeFacts:
    """What a rank would find on this node: with the niceness that it would have."""
    as_a_child_of_the_raylet(os.getpid())
    return node_facts(python, base)


def _node(described: Mapping[str, Any], answer: NodeFacts | Exception) -> Node:
    address, declared = described["NodeManagerAddress"], described["Resources"]
    facts = answer if isinstance(answer, NodeFacts) else _reason(answer)
    host = f"{facts.host} ({address})" if isinstance(facts, NodeFacts) else address
    return Node(host, declared, facts, head=HEAD_RESOURCE in declared)


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _interpreter_for(declared: Mapping[str, float], spec: SweepSpec | None) -> str | None:
    """The interpreter that the sweep names for what a node declares, the CPU's only where it declares no device."""
    if spec is None:
        return None
    there = [name for name in spec.accelerator_names if declared.get(spec.accelerator(name).marker, 0) > 0]
    with_devices = [name for name in there if spec.accelerator(name).ray_resource]
    settings = [spec.accelerators[name] for name in with_devices or there if name in spec.accelerators]
    return next((one.python for one in settings if one.python), None)
