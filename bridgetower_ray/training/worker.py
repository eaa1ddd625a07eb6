"""One rank's story, top to bottom: prepare, build, train under the meter, say what was measured."""

import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers

from bridgetower_ray.data.preparation import Prepared, prepare
from bridgetower_ray.errors import TrialError
from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.training.backends.choice import backend_for
from bridgetower_ray.training.backends.contract import Backend
from bridgetower_ray.training.ceilings import Ceilings, gather
from bridgetower_ray.training.compile_caches import compile_cache
from bridgetower_ray.training.edges import Edges, HostWatch
from bridgetower_ray.training.environment import describe_environment
from bridgetower_ray.training.events import Events
from bridgetower_ray.training.job import Job
from bridgetower_ray.training.media_loading import media_loader, name_of_loader
from bridgetower_ray.training.meter import Meter, Step, Window
from bridgetower_ray.training.model import describe, load_model
from bridgetower_ray.training.precision import SeenPrecision
from bridgetower_ray.training.samples import make_samples, normalise_inside_step
from bridgetower_ray.training.trainer import describe_loader, trainer_for

PROGRESS_SECONDS = 1.0


def run_rank(job: Job, events: Events) -> None:
    """Measure the job's trial as one of its ranks.

    Emits `phase` (what begins), `environment` (what runs), `steps` (progress, from every rank), `measured` (the
    result) and, after it, `figures` (what explains it).

    Raises:
        TrialError: the trial cannot run as it was asked for.
        UsageError: data or model cannot be had.
    """
    cell = job.trial.cell
    _check_world_size(cell)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.multiprocessing.set_start_method(cell.training.multiprocessing_context, force=True)
    events.phase("loading")
    prepared = job.prepared or prepare(cell, Path(job.base_folder))
    backend = backend_for(cell)
    total_steps = _total_steps(cell, prepared.rows)
    watch = None if job.trial.rehearsal else HostWatch(job.driver.here if job.driver else None)
    edges = Edges(backend, events, watch)
    sink = ProgressSink(events, total_steps)
    meter = Meter(cell.warmup_steps, total_steps, edges.settle, sink=sink, opens=edges.opens)
    with tempfile.TemporaryDirectory(prefix="bridgetower-ray-") as scratch:
        # Before the model: on a Gaudi they change what transformers builds it from.
        arguments = backend.arguments(cell, total_steps, Path(scratch))
        backend.set_seed(cell.training.seed)
        model = load_model(cell.model, prepared.model_folder, cell.training.freeze_text_pooler)
        facts = describe(model)
        data = make_samples(cell, prepared, facts["image"])
        if cell.training.input_pipeline != "reference":
            normalise_inside_step(model, prepared.model_folder)
        batches = media_loader(job, prepared, facts["image"])
        trainer = trainer_for(backend, arguments, meter, model, data, batches)
        loader = describe_loader(trainer)
        loader["loader"] = name_of_loader(job, loader["loader"])
        described = _describe_run(backend, trainer, prepared, facts, loader, total_steps, cell)
        events.emit("environment", **described)
        # torch.compile would trace the look, and compile anew once it is gone.
        compiled = cell.training.torch_compile or cell.training.torch_compile_backend is not None
        seen = None if compiled else SeenPrecision(model)
        ceilings = Ceilings(trainer, backend, cell, data, edges.settle, watch) if cell.measure.ceilings else None
        if ceilings is not None and batches is None:
            events.phase("ceilings")
            ceilings.before()
        events.phase("first_step")
        outcome = trainer.train()
        if seen is not None and seen.words is not None:
            described["effective"]["precision"] = seen.words
            events.emit("environment", **described)
        measured = edges.counted() | edges.host()
        window = meter.window()
        samples = sum(gather(sum(step.samples for step in window.steps)))
        events.emit("measured", **measured, **summarise(window, samples, backend), train_loss=outcome.training_loss)
        if ceilings is not None:
            events.phase("ceilings")
            for figures in ceilings.after(window, samples / window.seconds):
                events.emit("figures", **figures)
        events.phase("ending")
        if int(os.environ.get("RANK", "0")) == 0:
            events.emit("figures", **_work(model, cell))


