"""The input pipelines: images/s on one core, through a DataLoader, and in a training; each over the reference."""

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import DataLoader

from bridgetower_ray.data.images import image_bytes
from bridgetower_ray.data.preparation import prepare
from bridgetower_ray.sweep.plan import make_plan
from bridgetower_ray.sweep.spec import load_spec
from bridgetower_ray.training.job import Job
from bridgetower_ray.training.samples import CachedImages, CaptionedImages, load_table, make_samples

COUNT, SIZE, BATCH = 256, 294, 16
PIPELINES = ("reference", "fast", "cached")
SWEEP = """\
name: bench
model: preset:tiny
dataset: {{path: builtin:cartoons, max_train_samples: {count}}}
training: {{per_device_train_batch_size: 8, max_steps: 70, max_seq_length: 32}}
measure: {{warmup_steps: 3, repeats: 1, ceilings: false}}
axes: {{accelerator: [cpu], dataloader_num_workers: [0, 1, 2], input_pipeline: [reference, fast, cached]}}
"""


def main() -> None:
    """Print the three tables."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.yaml"
        file.write_text(SWEEP.format(count=COUNT))
        plan = make_plan(load_spec(file)[0])
        trials = {
            (one.cell.training.input_pipeline, one.cell.training.dataloader_num_workers): one for one in plan.trials
        }
        cells = {name: trials[name, 0].cell.model_copy(update={"model": "preset:large"}) for name in PIPELINES}
        data = {name: make_samples(cell, prepare(cell, Path(folder)), SIZE) for name, cell in cells.items()}
        table = load_table(prepare(cells["reference"], Path(folder)).data_folder)
        print(f"{COUNT} drawn cartoons at {SIZE} pixels, batches of {BATCH}; images/s, and over the reference")
        one_core = {"decode alone": _rate(lambda rows: [_decode(image_bytes(table[row]["image"])) for row in rows])}
        one_core |= {name: _rate(data[name].batch) for name in PIPELINES}
        _print("main process, one core", one_core)
        for workers in (0, 1, 2):
            rates = {name: _loader_rate(data[name], workers) for name in PIPELINES}
            _print(f"DataLoader, workers={workers}", rates)
        print("training preset:tiny at 64 pixels, batch 8; samples/s, and over the reference")
        for workers in (0, 1, 2):
            rates = {
                name: _trial_rate(Job(trial=trials[name, workers], base_folder=folder), folder) for name in PIPELINES
            }
            _print(f"trial, workers={workers}", rates)


def _print(title: str, rates: dict[str, float]) -> None:
    parts = [f"{name} {rate:,.0f} ({rate / rates['reference']:.2f}x)" for name, rate in rates.items()]
    print(f"{title:<24} {'   '.join(parts)}", flush=True)


def _decode(encoded: bytes) -> None:
    Image.open(io.BytesIO(encoded)).load()


def _rate(work: Callable[[Sequence[int]], object], seconds: float = 3.0) -> float:
    """Images a second, over whole passes so that every arm sees the same images; the first pass is not counted."""
    passes = -1
    started = time.perf_counter()
    while passes < 1 or time.perf_counter() - started < seconds:
        if passes == 0:
            started = time.perf_counter()
        for first in range(0, COUNT, BATCH):
            work(range(first, first + BATCH))
        passes += 1
    return passes * COUNT / (time.perf_counter() - started)


def _loader_rate(data: CaptionedImages | CachedImages, workers: int) -> float:
    """As the loader ceiling of a cell: what the queues held at the start is thrown away."""
    rows = list(range(COUNT)) * (40 if hasattr(data, "__getitems__") else 3)
    loader = DataLoader(data, BATCH, sampler=rows, num_workers=workers, collate_fn=data.collate)
    batches = iter(loader)
    for _ in range(2 * workers + 1):
        next(batches)
    started, images = time.perf_counter(), 0
    for batch in batches:
        images += len(batch["input_ids"])
    return images / (time.perf_counter() - started)


def _trial_rate(job: Job, folder: str) -> float:
    file = Path(folder) / "trial.json"
    file.write_text(job.model_dump_json())
    command = [sys.executable, "-m", "bridgetower_ray.training", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return next(event["train_samples_per_second"] for event in events if event["event"] == "measured")
