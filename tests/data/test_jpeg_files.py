"""Images as JPEG files for a decoder that takes nothing else."""

import json
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
from PIL import Image

from bridgetower_ray.data.cartoons import draw_cartoon
from bridgetower_ray.data.jpeg_files import JpegFiles, jpeg_files
from bridgetower_ray.data.preparation import prepare
from bridgetower_ray.sweep.plan import Plan
from tests.conftest import MINI
from tests.data.test_pipelines import encode, photo

PlanOf = Callable[[str], Plan]
PHOTO = photo(90, 70, seed=0)
JPEG, GREY, CMYK = (encode(PHOTO.convert(mode), "JPEG") for mode in ("RGB", "L", "CMYK"))
PNG = encode(PHOTO.convert("RGBA"), "PNG")


def table(*images: bytes) -> datasets.Dataset:
    rows = {"image": [{"bytes": image, "path": None} for image in images]}
    return datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image(decode=False))


def test_a_jpeg_is_written_as_it_is_and_anything_else_anew_and_counted() -> None:
    folder = jpeg_files(table(JPEG, PNG, GREY, CMYK), "forms")
    files = [Path(str(path)) for path in JpegFiles(folder).paths(np.arange(4))]
    assert [file.read_bytes() == given for file, given in zip(files, (JPEG, PNG, GREY, CMYK), strict=True)] == [
        True,
        False,
        True,
        False,
    ]
    assert json.loads((folder / "cost.json").read_text()) == {"images": 4, "reencoded": 2}
    for file in files:
        with Image.open(file) as image:
            assert (image.format, image.mode in ("RGB", "L")) == ("JPEG", True)


def test_captions_share_the_file_of_their_image() -> None:
    files = JpegFiles(jpeg_files(table(JPEG, GREY, JPEG), "shared"))
    paths = files.paths(np.arange(3))
    assert (len(files), paths[0] == paths[2], paths[0] == paths[1]) == (3, True, False)


def test_the_largest_file_is_named() -> None:
    wide = draw_cartoon(0).jpeg
    files = JpegFiles(jpeg_files(table(GREY, wide), "largest"))
    assert Path(files.largest()).read_bytes() == wide


def test_windows_are_shares_of_the_image_with_the_centre_in_them() -> None:
    left, top, width, height = JpegFiles(jpeg_files(table(JPEG), "window")).windows(np.array([0]), 35)[0]
    # 90 x 70 with the shorter side at 35 is 45 x 35, of which the middle 35 are shown.
    assert np.allclose([left, top, width, height], [5 / 45, 0, 35 / 45, 1])


def test_a_node_is_prepared_for_the_media_pipeline_with_the_sources_own_fingerprint(
    tmp_path: Path, plan_of: PlanOf
) -> None:
    text = MINI.replace("[cpu]", "[gaudi2]").replace("accelerator: cpu,", "accelerator: gaudi2,")
    cells = {cell.axes["mediapipe_dataloader"]: cell.cell for cell in plan_of(text).cells}
    plain, media = prepare(cells[False], tmp_path), prepare(cells[True], tmp_path)
    assert plain.jpeg_folder is None
    assert media.jpeg_folder is not None
    assert len(JpegFiles(Path(media.jpeg_folder))) == media.rows
    assert (media.fingerprint, media.jpeg_reencoded) == (plain.fingerprint, 0)
