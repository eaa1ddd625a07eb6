"""The energy of this host's processors and memory, by RAPL, where its counters may be read."""

from pathlib import Path

from bridgetower_ray.doctor.kernel_files import content

POWERCAP = Path("/sys/class/powercap")


class HostEnergy:
    """Joules since this was made, over all packages and what memory is counted beside them; the counters wrap."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        zones = sorted(folder.glob("intel-rapl:*"))
        self._zones = [zone for zone in zones if zone.name.count(":") == 1 or content(zone / "name").strip() == "dram"]
        self._last = [self._counter(zone) for zone in self._zones]
        self._joules = 0.0

    def read(self) -> float | None:
        """None where there is no counter, or one of them may not be read."""
        now = [self._counter(zone) for zone in self._zones]
        for zone, last, counter in zip(self._zones, self._last, now, strict=True):
            if last is None or counter is None:
                return None
            wrapped = int(content(zone / "max_energy_range_uj") or 0) if counter < last else 0
            self._joules += (counter - last + wrapped) / 1e6
        self._last = now
        return self._joules if self._zones else None

    @staticmethod
    def _counter(zone: Path) -> int | None:
        text = content(zone / "energy_uj").strip()
        return int(text) if text.isdigit() else None
