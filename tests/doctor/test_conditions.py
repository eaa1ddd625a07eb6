"""Under which conditions a process runs, and what was withheld from it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridgetower_ray.doctor.cgroups import ControlGroups, Throttled
from bridgetower_ray.doctor.conditions import as_list, conditions, from_list
from bridgetower_ray.doctor.host_energy import HostEnergy
from bridgetower_ray.doctor.pressure import Withheld, between, withheld
from bridgetower_ray.report.flags import THROTTLED_SHARE

QUOTA = Path("/sys/fs/cgroup/cpu")


def test_the_conditions_of_this_process_are_those_that_the_kernel_says() -> None:
    found = conditions()
    assert found["niceness"] == str(os.getpriority(os.PRIO_PROCESS, 0))
    assert from_list(found["cpu_affinity"]) == os.sched_getaffinity(0)
    assert found["scheduling_policy"] == "other"
    assert found["allocator"] == "libc"


@pytest.mark.parametrize("numbers", [{0}, {0, 1, 2, 3, 8}, {1, 3, 5}, set()])
def test_a_set_of_cpus_is_written_as_the_kernel_writes_it(numbers: set[int]) -> None:
    assert from_list(as_list(numbers)) == numbers


def test_lists_of_cpus_are_short() -> None:
    assert as_list({8, 0, 1, 2, 3}) == "0-3,8"


def groups(folder: Path, membership: str, files: dict[str, str]) -> ControlGroups:
    for name, text in files.items():
        file = folder / "mount" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "membership").write_text(membership)
    return ControlGroups(folder / "mount", folder / "membership")


def test_the_limits_of_version_2_are_the_least_of_all_groups_above(tmp_path: Path) -> None:
    found = groups(
        tmp_path,
        "0::/a/b\n",
        {
            "a/cpu.max": "150000 100000\n",
            "a/b/cpu.max": "max 100000\n",
            "a/b/memory.max": "1024\n",
            "a/memory.max": "max\n",
            "a/cpu.stat": "usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2000000\n",
        },
    )
    assert (found.cpus(), found.memory_bytes()) == (1.5, 1024)
    assert found.throttled() == Throttled(10, 4)


def test_the_limits_of_version_1_are_read_too(tmp_path: Path) -> None:
    found = groups(
        tmp_path,
        "4:memory:/x\n1:cpu,cpuacct:/x\n0::/\n",
        {
            "cpu,cpuacct/x/cpu.cfs_quota_us": "200000\n",
            "cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
            "cpu,cpuacct/x/cpu.stat": "nr_periods 8\nnr_throttled 2\nthrottled_time 500000000\n",
            "memory/x/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert (found.cpus(), found.memory_bytes()) == (2.0, None)
    assert found.throttled() == Throttled(8, 2)


def test_the_tightest_quota_is_the_one_that_is_watched_even_before_it_has_stopped_anything(tmp_path: Path) -> None:
    found = groups(
        tmp_path,
        "0::/a/b\n",
        {
            "a/cpu.max": "900000 100000\n",
            "a/cpu.stat": "nr_periods 50\nnr_throttled 9\nthrottled_usec 1000\n",
            "a/b/cpu.max": "100000 100000\n",
            "a/b/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
        },
    )
    assert (found.cpus(), found.throttled()) == (1.0, Throttled(0, 0))


def test_without_control_groups_nothing_is_limited(tmp_path: Path) -> None:
    found = ControlGroups(tmp_path / "none", tmp_path / "none")
    assert (found.cpus(), found.memory_bytes(), found.throttled()) == (None, None, None)


BUSY_UNDER_A_QUOTA = """
import json, sys, time
from pathlib import Path
from bridgetower_ray.doctor.cgroups import ControlGroups
from bridgetower_ray.doctor.pressure import between, withheld
Path(sys.argv[1], "cgroup.procs").write_text("0")
before = withheld()
while ControlGroups().throttled() is None or ControlGroups().throttled().stopped < 3:
    pass
print(json.dumps([ControlGroups().cpus(), between(before, withheld()).get("throttled_periods_fraction")]))
"""


@pytest.mark.skipif(not os.access(QUOTA / "cgroup.procs", os.W_OK), reason="no control group can be made here")
def test_a_real_quota_and_its_throttling_are_seen() -> None:
    group = QUOTA / f"bridgetower-ray-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("20000")
        command = [sys.executable, "-c", BUSY_UNDER_A_QUOTA, str(group)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    finally:
        group.rmdir()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[0.2, ")
    # How many of its periods depends on who else is at work: a process that waits for a CPU uses up no quota.
    assert float(done.stdout.strip(" []\n").partition(",")[2]) > THROTTLED_SHARE


def test_what_was_withheld_is_said_in_cores_shares_and_bytes() -> None:
    before = Withheld(10.0, 1.0, {"cpu": 1.0, "io": 0.0}, (100, 10), 0)
    after = Withheld(20.0, 6.0, {"cpu": 3.0, "io": 0.5}, (200, 60), 4096)
    assert between(before, after) == {
        "stolen_cpu_cores": 0.5,
        "cpu_pressure_fraction": 0.2,
        "io_pressure_fraction": 0.05,
        "throttled_periods_fraction": 0.5,
        "swapped_bytes": 4096.0,
    }


def test_a_counter_that_the_kernel_does_not_keep_is_no_figure() -> None:
    assert between(Withheld(0.0, None, {}, None, None), Withheld(1.0, None, {}, None, None)) == {}
    assert withheld().at > 0


def test_the_hosts_energy_goes_on_over_the_end_of_its_counter(tmp_path: Path) -> None:
    zones = [tmp_path / name for name in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1")]
    for zone, name in zip(zones, ("package-0", "core", "dram"), strict=True):
        zone.mkdir()
        (zone / "name").write_text(f"{name}\n")
        (zone / "energy_uj").write_text("9000000\n")
        (zone / "max_energy_range_uj").write_text("10000000\n")
    energy = HostEnergy(tmp_path)
    for zone in zones:
        (zone / "energy_uj").write_text("1000000\n")
    assert energy.read() == 4.0, "2 J of the package, 2 J of the memory; the cores are in the package"
    (zones[0] / "energy_uj").unlink()
    assert energy.read() is None


def test_a_host_without_counters_has_no_energy(tmp_path: Path) -> None:
    assert HostEnergy(tmp_path).read() is None
