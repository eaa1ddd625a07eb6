"""How many floating-point operations a training step needs for a sample: counted on the model, once per node."""

import hashlib
import json
import os
from pathlib import Path

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import BridgeTowerConfig, BridgeTowerForContrastiveLearning

from bridgetower_ray.data.cache import cache_root
from bridgetower_ray.doctor.kernel_files import content


def flops_per_sample(config: BridgeTowerConfig, pooler: bool, max_seq_length: int) -> float:
    """Of a forward and a backward pass, by torch's counter on the meta device, where fused attention is counted too.

    What it counts are multiplications and additions of matrix products and convolutions, two for each pair; seconds
    for the large model, so the answer is kept in the node's cache.

    Args:
        pooler: whether the text tower has its pooler.
    """
    kept = _file(config, pooler, max_seq_length)
    if text := content(kept):
        return float(text)
    counted = count_flops(config, pooler, max_seq_length)
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_name(f"{kept.name}.{os.getpid()}")
    unfinished.write_text(str(counted))
    unfinished.replace(kept)
    return counted


def count_flops(config: BridgeTowerConfig, pooler: bool, max_seq_length: int) -> float:
    """The count, without the cache."""
    side = config.vision_config.image_size
    with torch.device("meta"):
        model = BridgeTowerForContrastiveLearning(config)
        if not pooler:
            model.bridgetower.text_model.pooler = None
        tokens = torch.ones(1, max_seq_length, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            pixels = torch.empty(1, 3, side, side)
            model(input_ids=tokens, attention_mask=tokens, pixel_values=pixels, return_loss=True).loss.backward()
    return float(counter.get_total_flops())


def _file(config: BridgeTowerConfig, pooler: bool, max_seq_length: int) -> Path:
    decisive = [config.to_json_string(), pooler, max_seq_length, torch.__version__, transformers.__version__]
    return cache_root() / "flops" / hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]
