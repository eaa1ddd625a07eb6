"""Which Ray cluster: the one at an address, one of this machine's own, or a simulated one."""

import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import ray

from bridgetower_ray.cluster.interruption import interruption, processes_outlive_terminal
from bridgetower_ray.doctor.hardware import local_resources
from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.plan import Inventory

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

LOCAL_OBJECT_STORE_BYTES = 128 * 2**20  # trials pass events, not tensors
SIMULATED = {"object_store_memory": LOCAL_OBJECT_STORE_BYTES, "include_dashboard": False}
CONNECT_SECONDS = 10.0
NAMESPACE = "bridgetower-ray"
RAY_SETTINGS = {
    "RAY_worker_niceness": "0",  # of its own accord 15: any ordinary process of the host would be served first
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
    os.environ.update({name: value for name, value in RAY_SETTINGS.items() if name not in os.environ})
    address = address or os.environ.get("RAY_ADDRESS")
    if address and address.startswith("ray://"):
        raise UsageError(
            f"{address}: a sweep does not run through Ray Client; on a node of the cluster use --address auto, from "
            "elsewhere `ray job submit`"
        )
    _check_reachable(address)
    with interruption.raising():
        try:
            _connect(address)
            yield
        finally:
            ray.shutdown()


def _connect(address: str | None) -> None:
    try:
        if address:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        else:
            with interruption.deferred(), processes_outlive_terminal():  # cut in two it would leave processes
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
    interruption.listen()  # Ray has taken SIGTERM


@contextmanager
def simulated(nodes: Inventory) -> Iterator[None]:
    """A connection to real Ray nodes on this machine that claim to hold `nodes`' resources."""
    os.environ.update({name: value for name, value in RAY_SETTINGS.items() if name not in os.environ})
    with ExitStack() as ends:
        with interruption.deferred(), processes_outlive_terminal():
            head = ends.enter_context(simulated_head())
            for node in nodes:
                custom = {name: amount for name, amount in node.items() if name not in ("CPU", "GPU")}
                cpus, gpus = int(node["CPU"]), int(node.get("GPU", 0))
                head.add_node(num_cpus=cpus, num_gpus=gpus, resources=custom, **SIMULATED)
            ray.init(address=head.address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
            ends.callback(ray.shutdown)
            interruption.listen()  # Ray has taken SIGTERM
        with interruption.raising():
            yield


@contextmanager
def simulated_head() -> Iterator["Cluster"]:
    """A Ray head on this machine, without a node that trains, and apart from any other Ray here.

    Of its own accord `Cluster` writes its address where this machine's cluster has its own, which `--address auto`
    and every job of that cluster read, and removes the file at its end.
    """
    from ray.cluster_utils import Cluster

    before = os.environ.get("RAY_TMPDIR")
    with tempfile.TemporaryDirectory(prefix="ray-", dir=before, ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        try:
            head = Cluster(initialize_head=True, head_node_args={**SIMULATED, "num_cpus": 0})
            try:
                yield head
            finally:
                head.shutdown()
        finally:
            if before is None:
                del os.environ["RAY_TMPDIR"]
            else:
                os.environ["RAY_TMPDIR"] = before


def _check_reachable(address: str | None) -> None:
    """Ray ends the whole process where nothing listens at an address of the form HOST:PORT; a look before does not."""
    host, _, port = (address or "").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise UsageError(f"no Ray cluster at {address}: {error.strerror or error}") from None
