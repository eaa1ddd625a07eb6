"""Operations a sample: torch's count on the meta device against a closed form."""

from pathlib import Path

import pytest

from bridgetower_ray.report.published import BRIDGETOWER_BLOG
from bridgetower_ray.sweep.presets import PRESETS, Shape
from bridgetower_ray.training.flops import count_flops, flops_per_sample
from bridgetower_ray.training.model import preset_config


def closed_form(shape: Shape, tokens: int) -> float:
    """Forward: 2 operations for each product of a matrix multiplication. Backward: twice that, but for the first layer,
    whose input, the pixels, wants no gradient."""
    hidden, patches = shape.hidden, (shape.image // shape.patch) ** 2
    pixels = patches + 1  # the class token

    def layer(own: int, other: int | None = None) -> float:
        attention = 8 * own * hidden**2 + 4 * own**2 * hidden
        if other is not None:
            attention += 4 * own * hidden**2 + 4 * other * hidden**2 + 4 * own * other * hidden
        return attention + 16 * own * hidden**2

    text = shape.tower_layers * layer(tokens)
    vision = shape.tower_layers * layer(pixels)
    cross = shape.cross_layers * (layer(tokens, pixels) + layer(pixels, tokens))
    transforms = shape.cross_layers * 2 * (tokens + pixels) * hidden**2  # before each of them
    poolers = 2 * 2 * hidden**2
    heads = 2 * shape.contrastive * (hidden + hidden + 2 * hidden)
    patching = 2 * patches * hidden * 3 * shape.patch**2
    return 3 * (text + vision + cross + transforms + poolers + heads) + 2 * patching


@pytest.mark.parametrize(("name", "tokens"), [("preset:tiny", 16), ("preset:large", 128)])
def test_the_count_is_that_of_the_closed_form(name: str, tokens: int) -> None:
    counted = count_flops(preset_config(name), pooler=False, max_seq_length=tokens)
    assert counted == pytest.approx(closed_form(PRESETS[name], tokens), rel=0.01)
    if name == "preset:large":
        assert counted == pytest.approx(1488.9e9, rel=1e-4)
        assert pytest.approx(counted, rel=1e-4) == BRIDGETOWER_BLOG.flops_per_sample


def test_a_count_is_made_once_for_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGETOWER_RAY_CACHE", str(tmp_path))
    first = flops_per_sample(preset_config("preset:tiny"), False, 16)
    (file,) = (tmp_path / "flops").iterdir()
    file.write_text("12.0")
    assert flops_per_sample(preset_config("preset:tiny"), False, 16) == 12.0
    assert flops_per_sample(preset_config("preset:tiny"), False, 32) > first
