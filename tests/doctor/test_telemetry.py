"""Devices while a window was open: by known readings, and by a vendor's real binding over a C stand-in."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridgetower_ray.doctor.host_energy import HostEnergy
from bridgetower_ray.doctor.telemetry import Sample, Telemetry, window_figures
from bridgetower_ray.doctor.vendor_libraries import Reading, library_for
from bridgetower_ray.sweep.accelerators import ACCELERATORS


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


NVML = """
#include <string.h>
typedef struct { unsigned gpu, memory; } utilisation;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned long long reference, violation; } violation;
int nvmlInitWithFlags(unsigned f) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { if (i > 3) return 6; *d = (void *)(long)(i + 1); return 0; }
int nvmlDeviceGetHandleByUUID(const char *u, void **d) {
    if (strcmp(u, "GPU-second")) return 6;
    *d = (void *)2;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *d, utilisation *u) { u->gpu = 90; u->memory = 50; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory *m) { m->total = 1000; m->free = 400; m->used = 600; return 0; }
int nvmlDeviceGetClockInfo(void *d, unsigned t, unsigned *c) { *c = t == 1 ? 1410 : 0; return 0; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *p) { *p = 350000; return 0; }
int nvmlDeviceGetTemperature(void *d, unsigned s, unsigned *t) { *t = 61; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *e) {
    if (d == (void *)4) return 3;
    *e = d == (void *)3 ? 0 : 5000 * (unsigned long long)(long)d;
    return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *r) { *r = 0x1 | 0x4 | 0x40; return 0; }
int nvmlDeviceGetViolationStatus(void *d, unsigned p, violation *v) {
    v->violation = p == 0 ? 2000000000ULL : 0;
    return 0;
}
int nvmlDeviceGetTotalEccErrors(void *d, unsigned e, unsigned c, unsigned long long *n) {
    *n = e == 1 ? 3 : 7;
    return 0;
}
int nvmlDeviceGetPcieReplayCounter(void *d, unsigned *n) { *n = 5; return 0; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *d, unsigned *n) { *n = 5; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(void *d, unsigned *n) { return 3; }
"""
READ = """
import os, sys
from bridgetower_ray.doctor.vendor_libraries import library_for
from bridgetower_ray.sweep.accelerators import ACCELERATORS
library = library_for(ACCELERATORS[sys.argv[1]])
print(None if library is None else list(library.read()))
"""
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the stand-in library")


def compiled(folder: Path, name: str, source: str) -> Path:
    (folder / "source.c").write_text(source)
    library = folder / name
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "source.c"], check=True)
    return library


def nvml_readings(folder: Path, visible: str) -> list[Reading] | None:
    compiled(folder, "libnvidia-ml.so.1", NVML)
    environment = {"LD_LIBRARY_PATH": str(folder), "CUDA_VISIBLE_DEVICES": visible, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", READ, "h100"], env=environment, capture_output=True, text=True, check=False
    )
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
    readings = nvml_readings(tmp_path, "2,3")
    assert readings is not None
    assert [reading.energy_joules for reading in readings] == [None, None]


@needs_compiler
def test_only_the_devices_that_the_trial_was_given_are_read(tmp_path: Path) -> None:
    readings = nvml_readings(tmp_path, "GPU-second")
    assert readings is not None
    assert [reading.energy_joules for reading in readings] == [10.0]


@needs_compiler
def test_a_device_that_the_library_does_not_know_is_no_column(tmp_path: Path) -> None:
    assert nvml_readings(tmp_path, "GPU-unknown") is None


def test_without_a_driver_there_is_no_library() -> None:
    assert library_for(ACCELERATORS["h100"]) is None
    assert library_for(ACCELERATORS["gaudi2"]) is None
