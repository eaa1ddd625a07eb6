"""The two limits of a cell: compute without a loader, and the loader without compute. After the window, never inside.

All ranks take part at once, as in the window, so that they share the host as they did there.
"""

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer

from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.training.backends.contract import Backend
from bridgetower_ray.training.meter import Meter, Window
from bridgetower_ray.training.samples import Samples
from bridgetower_ray.training.trainer import trainer_for

COMPUTE_SECONDS = 6.0
COMPUTE_WARMUP_STEPS = 3
FEWEST_STEPS = 10
LOADER_SECONDS = 10.0


class ResidentBatches:
    """An iterable of `steps` batches that are all the same one, on the device already."""

    def __init__(self, batch: dict[str, Any], steps: int) -> None:
        self._batch, self._steps = batch, steps

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self._batch for _ in range(self._steps))


def compute_window(
    trainer: Trainer,
    backend: Backend,
    cell: Cell,
    data: Samples,
    window: Window,
    settle: Callable[[], None],
) -> Window:
    """The Trainer's loop on one resident batch, metered as the real one was.

    Args:
        trainer: the one that has trained; its model is trained on.
        window: the real window, which says how long a step takes at most.

    Returns:
        A window whose samples a second are the compute ceiling of this rank.
    """
    batch_size = cell.training.per_device_train_batch_size
    batch = _on_device(data.batch([row % len(data) for row in range(batch_size)]), trainer.args.device)
    steps = COMPUTE_WARMUP_STEPS + _steps_for(COMPUTE_SECONDS, window)
    # A trainer of its own, but no second optimizer beside the first: its state would double the memory in use.
    model, scratch = trainer.model, Path(trainer.args.output_dir)
    trainer.optimizer = trainer.lr_scheduler = None
    gc.collect()
    meter = Meter(COMPUTE_WARMUP_STEPS, steps, settle)
    batches = ResidentBatches(batch, steps * cell.training.gradient_accumulation_steps)
    resident = trainer_for(backend, backend.arguments(cell, steps, scratch), meter, model, data, batches)
    resident.train()
    return meter.window()


def _steps_for(seconds: float, window: Window) -> int:
    """Steps that fill about `seconds`, never more than the window had, unless that was very short."""
    step_seconds = window.seconds / len(window.steps)
    return max(FEWEST_STEPS, min(len(window.steps), math.ceil(seconds / step_seconds)))


def _on_device(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in batch.items()}


def loader_rate(
    batches: Iterator[dict[str, Any]],
    discard: int,
    synchronize: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
    seconds: float = LOADER_SECONDS,
) -> float:
    """Samples a second that a fresh loader delivers to the device when nothing is computed.

    Args:
        batches: a fresh iterator over one epoch, whose batches arrive on the device.
        discard: batches to throw away first: those that the queues hold before anybody asks.
        seconds: how long to draw; an epoch that is over sooner ends it.

    Raises:
        RuntimeError: the epoch holds no batch beyond the discarded ones.
    """
    for _ in range(discard):
        next(batches, None)
    synchronize()
    started = clock()
    samples = 0
    for batch in batches:
        samples += len(batch["input_ids"])
        if clock() - started >= seconds:
            break
    synchronize()
    if not samples:
        raise RuntimeError(f"an epoch has no batch beyond the {discard} that are thrown away")
    return samples / (clock() - started)


def sum_over_ranks(value: float) -> float:
    """A figure of every rank, added up."""
    return math.fsum(gather(value))


def gather(value: Any) -> Sequence[Any]:
    """A value of every rank, in the order of the ranks."""
    distributed = torch.distributed
    if not distributed.is_initialized():
        return [value]
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values
