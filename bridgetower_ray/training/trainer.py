"""Puts the meter into a Trainer at the one place where a training step waits for its data."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

from bridgetower_ray.training.backends.contract import Backend
from bridgetower_ray.training.meter import Meter
from bridgetower_ray.training.samples import Samples


class _StepEnds(TrainerCallback):
    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self._meter.epoch_begins()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._meter.step_ends()


def trainer_for(
    backend: Backend,
    arguments: TrainingArguments,
    meter: Meter,
    model: PreTrainedModel,
    data: Samples,
    batches: Iterable[dict[str, Any]] | None = None,
) -> Trainer:
    """The backend's Trainer over `data`, under the meter; `arguments` are of the backend's making."""
    return metered_trainer(
        backend.trainer_class,
        meter,
        batches,
        model=model,
        args=arguments,
        train_dataset=data,
        data_collator=data.collate,
        **backend.trainer_arguments(arguments),
    )


def metered_trainer(
    base: type[Trainer], meter: Meter, batches: Iterable[dict[str, Any]] | None = None, **arguments: Any
) -> Trainer:
    """A trainer of class `base` whose fetches and steps `meter` times.

    Args:
        batches: what to train on instead of the loader over the trainer's data set.

    `get_batch_samples` is where transformers 4.55 and 5 take the batches of an optimizer step from the loader;
    optimum-habana calls it `get_batch_samples_transformers`.
    """
    parent: Any = base

    class MeteredTrainer(parent):
        def get_train_dataloader(self) -> Any:
            return super().get_train_dataloader() if batches is None else batches

        def get_batch_samples(self, *fetch: Any) -> Any:
            return metered(meter, super().get_batch_samples, fetch)

        def get_batch_samples_transformers(self, *fetch: Any) -> Any:
            return metered(meter, super().get_batch_samples_transformers, fetch)

    trainer: Trainer = MeteredTrainer(**arguments)
    trainer.add_callback(_StepEnds(meter))
    return trainer


def metered(meter: Meter, fetch: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Fetch the batches of an optimizer step under the meter; also how many items they hold, which may be None."""
    meter.fetch_begins()
    batches, items = fetch(*arguments)
    meter.fetch_ends(sum(len(batch["input_ids"]) for batch in batches))
    return batches, items


def describe_loader(trainer: Trainer) -> dict[str, Any]:
    """What the loader is, not what was asked: its class and its settings in use; None for one that it has not."""
    loader = trainer.get_train_dataloader()
    inner = getattr(loader, "base_dataloader", loader)
    return {
        "loader": f"{type(inner).__module__}.{type(inner).__qualname__}",
        "dataloader_num_workers": inner.num_workers,
        "dataloader_prefetch_factor": getattr(inner, "prefetch_factor", None),
        "dataloader_persistent_workers": getattr(inner, "persistent_workers", None),
        "dataloader_pin_memory": getattr(inner, "pin_memory", None),
        "dataloader_non_blocking": bool(trainer.accelerator.non_blocking),
        "dataloader_drop_last": bool(getattr(inner, "drop_last", False) or trainer.args.dataloader_drop_last),
    }
