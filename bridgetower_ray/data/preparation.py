"""Prepares a node for a cell, untimed and once: data read and checked, tokenizer and checkpoint in place."""

import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import UnidentifiedImageError

from bridgetower_ray.data.cache import cached_folder
from bridgetower_ray.data.captions import load_captions, source_of
from bridgetower_ray.data.image_cache import image_cache
from bridgetower_ray.data.images import image_bytes, open_rgb
from bridgetower_ray.data.jpeg_files import jpeg_files
from bridgetower_ray.data.tokenizer import train_tokenizer
from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.sweep.presets import PRESETS
from bridgetower_ray.sweep.settings import Strict

if TYPE_CHECKING:
    import datasets

PREPARATION_VERSION = 2  # raise it when what is prepared changes: it is part of the cache's key
UNREADABLE_LIMIT = 0.05
MOST_ELONGATED = 100  # with its shorter side at 294 pixels such an image takes 100 MB as float32 before its crop


class LeftOut(Strict):
    """A sample that is not used, and why."""

    row: int
    name: str
    reason: str


class Prepared(Strict):
    """What a node has ready. `fingerprint` is of the images' bytes and captions that are used, in order."""

    data_folder: str
    tokenizer_folder: str
    model_folder: str | None
    rows: int
    rows_found: int
    fingerprint: str
    left_out: tuple[LeftOut, ...]
    image_cache_folder: str | None = None
    image_cache_build_seconds: float | None = None
    image_cache_bytes: int | None = None
    jpeg_folder: str | None = None
    jpeg_reencoded: int | None = None


def prepare(cell: Cell, base: Path, progress: Callable[[str], None] = lambda _: None) -> Prepared:
    """Make a node ready for `cell`, or find that it is.

    Args:
        base: the folder that relative paths of the sweep start from.
        progress: is told in a few words what is being done.

    Raises:
        UsageError: data or model cannot be had, or over 5 % of the images cannot be read.
    """
    model_folder = _model_folder(cell.model, base)
    progress("reading and checking images")
    name = f"prepared-{_key(cell, base)}"
    folder = cached_folder(name, lambda target: _build(target, cell, base, model_folder), progress)
    found = json.loads((folder / "prepared.json").read_text())
    return Prepared(
        data_folder=str(folder / "data"),
        tokenizer_folder=model_folder or str(folder / "tokenizer"),
        model_folder=model_folder,
        left_out=tuple(LeftOut(**one) for one in found.pop("left_out")),
        **found,
        **_images_made_ready(cell, folder / "data", found["fingerprint"], model_folder, progress),
    )


def _images_made_ready(
    cell: Cell, data: Path, fingerprint: str, model_folder: str | None, progress: Callable[[str], None]
) -> dict[str, Any]:
    """The images in the form that the cell's loader reads, beside the data as they are."""
    match cell.prepared_images:
        case "resized":
            size = PRESETS[cell.model].image if model_folder is None else _checkpoint_image_size(model_folder)
            limit = cell.dataset.image_cache_limit_gib
            folder = image_cache(_open(data), fingerprint, size, limit, progress)
            cost = json.loads((folder / "cost.json").read_text())
            return {
                "image_cache_folder": str(folder),
                "image_cache_build_seconds": cost["seconds"],
                "image_cache_bytes": cost["bytes"],
            }
        case "jpeg":
            folder = jpeg_files(_open(data), fingerprint, progress)
            cost = json.loads((folder / "cost.json").read_text())
            return {"jpeg_folder": str(folder), "jpeg_reencoded": cost["reencoded"]}
    return {}


def _open(data: Path) -> "datasets.Dataset":
    import datasets

    return datasets.load_from_disk(data)


def _checkpoint_image_size(model_folder: str) -> int:
    try:
        return int(json.loads((Path(model_folder) / "config.json").read_text())["vision_config"]["image_size"])
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"model: {model_folder}: config.json does not say its image size: {error!r}") from None


