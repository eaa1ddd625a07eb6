"""BridgeTower for contrastive learning: from the hub, a local folder, or a preset with random weights."""

from dataclasses import asdict
from typing import Any

from transformers import AutoConfig, BridgeTowerConfig, BridgeTowerForContrastiveLearning

from bridgetower_ray.sweep.presets import PRESETS, Shape

LOGIT_SCALE_INIT = 2.6592  # ln(1/0.07), which a default BridgeTowerConfig of transformers 4.55 lacks


def preset_config(name: str) -> BridgeTowerConfig:
    """The configuration of a preset."""
    shape = PRESETS[name]
    towers = {"hidden_size": shape.hidden, "num_hidden_layers": shape.tower_layers}
    return BridgeTowerConfig(
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_hidden_layers=shape.cross_layers,
        intermediate_size=4 * shape.hidden,
        share_link_tower_layers=False,
        contrastive_hidden_size=shape.contrastive,
        logit_scale_init_value=LOGIT_SCALE_INIT,
        text_config={
            **towers,
            "num_attention_heads": shape.heads,
            "intermediate_size": 4 * shape.hidden,
            "vocab_size": shape.vocabulary,
        },
        vision_config={**towers, "patch_size": shape.patch, "image_size": shape.image},
    )


def load_model(model: str, folder: str | None, freeze_text_pooler: bool) -> BridgeTowerForContrastiveLearning:
    """Build the model on the CPU in float32.

    Args:
        model: the name in the sweep file.
        folder: the checkpoint's folder; None for a preset.
        freeze_text_pooler: take the text tower's pooler away, as the reference script does under this name:
            nothing downstream uses it, and DDP would wait for its gradients.
    """
    loaded = BridgeTowerForContrastiveLearning(preset_config(model)) if folder is None else _from_folder(folder)
    if freeze_text_pooler:
        loaded.bridgetower.text_model.pooler = None
    return loaded


def _from_folder(folder: str) -> BridgeTowerForContrastiveLearning:
    config = AutoConfig.from_pretrained(folder)
    if not hasattr(config, "logit_scale_init_value"):
        config.logit_scale_init_value = LOGIT_SCALE_INIT
    return BridgeTowerForContrastiveLearning.from_pretrained(folder, config=config)


def describe(model: BridgeTowerForContrastiveLearning) -> dict[str, Any]:
    """The model's shape as facts for the record: sizes and the number of parameters."""
    config = model.config
    shape = Shape(
        hidden=config.hidden_size,
        tower_layers=config.text_config.num_hidden_layers,
        heads=config.num_attention_heads,
        cross_layers=config.num_hidden_layers,
        vocabulary=config.text_config.vocab_size,
        patch=config.vision_config.patch_size,
        image=config.vision_config.image_size,
        contrastive=config.contrastive_hidden_size,
    )
    return {**asdict(shape), "parameters": sum(parameter.numel() for parameter in model.parameters())}
