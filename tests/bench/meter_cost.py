"""Throughput with the meter over that of the same steps without it, interleaved."""

import statistics
import tempfile
import time
from pathlib import Path

import torch
from transformers import Trainer

from bridgetower_ray.training.model import load_model
from tests.bench.synthetic import SleepingSamples, arguments, quietly

PAIRS, STEPS, BATCH = 9, 60, 4


class _Images(SleepingSamples):
    def __init__(self) -> None:
        super().__init__(BATCH * (STEPS + 4), 0.0)
        generator = torch.Generator().manual_seed(0)
        self._pixels = torch.rand(3, 64, 64, generator=generator)
        self._ids = torch.randint(4, 1000, (16,), generator=generator)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": self._pixels, "input_ids": self._ids, "attention_mask": torch.ones_like(self._ids)}


def _collate(samples: list[dict[str, torch.Tensor]]) -> dict[str, object]:
    return {**{name: torch.stack([one[name] for one in samples]) for name in samples[0]}, "return_loss": True}


def _seconds(metered: bool) -> float:
    from bridgetower_ray.training.meter import Meter
    from bridgetower_ray.training.trainer import metered_trainer

    model = load_model("preset:tiny", None, freeze_text_pooler=True)
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "model": model,
            "args": arguments(Path(folder), BATCH, 0, STEPS),
            "train_dataset": _Images(),
            "data_collator": _collate,
        }
        meter = Meter(1, STEPS, lambda: None)
        trainer = metered_trainer(Trainer, meter, **settings) if metered else Trainer(**settings)
        started = time.monotonic()
        quietly(trainer.train)
        return time.monotonic() - started


def main() -> None:
    """Print the median ratio of throughputs, metered over bare; 1 is free."""
    torch.set_num_threads(1)
    _seconds(metered=True)
    ratios = []
    for pair in range(PAIRS):
        first, second = _seconds(metered=pair % 2 == 0), _seconds(metered=pair % 2 == 1)
        metered, bare = (first, second) if pair % 2 == 0 else (second, first)
        ratios.append(bare / metered)
    print(f"throughput with the meter / without, median of {PAIRS} pairs: {statistics.median(ratios):.3f}")
    print(f"least {min(ratios):.3f}, most {max(ratios):.3f}")
