"""What the connected cluster's nodes hold, and asking each of them."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from rich.console import Console

from bridgetower_ray.sweep.plan import Inventory, Plan, missing

ANSWER_SECONDS = 240.0  # of a node that is asked; longer than it waits itself for what it asks
LOOK_SECONDS = 2.0  # between two looks at a cluster whose nodes are awaited


def living_nodes() -> list[Mapping[str, Any]]:
    """Ray's own description of each node that is up; `Resources` holds what it declared."""
    return [node for node in ray.nodes() if node["Alive"]]


def inventory() -> Inventory:
    """The resources of each node that is up, and of each that the autoscaler may start."""
    return [dict(node["Resources"]) for node in living_nodes()] + _startable()


def _startable() -> list[dict[str, float]]:
    config = _autoscaler_config()
    groups = config.node_group_configs if config is not None else ()
    return [dict(group.resources) for group in groups for _ in range(_most(group.max_count))]


def _most(max_count: int) -> int:
    """Nodes of a group; -1 is Ray's word for any number."""
    return max(1, max_count) if max_count else 0


def _autoscaler_config() -> Any:
    """What the autoscaler reported of itself, None where there is none. Ray has no public way to ask."""
    return ray._private.state.state.get_cluster_config()


def ask_every_node(question: Callable[..., Any], arguments: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Call `question` once on each node.

    Args:
        arguments: of each node's call, by node id.

    Returns:
        By node id the answer, or the exception that the call met.
    """
    task = ray.remote(num_cpus=0, max_retries=0)(question)
    asked = {
        node: task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(*own)
        for node, own in arguments.items()
    }
    return {node_id: _answer(reference) for node_id, reference in asked.items()}


def _answer(reference: Any) -> Any:
    try:
        return ray.get(reference, timeout=ANSWER_SECONDS)
    except ray.exceptions.RayError as error:
        return error


def nodes_for(plan: Plan, wait_seconds: float, console: Console) -> Inventory:
    """The cluster's nodes once every cell can be held, or the wait is over."""
    until = time.monotonic() + wait_seconds
    told = False
    while True:
        nodes = inventory()
        waiting = sorted({lacking for trial in plan.trials if (lacking := missing(trial.resources, nodes))})
        if not waiting or time.monotonic() >= until:
            return nodes
        if not told:
            console.print(f"waiting for nodes: {'; '.join(waiting)}", markup=False, highlight=False)
            told = True
        time.sleep(LOOK_SECONDS)
