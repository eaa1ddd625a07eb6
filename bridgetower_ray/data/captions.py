"""Where images and captions come from: a hub data set, local files, or the built-in cartoons."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bridgetower_ray.data.cartoons import DEFAULT_COUNT, cartoons_parquet
from bridgetower_ray.data.local_files import first_line, load_local, outline
from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.settings import DatasetSettings

if TYPE_CHECKING:
    import datasets

Source = Literal["builtin", "hub", "local"]


def source_of(path: str, base: Path) -> tuple[Source, Path]:
    """What kind of source `path` names, and where it lies if it is local.

    A local path is taken from `base`, the folder in which the sweep was started. What looks like
    `owner/name` and does not exist there is a hub data set.
    """
    local = base / Path(path).expanduser()
    if path.startswith("builtin:"):
        return "builtin", local
    looks_local = path.startswith((".", "/", "~")) or path.endswith(".parquet") or local.exists()
    return ("local" if looks_local else "hub"), local


def check_local_source(settings: DatasetSettings, base: Path) -> int | None:
    """Look at local data without loading them: does it exist, has it the columns; how many samples.

    Returns:
        The number of samples, None where only loading can tell.

    Raises:
        UsageError: the path, the split or a column is not there.
    """
    source, local = source_of(settings.path, base)
    if source == "builtin":
        return settings.max_train_samples or DEFAULT_COUNT
    if source == "hub":
        return None
    if not local.exists():
        raise UsageError(f"dataset.path: {local}: no such file or folder on this host")
    columns, rows = outline(settings, local)
    check_columns(settings, columns)
    return None if rows is None else min(rows, settings.max_train_samples or rows)


def check_columns(settings: DatasetSettings, columns: Iterable[str]) -> None:
    """Raise a UsageError if the data lack a column that the sweep names."""
    there = list(columns)
    for key in ("image_column", "caption_column"):
        wanted = getattr(settings, key)
        if wanted not in there:
            raise UsageError(f"dataset.{key}: {settings.path} has no column {wanted!r}; it has {', '.join(there)}")


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
    if source == "local" and not local.exists():
        raise UsageError(f"dataset.path: {local} is not to be seen on this node; put it where every node sees it")
    try:
        match source:
            case "builtin":
                file = cartoons_parquet(settings.max_train_samples or DEFAULT_COUNT)
                return datasets.load_dataset("parquet", data_files=str(file), split="train")
            case "local":
                return load_local(settings, local)
        return datasets.load_dataset(settings.path, settings.config, split=settings.split, revision=settings.revision)
    except UsageError:
        raise
    except Exception as error:  # whatever a reader of somebody's data raises: it is the data that cannot be used
        raise UsageError(f"dataset.path: {settings.path} cannot be loaded: {first_line(error)}") from error


def first_caption(value: Any) -> str:
    """A caption as a string: the first of a list, empty if there is none."""
    if isinstance(value, list):
        value = next(iter(value), None)
    return "" if value is None else str(value)
