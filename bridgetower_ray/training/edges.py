"""The two edges of a window: all brought to rest, and what the host did in between."""

import os
from typing import Any

import psutil
import torch.distributed as distributed

from bridgetower_ray.doctor.neighbours import HostUse, device_processes, host_use, neighbours
from bridgetower_ray.doctor.pressure import Withheld, between, withheld
from bridgetower_ray.training.backends.contract import Backend
from bridgetower_ray.training.events import Events


class HostWatch:
    """What others used of the host, and what it withheld, between two moments; one rank looks for all."""

    def __init__(self, driver: tuple[int, float] | None) -> None:
        self._driver = driver
        self._before: tuple[HostUse, Withheld] | None = None

    def begins(self) -> None:
        """The first moment."""
        if os.environ.get("RANK", "0") == "0":
            self._before = host_use(self._driver), withheld()

    def figures(self) -> dict[str, Any]:
        """Since then; nothing on another rank, or where nothing began."""
        if self._before is None:
            return {}
        use, kept = self._before
        figures, others = between(kept, withheld()), neighbours(use, host_use(self._driver))
        return {
            "foreign_cpu_cores": others.foreign_cores,
            "own_services_cpu_cores": others.own_services_cores,
            "foreign_processes": list(others.busiest),
            "cpus": psutil.cpu_count(),
            **figures,
        }


class Edges:
    """What is done at the edges of the window: phases said, devices and ranks brought to rest, the host looked at."""

    def __init__(self, backend: Backend, events: Events, watch: HostWatch | None = None) -> None:
        self._backend, self._events, self._watch = backend, events, watch
        self._counted: list[dict[str, int]] = []

    def settle(self) -> None:
        """Every device at rest, then every rank here.

        The barrier is itself work of the device on some backends, which a host need not wait for: so once more.
        """
        self._backend.synchronize()
        if distributed.is_initialized():
            distributed.barrier()
            self._backend.synchronize()
        self._counted.append(self._backend.counters())

    def counted(self) -> dict[str, int]:
        """What the backend counted on this rank between the two edges."""
        opened, closed = self._counted[-2:]
        return {name: count - opened[name] for name, count in closed.items() if name in opened}

    def opens(self) -> None:
        """Just before the window's first reading of the clock."""
        self._events.phase("measuring")
        if self._watch is not None:
            self._watch.begins()

    def host(self) -> dict[str, Any]:
        """What others did to the host and the devices while the window was open; call it right after."""
        found = self._watch.figures() if self._watch is not None else {}
        if not found:
            return {}
        others = device_processes()
        hidden = {"hidden_device_processes": others.hidden} if others.hidden else {}
        return {**found, **hidden, "foreign_device_processes": list(others.foreign)}
