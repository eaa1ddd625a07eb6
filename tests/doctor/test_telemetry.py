"""Devices while a window was open: by known readings, and by a vendor's real binding over a C stand-in."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridgetower_ray.doctor.host_energy import HostEnergy
from bridgetower_ray.doctor.telemetry import Sample, Telemetry, window_figures
from bridgetower_ray.doctor.vendor_libraries import Reading, library_for, numa_node
from bridgetower_ray.sweep.accelerators import ACCELERATORS
from tests.doctor.stand_ins import HLML, NVML, compiled


def samples_of(watts: float, seconds: int = 30, **more: Any) -> list[Sample]:
    """Two devices of the same constant power, one sample a second."""
    return [
        Sample(float(at), (Reading(power_watts=watts, energy_joules=1000 + watts * at, **more),) * 2, None)
        for at in range(seconds)
    ]


def test_energy_is_what_the_counters_grew_by_between_the_edges() -> None:
    found = window_figures(samples_of(300.0), opened=2.5, closed=22.5)
    assert found["device_energy_joules"] == pytest.approx(2 * 300 * 20)
    assert found["device_power_watts"] == pytest.approx(600)
    assert "device_energy_by_power_joules" not in found


def test_a_device_without_a_counter_has_its_power_integrated() -> None:
    mute = [
        Sample(one.at, tuple(Reading(power_watts=reading.power_watts) for reading in one.devices), None)
        for one in samples_of(250.0)
    ]
    assert window_figures(mute, 2.5, 22.5)["device_energy_joules"] == pytest.approx(2 * 250 * 20)


def test_a_counter_that_power_over_time_contradicts_is_told() -> None:
    found = window_figures(
        [Sample(float(at), (Reading(power_watts=100.0, energy_joules=500.0 * at + 1),), None) for at in range(30)],
        2,
        22,
    )
    assert (found["device_energy_joules"], found["device_energy_by_power_joules"]) == pytest.approx((10_000, 2000))


def test_no_energy_is_told_of_a_short_window_or_where_one_device_is_mute() -> None:
    assert "device_energy_joules" not in window_figures(samples_of(300.0), 2.0, 11.0)
    half = [Sample(one.at, (one.devices[0], Reading()), None) for one in samples_of(300.0)]
    assert "device_energy_joules" not in window_figures(half, 2.0, 22.0)


def test_a_window_of_which_the_end_was_not_read_has_no_energy() -> None:
    assert "device_energy_joules" not in window_figures(samples_of(300.0, seconds=20), 2.0, 22.0)


def test_throttling_and_errors_inside_the_window_are_counted() -> None:
    def reading(at: int) -> Reading:
        slowed = frozenset({"power cap"}) if 10 <= at < 15 else frozenset()
        return Reading(
            reasons=slowed, violation_seconds=at / 4, errors={"PCIe replay": at // 10}, temperature_celsius=40 + at
        )

    found = window_figures([Sample(float(at), (reading(at),), None) for at in range(30)], 5.0, 24.0)
    assert (found["device_throttled"], found["device_throttled_fraction"]) == (["power cap"], 0.25)
    assert found["device_throttled_seconds"] == pytest.approx(19 / 4)
    assert found["device_errors"] == ["2 PCIe replay"]
    assert (found["device_temperature_before_celsius"], found["device_temperature_after_celsius"]) == (45, 64)


def test_what_no_sensor_says_is_no_figure() -> None:
    assert window_figures([Sample(float(at), (Reading(),), None) for at in range(30)], 2.0, 22.0) == {}
    assert window_figures([], 0.0, 1.0) == {}


def test_a_host_without_a_sensor_starts_no_thread(tmp_path: Path) -> None:
    telemetry = Telemetry(library_for(ACCELERATORS["cpu"]), HostEnergy(tmp_path))
    telemetry.start()
    assert telemetry._thread is None
    assert telemetry.over(0.0, 1.0) == {}
    assert telemetry.newest() == {}
    telemetry.stop()


def test_a_library_that_breaks_costs_its_samples_and_nothing_else(tmp_path: Path) -> None:
    class Breaking:
        def read(self) -> tuple[Reading, ...]:
            raise AttributeError("module has no such attribute")

    telemetry = Telemetry(Breaking(), HostEnergy(tmp_path))
    telemetry.start()
    assert (telemetry.newest(), telemetry.over(0.0, 20.0)) == ({}, {})
    telemetry.stop()


def test_the_thread_reads_until_it_is_stopped(tmp_path: Path) -> None:
    class Counting:
        reads = 0

        def read(self) -> tuple[Reading, ...]:
            self.reads += 1
            return (Reading(power_watts=1.0),)

    library = Counting()
    telemetry = Telemetry(library, HostEnergy(tmp_path), seconds=0.001)
    telemetry.start()
    while library.reads < 5:
        pass
    telemetry.stop()
    assert telemetry._thread is not None
    assert not telemetry._thread.is_alive()


READ = """
import os, sys
from bridgetower_ray.doctor.vendor_libraries import library_for
from bridgetower_ray.sweep.accelerators import ACCELERATORS
library = library_for(ACCELERATORS[sys.argv[1]])
print(None if library is None else list(library.read()))
"""
FACTS = """
import sys
from bridgetower_ray.doctor.vendor_libraries import library_for
from bridgetower_ray.sweep.accelerators import ACCELERATORS
library = library_for(ACCELERATORS[sys.argv[1]])
print((library.facts(), library.numa_nodes()))
"""
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the stand-in library")


def nvml_readings(folder: Path, visible: str) -> Any:
    compiled(folder, "libnvidia-ml.so.1", NVML)
    environment = {"LD_LIBRARY_PATH": str(folder), "CUDA_VISIBLE_DEVICES": visible, "PYTHONPATH": ":".join(sys.path)}
    return readings(READ, ["h100"], environment)


def readings(script: str, arguments: list[str], environment: dict[str, str]) -> Any:
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return eval(done.stdout, {"Reading": Reading, "frozenset": frozenset})  # what our own class printed


@needs_compiler
def test_nvidias_binding_is_asked_as_its_own_signatures_want(tmp_path: Path) -> None:
    assert nvml_readings(tmp_path, "0") == [
        Reading(
            utilisation=0.9,
            memory_used_bytes=600,
            clock_mhz=1410.0,
            power_watts=350.0,
            temperature_celsius=61.0,
            energy_joules=5.0,
            reasons=frozenset({"power cap", "thermal, by hardware"}),
            violation_seconds=2.0,
            errors={"uncorrected memory": 3, "PCIe replay": 5},
            pcie_generation=5.0,
            pcie_width=None,
        )
    ]


@needs_compiler
def test_a_counter_that_reads_nothing_or_is_not_there_is_none_and_never_0(tmp_path: Path) -> None:
    assert [reading.energy_joules for reading in nvml_readings(tmp_path, "2,3")] == [None, None]


@needs_compiler
def test_only_the_devices_that_the_trial_was_given_are_read(tmp_path: Path) -> None:
    assert [reading.energy_joules for reading in nvml_readings(tmp_path, "GPU-second")] == [10.0]


@needs_compiler
def test_a_device_that_the_library_does_not_know_is_no_column(tmp_path: Path) -> None:
    assert nvml_readings(tmp_path, "GPU-unknown") is None


# The binding has its library's place written into it; nothing else of it is touched.
FOUND_HERE = """
import pathlib, sys
from pyhlml.hlml_lib import LibHLML
from bridgetower_ray.doctor import vendor_libraries
LibHLML.__init__.__defaults__ = (sys.argv[2],)
vendor_libraries.HLML = pathlib.Path(sys.argv[2])
"""


def hlml_readings(folder: Path, visible: str) -> list[Reading]:
    library = compiled(folder, "libhlml.so", HLML)
    environment = {"HABANA_VISIBLE_MODULES": visible, "PYTHONPATH": ":".join(sys.path)}
    return readings(FOUND_HERE + READ, ["gaudi2", str(library)], environment)


@needs_compiler
def test_gaudis_binding_is_asked_as_its_own_signatures_want(tmp_path: Path) -> None:
    assert hlml_readings(tmp_path, "6") == [
        Reading(
            utilisation=0.8,
            memory_used_bytes=600,
            clock_mhz=1650.0,
            power_watts=420.0,
            temperature_celsius=55.0,
            energy_joules=5e9,
            reasons=frozenset({"thermal"}),
            violation_seconds=3.5,
            errors={"uncorrected memory": 2, "PCIe replay": 4},
            pcie_generation=4.0,
            pcie_width=16.0,
        )
    ]


@needs_compiler
def test_what_makes_devices_of_one_name_unlike_is_told(tmp_path: Path) -> None:
    compiled(tmp_path, "libnvidia-ml.so.1", NVML)
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    one = readings(FACTS, ["h100"], {**environment, "CUDA_VISIBLE_DEVICES": "0"})
    both = readings(FACTS, ["h100"], {**environment, "CUDA_VISIBLE_DEVICES": "0,1"})
    assert one == ({"device_power_limit_watts": "700", "device_mig": "off"}, (None,))
    assert both == ({"device_power_limit_watts": "500, 700", "device_mig": "on"}, (None, None))


@needs_compiler
def test_a_gaudis_power_limit_is_told(tmp_path: Path) -> None:
    library = compiled(tmp_path, "libhlml.so", HLML)
    environment = {"HABANA_VISIBLE_MODULES": "6", "PYTHONPATH": ":".join(sys.path)}
    found = readings(FOUND_HERE + FACTS, ["gaudi2", str(library)], environment)
    assert found == ({"device_power_limit_watts": "600"}, (None,))


@pytest.mark.parametrize(("name", "field"), [("00000000:3B:00.0", "busId"), (b"0000:3b:00.0", "bus_id")])
def test_a_devices_numa_node_is_the_kernels(name: str | bytes, field: str, tmp_path: Path) -> None:
    (tmp_path / "0000:3b:00.0").mkdir()
    (tmp_path / "0000:3b:00.0" / "numa_node").write_text("1\n")
    assert numa_node(SimpleNamespace(**{field: name}), tmp_path) == 1
    (tmp_path / "0000:3b:00.0" / "numa_node").write_text("-1\n")
    assert numa_node(SimpleNamespace(**{field: name}), tmp_path) is None
    assert numa_node(None, tmp_path) is None


@needs_compiler
def test_modules_are_read_in_the_order_that_the_trial_was_given_them(tmp_path: Path) -> None:
    assert [reading.energy_joules for reading in hlml_readings(tmp_path, "3,6")] == [None, 5e9]


def test_without_a_driver_there_is_no_library() -> None:
    assert library_for(ACCELERATORS["h100"]) is None
    assert library_for(ACCELERATORS["gaudi2"]) is None
