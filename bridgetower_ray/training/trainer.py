"""Puts the meter into a Trainer at the one place where a training step waits for its data."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback

from bridgetower_ray.training.meter import Meter


class _StepEnds(TrainerCallback):
    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self._meter.epoch_begins()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._meter.step_ends()


def metered_trainer(
    base: type[Trainer], meter: Meter, batches: Iterable[dict[str, Any]] | None = None, **arguments: Any
) -> Trainer:
    """A trainer of class `base` whose fetches and steps `meter` times.

    Args:
        batches: what to train on instead of the loader over the trainer's data set.

    `get_batch_samples` is where transformers 4.55 and 5 take the batches of an optimizer step from the loader.
    """

    class MeteredTrainer(base):
        def get_train_dataloader(self) -> Any:
            return super().get_train_dataloader() if batches is None else batches

        def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
            meter.fetch_begins()
            batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
            meter.fetch_ends(sum(len(batch["input_ids"]) for batch in batches))
            return batches, items

    trainer = MeteredTrainer(**arguments)
    trainer.add_callback(_StepEnds(meter))
    return trainer


def describe_loader(trainer: Trainer) -> dict[str, Any]:
    """What the loader is, not what was asked: its class and its settings in use."""
    loader = trainer.get_train_dataloader()
    inner: DataLoader[Any] = getattr(loader, "base_dataloader", loader)
    return {
        "loader": f"{type(inner).__module__}.{type(inner).__qualname__}",
        "dataloader_num_workers": inner.num_workers,
        "dataloader_prefetch_factor": inner.prefetch_factor,
        "dataloader_persistent_workers": inner.persistent_workers,
        "dataloader_pin_memory": inner.pin_memory,
        "dataloader_drop_last": bool(getattr(inner, "drop_last", False) or trainer.args.dataloader_drop_last),
    }
