"""Devices as their vendors' own libraries know them, asked in this process: NVML, HLML. Never a tool in a process."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bridgetower_ray.doctor.kernel_files import content
from bridgetower_ray.sweep.accelerators import Accelerator

PCI_DEVICES = Path("/sys/bus/pci/devices")
HLML = Path("/usr/lib/habanalabs/libhlml.so")  # where the vendor's binding loads it from
# Bits of NVML's clocks event reasons that take speed away from a device that has work (nvml.h).
NVML_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal, by software",
    0x40: "thermal, by hardware",
    0x80: "power brake",
}
HLML_REASONS = {0x1: "power cap", 0x2: "thermal"}  # pyhlml's HLML_DEFINES


@dataclass(frozen=True)
class Reading:
    """A device at one moment; None for what it does not say, or says as nothing.

    `energy_joules`, `violation_seconds` (power and heat) and `errors` count since the driver was loaded. NVML gives
    power as a mean over up to a second, and A100 and H100 look at it a quarter of the time (arXiv 2312.02741).
    """

    utilisation: float | None = None
    memory_used_bytes: float | None = None
    clock_mhz: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    energy_joules: float | None = None
    reasons: frozenset[str] = frozenset()
    violation_seconds: float | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    pcie_generation: float | None = None
    pcie_width: float | None = None


class DeviceLibrary(Protocol):
    """What reads the devices of one trial."""

    def read(self) -> tuple[Reading, ...]:
        """A reading of each device, in the order in which the ranks have them."""

    def numa_nodes(self) -> tuple[int | None, ...]:
        """The NUMA node of each device in the same order; None where that is not known."""

    def facts(self) -> dict[str, str]:
        """What makes two devices of one name unlike: their power limits in watts, whether MIG divides them."""


def library_for(accelerator: Accelerator) -> DeviceLibrary | None:
    """The library that knows the devices which Ray has given this process; None for a CPU, or where there is none."""
    try:
        match accelerator.device:
            case "cuda":
                return Nvml()
            case "hpu":
                return Hlml()
    except Exception:  # a binding that is absent or cannot load its library: no column, and no failed trial
        return None
    return None


class Nvml:
    """NVIDIA's devices, by `nvidia-ml-py`: those that CUDA_VISIBLE_DEVICES names, by number, UUID or MIG UUID."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        names = _listed("CUDA_VISIBLE_DEVICES") or [str(number) for number in range(pynvml.nvmlDeviceGetCount())]
        by_name: Any = pynvml.nvmlDeviceGetHandleByUUID
        by_number: Any = pynvml.nvmlDeviceGetHandleByIndex
        self._devices = [by_number(int(name)) if name.isdigit() else by_name(name) for name in names]
        self._mig = any(name.startswith("MIG-") for name in names)  # such a handle does not know its mode

    def read(self) -> tuple[Reading, ...]:
        return tuple(map(self._read, self._devices))

    def numa_nodes(self) -> tuple[int | None, ...]:
        return tuple(numa_node(_asker(self._nvml, "nvmlDeviceGet", one)("PciInfo")) for one in self._devices)

    def facts(self) -> dict[str, str]:
        asked = [_asker(self._nvml, "nvmlDeviceGet", one) for one in self._devices]
        modes = [mode[0] for ask in asked if (mode := ask("MigMode")) is not None]
        limits = _limits(ask("EnforcedPowerLimit") for ask in asked)
        return limits | ({"device_mig": "on" if self._mig or any(modes) else "off"} if self._mig or modes else {})

    def _read(self, device: Any) -> Reading:
        nvml, ask = self._nvml, _asker(self._nvml, "nvmlDeviceGet", device)
        utilisation, memory = ask("UtilizationRates"), ask("MemoryInfo")
        policies = (nvml.NVML_PERF_POLICY_POWER, nvml.NVML_PERF_POLICY_THERMAL)
        violations = [ask("ViolationStatus", policy) for policy in policies]
        ecc = ask("TotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        return Reading(
            utilisation=None if utilisation is None else utilisation.gpu / 100,
            memory_used_bytes=None if memory is None else memory.used,
            clock_mhz=_positive(ask("ClockInfo", nvml.NVML_CLOCK_SM)),
            power_watts=_positive(ask("PowerUsage"), 1000),
            temperature_celsius=_positive(ask("Temperature", nvml.NVML_TEMPERATURE_GPU)),
            energy_joules=_positive(ask("TotalEnergyConsumption"), 1000),
            reasons=_reasons(ask("CurrentClocksThrottleReasons"), NVML_REASONS),
            violation_seconds=_seconds(one.violationTime for one in violations if one is not None),
            errors=_counted({"uncorrected memory": ecc, "PCIe replay": ask("PcieReplayCounter")}),
            pcie_generation=_positive(ask("CurrPcieLinkGeneration")),
            pcie_width=_positive(ask("CurrPcieLinkWidth")),
        )


