"""The three input pipelines: the same picture, and what each promises."""

import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from bridgetower_ray.data.cartoons import draw_cartoon
from bridgetower_ray.data.image_cache import CachedPixels, image_cache
from bridgetower_ray.data.pipelines import FastPipeline, ReferencePipeline, normalise_on_device, psnr
from bridgetower_ray.data.preparation import prepare
from bridgetower_ray.data.resize import SCALED_DECODE_MARGIN, fast_pixels
from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.sweep.plan import Plan
from bridgetower_ray.training.model import load_model
from bridgetower_ray.training.samples import CachedImages, CaptionedImages, make_samples, normalise_inside_step
from tests.conftest import MINI

PlanOf = Callable[[str], Plan]


def encode(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def photo(width: int, height: int, seed: int) -> Image.Image:
    """Smooth colours with fine texture on top."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    texture = rng.normal(0, 12, (height, width, 1))
    return Image.fromarray(np.clip(np.asarray(coarse) + texture, 0, 255).astype(np.uint8))


VARIED = {
    "cartoons": [draw_cartoon(index).jpeg for index in range(16)],
    "a wide scan": [encode(Image.open(io.BytesIO(draw_cartoon(2).jpeg)).resize((4750, 3600)), "JPEG")],
    "photos": [encode(photo(*size, 6), "JPEG", quality=85) for size in ((640, 480), (480, 900), (3000, 2200))],
    "smaller than wanted": [encode(photo(200, 150, 7), "JPEG"), encode(photo(60, 50, 8), "PNG")],
    "a strip": [encode(photo(1200, 300, 9), "JPEG")],
    "PNG with alpha": [encode(photo(500, 420, 10).convert("RGBA"), "PNG")],
    "palette": [encode(photo(500, 420, 11).convert("P"), "GIF")],
    "WebP": [encode(photo(500, 420, 12), "WEBP")],
    "CMYK": [encode(photo(500, 420, 13).convert("CMYK"), "JPEG")],
    "16 bits": [encode(Image.fromarray(np.asarray(photo(300, 260, 14).convert("L")).astype(np.uint16) * 257), "PNG")],
    "one bit": [encode(photo(500, 420, 15).convert("1", dither=Image.Dither.NONE), "PNG")],
}  # fmt: skip


@pytest.mark.parametrize("size", [64, 288, 294])
@pytest.mark.parametrize("kind", VARIED)
def test_fast_shows_the_reference_picture_within_40_db(kind: str, size: int) -> None:
    reference = ReferencePipeline(size, mean=(0, 0, 0), std=(1, 1, 1))
    for encoded in VARIED[kind]:
        fast = FastPipeline(size)(encoded).permute(2, 0, 1) / 255
        # A display shows what lies between 0 and 1: bicubic overshoot beyond it is the reference's, not a picture's.
        assert psnr(reference(encoded).clamp(0, 1), fast) > 40


@pytest.mark.parametrize("size", [48, 64, 294])
def test_a_scaled_decode_of_an_odd_width_does_not_shift_the_picture(size: int) -> None:
    """Line-art just large enough to be decoded at half its size: the half of an odd width is no whole number."""
    reference = ReferencePipeline(size, mean=(0, 0, 0), std=(1, 1, 1))
    for index in range(6):
        drawn = Image.open(io.BytesIO(draw_cartoon(index).jpeg))
        width = int(size * SCALED_DECODE_MARGIN * 2 * max(1.0, drawn.width / drawn.height)) + 1 + 2 * index
        encoded = encode(drawn.resize((width, width * drawn.height // drawn.width)), "JPEG", quality=90)
        fast = FastPipeline(size)(encoded).permute(2, 0, 1) / 255
        assert psnr(reference(encoded).clamp(0, 1), fast) > 43


def test_normalising_on_the_device_is_normalising() -> None:
    pixels = torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8)
    mean, std = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1), torch.tensor([0.2, 0.3, 0.4]).view(3, 1, 1)
    expected = (pixels.permute(0, 3, 1, 2).float() / 255 - mean) / std
    torch.testing.assert_close(normalise_on_device(pixels, mean, std), expected)


def table_of(encoded: list[bytes]) -> datasets.Dataset:
    images = [{"bytes": one, "path": None} for one in encoded]
    features = datasets.Features({"image": datasets.Image(decode=False)})
    return datasets.Dataset.from_dict({"image": images}, features=features)


def test_cached_pixels_are_the_fast_ones_to_the_bit_and_captions_share_images() -> None:
    drawn = [draw_cartoon(index).jpeg for index in (0, 1, 0, 2, 1)]
    pixels = CachedPixels(image_cache(table_of(drawn), "shared", 64, limit_gib=1))
    out = np.empty((5, 64, 64, 3), dtype=np.uint8)
    pixels.read([0, 1, 2, 3, 4], out)
    assert all(np.array_equal(out[row], fast_pixels(encoded, 64)) for row, encoded in enumerate(drawn))
    assert np.load(image_cache(table_of(drawn), "shared", 64, limit_gib=1) / "pixels.npy").shape == (3, 64, 64, 3)


def test_a_cache_over_its_disk_limit_is_refused_with_what_it_would_need() -> None:
    with pytest.raises(
        UsageError, match=r"1 images of 64 pixels need \S+ GiB, over dataset.image_cache_limit_gib: 1e-06"
    ):
        image_cache(table_of([draw_cartoon(0).jpeg]), "limited", 64, limit_gib=1e-6)


def test_two_builders_make_one_cache(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from bridgetower_ray.data.cartoons import draw_cartoon
from bridgetower_ray.data.image_cache import image_cache
from tests.data.test_pipelines import table_of
table = table_of([draw_cartoon(index).jpeg for index in range(24)])
print(image_cache(table, "raced", 64, 1, lambda words: print(words.partition(" ")[0])))
"""
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [one.communicate(timeout=120)[0].split() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert sum("caching" in lines for lines in printed) == 1, "one built, the other waited or found it built"
    assert printed[0][-1] == printed[1][-1]


def test_a_copy_for_a_worker_opens_the_file_and_carries_no_pixels() -> None:
    pixels = CachedPixels(image_cache(table_of([draw_cartoon(0).jpeg]), "pickled", 64, limit_gib=1))
    assert len(pickle.dumps(pixels)) < 1000
    assert len(pickle.loads(pickle.dumps(pixels))) == 1


def samples_of(pipeline: str, plan_of: PlanOf, tmp_path: Path) -> tuple[Cell, CaptionedImages | CachedImages]:
    text = MINI.replace("max_steps: 9", f"max_steps: 9, input_pipeline: {pipeline}")
    cell = plan_of(text).cells[0].cell
    return cell, make_samples(cell, prepare(cell, tmp_path), 64)


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("pipeline", ["fast", "cached"])
def test_pixels_cross_from_a_worker_as_bytes_in_shared_memory(
    pipeline: str, context: str, plan_of: PlanOf, tmp_path: Path
) -> None:
    _, data = samples_of(pipeline, plan_of, tmp_path)
    loader = DataLoader(data, 4, num_workers=1, collate_fn=data.collate, multiprocessing_context=context)
    batch = next(iter(loader))
    assert (batch["pixel_values"].dtype, batch["pixel_values"].shape) == (torch.uint8, (4, 64, 64, 3))
    assert batch["pixel_values"].is_shared()
    here = data.batch([0, 1, 2, 3])
    assert all(torch.equal(batch[name], here[name]) for name in ("pixel_values", "input_ids", "attention_mask"))
    assert batch["return_loss"] is True


def test_the_reference_batch_is_the_published_one(plan_of: PlanOf, tmp_path: Path) -> None:
    _, data = samples_of("reference", plan_of, tmp_path)
    batch = data.batch([0, 1])
    assert (batch["pixel_values"].dtype, batch["pixel_values"].shape) == (torch.float32, (2, 3, 64, 64))


def losses(pipeline: str, seed: int, plan_of: PlanOf, tmp_path: Path, steps: int = 50) -> torch.Tensor:
    """Losses of the first steps of a training whose seed draws the weights and the order of the samples."""
    cell, data = samples_of(pipeline, plan_of, tmp_path)
    torch.manual_seed(seed)
    model = load_model(cell.model, None, freeze_text_pooler=True)
    if pipeline != "reference":
        normalise_inside_step(model, None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    found = []
    for _ in range(steps):
        loss = model(**data.batch(torch.randint(len(data), (4,)).tolist()))["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found)


def test_fast_and_cached_train_as_the_reference_does(plan_of: PlanOf, tmp_path: Path) -> None:
    reference, other_seed = (losses("reference", seed, plan_of, tmp_path) for seed in (1, 2))
    spread = (reference - other_seed).abs().mean()
    for pipeline in ("fast", "cached"):
        assert (losses(pipeline, 1, plan_of, tmp_path) - reference).abs().mean() < spread
