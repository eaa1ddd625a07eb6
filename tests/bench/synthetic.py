"""A loader and a model of known duration under the real Trainer and the real meter."""

import contextlib
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, logging

from bridgetower_ray.training.meter import Meter, Window
from bridgetower_ray.training.trainer import metered_trainer

logging.set_verbosity_error()


class SleepingSamples(Dataset[dict[str, Tensor]]):
    """Samples that take `seconds` each to load."""

    def __init__(self, count: int, seconds: float) -> None:
        self._count, self._seconds = count, seconds

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        time.sleep(self._seconds)
        return {"input_ids": torch.tensor([row])}


class SleepingModel(nn.Module):
    """A step that takes `seconds` to compute."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self._seconds = seconds

    def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
        time.sleep(self._seconds)
        return {"loss": (self.weight * input_ids.float().mean()).sum()}


def arguments(folder: Path, batch: int, workers: int, steps: int) -> TrainingArguments:
    """As the product's own, for a CPU."""
    return TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        per_device_train_batch_size=batch,
        dataloader_num_workers=workers,
        dataloader_prefetch_factor=2 if workers else None,
        dataloader_drop_last=True,
        dataloader_pin_memory=False,
        max_steps=steps,
        remove_unused_columns=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def quietly(work: Callable[[], Any]) -> Any:
    """Run without the Trainer's own summary on standard output."""
    with contextlib.redirect_stdout(io.StringIO()):
        return work()


def measure(batch: int, load: float, compute: float, workers: int, warmup: int, steps: int) -> Window:
    """The meter's window over a loader of `load` s a sample and a model of `compute` s a step."""
    meter = Meter(warmup, warmup + steps, lambda: None)
    with tempfile.TemporaryDirectory() as folder:
        trainer: Trainer = metered_trainer(
            Trainer,
            meter,
            model=SleepingModel(compute),
            args=arguments(Path(folder), batch, workers, warmup + steps),
            train_dataset=SleepingSamples(batch * (warmup + steps + 2 * workers + 4), load),
        )
        quietly(trainer.train)
    return meter.window()
