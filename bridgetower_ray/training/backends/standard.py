"""The standard Trainer, on a CPU or on CUDA devices."""

import os
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import Trainer, TrainingArguments

from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.training.backends.contract import common_arguments


class TorchBackend:
    """The standard Trainer, on a CPU or on CUDA devices."""

    trainer_class = Trainer

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self.asynchronous = self._cuda
        self._compiles = False

    def set_seed(self, seed: int) -> None:
        """As transformers does."""
        transformers.set_seed(seed)

    def trainer_arguments(self, arguments: TrainingArguments) -> dict[str, Any]:
        """None."""
        del arguments
        return {}

    def arguments(self, cell: Cell, total_steps: int, output_folder: Path) -> TrainingArguments:
        """As the published benchmark's GPU side: the standard arguments, bf16 by autocast."""
        self._compiles = cell.training.torch_compile
        return TrainingArguments(
            **common_arguments(cell, total_steps, output_folder),
            use_cpu=not self._cuda,
            ddp_backend=cell.accelerator.process_group_backend if cell.devices > 1 else None,
            torch_compile=cell.training.torch_compile,
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

    def counters(self) -> dict[str, int]:
        """Graphs that torch.compile made; nothing where nothing compiles."""
        if not self._compiles:
            return {}
        from torch._dynamo.utils import counters

        return {"graph_compilations": int(counters["stats"]["unique_graphs"])}

    def facts(self, trainer: Trainer) -> dict[str, Any]:
        """On CUDA with what decides how fast float32 is, and with the allocator's settings."""
        facts: dict[str, Any] = {"precision": "bf16 autocast" if trainer.args.bf16 else "float32"}
        facts["torch_compile_backend"] = trainer.args.torch_compile_backend if trainer.args.torch_compile else None
        if self._cuda:
            facts |= {
                "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
                "tf32_cudnn": torch.backends.cudnn.allow_tf32,
                "cuda_allocator": torch.cuda.get_allocator_backend(),
                "cuda_allocator_settings": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "default"),
            }
        return facts
