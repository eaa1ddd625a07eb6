"""The two limits of a cell: compute without a loader, and the loader without compute. After the window, never inside.

All ranks take part at once, as in the window, so that they share the host as they did there.
"""

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import Trainer

from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.training.backends.contract import Backend
from bridgetower_ray.training.edges import HostWatch
from bridgetower_ray.training.meter import Meter, Window
from bridgetower_ray.training.samples import Samples
from bridgetower_ray.training.trainer import trainer_for

STRETCHES = 3
COMPUTE_SECONDS, LOADER_SECONDS = 2.5, 3.5  # at most, of a stretch
LEAST_SECONDS = 1.0
COMPUTE_WARMUP_STEPS = 3
FEWEST_STEPS = 5
WATCHED = ("foreign_cpu_cores", "stolen_cpu_cores", "throttled_periods_fraction")
FAST_DDP = "_all_reduce_"  # what optimum-habana's fast_ddp keeps in the model: graphs over the gradients of that moment
NO_CEILING = (RuntimeError, ValueError, OSError, MemoryError)  # what costs the ceiling, and not the measurement


class Loader(Protocol):
    """What gives the batches of an epoch each time it is iterated over."""

    def __len__(self) -> int:
        """Batches of an epoch."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Begin an epoch."""


class ResidentBatches:
    """An iterable of `steps` batches that are all the same one, on the device already."""

    def __init__(self, batch: dict[str, Any], steps: int) -> None:
        self._batch, self._steps = batch, steps

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self._batch for _ in range(self._steps))


class Ceilings:
    """Both limits of a cell, each by several short stretches around its window, so that their spread is known.

    A stretch of the loader comes before the training, which nothing of it outlives: its workers are gone, the random
    generators are put back. The computing comes after the window alone: another training before it would leave the
    device's memory and its compiled graphs otherwise than a training by itself finds them.
    """

    def __init__(
        self,
        trainer: Trainer,
        backend: Backend,
        cell: Cell,
        data: Samples,
        settle: Callable[[], None],
        watch: HostWatch | None = None,
    ) -> None:
        """Begin with nothing measured.

        Args:
            trainer: the one that is to train; its model is trained on after its window.
        """
        self._trainer, self._backend, self._cell, self._data = trainer, backend, cell, data
        self._settle, self._watch = settle, watch
        self._rates: dict[str, list[float]] = {"loader": [], "compute": []}
        self._failed: dict[str, str] = {}

    def before(self) -> None:
        """A stretch of the loader before the training."""
        with torch.random.fork_rng(devices=[]):
            self._stretch("loader", self._loader_rate)

    def after(self, window: Window, throughput: float) -> Iterator[dict[str, Any]]:
        """The other stretches in turn; after each what is known so far, in samples/s over all ranks.

        A limit that fails is not tried again, and has its reason beside the stretches that there were; without one it
        is absent. Nothing is taken from the measurement, which has been said. A rank that fails in the middle of a
        step ends the trial, for the others wait for it.

        Args:
            window: the real one, which says how long a step takes at most.
            throughput: of the real window, over all ranks.
        """
        if self._watch is not None:
            self._watch.begins()
        share = max(
            LEAST_SECONDS, window.seconds / (2 * STRETCHES)
        )  # all stretches together take about a window's time
        for _ in range(STRETCHES):
            if len(self._rates["loader"]) < STRETCHES:
                self._stretch("loader", lambda: self._loader_rate(min(LOADER_SECONDS, share)))
                yield self._figures(throughput)
            self._stretch("compute", lambda: self._compute_rate(window, min(COMPUTE_SECONDS, share)))
            yield self._figures(throughput)
        use = self._watch.figures() if self._watch is not None else {}
        yield {f"ceilings_{name}": value for name, value in use.items() if name in WATCHED}

    def _stretch(self, kind: str, rate: Callable[[], float]) -> None:
        if kind in self._failed:
            return
        try:
            self._rates[kind].append(rate())
        except NO_CEILING as error:
            if kind == "compute" and self._trainer.args.world_size > 1:
                raise
            self._failed[kind] = str(error) if kind == "loader" else reason_of(error)

    def _figures(self, throughput: float) -> dict[str, Any]:
        found: dict[str, Any] = {f"{kind}_ceiling_failed": reason for kind, reason in self._failed.items()}
        for kind, rates in self._rates.items():
            if rates:
                found[f"{kind}_ceiling_samples_per_second"] = math.fsum(rates) / len(rates)
                found |= {f"{kind}_ceiling_lowest": min(rates), f"{kind}_ceiling_highest": max(rates)}
        if self._backend.asynchronous and self._rates["compute"]:
            found["data_wait_fraction"] = max(0.0, 1 - throughput / found["compute_ceiling_samples_per_second"])
        return found

    def _loader_rate(self, seconds: float = LOADER_SECONDS) -> float:
        def rate() -> float:
            self._settle()
            loader = independent(self._trainer.get_train_dataloader())
            ahead = self._cell.prefetched_batches + 1
            found = loader_rate(loader, ahead, self._backend.synchronize, seconds=seconds)
            if hasattr(loader, "end"):
                loader.end()  # accelerate holds on to a loader that was left before its end
            return found

        try:
            return of_all_ranks(rate)
        finally:
            self._trainer.accelerator.free_memory()

    def _compute_rate(self, window: Window, seconds: float) -> float:
        alone = compute_window(self._trainer, self._backend, self._cell, self._data, window, self._settle, seconds)
        return of_all_ranks(lambda: sum(step.samples for step in alone.steps) / alone.seconds)


