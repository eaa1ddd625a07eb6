"""The training data set of a rank and its collation: captions tokenised once, images transformed on the fly."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import AutoTokenizer

from bridgetower_ray.data.images import image_bytes

# CLIP's, which BridgeTower's image processor uses where a checkpoint does not say otherwise.
IMAGE_MEAN = (0.48145466, 0.4578275, 0.40821073)
IMAGE_STD = (0.26862954, 0.26130258, 0.27577711)


class CaptionedImages(Dataset[dict[str, Tensor]]):
    """Sample -> `pixel_values` as the pipeline makes them, `input_ids` and `attention_mask` of (max_seq_length,)."""

    def __init__(
        self, images: datasets.Dataset, tokens: dict[str, Tensor], transform: Callable[[bytes], Tensor]
    ) -> None:
        self._images, self._tokens, self._transform = images, tokens, transform

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        sample = {name: values[row] for name, values in self._tokens.items()}
        return {"pixel_values": self._transform(image_bytes(self._images[row]["image"])), **sample}


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


def collate(samples: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
    """Stack samples into a batch; `return_loss` makes the model compute its contrastive loss."""
    batch: dict[str, Any] = {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}
    return {**batch, "return_loss": True}


def normalisation(model_folder: str | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation for each channel, as the checkpoint's image processor has them."""
    file = Path(model_folder or "") / "preprocessor_config.json"
    settings = json.loads(file.read_text()) if model_folder and file.is_file() else {}
    return tuple(settings.get("image_mean", IMAGE_MEAN)), tuple(settings.get("image_std", IMAGE_STD))
