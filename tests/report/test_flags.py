"""What is doubtful about a trial, in words, and what is not."""

import math
from typing import Any

import pytest

from bridgetower_ray.report.flags import contamination, flags


@pytest.mark.parametrize(
    ("cores", "cpus", "said"), [(0.5, 2, False), (0.6, 2, True), (0.6, 64, False), (3.3, 64, True)]
)
def test_a_busy_neighbour_is_one_over_half_a_core_or_a_twentieth(cores: float, cpus: int, said: bool) -> None:
    assert bool(contamination(cores, cpus, ["make (7) 1.0"])) is said


def test_flags_say_in_words_what_is_doubtful() -> None:
    found = flags(
        {
            "window_steps": 12,
            "foreign_cpu_cores": 1.5,
            "cpus": 2,
            "foreign_processes": ["make (7) 1.4"],
            "foreign_device_processes": ["game (8)"],
            "train_loss": math.nan,
        },
        steady_window_steps=40,
    )
    assert found == (
        "short window: 12 steps, 40 or more wanted",
        "contaminated: others used 1.5 of 2 cores in the window (make (7) 1.4)",
        "contaminated: others were on the devices (game (8))",
        "the loss is not finite",
    )
    assert flags({"window_steps": 40, "train_loss": 1.0}, 40) == ()


def test_recompilation_and_a_crowded_host_are_flagged() -> None:
    assert flags({"graph_compilations": 2}, 0, wanted_cpus=3, usable_cpus=2) == (
        "crowded: 3 ranks and workers shared 2 CPUs",
        "recompiled: 2 graphs were compiled inside the window",
    )
    assert flags({"graph_compilations": 0}, 0, wanted_cpus=2, usable_cpus=2) == ()


def test_a_trial_that_is_served_after_everybody_else_is_flagged() -> None:
    """Ray's workers have niceness 15 of their own accord, and a trial's ranks inherit it."""
    assert flags({}, 0, niceness="15") == ("niceness 15: any ordinary process of the host was served first",)
    assert flags({}, 0, niceness="0") == ()
    assert flags({}, 0, niceness="-5") == ()


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ({"cpus": 8, "own_services_cpu_cores": 0.9}, "this sweep's own Ray and driver used 0.9 of 8 cores"),
        ({"cpus": 8, "stolen_cpu_cores": 0.5}, "stolen: a hypervisor gave 0.5 of 8 cores"),
        ({"throttled_periods_fraction": 0.4}, "throttled: a CPU quota stopped processes in 40% of its periods"),
        ({"memory_pressure_fraction": 0.05}, "memory pressure: something waited for memory in 5% of the window"),
        ({"io_pressure_fraction": 0.2}, "io pressure"),
        ({"cpu_pressure_fraction": 0.5}, "cpu pressure"),
        ({"swapped_bytes": 5 * 2**20}, "swapped: 5 MiB"),
        (
            {"device_throttled_fraction": 0.5, "device_throttled": ["power cap"]},
            "slowed in 50% of the window (power cap)",
        ),
        ({"device_throttled_seconds": 6.0, "window_seconds": 10.0}, "slowed in 60% of the window (power or heat)"),
        ({"device_errors": ["2 uncorrected memory"]}, "device errors in the window: 2 uncorrected memory"),
        ({"device_energy_joules": 900.0, "device_energy_by_power_joules": 500.0}, "energy counter says 900 J"),
        ({"cpus": 8, "ceilings_foreign_cpu_cores": 2.0}, "while the ceilings were taken"),
        ({"model_flops_utilisation": 1.4}, "140% of the device's peak"),
        (
            {"train_samples_per_second": 26.3, "compute_ceiling_samples_per_second": 21.3},
            "26.3 samples/s are above the compute ceiling of 21.3: it is no limit",
        ),
    ],
)
def test_what_was_taken_from_a_trial_is_flagged(measured: dict[str, Any], words: str) -> None:
    (flag,) = flags(measured, 0)
    assert words in flag


def test_little_of_everything_is_no_flag() -> None:
    little = {
        "cpus": 8, "own_services_cpu_cores": 0.1, "stolen_cpu_cores": 0.01, "throttled_periods_fraction": 0.0,
        "memory_pressure_fraction": 0.0, "io_pressure_fraction": 0.01, "swapped_bytes": 0.0,
        "device_throttled_seconds": 0.0, "window_seconds": 10.0, "model_flops_utilisation": 0.4,
    }  # fmt: skip
    assert flags(little, 0) == ()


def test_a_crowded_host_waits_for_its_cpus_by_its_own_doing() -> None:
    assert flags({"cpu_pressure_fraction": 0.5}, 0, wanted_cpus=3, usable_cpus=2) == (
        "crowded: 3 ranks and workers shared 2 CPUs",
    )


def test_operations_left_to_the_host_are_a_flag() -> None:
    assert flags({"cpu_fallbacks": 4}, 0) == ("left to the host: 4 operations of the device's in the window",)
    assert flags({"cpu_fallbacks": 0}, 0) == ()
