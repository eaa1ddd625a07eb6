"""The shapes of the random-weight presets."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The sizes of a preset."""

    hidden: int
    tower_layers: int
    heads: int
    cross_layers: int
    vocabulary: int
    patch: int
    image: int
    contrastive: int = 512


# base and large as BridgeTower/bridgetower-base-itm-mlm and bridgetower-large-itm-mlm-itc; tiny is ours, for CPUs.
PRESETS = {
    "preset:tiny": Shape(64, 4, 4, 2, 1000, 16, 64, contrastive=64),
    "preset:base": Shape(768, 12, 12, 6, 50265, 16, 288),
    "preset:large": Shape(1024, 24, 16, 6, 50265, 14, 294),
}
