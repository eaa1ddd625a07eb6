"""Images and captions from every source, good and bad."""

import io
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import datasets
import huggingface_hub
import numpy as np
import pytest
import torch
from filelock import FileLock
from PIL import Image
from transformers import AutoTokenizer

from bridgetower_ray.data import preparation
from bridgetower_ray.data.cache import cached_folder
from bridgetower_ray.data.captions import check_local_source, first_caption, load_captions, source_of
from bridgetower_ray.data.cartoons import cartoons_parquet, draw_cartoon
from bridgetower_ray.data.images import open_rgb
from bridgetower_ray.data.pipelines import ReferencePipeline, psnr
from bridgetower_ray.data.preparation import prepare
from bridgetower_ray.data.resize import centre_crop_offset, resized_shape
from bridgetower_ray.data.tokenizer import train_tokenizer
from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.sweep.plan import Plan
from bridgetower_ray.sweep.settings import DatasetSettings
from tests.conftest import MINI

PlanOf = Callable[[str], Plan]


def encode(image: Image.Image, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


def write_images(folder: Path, count: int = 21, truncated: int = 1) -> Path:
    """Mixed formats under names that do not tell, with a metadata.csv; the last ones cut in half."""
    folder.mkdir()
    forms = ["JPEG", "PNG", "WEBP", "GIF"]
    lines = ["file_name,text"]
    for index in range(count):
        image = Image.open(io.BytesIO(draw_cartoon(index).jpeg)).resize((90, 70))
        encoded = encode(image.convert("RGBA") if index == 1 else image, forms[index % 4])
        cut = index >= count - truncated
        (folder / f"{index:02d}.jpg").write_bytes(encoded[: len(encoded) // 2] if cut else encoded)
        lines.append(f"{index:02d}.jpg,drawing number {index}")
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")
    return folder


def cell_on(path: str, plan_of: PlanOf, **replacements: str) -> Cell:
    text = MINI.replace("builtin:cartoons, max_train_samples: 24", path)
    for old, new in replacements.items():
        text = text.replace(old, new)
    return plan_of(text).cells[0].cell


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I", "I;16", "F"])
def test_an_image_of_any_mode_becomes_rgb(mode: str) -> None:
    ramp = np.linspace(0, 255, 48 * 40).reshape(40, 48)
    image = Image.fromarray(ramp.astype(np.uint8)).convert("RGB")
    if mode == "I;16":
        image = Image.fromarray((ramp * 257).astype(np.uint16))
    elif mode == "I":
        image = Image.fromarray((ramp * 257).astype(np.int32))
    elif mode == "F":
        image = Image.fromarray(ramp.astype(np.float32))
    else:
        image = image.convert(mode)
    rgb = open_rgb(encode(image, "TIFF"))
    assert (rgb.mode, rgb.size) == ("RGB", (48, 40))
    pixels = np.asarray(rgb)
    assert pixels.max() > 200, "the bright end is bright"
    assert pixels.min() < 60, "and the dark end is not clipped to white"


def test_a_truncated_image_is_an_error_and_not_a_grey_half() -> None:
    jpeg = draw_cartoon(0).jpeg
    with pytest.raises(OSError, match="truncated"):
        open_rgb(jpeg[: len(jpeg) // 2])


@pytest.mark.parametrize(
    ("height", "width", "shape", "offset"),
    [
        (552, 605, (294, 322), (0, 14)),
        (605, 552, (322, 294), (14, 0)),
        (100, 100, (294, 294), (0, 0)),
        (300, 4750, (294, 4655), (0, 2180)),
    ],
)
def test_resize_and_crop_are_torchvisions(
    height: int, width: int, shape: tuple[int, int], offset: tuple[int, int]
) -> None:
    assert resized_shape(height, width, 294) == shape
    assert centre_crop_offset(*shape, 294) == offset


def test_the_reference_pipeline_normalises_a_plain_image_to_the_expected_values() -> None:
    pipeline = ReferencePipeline(64, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.5))
    pixels = pipeline(encode(Image.new("RGB", (200, 100), (255, 0, 128))))
    assert pixels.shape == (3, 64, 64)
    expected = torch.tensor([(1 - 0.5) / 0.2, -0.4 / 0.25, (128 / 255 - 0.3) / 0.5])
    torch.testing.assert_close(pixels.mean(dim=(1, 2)), expected, rtol=1e-4, atol=1e-4)


def test_the_reference_pipeline_keeps_the_centre_of_a_wide_image() -> None:
    wide = Image.new("RGB", (300, 100), "red")
    wide.paste("blue", (100, 0, 200, 100))
    pixels = ReferencePipeline(64, mean=(0, 0, 0), std=(1, 1, 1))(encode(wide))
    assert pixels[2, :, 4:60].min() > 0.98
    assert pixels[0, :, 4:60].abs().max() < 0.02


def test_the_reference_pipeline_agrees_with_pillows_antialiased_bicubic() -> None:
    image = Image.open(io.BytesIO(draw_cartoon(3).jpeg)).convert("RGB")
    ours = ReferencePipeline(294, mean=(0, 0, 0), std=(1, 1, 1))(encode(image))
    height, width = resized_shape(image.height, image.width, 294)
    top, left = centre_crop_offset(height, width, 294)
    pillows = image.resize((width, height), Image.Resampling.BICUBIC).crop((left, top, left + 294, top + 294))
    assert psnr(ours.clamp(0, 1), torch.from_numpy(np.array(pillows)).permute(2, 0, 1) / 255) > 45


def test_cartoons_are_the_same_every_time_and_half_of_them_grey() -> None:
    drawn = [draw_cartoon(index) for index in range(12)]
    assert drawn == [draw_cartoon(index) for index in range(12)]
    modes = [Image.open(io.BytesIO(one.jpeg)).mode for one in drawn]
    assert (modes.count("L"), modes.count("RGB")) == (6, 6)


def test_cartoons_have_the_sizes_and_file_sizes_of_the_real_ones() -> None:
    drawn = [draw_cartoon(index) for index in range(60)]
    widths = [Image.open(io.BytesIO(one.jpeg)).width for one in drawn]
    assert 540 <= float(np.median(widths)) <= 670
    assert 70_000 <= float(np.median([len(one.jpeg) for one in drawn])) <= 130_000
    assert min(widths) >= 375


def test_a_cartoons_caption_says_what_was_drawn() -> None:
    assert all(any(word in draw_cartoon(index).caption for word in ("a ", "in ")) for index in range(5))


def test_the_cartoons_are_a_datasets_image_column() -> None:
    table = datasets.load_dataset("parquet", data_files=str(cartoons_parquet(24)), split="train")
    assert isinstance(table.features["image"], datasets.Image)
    assert len(table) == 24


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("builtin:cartoons", "builtin"),
        ("owner/name", "hub"),
        ("./here", "local"),
        ("a.parquet", "local"),
        ("/data/x", "local"),
    ],
)
def test_a_path_tells_its_source(path: str, source: str, tmp_path: Path) -> None:
    assert source_of(path, tmp_path)[0] == source


def test_a_folder_with_the_look_of_a_hub_name_is_local_where_it_exists(tmp_path: Path) -> None:
    (tmp_path / "owner" / "name").mkdir(parents=True)
    assert source_of("owner/name", tmp_path)[0] == "local"


def test_an_absent_path_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        check_local_source(DatasetSettings(path="./absent"), tmp_path)


def test_a_missing_column_is_told_with_those_there_are(tmp_path: Path) -> None:
    write_images(tmp_path / "images")
    with pytest.raises(UsageError, match=r"dataset.caption_column: .* no column 'caption'; it has image, text"):
        check_local_source(DatasetSettings(path="./images", caption_column="caption"), tmp_path)


def test_a_missing_column_in_parquet_is_told_with_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(cartoons_parquet(24).read_bytes())
    with pytest.raises(UsageError, match=r"no column 'picture'; it has image, text"):
        check_local_source(DatasetSettings(path="a.parquet", image_column="picture"), tmp_path)


def test_a_file_that_is_no_parquet_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("not Parquet")
    with pytest.raises(UsageError, match=r"a\.parquet: cannot be loaded: Parquet magic bytes not found"):
        check_local_source(DatasetSettings(path="a.parquet"), tmp_path)


def test_an_empty_folder_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither Parquet files nor images"):
        check_local_source(DatasetSettings(path="."), tmp_path)


def test_metadata_in_json_lines_serves_too(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", count=4, truncated=0)
    (folder / "metadata.csv").unlink()
    lines = [json.dumps({"file_name": f"{index:02d}.jpg", "text": ["first", "second"]}) for index in range(4)]
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    assert check_local_source(DatasetSettings(path="./images"), tmp_path) == 4
    assert load_captions(DatasetSettings(path="./images"), tmp_path)["caption"][:] == ["first"] * 4


def test_a_folder_of_parquet_files_is_one_data_set(tmp_path: Path) -> None:
    for part in ("one", "two"):
        (tmp_path / f"{part}.parquet").write_bytes(cartoons_parquet(24).read_bytes())
    assert check_local_source(DatasetSettings(path="."), tmp_path) == 48
    assert len(load_captions(DatasetSettings(path=".", max_train_samples=30), tmp_path)) == 30


@pytest.mark.parametrize(("value", "caption"), [("a", "a"), (["a", "b"], "a"), ([], ""), (None, ""), ([None], "")])
def test_a_caption_is_a_string_or_the_first_of_a_list(value: object, caption: str) -> None:
    assert first_caption(value) == caption


def test_unreadable_images_are_left_out_counted_and_named(tmp_path: Path, plan_of: PlanOf) -> None:
    write_images(tmp_path / "images", count=21, truncated=1)
    ready = prepare(cell_on("./images", plan_of), tmp_path)
    assert (ready.rows, ready.rows_found) == (20, 21)
    assert [(one.name, one.row) for one in ready.left_out] == [("20.jpg", 20)]


def test_more_than_a_twentieth_unreadable_is_an_error(tmp_path: Path, plan_of: PlanOf) -> None:
    write_images(tmp_path / "images", count=21, truncated=2)
    with pytest.raises(UsageError, match=r"2 of 21 samples of ./images cannot be read .* 19.jpg"):
        prepare(cell_on("./images", plan_of), tmp_path)


def test_a_sample_without_a_caption_is_left_out(tmp_path: Path, plan_of: PlanOf) -> None:
    folder = write_images(tmp_path / "images", count=40, truncated=0)
    text = (folder / "metadata.csv").read_text()
    (folder / "metadata.csv").write_text(text.replace("drawing number 3\n", "\n"))
    assert [one.reason for one in prepare(cell_on("./images", plan_of), tmp_path).left_out] == ["no caption"]


def test_a_path_that_a_node_cannot_see_is_one_clear_line(tmp_path: Path, plan_of: PlanOf) -> None:
    with pytest.raises(UsageError, match=r"/absent/images is not to be seen on this node"):
        prepare(cell_on("/absent/images", plan_of), tmp_path)


def test_a_model_that_is_neither_here_nor_on_the_hub_is_one_clear_line(tmp_path: Path, plan_of: PlanOf) -> None:
    for name, message in (("./absent", "not to be seen on this node"), ("owner/absent", "cannot be had from the hub")):
        with pytest.raises(UsageError, match=message):
            prepare(cell_on("builtin:cartoons, max_train_samples: 24", plan_of, **{"preset:tiny": name}), tmp_path)


def test_the_fingerprint_follows_the_content(tmp_path: Path, plan_of: PlanOf) -> None:
    write_images(tmp_path / "images", count=4, truncated=0)
    before = prepare(cell_on("./images", plan_of), tmp_path)
    assert prepare(cell_on("./images", plan_of), tmp_path) == before
    (tmp_path / "images" / "00.jpg").write_bytes(draw_cartoon(9).jpeg)
    assert prepare(cell_on("./images", plan_of), tmp_path).fingerprint != before.fingerprint


def test_a_cache_that_failed_half_way_is_built_again() -> None:
    def fail(target: Path) -> None:
        (target / "half").write_text("")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cached_folder("half-built", fail)
    folder = cached_folder("half-built", lambda target: (target / "whole").touch())
    assert [file.name for file in folder.iterdir()] == ["whole"]


def test_a_cache_is_built_once(cache: Path) -> None:
    built: list[Path] = []
    for _ in range(2):
        cached_folder("once", built.append)
    assert len(built) == 1


def test_what_killed_builders_left_goes_with_the_next_build_of_anything(cache: Path) -> None:
    for name in ("left.unfinished-abc", "again.unfinished-abc"):
        (cache / name).mkdir()
        (cache / name / "half").touch()
    (cache / "living.unfinished-abc").mkdir()
    with FileLock(cache / "living.lock"):
        cached_folder("again", lambda target: (target / "whole").touch())
    left = {folder.name.partition(".")[0] for folder in cache.glob("*.unfinished-*")}
    assert left == {"living"}
    shutil.rmtree(cache / "living.unfinished-abc")


def test_a_finished_folder_of_the_cache_is_for_all_whom_the_umask_lets(cache: Path) -> None:
    def build(target: Path) -> None:
        (target / "inner").mkdir(0o700)
        (target / "inner/file").touch(0o600)

    before = os.umask(0o022)
    try:
        folder = cached_folder("shared", build)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "inner", folder / "inner/file")]
    assert modes == [0o755, 0o755, 0o644]


def test_whoever_waits_for_the_cache_is_told_for_whom(cache: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom bridgetower_ray.data.cache import cached_folder\n"
        "def build(target):\n    print('building', flush=True)\n    sys.stdin.read()\n"
        "cached_folder('slow', build)"
    )
    builder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert builder.stdout is not None
    assert builder.stdin is not None
    assert builder.stdout.readline() == "building\n"
    told: list[str] = []

    def hear(words: str) -> None:
        told.append(words)
        builder.communicate("")

    cached_folder("slow", Path.touch, hear)
    assert told == [f"waiting for process {builder.pid} on {socket.gethostname()}, which makes the same ready"]


def test_a_finished_folder_is_had_without_a_lock(cache: Path) -> None:
    folder = cached_folder("had", lambda target: (target / "whole").touch())
    with FileLock(cache / "had.lock"):
        assert cached_folder("had", Path.touch) == folder


@pytest.mark.parametrize("error", [ConnectionError("no route"), LookupError("whatever an HTTP library calls it")])
def test_a_hub_out_of_reach_is_one_line_whatever_its_client_raises(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", away)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", away)
    with pytest.raises(UsageError, match="cannot be had from the hub"):
        preparation._download("BridgeTower/bridgetower-base")
    assert preparation._hub_commit("owner/data", None) == "as cached"


def test_the_trained_tokenizer_is_one_that_auto_tokenizer_loads(tmp_path: Path) -> None:
    captions = [draw_cartoon(index).caption for index in range(20)]
    train_tokenizer(captions, 1000, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer(captions[0], max_length=48, padding="max_length")["input_ids"]
    assert (ids[0], ids[-1]) == (tokenizer.bos_token_id, 1)
    assert tokenizer.decode(ids, skip_special_tokens=True) == captions[0]
    assert max(ids) < 1000
