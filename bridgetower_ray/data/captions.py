"""Where images and captions come from: a hub data set, local files, or the built-in cartoons."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bridgetower_ray.data.cartoons import DEFAULT_COUNT, cartoons_parquet
from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.settings import DatasetSettings

if TYPE_CHECKING:
    import datasets

IMAGE_FILES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
Source = Literal["builtin", "hub", "parquet", "images"]


def source_of(path: str, base: Path) -> tuple[Source, Path]:
    """What kind of source `path` names, and where it lies if it is local.

    A local path is taken from `base`, the folder in which the sweep was started. What looks like
    `owner/name` and does not exist there is a hub data set.
    """
    local = base / Path(path).expanduser()
    if path.startswith("builtin:"):
        return "builtin", local
    looks_local = path.startswith((".", "/", "~")) or path.endswith(".parquet") or local.exists()
    if not looks_local:
        return "hub", local
    return ("parquet" if _parquet_files(local) else "images"), local


def _parquet_files(local: Path) -> list[Path]:
    return [local] if local.suffix == ".parquet" else sorted(local.rglob("*.parquet"))


def check_local_source(settings: DatasetSettings, base: Path) -> int | None:
    """Look at local data without loading them: does it exist, has it the columns; how many samples.

    Returns:
        The number of samples, None where only loading can tell.

    Raises:
        UsageError: the path or a column is not there.
    """
    source, local = source_of(settings.path, base)
    if source == "builtin":
        return settings.max_train_samples or DEFAULT_COUNT
    if source == "hub":
        return None
    if not local.exists():
        raise UsageError(f"dataset.path: {local}: no such file or folder on this host")
    columns, rows = _parquet_outline(local) if source == "parquet" else _folder_outline(local)
    check_columns(settings, columns)
    return min(rows, settings.max_train_samples or rows)


def check_columns(settings: DatasetSettings, columns: Iterable[str]) -> None:
    """Raise a UsageError if the data lack a column that the sweep names."""
    there = list(columns)
    for key in ("image_column", "caption_column"):
        wanted = getattr(settings, key)
        if wanted not in there:
            raise UsageError(f"dataset.{key}: {settings.path} has no column {wanted!r}; it has {', '.join(there)}")


def _parquet_outline(local: Path) -> tuple[list[str], int]:
    import pyarrow
    import pyarrow.parquet

    try:
        files = [pyarrow.parquet.ParquetFile(file) for file in _parquet_files(local)]
    except (OSError, pyarrow.ArrowException) as error:
        raise UsageError(f"dataset.path: {local}: cannot be read as Parquet: {error}") from None
    return files[0].schema_arrow.names, sum(file.metadata.num_rows for file in files)


def _folder_outline(local: Path) -> tuple[list[str], int]:
    """Columns and rows as `datasets`' imagefolder will find them: `image` and those of the metadata file."""
    for name in ("metadata.csv", "metadata.jsonl"):
        if (local / name).is_file():
            columns, rows = _metadata_outline(local / name)
            return ["image", *(column for column in columns if column != "file_name")], rows
    images = sum(1 for file in local.rglob("*") if file.suffix.lower() in IMAGE_FILES)
    if not images:
        raise UsageError(f"dataset.path: {local}: neither Parquet files nor images are in it")
    return ["image"], images


def _metadata_outline(file: Path) -> tuple[list[str], int]:
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            if file.suffix == ".csv":
                reader = csv.DictReader(lines)
                return list(reader.fieldnames or ()), sum(1 for _ in reader)
            records = [json.loads(line) for line in lines if line.strip()]
            return list(records[0]) if records else [], len(records)
    except (OSError, UnicodeDecodeError, ValueError, AttributeError, csv.Error) as error:
        raise UsageError(f"dataset.path: {file}: cannot be read: {error}") from None


def load_captions(settings: DatasetSettings, base: Path) -> "datasets.Dataset":
    """Load the images (undecoded) and captions as a `datasets.Dataset` of the columns `image` and `caption`.

    `image` is a dict of `bytes` and `path`; `caption` a string, the first one where a sample has a list.

    Raises:
        UsageError: the path or a column is not there, or the data cannot be loaded.
    """
    import datasets

    datasets.disable_progress_bars()
    table = _load(settings, base)
    check_columns(settings, table.column_names)
    if settings.max_train_samples is not None:
        table = table.select(range(min(settings.max_train_samples, len(table))))
    captions = [first_caption(value) for value in table[settings.caption_column]]
    images = table.select_columns([settings.image_column])
    if settings.image_column != "image":
        images = images.rename_column(settings.image_column, "image")
    return images.cast_column("image", datasets.Image(decode=False)).add_column("caption", captions)


def _load(settings: DatasetSettings, base: Path) -> Any:
    import datasets

    source, local = source_of(settings.path, base)
    if source in ("parquet", "images") and not local.exists():
        raise UsageError(f"dataset.path: {local} is not to be seen on this node; put it where every node sees it")
    try:
        match source:
            case "builtin":
                file = cartoons_parquet(settings.max_train_samples or DEFAULT_COUNT)
                return datasets.load_dataset("parquet", data_files=str(file), split="train")
            case "parquet":
                files = [str(file) for file in _parquet_files(local)]
                return datasets.load_dataset("parquet", data_files=files, split="train")
            case "images":
                return datasets.load_dataset("imagefolder", data_dir=str(local), split="train", drop_labels=True)
        return datasets.load_dataset(settings.path, settings.config, split=settings.split, revision=settings.revision)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise UsageError(f"dataset.path: {settings.path} cannot be loaded: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error
    return (str(cause).splitlines() or [type(cause).__name__])[0]


def first_caption(value: Any) -> str:
    """A caption as a string: the first of a list, empty if there is none."""
    if isinstance(value, list):
        value = next(iter(value), None)
    return "" if value is None else str(value)
