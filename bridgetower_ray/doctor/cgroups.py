"""What the control groups of a process allow it, and how often they stopped it: versions 1 and 2."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bridgetower_ray.doctor.kernel_files import content

MOUNT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
UNLIMITED_BYTES = 2**62  # version 1 says 2^63 less a page where nothing is limited


@dataclass(frozen=True)
class Throttled:
    """Since the groups began: scheduling periods with something to run, and those in which it was stopped."""

    periods: int
    stopped: int


class ControlGroups:
    """The groups that this process is in, with those above them, as far as they can be seen from here."""

    def __init__(self, mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> None:
        self._mount = mount
        lines = content(membership).splitlines()
        self._paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}

    def cpus(self) -> float | None:
        """CPUs that a quota leaves; None where none is set."""
        tightest = self._tightest()
        return tightest[0] if tightest else None

    def memory_bytes(self) -> int | None:
        """Memory that may be used; None where it is not limited."""
        files = [folder / "memory.max" for folder in self._folders("")]
        files += [folder / "memory.limit_in_bytes" for folder in self._folders("memory")]
        limits = [int(text) for file in files if (text := content(file).strip()).isdigit()]
        return min((limit for limit in limits if limit < UNLIMITED_BYTES), default=None)

    def throttled(self) -> Throttled | None:
        """How often the tightest quota stopped its group's processes; None where none is set."""
        tightest = self._tightest()
        return _throttled(tightest[1]) if tightest else None

    def _tightest(self) -> tuple[float, Path] | None:
        """The least of the quotas, and its group: always the same one, so that two readings can be compared."""
        read = {"": _quota_v2, "cpu": _quota_v1}
        found = [(quota(folder), folder) for kind, quota in read.items() for folder in self._folders(kind)]
        return min(((cpus, folder) for cpus, folder in found if cpus is not None), default=None)

    def _folders(self, controller: str) -> Iterator[Path]:
        """From the process's own group up to the root; version 2 where the controller has no name."""
        for controllers, path in self._paths.items():
            if controller in controllers.split(","):
                for root in _roots(self._mount, controllers):
                    relative = path.strip("/")
                    while relative and not (root / relative).is_dir():
                        relative = relative.partition("/")[2]  # a container sees its own group at the root
                    folder = root / relative
                    yield from [folder, *(above for above in folder.parents if above.is_relative_to(root))]


def _roots(mount: Path, controllers: str) -> Iterator[Path]:
    names = [controllers, *controllers.split(",")] if controllers else ["unified", "."]
    yield from {mount / name: None for name in names if (mount / name).is_dir()}


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = content(folder / "cpu.max").strip().partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _quota_v1(folder: Path) -> float | None:
    quota, period = (content(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _throttled(folder: Path) -> Throttled | None:
    stat = dict(line.split() for line in content(folder / "cpu.stat").splitlines() if len(line.split()) == 2)
    if "nr_throttled" not in stat:
        return None
    return Throttled(int(stat["nr_periods"]), int(stat["nr_throttled"]))
