"""What differs between devices, behind one small contract: arguments, Trainer, synchronisation, memory."""

import os
from pathlib import Path
from typing import Any, Protocol

import torch
import transformers
from transformers import Trainer, TrainingArguments

from bridgetower_ray.errors import TrialError
from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.sweep.settings import HPU_SETTINGS

# Where the sweep file's names are not TrainingArguments' own.
OWN_SETTINGS = {
    "max_seq_length",
    "freeze_text_pooler",
    "multiprocessing_context",
    "mediapipe_dataloader",
    "input_pipeline",
    "cpu_threads_per_rank",
    *HPU_SETTINGS,
}


class Backend(Protocol):
    """One kind of device as the worker sees it."""

    asynchronous: bool
    trainer_class: type[Trainer]

    def set_seed(self, seed: int) -> None:
        """Seed every generator that the training draws from."""

    def arguments(self, cell: Cell, total_steps: int, output_folder: Path) -> TrainingArguments:
        """The Trainer's arguments for a cell."""

    def trainer_arguments(self, arguments: TrainingArguments) -> dict[str, Any]:
        """What the Trainer's class takes beyond what every Trainer takes."""

    def synchronize(self) -> None:
        """Return when the device has nothing left to do."""

    def device_name(self) -> str:
        """The name that the device gives itself."""

    def peak_memory_bytes(self) -> int | None:
        """Most device memory allocated since the start; None where that cannot be told."""

    def graph_compilations(self) -> int | None:
        """Graphs compiled since the start; None where nothing compiles, or the library does not say."""

    def facts(self, trainer: Trainer) -> dict[str, Any]:
        """What the trainer really does with the device: its precision, and the device's own settings."""


class TorchBackend:
    """The standard Trainer, on a CPU or on CUDA devices."""

    trainer_class = Trainer

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self.asynchronous = self._cuda

    def set_seed(self, seed: int) -> None:
        """As transformers does."""
        transformers.set_seed(seed)

    def trainer_arguments(self, arguments: TrainingArguments) -> dict[str, Any]:
        """None."""
        del arguments
        return {}

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

    def graph_compilations(self) -> int | None:
        """Nothing is compiled."""
        return None

    def facts(self, trainer: Trainer) -> dict[str, Any]:
        """On CUDA with what decides how fast float32 is, and with the allocator's settings."""
        facts: dict[str, Any] = {"precision": "bf16 autocast" if trainer.args.bf16 else "float32"}
        if self._cuda:
            facts |= {
                "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
                "tf32_cudnn": torch.backends.cudnn.allow_tf32,
                "cuda_allocator": torch.cuda.get_allocator_backend(),
                "cuda_allocator_settings": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "default"),
            }
        return facts


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
        return _gaudi_backend(cell)
    if device == "cuda" and not torch.cuda.is_available():
        raise TrialError(f"{cell.accelerator.label}: torch {torch.__version__} sees no CUDA device on this host")
    return TorchBackend(device)


def _gaudi_backend(cell: Cell) -> Backend:
    try:
        import habana_frameworks.torch  # noqa: F401 - makes torch.hpu

        from bridgetower_ray.training.backends.gaudi import GaudiBackend
    except ImportError as error:
        missing = error.name or str(error)
        raise TrialError(f"{cell.accelerator.label}: no Gaudi software on this host ({missing} is missing)") from None
    if not torch_hpu().is_available():
        raise TrialError(f"{cell.accelerator.label}: torch {torch.__version__} sees no HPU on this host")
    return GaudiBackend()


def torch_hpu() -> Any:
    """`torch.hpu`, which the Gaudi software adds to torch."""
    return vars(torch)["hpu"]
