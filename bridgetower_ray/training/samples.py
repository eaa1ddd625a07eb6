"""The training data set of a rank and its collation: captions tokenised once, images transformed on the fly."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import datasets
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate, get_worker_info
from transformers import AutoTokenizer

from bridgetower_ray.data.image_cache import CachedPixels
from bridgetower_ray.data.images import image_bytes
from bridgetower_ray.data.pipelines import FastPipeline, ReferencePipeline, normalise_on_device
from bridgetower_ray.data.preparation import Prepared
from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.training.binding import worker_threads

# CLIP's, which BridgeTower's image processor uses where a checkpoint does not say otherwise.
IMAGE_MEAN = (0.48145466, 0.4578275, 0.40821073)
IMAGE_STD = (0.26862954, 0.26130258, 0.27577711)


class Samples(Protocol):
    """A training data set of a rank, which knows how its samples become a batch."""

    def __len__(self) -> int:
        """Samples in an epoch."""

    def batch(self, rows: Sequence[int]) -> dict[str, Any]:
        """The batch of some samples."""

    def collate(self, fetched: Any) -> dict[str, Any]:
        """What the loader fetched for a batch -> the batch; `return_loss` makes the model compute its loss."""


class CaptionedImages(Dataset[dict[str, Tensor]]):
    """Sample -> `pixel_values` as the pipeline makes them, `input_ids` and `attention_mask` of (max_seq_length,)."""

    def __init__(
        self,
        images: datasets.Dataset,
        tokens: dict[str, Tensor],
        transform: Callable[[bytes], Tensor],
        stack: Callable[[Sequence[dict[str, Tensor]]], dict[str, Tensor]],
        threads: int,
    ) -> None:
        self._images, self._tokens, self._transform, self._stack = images, tokens, transform, stack
        self._threads = threads

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        _set_worker_threads(self._threads)
        sample = {name: values[row] for name, values in self._tokens.items()}
        return {"pixel_values": self._transform(image_bytes(self._images[row]["image"])), **sample}

    def batch(self, rows: Sequence[int]) -> dict[str, Any]:
        return self.collate([self[row] for row in rows])

    def collate(self, fetched: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
        return {**self._stack(fetched), "return_loss": True}


class CachedImages(Dataset[dict[str, Tensor]]):
    """The same from resized images in a memory map, a batch at a time, with uint8 `pixel_values`."""

    def __init__(self, pixels: CachedPixels, tokens: dict[str, Tensor]) -> None:
        self._pixels, self._tokens = pixels, tokens

    def __len__(self) -> int:
        return len(self._pixels)

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        """The whole batch; torch's loader asks for it in this way where a data set offers it."""
        pixels = _empty_for_transfer((len(rows), *self._pixels.shape))
        self._pixels.read(rows, pixels.numpy())
        return {"pixel_values": pixels, **{name: values[rows] for name, values in self._tokens.items()}}

    def batch(self, rows: Sequence[int]) -> dict[str, Any]:
        return self.collate(self.__getitems__(list(rows)))

    def collate(self, fetched: dict[str, Tensor]) -> dict[str, Any]:
        return {**fetched, "return_loss": True}


def _empty_for_transfer(shape: tuple[int, ...]) -> Tensor:
    """A uint8 tensor, in a worker in shared memory, so that it crosses to the main process without a copy."""
    if get_worker_info() is None:
        return torch.empty(shape, dtype=torch.uint8)
    untyped: Any = torch.UntypedStorage
    return torch.empty(0, dtype=torch.uint8).set_(untyped._new_shared(math.prod(shape))).view(shape)


def _set_worker_threads(threads: int) -> None:
    """torch gives a loader's worker one thread, whatever the process has."""
    if get_worker_info() is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def stack_as_published(samples: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The reference script's collation: a batch that a worker then copies once more into shared memory."""
    return {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}


def stack_once(samples: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """torch's own collation, which stacks straight into shared memory in a worker."""
    return cast(dict[str, Tensor], default_collate(list(samples)))


def load_table(folder: str) -> datasets.Dataset:
    """The prepared images and captions."""
    return datasets.load_from_disk(folder)


def tokenize(captions: Sequence[str], tokenizer_folder: str, max_seq_length: int) -> dict[str, Tensor]:
    """All captions at once, padded to `max_seq_length`: int64 tensors of (captions, max_seq_length)."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    tokens = tokenizer(
        list(captions), max_length=max_seq_length, padding="max_length", truncation=True, return_tensors="pt"
    )
    return {name: tokens[name] for name in ("input_ids", "attention_mask")}


def load_tokens(cell: Cell, prepared: Prepared) -> dict[str, Tensor]:
    """The tokens of all captions of a cell's data set, in order."""
    captions = load_table(prepared.data_folder)["caption"]
    return tokenize(captions, prepared.tokenizer_folder, cell.training.max_seq_length)


def make_samples(cell: Cell, prepared: Prepared, image_size: int) -> CaptionedImages | CachedImages:
    """The data set of a cell, under its input pipeline."""
    training = cell.training
    table, tokens = load_table(prepared.data_folder), load_tokens(cell, prepared)
    images, threads = table.select_columns(["image"]), worker_threads(cell)
    if training.input_pipeline == "cached":
        return CachedImages(CachedPixels(Path(prepared.image_cache_folder or "")), tokens)
    if training.input_pipeline == "fast":
        return CaptionedImages(images, tokens, FastPipeline(image_size), stack_once, threads)
    transform = ReferencePipeline(image_size, *normalisation(prepared.model_folder))
    return CaptionedImages(images, tokens, transform, stack_as_published, threads)


def normalise_inside_step(model: nn.Module, model_folder: str | None) -> None:
    """Have the model normalise uint8 pixels on its device, at the start of each forward pass."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in normalisation(model_folder))
    model.register_buffer("image_mean", mean, persistent=False)
    model.register_buffer("image_std", std, persistent=False)

    def normalise(module: Any, arguments: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        pixels = normalise_on_device(named["pixel_values"], module.image_mean, module.image_std)
        return arguments, {**named, "pixel_values": pixels}

    model.register_forward_pre_hook(normalise, with_kwargs=True)


def normalisation(model_folder: str | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation for each channel, as the checkpoint's image processor has them."""
    file = Path(model_folder or "") / "preprocessor_config.json"
    settings = json.loads(file.read_text()) if model_folder and file.is_file() else {}
    return tuple(settings.get("image_mean", IMAGE_MEAN)), tuple(settings.get("image_std", IMAGE_STD))
