"""What a sweep has only one of on a cluster: its driver, and the state of the data that all nodes must have."""

from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from bridgetower_ray.cluster.connection import NAMESPACE
from bridgetower_ray.errors import UsageError


@ray.remote(num_cpus=0)
class _Claim:
    """Lives as long as its driver, and on its node: its name is the lock; what it keeps holds for the sweep run."""

    def __init__(self) -> None:
        self._first: tuple[str, str] | None = None

    def first_fingerprint(self, fingerprint: str, node: str) -> tuple[str, str]:
        self._first = self._first or (fingerprint, node)
        return self._first


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


def first_fingerprint(claim: str, fingerprint: str, node: str) -> tuple[str, str]:
    """The fingerprint of the data that the holder of `claim` goes by, and the node that was first to have it."""
    found: tuple[str, str] = ray.get(ray.get_actor(claim, NAMESPACE).first_fingerprint.remote(fingerprint, node))
    return found
