"""What a sweep has only one of on a cluster: its driver, and what all nodes must have alike (data, software)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from bridgetower_ray.cluster.connection import NAMESPACE
from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.sweep_run import changed_parts


@ray.remote(num_cpus=0)
class _Claim:
    """Lives as long as its driver, and on its node: its name is the lock; what it keeps holds for the sweep run."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[Mapping[str, str], str]] = {}

    def first_to_have(self, what: str, value: Mapping[str, str], node: str) -> tuple[Mapping[str, str], str]:
        return self._first.setdefault(what, (value, node))


@contextmanager
def claimed(claim: str) -> Iterator[None]:
    """Hold the name `claim` on the connected cluster, against every driver anywhere.

    Raises:
        UsageError: another driver holds it.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    try:
        holder = _Claim.options(name=claim, scheduling_strategy=here).remote()  # type: ignore[attr-defined]
    except ValueError:
        raise UsageError(f"another `bridgetower-ray run` is at work on {claim} on this cluster") from None
    try:
        yield
    finally:
        ray.kill(holder)


def first_to_have(claim: str, what: str, value: Mapping[str, str], node: str) -> tuple[Mapping[str, str], str]:
    """The state of `what` that the holder of `claim` goes by, and the node that was first to have it."""
    holder = ray.get_actor(claim, NAMESPACE)
    found: tuple[Mapping[str, str], str] = ray.get(holder.first_to_have.remote(what, value, node))
    return found


def unlike_the_first(claim: str, what: str, value: Mapping[str, str], node: str) -> str:
    """How a node's `what`, part by part, is not what the sweep run goes by; empty if it is."""
    before, first = first_to_have(claim, what, value, node)
    changed = changed_parts(before, value)
    return f"{what} on node {node} is not that on node {first}: {', '.join(changed)}" if changed else ""
