"""What differs between devices, behind one small contract: arguments, Trainer, synchronisation, memory."""

from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import Trainer, TrainingArguments

from bridgetower_ray.cells import Cell
from bridgetower_ray.errors import TrialError

# Where the sweep file's names are not TrainingArguments' own.
OWN_SETTINGS = {
    "max_seq_length",
    "freeze_text_pooler",
    "multiprocessing_context",
    "mediapipe_dataloader",
    "input_pipeline",
    "cpu_threads_per_rank",
}


class Backend(Protocol):
    """One kind of device as the worker sees it."""

    asynchronous: bool
    trainer_class: type[Trainer]

    def arguments(self, cell: Cell, total_steps: int, output_folder: Path) -> TrainingArguments:
        """The Trainer's arguments for a cell."""

    def synchronize(self) -> None:
        """Return when the device has nothing left to do."""

    def device_name(self) -> str:
        """The name that the device gives itself."""

    def peak_memory_bytes(self) -> int | None:
        """Most device memory allocated since the start; None where that cannot be told."""


class TorchBackend:
    """The standard Trainer, on a CPU or on CUDA devices."""

    trainer_class = Trainer

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self.asynchronous = self._cuda

    def arguments(self, cell: Cell, total_steps: int, output_folder: Path) -> TrainingArguments:
        """As the published benchmark's GPU side: the standard arguments, bf16 by autocast."""
        return TrainingArguments(
            **common_arguments(cell, total_steps, output_folder),
            use_cpu=not self._cuda,
            ddp_backend=cell.accelerator.process_group_backend if cell.devices > 1 else None,
        )

    def synchronize(self) -> None:
        """Wait for the CUDA stream; a CPU has always done what it was told."""
        if self._cuda:
            torch.cuda.synchronize()

    def device_name(self) -> str:
        """CUDA's name of the device, or `CPU`."""
        return torch.cuda.get_device_name() if self._cuda else "CPU"

    def peak_memory_bytes(self) -> int | None:
        """As CUDA's caching allocator counts it."""
        return torch.cuda.max_memory_allocated() if self._cuda else None


def common_arguments(cell: Cell, total_steps: int, output_folder: Path) -> dict[str, Any]:
    """The arguments that mean the same on every device.

    Nothing but training happens inside the window: no logging, evaluation or saving; the NaN filter is off
    since it would synchronise a CUDA device at every step, and `report_to` is none since another MLflow
    writer would start otherwise.
    """
    settings = cell.training.model_dump(exclude=OWN_SETTINGS | {"num_train_epochs", "max_steps"})
    return {
        **settings,
        "max_steps": total_steps,
        "output_dir": str(output_folder),
        "remove_unused_columns": False,
        "ddp_find_unused_parameters": False,
        "logging_strategy": "no",
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def backend_for(cell: Cell) -> Backend:
    """The backend of a cell's accelerator.

    Raises:
        TrialError: the device, or what drives it, is not on this host.
    """
    device = cell.accelerator.device
    if device == "hpu":
        raise TrialError(f"{cell.accelerator.label}: no Gaudi software (habana_frameworks.torch) is on this host")
    if device == "cuda" and not torch.cuda.is_available():
        raise TrialError(f"{cell.accelerator.label}: torch {torch.__version__} sees no CUDA device on this host")
    return TorchBackend(device)