class Hlml:
    """Gaudi's devices, by `habana-pyhlml`: the modules that HABANA_VISIBLE_MODULES names."""

    def __init__(self) -> None:
        import pyhlml
        from pyhlml import hlml_types

        if not HLML.exists():
            raise FileNotFoundError(HLML)  # the binding would print, and then raise
        self._hlml, self._words = pyhlml, hlml_types
        pyhlml.hlmlInit()
        devices = [pyhlml.hlmlDeviceGetHandleByIndex(number) for number in range(pyhlml.hlmlDeviceGetCount())]
        by_module = {str(pyhlml.hlmlDeviceGetModuleID(device)): device for device in devices}
        self._devices = [by_module[name] for name in _listed("HABANA_VISIBLE_MODULES")] or devices

    def read(self) -> tuple[Reading, ...]:
        return tuple(map(self._read, self._devices))

    def numa_nodes(self) -> tuple[int | None, ...]:
        return tuple(numa_node(_asker(self._hlml, "hlmlDeviceGet", one)("PCIInfo")) for one in self._devices)

    def facts(self) -> dict[str, str]:
        asked = [_asker(self._hlml, "hlmlDeviceGet", one) for one in self._devices]
        return _limits(ask("PowerManagementLimit") for ask in asked)

    def _read(self, device: Any) -> Reading:
        words, ask = self._words, _asker(self._hlml, "hlmlDeviceGet", device)
        utilisation, memory = ask("UtilizationRates"), ask("MemoryInfo")
        policies = (words.HLML_PERF_POLICY.HLML_PERF_POLICY_POWER, words.HLML_PERF_POLICY.HLML_PERF_POLICY_THERMAL)
        violations = [ask("ViolationStatus", policy) for policy in policies]
        uncorrected = words.HLML_MEMORY_ERROR.HLML_MEMORY_ERROR_TYPE_UNCORRECTED
        ecc = ask("TotalECCErrors", uncorrected, words.HLML_ECC_COUNTER.HLML_VOLATILE_ECC)
        return Reading(
            utilisation=None if utilisation is None else utilisation.aip / 100,
            memory_used_bytes=None if memory is None else memory.used,
            clock_mhz=_positive(ask("ClockInfo", words.HLML_CLOCK_TYPE.HLML_CLOCK_SOC)),
            power_watts=_positive(ask("PowerUsage"), 1000),
            temperature_celsius=_positive(ask("Temperature", words.HLML_TEMP_SENS.HLML_TEMPERATURE_ON_AIP)),
            energy_joules=_positive(ask("TotalEnergyConsumption"), 1000),
            reasons=_reasons(ask("CurrentClocksThrottleReasons"), HLML_REASONS),
            violation_seconds=_seconds(one.violation_time for one in violations if one is not None),
            errors=_counted({"uncorrected memory": ecc, "PCIe replay": ask("PCIEReplayCounter")}),
            pcie_generation=_positive(ask("CurrPCIELinkGeneration")),
            pcie_width=_positive(ask("CurrPCIELinkWidth")),
        )


def _limits(milliwatts: Iterable[int | None]) -> dict[str, str]:
    """The power limits, each once; nothing where no device says one."""
    known = sorted({limit / 1000 for limit in milliwatts if limit})
    return {"device_power_limit_watts": ", ".join(f"{limit:g}" for limit in known)} if known else {}


def numa_node(pci: Any, devices: Path = PCI_DEVICES) -> int | None:
    """The NUMA node of a PCI device, by what its vendor's library says of it; None where it is not known."""
    name: Any = getattr(pci, "busId", None) or getattr(pci, "bus_id", None) or b""
    address = (name.decode() if isinstance(name, bytes) else name).lower()[-len("0000:00:00.0") :]
    text = content(devices / address / "numa_node").strip() if address else ""
    return int(text) if text.isdigit() else None  # the kernel says -1 where it does not know


def _listed(variable: str) -> list[str]:
    """The devices that a variable of the environment names, if it does."""
    return [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]


def _asker(binding: Any, prefix: str, device: Any) -> Callable[..., Any]:
    """Asks a binding's functions of a device by the rest of their names; None where they say that it cannot tell."""

    def ask(name: str, *arguments: Any) -> Any:
        try:
            return getattr(binding, prefix + name)(device, *arguments)
        except Exception:  # each binding has a family of errors of its own, and AttributeError for what it lacks
            return None

    return ask


def _positive(value: float | None, divisor: float = 1) -> float | None:
    """A sensor that reads nothing says nothing: 0 is no power, no temperature and no clock of a device at work."""
    return value / divisor if value else None


def _reasons(bits: int | None, names: Mapping[int, str]) -> frozenset[str]:
    return frozenset(name for bit, name in names.items() if (bits or 0) & bit)


def _seconds(nanoseconds: Iterable[int]) -> float | None:
    found = list(nanoseconds)
    return sum(found) / 1e9 if found else None


def _counted(counts: Mapping[str, int | None]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count is not None}