def compute_window(
    trainer: Trainer,
    backend: Backend,
    cell: Cell,
    data: Samples,
    window: Window,
    settle: Callable[[], None],
    seconds: float = COMPUTE_SECONDS,
) -> Window:
    """The Trainer's loop on one resident batch, metered as the real one was.

    Args:
        trainer: the one that has trained; its model is trained on.
        window: the real window, which says how long a step takes at most.
        seconds: how long it is to take at most.

    Returns:
        A window whose samples a second are the compute ceiling of this rank.
    """
    batch_size = cell.training.per_device_train_batch_size
    batch = _on_device(data.batch([row % len(data) for row in range(batch_size)]), trainer.args.device)
    steps = COMPUTE_WARMUP_STEPS + _steps_for(seconds, window)
    model, scratch = trainer.model, Path(trainer.args.output_dir)
    let_go(trainer)
    meter = Meter(COMPUTE_WARMUP_STEPS, steps, settle)
    batches = ResidentBatches(batch, steps * cell.training.gradient_accumulation_steps)
    resident = trainer_for(backend, backend.arguments(cell, steps, scratch), meter, model, data, batches)
    resident.train()
    return meter.window()


def let_go(trainer: Trainer) -> None:
    """Give back the memory of a trainer that has trained, all but its model's: another is to train beside it.

    Its optimizer's state and the buckets of its DDP are several times the size of the model.
    """
    trainer.optimizer = trainer.lr_scheduler = None
    trainer.model_wrapped = trainer.model
    handler = trainer.callback_handler
    handler.optimizer = handler.lr_scheduler = handler.train_dataloader = None
    trainer.accelerator.free_memory()
    for name in [name for name in vars(trainer.model) if name.startswith(FAST_DDP)]:
        delattr(trainer.model, name)
    trainer.model.zero_grad(set_to_none=True)
    gc.collect()


def _steps_for(seconds: float, window: Window) -> int:
    """Steps that fill about `seconds`, never more than the window had, unless that was very short.

    The same for every rank: a rank that took one step more would wait for the others for ever.
    """
    step_seconds = window.seconds / len(window.steps)
    own = max(FEWEST_STEPS, min(len(window.steps), math.ceil(seconds / step_seconds)))
    return int(max(gather(own)))


def _on_device(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in batch.items()}


def loader_rate(
    loader: Loader,
    discard: int,
    synchronize: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
    seconds: float = LOADER_SECONDS,
) -> float:
    """Samples a second that a fresh loader delivers to the device when nothing is computed.

    Epoch follows epoch, as in training, until the time is full. A loader works ahead, but not beyond an epoch's end: so
    the clock starts and stops at places of an epoch where as much is loaded ahead, and what is counted between the two
    is what was loaded between them.

    Args:
        loader: begins an epoch each time it is iterated over; its batches arrive on the device.
        discard: batches to throw away first: those that the queues hold before anybody asks.
        seconds: how long to draw, or a little longer: to the next such place.

    Raises:
        RuntimeError: an epoch holds no batch.
    """
    drawn = _endless(loader)
    for _ in range(discard):
        next(drawn)
    start, _ = next(drawn)
    synchronize()
    started = clock()
    samples = 0
    for place, batch in drawn:
        samples += len(batch["input_ids"])
        if clock() - started >= seconds and _as_far_ahead(start, place, discard, len(loader)):
            break
    synchronize()
    return samples / (clock() - started)


def _endless(loader: Loader) -> Iterator[tuple[int, dict[str, Any]]]:
    """Batches of epoch after epoch, each with its place in its epoch."""
    while True:
        place = -1
        for place, batch in enumerate(loader):
            yield place, batch
        if place < 0:
            raise RuntimeError("an epoch of the loader holds no batch")


def _as_far_ahead(start: int, place: int, ahead: int, length: int) -> bool:
    """Whether at `place` of an epoch as much is loaded ahead as at `start`: the same one, or both far from its ends."""
    return place == start or all(ahead <= one < length - ahead for one in (start, place))


def independent(loader: Any) -> Any:
    """A loader of accelerate's that begins its epochs without a word to the other ranks, which may begin fewer."""
    if hasattr(loader, "rng_types"):
        loader.rng_types = None
    return loader


def of_all_ranks(measure: Callable[[], float]) -> float:
    """A figure of every rank, added up.

    Every rank hears of every other, whether its measurement failed or not, so that none waits for one that gave up.

    Raises:
        RuntimeError: the measurement failed on a rank.
    """
    value, reason = 0.0, ""
    try:
        value = measure()
    except NO_CEILING as error:
        reason = reason_of(error)
    found = gather((value, reason))
    failed = [f"rank {rank}: {words}" if len(found) > 1 else words for rank, (_, words) in enumerate(found) if words]
    if failed:
        raise RuntimeError(failed[0])
    return math.fsum(one for one, _ in found)


def reason_of(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def gather(value: Any) -> Sequence[Any]:
    """A value of every rank, in the order of the ranks."""
    distributed = torch.distributed
    if not distributed.is_initialized():
        return [value]
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values
