"""Draws the built-in data set: captioned line-art in the sizes and file sizes of real caption-contest cartoons.

The public cartoons it stands for: median 605 x 552 pixels, widths 375 to 4750, half of them 8-bit grey, median
file 95 KB, so decoding one costs what decoding a real one costs.
"""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw

from bridgetower_ray.data.cache import cached_folder

DRAWING_VERSION = 1  # raise it when a drawing changes: it is part of the cache's key
DEFAULT_COUNT = 512
MEDIAN_WIDTH = 605
MEDIAN_ASPECT = 605 / 552
JPEG_QUALITY = 88


@dataclass(frozen=True)
class Cartoon:
    """One drawing: its JPEG file and the caption that says what was drawn."""

    jpeg: bytes
    caption: str


def cartoons_parquet(count: int = DEFAULT_COUNT) -> Path:
    """The Parquet file with the first `count` cartoons (columns `image` and `text`), drawn if not there yet."""
    folder = cached_folder(f"cartoons-v{DRAWING_VERSION}-{count}", lambda target: _write(target, count))
    return folder / "train.parquet"


def _write(folder: Path, count: int) -> None:
    import datasets

    drawn = [draw_cartoon(index) for index in range(count)]
    images = [{"bytes": one.jpeg, "path": f"cartoon-{index:05d}.jpg"} for index, one in enumerate(drawn)]
    features = datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")})
    table = datasets.Dataset.from_dict({"image": images, "text": [one.caption for one in drawn]}, features=features)
    table.to_parquet(folder / "train.parquet")


def draw_cartoon(index: int) -> Cartoon:
    """The cartoon of that number; the same one every time."""
    rng = np.random.default_rng([DRAWING_VERSION, index])
    width, height = _size(rng)
    page = Image.new("L", (width, height), 250)
    pen = _Pen(ImageDraw.Draw(page), rng, width, height)
    wall = _pick(rng, list(WALLS))
    WALLS[wall](pen)
    chosen = [_pick(rng, list(FIGURES)) for _ in range(int(rng.integers(1, 4)))]
    for place, name in enumerate(chosen):
        FIGURES[name](pen, (place + 0.5) / len(chosen), float(rng.uniform(0.35, 0.6)))
    return Cartoon(_encode(page, rng, grey=index % 2 == 0), _caption(rng, chosen, wall))


def _size(rng: Generator) -> tuple[int, int]:
    wide = rng.random() < 0.01  # a few real ones are scans of several thousand pixels
    width = int(rng.integers(2000, 4751)) if wide else int(MEDIAN_WIDTH * math.exp(rng.normal(0, 0.13)))
    return max(width, 375), max(int(width / MEDIAN_ASPECT * math.exp(rng.normal(0, 0.12))), 300)


def _pick(rng: Generator, choices: list[str]) -> str:
    return choices[int(rng.integers(len(choices)))]


def _encode(page: Image.Image, rng: Generator, grey: bool) -> bytes:
    grain = rng.normal(0, 2.6, (page.height, page.width))  # paper grain: it gives the file its size
    pixels = np.clip(np.asarray(page, dtype=np.float64) + grain, 0, 255)
    image = Image.fromarray(pixels.astype(np.uint8))
    if not grey:
        tint = np.array([1.0, 0.985, 0.95])  # yellowed paper
        image = Image.fromarray((pixels[..., None] * tint).astype(np.uint8))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()