def _work(model: transformers.PreTrainedModel, cell: Cell) -> dict[str, float]:
    """Operations a sample; absent where the model does not run on torch's meta device."""
    from bridgetower_ray.training.flops import flops_per_sample  # a third of a second that the others need not wait for

    pooler = model.bridgetower.text_model.pooler is not None
    try:
        return {"flops_per_sample": flops_per_sample(model.config, pooler, cell.training.max_seq_length)}
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        sys.stderr.write(f"operations a sample were not counted: {error}\n")
        return {}


def summarise(window: Window, samples: int, backend: Backend) -> dict[str, Any]:
    """The figures of a window.

    Args:
        samples: counted over all ranks.
    """
    memory, waited = backend.peak_memory_bytes(), window.host_fetch_fraction
    return {
        "train_samples_per_second": samples / window.seconds,
        "window_opened": window.opened,
        "window_seconds": window.seconds,
        "window_steps": len(window.steps),
        "window_samples": samples,
        "epoch_boundaries": window.epochs_begun,
        "epoch_boundary_seconds": window.epoch_boundary_seconds,
        **({} if memory is None else {"peak_device_memory_bytes": memory}),
        # Elsewhere a fetch holds the copy to the device, which may wait for what that still computes.
        **({} if backend.asynchronous else dict.fromkeys(("host_fetch_fraction", "data_wait_fraction"), waited)),
    }


class ProgressSink:
    """Collects steps and sends them on about once a second, so that a trial that dies has left its steps."""

    def __init__(self, events: Events, total_steps: int) -> None:
        self._events, self._total_steps = events, total_steps
        self._pending: list[Step] = []
        self._sent = float("-inf")

    def __call__(self, step: Step, now: float) -> None:
        """Take a step; send what is pending if it is time or the last one."""
        if step.step == 1 and step.warmup:
            self._events.phase("warm_up")
        self._pending.append(step)
        if now - self._sent >= PROGRESS_SECONDS or step.step == self._total_steps:
            self._events.steps(total_steps=self._total_steps, steps=[asdict(one) for one in self._pending])
            self._pending, self._sent = [], now


def _check_world_size(cell: Cell) -> None:
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks != cell.devices:
        raise TrialError(
            f"the trial is for {cell.devices} devices, but {ranks} ranks were started; by hand: "
            f"torchrun --nproc-per-node {cell.devices} -m bridgetower_ray.training TRIAL.json"
        )


def _total_steps(cell: Cell, rows: int) -> int:
    try:
        total = cell.total_steps(rows)
    except ValueError as error:
        raise TrialError(f"a window without steps: {error}") from None
    if total is None or total <= cell.warmup_steps:
        raise TrialError(f"a window without steps: of {total} steps {cell.warmup_steps} are warm-up")
    return total


def _describe_run(
    backend: Backend,
    trainer: transformers.Trainer,
    prepared: Prepared,
    model: dict[str, Any],
    loader: dict[str, Any],
    total_steps: int,
    cell: Cell,
) -> dict[str, Any]:
    arguments = trainer.args
    return {
        **describe_environment([backend.device_name()] * arguments.world_size),
        "asynchronous": backend.asynchronous,
        "model": model,
        "data": {
            "fingerprint": prepared.fingerprint,
            "samples": prepared.rows,
            "samples_left_out": len(prepared.left_out),
            "left_out": [one.model_dump() for one in prepared.left_out],
            **_made_of_images(prepared),
        },
        "effective": {
            **loader,
            "input_pipeline": cell.training.input_pipeline,
            "multiprocessing_context": torch.multiprocessing.get_start_method(),
            "trainer": backend.trainer_class.__name__,
            "ranks": arguments.world_size,
            "compile_cache": compile_cache(),
            **backend.facts(trainer),
            "total_batch": cell.total_batch,
            "total_steps": total_steps,
            "warmup_steps": cell.warmup_steps,
        },
    }


def _made_of_images(prepared: Prepared) -> dict[str, Any]:
    """What the cache of resized images cost, and how many images the decoder gets in another form than they had."""
    made = {
        "image_cache_build_seconds": prepared.image_cache_build_seconds,
        "image_cache_bytes": prepared.image_cache_bytes,
        "images_reencoded": prepared.jpeg_reencoded,
    }
    return {name: value for name, value in made.items() if value is not None}
