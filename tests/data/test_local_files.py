"""Local data in every layout: what the plan counts is what the `datasets` library loads, or it is refused."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from bridgetower_ray.data.captions import check_local_source, load_captions
from bridgetower_ray.data.images import open_rgb
from bridgetower_ray.data.jpeg_files import _as_jpeg
from bridgetower_ray.data.preparation import prepare
from bridgetower_ray.data.resize import fast_pixels
from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.plan import Plan
from bridgetower_ray.sweep.settings import DatasetSettings
from tests.conftest import MINI

ROTATED = 6  # EXIF's orientation of an image to be turned by 90 degrees


def encoded(index: int, form: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (48, 40), (index * 6 % 256, 90, 200)).save(stream, form)
    return stream.getvalue()


def images(folder: Path, names: list[str], captions: bool = True) -> Path:
    folder.mkdir(parents=True)
    for index, name in enumerate(names):
        (folder / name).write_bytes(encoded(index))
    if captions:
        with (folder / "metadata.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([["file_name", "text"], *([name, f"picture {name}"] for name in names)])
    return folder


def parquet(file: Path, count: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"image": {"bytes": encoded(index), "path": None}, "text": f"picture {index}"} for index in range(count)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)


def plain(count: int = 12) -> list[str]:
    return [f"img_{index:02}.png" for index in range(count)]


def split_folders(folder: Path) -> Path:
    images(folder / "test", plain(5))
    return images(folder / "train", plain()).parent


def metadata_in_parquet(folder: Path) -> Path:
    names = plain()
    images(folder, names, captions=False)
    table = pyarrow.table({"file_name": names, "text": names})
    pyarrow.parquet.write_table(table, folder / "metadata.parquet")
    return folder


def metadata_with_a_mark(folder: Path) -> Path:
    images(folder, plain())
    file = folder / "metadata.csv"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    return folder


def metadata_in_json_lines(folder: Path) -> Path:
    images(folder, plain(), captions=False)
    lines = [json.dumps({"file_name": name, "text": name}) for name in plain()]
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    return folder


def with_hidden_files(folder: Path) -> Path:
    images(folder, plain())
    (folder / "._img_00.png").write_bytes(b"not an image")
    (folder / ".hidden.parquet").write_bytes(b"not parquet")
    return folder


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "brackets [v2] and spaces": lambda folder: images(folder, plain()),
    "split-folders": lambda folder: (
        images(folder / "test", plain(5)).parent and images(folder / "train", plain()).parent
    ),
    "folder.parquet": lambda folder: images(folder, plain()),
    "metadata-parquet": metadata_in_parquet,
    "metadata-mark": metadata_with_a_mark,
    "metadata-jsonl": metadata_in_json_lines,
    "hidden": with_hidden_files,
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_counted_is_what_is_loaded(name: str, tmp_path: Path) -> None:
    LAYOUTS[name](tmp_path / name)
    settings = DatasetSettings(path=str(tmp_path / name))
    assert check_local_source(settings, tmp_path) == 12
    assert len(load_captions(settings, tmp_path)) == 12


@pytest.mark.parametrize(("split", "rows"), [("train", 14), ("test", 6)])
def test_the_split_of_parquet_parts_is_honoured(split: str, rows: int, tmp_path: Path) -> None:
    parquet(tmp_path / "parts/data/train-00000-of-00001.parquet", 14)
    parquet(tmp_path / "parts/data/test-00000-of-00001.parquet", 6)
    settings = DatasetSettings(path="parts", split=split)
    assert check_local_source(settings, tmp_path) == rows
    assert len(load_captions(settings, tmp_path)) == rows


def test_a_split_that_is_not_there_is_told_with_those_there_are(tmp_path: Path) -> None:
    parquet(tmp_path / "parts/train-00000-of-00001.parquet", 3)
    with pytest.raises(UsageError, match=r"has no split 'validation'; it has train"):
        check_local_source(DatasetSettings(path="parts", split="validation"), tmp_path)


def test_a_file_named_like_a_split_takes_its_place_for_the_plan_too(tmp_path: Path) -> None:
    images(tmp_path / "cartoons", [*plain(), "steam-train-01.png"])
    with pytest.raises(UsageError, match=r"has no column 'text'; it has image"):
        check_local_source(DatasetSettings(path="cartoons"), tmp_path)


def test_metadata_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    images(tmp_path / "cartoons", plain())
    (tmp_path / "cartoons/metadata.csv").write_text("no file name\n1\n")
    with pytest.raises(UsageError, match=r"dataset.path: .*cartoons: cannot be loaded: ") as caught:
        check_local_source(DatasetSettings(path="cartoons"), tmp_path)
    assert "\n" not in str(caught.value)


def test_an_image_that_no_bound_would_hold_is_left_out_with_its_size(
    tmp_path: Path, plan_of: Callable[[str], Plan]
) -> None:
    images(tmp_path / "cartoons", [*plain(39), "strip.png"])
    Image.new("L", (1, 20000)).save(tmp_path / "cartoons/strip.png")
    cell = plan_of(MINI.replace("builtin:cartoons, max_train_samples: 24", "cartoons")).cells[0].cell
    ready = prepare(cell, tmp_path)
    assert (ready.rows, [one.name for one in ready.left_out]) == (39, ["strip.png"])
    assert ready.left_out[0].reason == "1 x 20000 pixels: over 100 times as long as wide"


def test_whatever_a_decoder_raises_leaves_the_image_out_and_names_it(
    tmp_path: Path, plan_of: Callable[[str], Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    images(tmp_path / "cartoons", plain(40))
    broken = (tmp_path / "cartoons/img_07.png").read_bytes()

    def decode(data: bytes) -> Image.Image:
        if data == broken:
            raise RuntimeError("Failed to decode image")
        return open_rgb(data)

    monkeypatch.setattr("bridgetower_ray.data.preparation.open_rgb", decode)
    cell = plan_of(MINI.replace("builtin:cartoons, max_train_samples: 24", "cartoons")).cells[0].cell
    ready = prepare(cell, tmp_path)
    assert [(one.name, one.reason) for one in ready.left_out] == [("img_07.png", "Failed to decode image")]


def turned(form: str) -> tuple[bytes, Image.Image]:
    """An image that is stored lying on its side, and how it is to be seen."""
    upright = Image.new("RGB", (60, 90), "white")
    upright.paste((200, 0, 0), (0, 0, 60, 45))
    stored = upright.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = ROTATED
    stream = io.BytesIO()
    stored.save(stream, form, exif=exif, quality=100)
    return stream.getvalue(), upright


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_images_are_turned_upright_as_the_datasets_library_turns_them(form: str) -> None:
    data, upright = turned(form)
    rgb = open_rgb(data)
    assert rgb.size == upright.size
    assert rgb.getpixel((30, 10))[0] > 150 > rgb.getpixel((30, 10))[2]
    fast = fast_pixels(data, 32)
    assert fast[2, 16, 2] < 100 < fast[30, 16, 2], "red above, white below"
    exported, size, anew = _as_jpeg(data)
    assert (size, anew) == (upright.size, True)
    assert open_rgb(exported).getpixel((30, 10))[2] < 100
