"""The ceilings: what a loader of accelerate's gives when asked alone, and ranks that give up in the middle."""

import gc
import json
import os
import subprocess
import sys
import weakref
from multiprocessing import Value
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

from bridgetower_ray.training.ceilings import Ceilings, _as_far_ahead, independent, loader_rate
from tests.servers import free_port

BATCH = 2
LOADED = Value("q", 0)  # samples that any process has loaded: the clock of these tests


class Counted(Dataset[dict[str, torch.Tensor]]):
    """Each sample takes one tick of the clock."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        with LOADED.get_lock():
            LOADED.value += 1
        return {"input_ids": torch.zeros(1)}


def ticks() -> float:
    return float(LOADED.value)


def real_loader(batches: int, workers: int) -> Any:
    loader = DataLoader(Counted(batches * BATCH), BATCH, num_workers=workers, multiprocessing_context=None)
    return independent(Accelerator(cpu=True).prepare(loader))


@pytest.mark.parametrize(("batches", "workers"), [(1, 0), (4, 0), (60, 0), (4, 1), (6, 2), (10, 2), (60, 2)])
def test_the_loaders_rate_counts_what_was_loaded_while_the_clock_ran(batches: int, workers: int) -> None:
    """By a clock of loaded samples the rate is 1, but for the batches that workers have in their hands at its edges."""
    ahead = 2 * workers
    rate = loader_rate(real_loader(batches, workers), ahead + 1, lambda: None, clock=ticks, seconds=300)
    assert rate == pytest.approx(1, abs=0.001 if workers == 0 else 2 * ahead * BATCH / 300)


def test_a_long_epoch_is_not_drawn_to_its_end() -> None:
    before = ticks()
    loader_rate(real_loader(10_000, 0), 1, lambda: None, clock=ticks, seconds=100)
    assert ticks() - before < 120


def test_a_loader_without_a_batch_gives_no_rate() -> None:
    with pytest.raises(RuntimeError, match="holds no batch"):
        loader_rate([], 1, lambda: None)  # type: ignore[arg-type]


def test_a_ceiling_that_fails_later_keeps_the_stretches_it_has_and_is_not_tried_again() -> None:
    stand_in: Any = SimpleNamespace(asynchronous=False)
    ceilings = Ceilings(stand_in, stand_in, stand_in, stand_in, lambda: None)
    rates = iter([4.0, 6.0])

    def rate() -> float:
        if (found := next(rates, None)) is None:
            raise RuntimeError("no more")
        return found

    for _ in range(4):
        ceilings._stretch("loader", rate)
    assert ceilings._figures(1.0) == {
        "loader_ceiling_samples_per_second": 5.0,
        "loader_ceiling_lowest": 4.0,
        "loader_ceiling_highest": 6.0,
        "loader_ceiling_failed": "no more",
    }


TWO_RANKS = """
import datetime, json, sys
import torch.distributed as distributed
from bridgetower_ray.training.ceilings import of_all_ranks
distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
def measure():
    if distributed.get_rank() == 1:
        raise RuntimeError("this rank's loader is at fault")
    return 5.0
try:
    said = of_all_ranks(measure)
except RuntimeError as error:
    said = str(error)
print(json.dumps([said, of_all_ranks(lambda: 2.0 + distributed.get_rank())]))
"""


def test_a_ceiling_that_fails_on_one_rank_is_known_to_all_and_the_next_one_is_measured() -> None:
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_RANKS], env={**common, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    for rank in ranks:
        said, _ = rank.communicate(timeout=120)
        assert json.loads(said) == ["rank 1: RuntimeError: this rank's loader is at fault", 5.0]


def test_a_trainer_that_is_let_go_of_keeps_neither_its_optimizer_nor_its_gradients(tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    from bridgetower_ray.training.ceilings import let_go

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(1, 1)

        def forward(self, input_ids: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
            return {"loss": self.linear(input_ids).sum()}

    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=2,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        remove_unused_columns=False,
    )
    trainer = Trainer(model=Model(), args=arguments, train_dataset=Counted(8))
    trainer.train()
    optimizer = weakref.ref(trainer.optimizer)
    inner = weakref.ref(trainer.optimizer.optimizer)
    let_go(trainer)
    gc.collect()
    assert optimizer() is None
    assert inner() is None
    assert all(parameter.grad is None for parameter in trainer.model.parameters())


@pytest.mark.parametrize(
    ("place", "expected"),
    [(1, True), (2, True), (3, False), (0, False)],
    ids=["the same", "as far", "the end", "the start"],
)
def test_the_clock_stops_where_as_much_is_loaded_ahead_as_where_it_started(place: int, expected: bool) -> None:
    """One batch ahead, epochs of four: nothing is ahead of the last batch."""
    assert _as_far_ahead(1, place, 1, 4) is expected
