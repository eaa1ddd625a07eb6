"""The accelerators this tool knows: what Ray calls them, what drives them, what each can do."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

MARKER_PREFIX = "bridgetower_"
NODE_RESOURCE = f"{MARKER_PREFIX}node"
MARKER_AMOUNT = 0.001  # a node carries 1 of its marker: it names the kind, the devices are counted by HPU or GPU


@dataclass(frozen=True)
class Accelerator:
    """One kind of device.

    `ray_resource` counts its devices in Ray (None: the trial takes no device); `devices` is what a trial
    takes unless the sweep says otherwise; `asynchronous` says that the host runs ahead of the device.
    """

    name: str
    label: str
    ray_resource: Literal["HPU", "GPU"] | None
    device: Literal["hpu", "cuda", "cpu"]
    process_group_backend: Literal["hccl", "nccl", "gloo"]
    trainer: Literal["GaudiTrainer", "Trainer"]
    devices: int
    mediapipe: bool
    asynchronous: bool

    @property
    def marker(self) -> str:
        """The custom resource that a node of this kind declares."""
        return f"{MARKER_PREFIX}{self.name}"


def _gaudi(name: str, label: str) -> Accelerator:
    return Accelerator(name, label, "HPU", "hpu", "hccl", "GaudiTrainer", 8, mediapipe=True, asynchronous=True)


def _gpu(name: str, label: str) -> Accelerator:
    return Accelerator(name, label, "GPU", "cuda", "nccl", "Trainer", 8, mediapipe=False, asynchronous=True)


ACCELERATORS: dict[str, Accelerator] = {
    accelerator.name: accelerator
    for accelerator in (
        _gaudi("gaudi2", "Gaudi2 HPU"),
        _gaudi("gaudi3", "Gaudi3 HPU"),
        _gpu("h100", "H100 GPU"),
        _gpu("h200", "H200 GPU"),
        _gpu("a100-80gb", "A100 80GB GPU"),
        Accelerator("cpu", "CPU", None, "cpu", "gloo", "Trainer", 1, mediapipe=False, asynchronous=False),
    )
}


# Dense bf16 peak of a device in TFLOP/s, and where it is given. The first whose words are in the device's own name.
PEAKS: dict[str, tuple[tuple[str, float, str], ...]] = {
    "gaudi2": (("", 432.0, "Intel Gaudi 2 white paper (2022)"),),
    "gaudi3": (("", 1835.0, "Intel Gaudi 3 white paper (2024); 1677 in Intel's later datasheets"),),
    "h100": (
        ("PCIe", 756.0, "NVIDIA H100 datasheet, PCIe, without sparsity"),
        ("NVL", 835.0, "NVIDIA H100 NVL datasheet, without sparsity"),
        ("", 989.0, "NVIDIA H100 datasheet, SXM, without sparsity"),
    ),
    "h200": (("", 989.0, "NVIDIA H200 datasheet, SXM, without sparsity"),),
    "a100-80gb": (("", 312.0, "NVIDIA A100 datasheet, without sparsity"),),
}


def dense_bf16_peak(accelerator: str, device_name: str) -> tuple[float, str] | None:
    """TFLOP/s of one device and the source; None for a chip that is not known, as one of a sweep's own is."""
    found = (one for one in PEAKS.get(accelerator, ()) if one[0].lower() in device_name.lower())
    return next(((peak, source) for _, peak, source in found), None)


def variant(name: str, like: str) -> Accelerator:
    """An accelerator of the user's own: everything as `like` has it, under another name and marker."""
    return replace(ACCELERATORS[like], name=name, label=name)


def count_devices(names: Iterable[str], resource: Literal["HPU", "GPU"]) -> int:
    """How many of the devices, each by its accelerator's name, Ray counts as `resource`."""
    return sum(name in ACCELERATORS and ACCELERATORS[name].ray_resource == resource for name in names)


def bundle(accelerator: Accelerator, devices: int, cpus: int, whole_node: bool) -> dict[str, float]:
    """The Ray resources of one trial: one bundle, so one node."""
    resources: dict[str, float] = {"CPU": cpus, accelerator.marker: MARKER_AMOUNT}
    if accelerator.ray_resource:
        resources[accelerator.ray_resource] = devices
    if whole_node:
        resources[NODE_RESOURCE] = 1
    return resources
