"""Settings that have no effect set to what they amount to, so that equal runs have equal cells."""

from typing import Any

from bridgetower_ray.sweep.accelerators import Accelerator
from bridgetower_ray.sweep.settings import HPU_SETTINGS, TrainingSettings

TORCH_PREFETCH_FACTOR = 2  # torch.utils.data.DataLoader's own, where workers are used
QUEUES = ("dataloader_prefetch_factor", "dataloader_persistent_workers", "multiprocessing_context")
DEFAULTS = TrainingSettings()


def effective(training: TrainingSettings, accelerator: Accelerator, devices: int) -> TrainingSettings:
    """What of the settings an accelerator of so many devices hears."""
    changes = _loading(training, accelerator) | _distribution(training, accelerator, devices)
    changes |= _gaudi(training) if accelerator.device == "hpu" else _defaults(*HPU_SETTINGS)
    return training.model_copy(update=changes)


def _defaults(*names: str) -> dict[str, Any]:
    return {name: getattr(DEFAULTS, name) for name in names}


def _loading(training: TrainingSettings, accelerator: Accelerator) -> dict[str, Any]:
    """The media pipeline takes the place of the loader, and gives full batches only; queues need workers; pinning needs
    a device to copy to, and a copy that waits for nothing needs pinning.
    """
    changes: dict[str, Any] = {}
    if training.mediapipe_dataloader:
        changes |= _defaults("dataloader_num_workers", "input_pipeline", "dataloader_non_blocking")
        return changes | _defaults("dataloader_pin_memory", *QUEUES) | {"dataloader_drop_last": True}
    if training.dataloader_num_workers == 0:
        changes |= _defaults(*QUEUES)
    elif training.dataloader_prefetch_factor is None:
        changes["dataloader_prefetch_factor"] = TORCH_PREFETCH_FACTOR
    pinned = training.dataloader_pin_memory and accelerator.device != "cpu"
    changes["dataloader_pin_memory"] = pinned
    if not pinned:
        changes["dataloader_non_blocking"] = False
    return changes


def _distribution(training: TrainingSettings, accelerator: Accelerator, devices: int) -> dict[str, Any]:
    """What distributes needs several devices; buckets are DDP's."""
    if devices == 1:
        return _defaults("ddp_bucket_cap_mb", "distribution_strategy")
    fast = accelerator.device == "hpu" and training.distribution_strategy == "fast_ddp"
    return _defaults("ddp_bucket_cap_mb") if fast else {}


def _gaudi(training: TrainingSettings) -> dict[str, Any]:
    """`torch_compile` is by Gaudi's own backend; graphs for inference need a mode that makes them, and overlapping
    forward and backward passes needs lazy mode.
    """
    compiled = training.torch_compile or training.torch_compile_backend is not None
    changes: dict[str, Any] = {"torch_compile": False, "torch_compile_backend": "hpu_backend" if compiled else None}
    if not training.use_lazy_mode:
        changes["pipelining_fwd_bwd"] = False
        changes |= {} if compiled else {"use_hpu_graphs_for_inference": False}
    return changes
