"""What a trial's devices and its host did while its window was open, read at a low rate by a thread of its supervisor.

Nothing of it runs in a rank, and nothing starts a process: the readings are no neighbour of what they look at.
"""

import contextlib
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bridgetower_ray.doctor.host_energy import HostEnergy
from bridgetower_ray.doctor.vendor_libraries import DeviceLibrary, Reading

READ_SECONDS = 1.0
MOST_SAMPLES = 40_000  # half a day
SHORTEST_ENERGY_SECONDS = 10.0  # below this a counter's own steps are too coarse
COUNTER_WITHIN = 0.15  # of the integrated power, or one of the two is not to be believed


Series = Sequence[tuple[float, float | None]]  # moments and what was read then


@dataclass(frozen=True)
class Sample:
    """All devices, and the host's energy in joules, at one moment of the monotonic clock."""

    at: float
    devices: tuple[Reading, ...]
    host_joules: float | None


class Telemetry:
    """Samples the devices every `seconds` from its start to its stop."""

    def __init__(
        self,
        library: DeviceLibrary | None,
        host: HostEnergy,
        seconds: float = READ_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._library, self._host, self._seconds, self._clock = library, host, seconds, clock
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._facts: dict[str, str] = {}
        self._stopped = threading.Event()
        self._reading = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; without any sensor there is nothing to begin."""
        with contextlib.suppress(Exception):
            self._facts = self._library.facts() if self._library is not None else {}
        self.sample()
        if any(sample.devices or sample.host_joules is not None for sample in self._samples):
            self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End; a library that hangs is not waited for."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=self._seconds)

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            self.sample()

    def sample(self) -> None:
        """Read everything once. A library that breaks costs the sample, never the trial."""
        with self._reading, contextlib.suppress(Exception):
            devices = self._library.read() if self._library is not None else ()
            self._samples.append(Sample(self._clock(), devices, self._host.read()))

    def device_facts(self) -> dict[str, str]:
        """What the devices were at the start beside their name; nothing where no library says it."""
        return self._facts

    def newest(self) -> dict[str, float]:
        """What the devices did when they were last looked at: means, but bytes and watts of all together."""
        devices = self._samples[-1].devices if self._samples else ()
        found = {
            "device_utilisation_fraction": _mean([one.utilisation for one in devices]),
            "device_temperature_celsius": _mean([one.temperature_celsius for one in devices]),
            "device_power_watts": _total(one.power_watts for one in devices),
            "device_memory_used_bytes": _total(one.memory_used_bytes for one in devices),
        }
        return {name: value for name, value in found.items() if value is not None}

    def over(self, opened: float, seconds: float) -> dict[str, Any]:
        """The figures of a window, `opened` by the same clock; reads once more first, to have its end.

        Raises nothing: what a sensor did not say is absent.
        """
        self.sample()
        return window_figures(tuple(self._samples), opened, opened + seconds)


def window_figures(samples: Sequence[Sample], opened: float, closed: float) -> dict[str, Any]:
    """Watts are of all devices together, the other means are over devices and samples; energy in joules."""
    inside = [sample for sample in samples if opened <= sample.at <= closed]
    readings = [reading for sample in inside for reading in sample.devices]
    edges = _around(samples, opened, closed)
    found: dict[str, Any] = {
        "device_utilisation_fraction": _mean([reading.utilisation for reading in readings]),
        "device_clock_mhz": _mean([reading.clock_mhz for reading in readings]),
        "device_memory_used_bytes": max(_known([reading.memory_used_bytes for reading in readings]), default=None),
        "device_pcie_generation": min(_known([reading.pcie_generation for reading in readings]), default=None),
        "device_pcie_width": min(_known([reading.pcie_width for reading in readings]), default=None),
    }
    reasons = sorted({reason for reading in readings for reason in reading.reasons})
    if reasons:
        found["device_throttled"] = reasons
        found["device_throttled_fraction"] = sum(any(one.reasons for one in s.devices) for s in inside) / len(inside)
    if edges:
        found |= _at_edges(edges)
        found |= _energy(edges, opened, closed)
    return {name: value for name, value in found.items() if value is not None}


def _around(samples: Sequence[Sample], opened: float, closed: float) -> list[Sample]:
    """The samples in the window with one on each side of it; none where a side has none."""
    times = [sample.at for sample in samples]
    first, last = bisect_left(times, opened), bisect_left(times, closed)
    first = first if first < len(times) and times[first] == opened else first - 1
    return list(samples[first : last + 1]) if first >= 0 and last < len(samples) else []


def _at_edges(edges: Sequence[Sample]) -> dict[str, Any]:
    """Temperatures at both edges, and what was counted between them."""
    first, last = edges[0].devices, edges[-1].devices
    pairs = list(zip(first, last, strict=True))
    errors = {
        name: sum(after.errors.get(name, 0) - before.errors.get(name, 0) for before, after in pairs)
        for name in sorted({name for reading in last for name in reading.errors})
    }
    violations = [
        after.violation_seconds - before.violation_seconds
        for before, after in pairs
        if before.violation_seconds is not None and after.violation_seconds is not None
    ]
    return {
        "device_temperature_before_celsius": max(_known([one.temperature_celsius for one in first]), default=None),
        "device_temperature_after_celsius": max(_known([one.temperature_celsius for one in last]), default=None),
        "device_throttled_seconds": max(violations, default=None),
        "device_errors": [f"{count} {name}" for name, count in errors.items() if count > 0] or None,
    }


def _energy(edges: Sequence[Sample], opened: float, closed: float) -> dict[str, Any]:
    """By the counters, or where there is none by power over time; absent where the window is short or a device mute."""
    seconds = closed - opened
    if seconds < SHORTEST_ENERGY_SECONDS:
        return {}
    devices = range(len(edges[0].devices))
    energies: list[Series] = [[(one.at, one.devices[at].energy_joules) for one in edges] for at in devices]
    powers: list[Series] = [[(one.at, one.devices[at].power_watts) for one in edges] for at in devices]
    counter = _total(_growth(series, opened, closed) for series in energies)
    integral = _total(_integral(series, opened, closed) for series in powers)
    joules = counter if counter is not None else integral
    found: dict[str, Any] = {
        "host_energy_joules": _growth([(one.at, one.host_joules) for one in edges], opened, closed)
    }
    if joules:
        found |= {"device_energy_joules": joules, "device_power_watts": joules / seconds}
    if counter and integral and abs(counter / integral - 1) > COUNTER_WITHIN:
        found["device_energy_by_power_joules"] = integral
    return found


def _growth(series: Series, opened: float, closed: float) -> float | None:
    """How much a counter grew, on a straight line between the readings around each edge; None if it was set back."""
    start, end = _value_at(series[0], series[1], opened), _value_at(series[-2], series[-1], closed)
    return None if start is None or end is None or end < start else end - start


def _integral(series: Series, opened: float, closed: float) -> float | None:
    """Of a power over the window, by trapezoids between the readings."""
    total = 0.0
    for before, after in pairwise(series):
        start, end = max(opened, before[0]), min(closed, after[0])
        first, last = _value_at(before, after, start), _value_at(before, after, end)
        if first is None or last is None:
            return None
        total += (first + last) / 2 * (end - start)
    return total


def _value_at(before: tuple[float, float | None], after: tuple[float, float | None], at: float) -> float | None:
    (earlier, low), (later, high) = before, after
    if low is None or high is None:
        return None
    return low + (high - low) * (at - earlier) / (later - earlier)


def _total(parts: Iterable[float | None]) -> float | None:
    """The sum; None without a part, or where one is not known: the others are no total."""
    found = list(parts)
    return None if not found or None in found else sum(one for one in found if one is not None)


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return sum(known) / len(known) if known else None
