"""What a sample costs: energy, money, and how much of the chip's arithmetic the model had. Pure arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass

from bridgetower_ray.report.records import HEADLINE
from bridgetower_ray.sweep.cells import Trial

SECONDS_PER_HOUR = 3600


@dataclass
class Spent:
    """Hours of single devices, and money where prices are given."""

    accelerator_hours: float = 0.0
    cost: float = 0.0

    def add(self, trial: Trial, seconds: float) -> None:
        """What a trial takes."""
        hours = seconds / SECONDS_PER_HOUR
        self.accelerator_hours += trial.cell.devices * hours
        self.cost += (trial.price_per_hour or 0.0) * hours


def flops_utilisation(samples_per_second: float, flops_per_sample: float, devices: int, peak_tflops: float) -> float:
    """Model FLOPs utilisation: what the model needs over what the devices' dense peak would give, as a fraction.

    A. Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways" (2022), section 4.1: nothing that is computed
    twice counts twice.

    Args:
        flops_per_sample: forward and backward, counted on the model.
        peak_tflops: of one device, dense, in the precision that is trained in; 10^12 operations a second.
    """
    return samples_per_second * flops_per_sample / (devices * peak_tflops * 1e12)


def efficiency_figures(
    measured: Mapping[str, float], devices: int, peak_tflops: float | None, price_per_hour: float | None
) -> dict[str, float]:
    """Figures of a trial made from its others; what cannot be made is absent.

    Args:
        measured: the throughput, and what there is of energy, samples and operations.
        peak_tflops: of one device; None for a chip whose peak is not known.
        price_per_hour: of the node's devices in use.
    """
    found: dict[str, float] = {}
    throughput, samples = measured[HEADLINE], measured.get("window_samples")
    for whose, joules in (("", "device_energy_joules"), ("host_", "host_energy_joules")):
        if samples and joules in measured:
            found[f"{whose}joules_per_sample"] = measured[joules] / samples
    if found.get("joules_per_sample"):
        found["samples_per_watt_hour"] = SECONDS_PER_HOUR / found["joules_per_sample"]
    if price_per_hour:
        found["samples_per_dollar"] = throughput * SECONDS_PER_HOUR / price_per_hour
    flops, ceiling = measured.get("flops_per_sample"), measured.get("compute_ceiling_samples_per_second")
    if flops and peak_tflops:
        found["model_flops_utilisation"] = flops_utilisation(throughput, flops, devices, peak_tflops)
        if ceiling:
            found["compute_ceiling_flops_utilisation"] = flops_utilisation(ceiling, flops, devices, peak_tflops)
    return found