def _key(cell: Cell, base: Path) -> str:
    """Content decides: other files, another revision, another tokenizer are another folder."""
    parts = [
        PREPARATION_VERSION,
        cell.dataset.model_dump(),
        _state_of_source(cell, base),
        PRESETS[cell.model].vocabulary if cell.model in PRESETS else None,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _state_of_source(cell: Cell, base: Path) -> Any:
    source, local = source_of(cell.dataset.path, base)
    match source:
        case "builtin":
            return "builtin"
        case "hub":
            return _hub_commit(cell.dataset.path, cell.dataset.revision)
    files = [local] if local.is_file() else sorted(file for file in local.rglob("*") if file.is_file())
    return [
        str(local.resolve()),
        [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files],
    ]


def _hub_commit(name: str, revision: str | None) -> str:
    """The commit that a hub revision stands for now; the revision itself where the hub is out of reach."""
    from huggingface_hub import HfApi

    try:
        return str(HfApi().dataset_info(name, revision=revision, timeout=10).sha)
    except Exception:  # of the hub's client or of whichever HTTP library it uses in this version
        return revision or "as cached"


def _model_folder(model: str, base: Path) -> str | None:
    if model in PRESETS:
        return None
    return check_local_model(model, base) or _download(model)


def check_local_model(model: str, base: Path) -> str | None:
    """The folder of a checkpoint on this host; None for a preset, or a name that only the hub can know.

    Raises:
        UsageError: it is to be a folder but is not there, or holds no BridgeTower.
    """
    if model in PRESETS:
        return None
    local = base / Path(model).expanduser()
    if not local.is_dir():
        if model.startswith((".", "/", "~")):
            raise UsageError(f"model: {local} is not to be seen on this node; put it where every node sees it")
        return None
    try:
        kind = json.loads((local / "config.json").read_text()).get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"model: {local} has no config.json that can be read: {error}") from None
    if kind != "bridgetower":
        raise UsageError(f"model: {local} is a {kind}, not a bridgetower")
    return str(local)


def _download(model: str) -> str:
    from huggingface_hub import snapshot_download

    unused = ["*.h5", "*.msgpack", "*.onnx", "*.ot", "*.tflite"]
    try:
        return snapshot_download(model, ignore_patterns=unused)
    except Exception as error:  # of the hub's client or of whichever HTTP library it uses in this version
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"model: {model} is no folder here and cannot be had from the hub: {reason}") from error


def _build(target: Path, cell: Cell, base: Path, model_folder: str | None) -> None:
    table = load_captions(cell.dataset, base)
    checks = list(_checked(table))
    left_out = [check for check in checks if isinstance(check, LeftOut)]
    kept = [row for row, check in enumerate(checks) if isinstance(check, str)]
    if len(left_out) > UNREADABLE_LIMIT * len(checks) or not kept:
        raise UsageError(
            f"{len(left_out)} of {len(checks)} samples of {cell.dataset.path} cannot be read "
            f"(at most {UNREADABLE_LIMIT:.0%} may be left out), the first: {_named(left_out)}"
        )
    table = table.select(kept)
    table.save_to_disk(target / "data")
    if model_folder is None:
        train_tokenizer(table["caption"], PRESETS[cell.model].vocabulary, target / "tokenizer")
    digest = hashlib.sha256("".join(check for check in checks if isinstance(check, str)).encode())
    (target / "prepared.json").write_text(
        json.dumps(
            {
                "rows": len(kept),
                "rows_found": len(checks),
                "fingerprint": digest.hexdigest()[:16],
                "left_out": [one.model_dump() for one in left_out],
            }
        )
    )


def _named(left_out: list[LeftOut]) -> str:
    return "; ".join(f"{one.name}: {one.reason}" for one in left_out[:3]) or "there are none"


def _checked(table: "datasets.Dataset") -> Iterator[str | LeftOut]:
    """For each sample a hash of its image and caption, or why it is left out."""
    with ThreadPoolExecutor() as threads:
        yield from threads.map(lambda row: _check_sample(row, table[row]), range(len(table)))


def _check_sample(row: int, sample: dict[str, Any]) -> str | LeftOut:
    name = Path((sample["image"] or {}).get("path") or f"row {row}").name
    if not sample["caption"].strip():
        return LeftOut(row=row, name=name, reason="no caption")
    if sample["image"] is None:
        return LeftOut(row=row, name=name, reason="no image")
    try:
        encoded = image_bytes(sample["image"])
        image = open_rgb(encoded)
    except UnidentifiedImageError:
        return LeftOut(row=row, name=name, reason="no image that Pillow can read")
    except Exception as error:  # whatever any decoder raises for a file: it is the file that cannot be used
        words = str(error).replace(str(sample["image"]["path"]), name) or type(error).__name__
        return LeftOut(row=row, name=name, reason=words)
    if max(image.size) > MOST_ELONGATED * min(image.size):
        size = f"{image.width} x {image.height} pixels"
        return LeftOut(row=row, name=name, reason=f"{size}: over {MOST_ELONGATED} times as long as wide")
    return hashlib.sha256(encoded + b"\0" + sample["caption"].encode()).hexdigest()