class _Pen:
    """Draws by fractions of the page with a slightly unsteady hand."""

    def __init__(self, draw: ImageDraw.ImageDraw, rng: Generator, width: int, height: int) -> None:
        self.draw, self.rng, self.width, self.height = draw, rng, width, height
        self.thickness = max(2, width // 250)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        shake = self.rng.normal(0, 0.003, 2)
        return (x + float(shake[0])) * self.width, (y + float(shake[1])) * self.height

    def line(self, *points: tuple[float, float]) -> None:
        self.draw.line([self._at(*point) for point in points], fill=20, width=self.thickness, joint="curve")

    def oval(self, x: float, y: float, radius_x: float, radius_y: float, fill: int = 255) -> None:
        turns = np.linspace(0, 2 * math.pi, 24, endpoint=False)
        outline = [self._at(x + radius_x * math.cos(turn), y + radius_y * math.sin(turn)) for turn in turns]
        self.draw.polygon(outline, fill=fill, outline=20, width=self.thickness)

    def shape(self, *points: tuple[float, float], fill: int = 255) -> None:
        self.draw.polygon([self._at(*point) for point in points], fill=fill, outline=20, width=self.thickness)

    def hatch(self, left: float, top: float, right: float, bottom: float, strokes: int) -> None:
        for step in range(strokes):
            x = left + (right - left) * step / strokes
            start, end = self._at(x, bottom), self._at(x + (right - left) / strokes * 3, top)
            self.draw.line([start, end], fill=110, width=max(1, self.thickness // 2))


def _person(pen: _Pen, x: float, size: float) -> None:
    top = 0.92 - size
    pen.oval(x, top, size * 0.11, size * 0.13)
    pen.line((x, top + size * 0.13), (x, top + size * 0.6))
    pen.line((x - size * 0.2, top + size * 0.4), (x, top + size * 0.2), (x + size * 0.2, top + size * 0.42))
    pen.line((x - size * 0.14, 0.92), (x, top + size * 0.6), (x + size * 0.14, 0.92))


def _man_in_hat(pen: _Pen, x: float, size: float) -> None:
    _person(pen, x, size)
    top = 0.92 - size * 1.12
    pen.shape((x - size * 0.1, top), (x - size * 0.08, top - size * 0.13), (x + size * 0.08, top - size * 0.13),
              (x + size * 0.1, top), fill=60)  # fmt: skip


def _animal(pen: _Pen, x: float, size: float) -> None:
    length, ground = size * 0.38, 0.92
    pen.oval(x, ground - size * 0.25, length * 0.6, size * 0.12, fill=210)
    pen.oval(x + length * 0.7, ground - size * 0.38, size * 0.1, size * 0.09)
    for leg in (-0.4, -0.2, 0.2, 0.4):
        pen.line((x + length * leg, ground - size * 0.15), (x + length * leg, ground))
    pen.line((x - length * 0.6, ground - size * 0.28), (x - length, ground - size * 0.45))


def _cat(pen: _Pen, x: float, size: float) -> None:
    small = size * 0.7
    _animal(pen, x, small)
    head, crown = x + small * 0.27, 0.92 - small * 0.45
    for ear in (head - small * 0.07, head + small * 0.03):
        pen.shape((ear, crown), (ear + small * 0.03, crown - small * 0.1), (ear + small * 0.06, crown))


def _tree(pen: _Pen, x: float, size: float) -> None:
    pen.shape(
        (x - size * 0.05, 0.92),
        (x - size * 0.04, 0.5),
        (x + size * 0.04, 0.5),
        (x + size * 0.05, 0.92),
        fill=170,
    )
    pen.oval(x, 0.42, size * 0.32, size * 0.34, fill=225)
    pen.hatch(x - size * 0.2, 0.3, x + size * 0.2, 0.5, 30)


def _house(pen: _Pen, x: float, size: float) -> None:
    half, eaves = size * 0.34, 0.92 - size * 0.6
    pen.shape((x - half, 0.92), (x - half, eaves), (x + half, eaves), (x + half, 0.92), fill=240)
    pen.shape((x - half * 1.2, eaves), (x, eaves - size * 0.3), (x + half * 1.2, eaves), fill=130)
    pen.hatch(x - half, eaves, x + half, 0.92, 26)


def _desk(pen: _Pen, x: float, size: float) -> None:
    half, top = size * 0.45, 0.92 - size * 0.4
    pen.shape((x - half, top), (x + half, top), (x + half, top + 0.04), (x - half, top + 0.04), fill=190)
    pen.line((x - half * 0.9, top), (x - half * 0.9, 0.92))
    pen.line((x + half * 0.9, top), (x + half * 0.9, 0.92))


def _whale(pen: _Pen, x: float, size: float) -> None:
    pen.oval(x, 0.75, size * 0.5, size * 0.26, fill=150)
    pen.shape((x - size * 0.48, 0.75), (x - size * 0.7, 0.62), (x - size * 0.66, 0.82), fill=150)
    pen.line((x + size * 0.1, 0.75 - size * 0.26), (x + size * 0.1, 0.75 - size * 0.45))


def _hatched_wall(pen: _Pen) -> None:
    for row in range(6):
        pen.hatch(0.02, 0.03 + row * 0.1, 0.98, 0.12 + row * 0.1, 90)
    pen.line((0.0, 0.7), (1.0, 0.7))


def _window(pen: _Pen) -> None:
    pen.shape((0.3, 0.08), (0.7, 0.08), (0.7, 0.45), (0.3, 0.45), fill=235)
    pen.line((0.5, 0.08), (0.5, 0.45))
    pen.line((0.3, 0.26), (0.7, 0.26))
    pen.hatch(0.02, 0.1, 0.28, 0.6, 40)


def _rain(pen: _Pen) -> None:
    for row in range(9):
        pen.hatch(-0.1, row * 0.11, 1.05, row * 0.11 + 0.05, 48)


def _skyline(pen: _Pen) -> None:
    for block in range(8):
        height = float(pen.rng.uniform(0.2, 0.55))
        left = block / 8
        pen.shape((left, 0.7), (left, 0.7 - height), (left + 0.11, 0.7 - height), (left + 0.11, 0.7), fill=215)
        pen.hatch(left, 0.7 - height, left + 0.09, 0.68, 14)


FIGURES: dict[str, Callable[[_Pen, float, float], None]] = {
    "a woman": _person,
    "a man in a hat": _man_in_hat,
    "a dog": _animal,
    "a cat": _cat,
    "a tree": _tree,
    "a house": _house,
    "a desk": _desk,
    "a whale": _whale,
}
WALLS: dict[str, Callable[[_Pen], None]] = {
    "in front of a hatched wall": _hatched_wall,
    "beside a window": _window,
    "in the rain": _rain,
    "before a skyline": _skyline,
}
OPENINGS = ("The drawing shows", "We see", "Here stand", "A cartoon of", "The picture has", "An artist drew")


def _caption(rng: Generator, figures: list[str], wall: str) -> str:
    listed = figures[0] if len(figures) == 1 else f"{', '.join(figures[:-1])} and {figures[-1]}"
    return f"{OPENINGS[int(rng.integers(len(OPENINGS)))]} {listed} {wall}."
