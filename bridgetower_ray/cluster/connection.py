"""Everything about Ray clusters: which one, what its nodes hold, what a sweep has only one of."""

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from bridgetower_ray.doctor.hardware import local_resources
from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.plan import Inventory

LOCAL_OBJECT_STORE_BYTES = 128 * 2**20  # trials pass events, not tensors
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 240.0  # of a node that is asked; longer than it waits itself for what it asks
NAMESPACE = "bridgetower-ray"
SILENT = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_V2_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_PROMPT_ENABLED": "0",
}


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """A connection to the cluster at `address` (or RAY_ADDRESS), or a local Ray for as long as it lasts.

    Raises:
        UsageError: no cluster answers at the address, or it is a client's.
    """
    os.environ.update({name: value for name, value in SILENT.items() if name not in os.environ})
    address = address or os.environ.get("RAY_ADDRESS")
    if address and address.startswith("ray://"):
        raise UsageError(
            f"{address}: a sweep does not run through Ray Client; on a node of the cluster use --address auto, from "
            "elsewhere `ray job submit`"
        )
    _check_reachable(address)
    try:
        if address:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        else:
            ray.init(
                address="local",
                namespace=NAMESPACE,
                resources=local_resources(),
                object_store_memory=LOCAL_OBJECT_STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(f"no Ray cluster at {address or 'local'}: {str(error).splitlines()[0]}") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def simulated(nodes: Inventory) -> Iterator[None]:
    """A connection to real Ray nodes on this machine that claim to hold `nodes`' resources."""
    from ray.cluster_utils import Cluster

    os.environ.update({name: value for name, value in SILENT.items() if name not in os.environ})
    common = {"object_store_memory": LOCAL_OBJECT_STORE_BYTES, "include_dashboard": False}
    simulation = Cluster(initialize_head=True, head_node_args={**common, "num_cpus": 0})
    try:
        for node in nodes:
            custom = {name: amount for name, amount in node.items() if name not in ("CPU", "GPU")}
            simulation.add_node(num_cpus=int(node["CPU"]), num_gpus=int(node.get("GPU", 0)), resources=custom, **common)
        ray.init(address=simulation.address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        yield
    finally:
        ray.shutdown()
        simulation.shutdown()


def _check_reachable(address: str | None) -> None:
    """Ray ends the whole process where nothing listens at an address of the form HOST:PORT; a look before does not."""
    host, _, port = (address or "").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise UsageError(f"no Ray cluster at {address}: {error.strerror or error}") from None


def living_nodes() -> list[Mapping[str, Any]]:
    """Ray's own description of each node that is up; `Resources` holds what it declared."""
    return [node for node in ray.nodes() if node["Alive"]]


def inventory() -> Inventory:
    """The resources of each node that is up, and of each kind that the autoscaler may start."""
    return [dict(node["Resources"]) for node in living_nodes()] + _startable()


def _startable() -> list[dict[str, float]]:
    config = ray._private.state.state.get_cluster_config()
    groups = config.node_group_configs if config is not None else ()
    return [dict(group.resources) for group in groups if group.max_count]


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
