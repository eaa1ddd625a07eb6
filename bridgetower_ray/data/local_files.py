"""Local data sets, resolved by the `datasets` library's own rules: what is counted here is what a trial is given."""

import glob
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.settings import DatasetSettings

if TYPE_CHECKING:
    import datasets

METADATA_FILES = ["metadata.csv", "metadata.jsonl", "metadata.parquet"]


def local_builder(settings: DatasetSettings, local: Path, cache: str | None = None) -> Any:
    """The library's builder of the images, with their metadata, or of the Parquet files at `local`.

    Splits go by words in the names of files and folders, as everywhere in the library.

    Args:
        cache: a folder for what the library writes; its own by default.

    Raises:
        UsageError: there is nothing that could be loaded, or not of the split that the sweep names.
    """
    from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
    from datasets.packaged_modules.parquet.parquet import Parquet

    found = _files_by_split(local)
    images = found.filter(extensions=[*ImageFolder.EXTENSIONS])
    parquet = found.filter(extensions=[".parquet"])
    images_found = sum(map(len, images.values()))
    tables_found = sum(Path(file).name not in METADATA_FILES for files in parquet.values() for file in files)
    if not images_found and not tables_found:
        raise UsageError(f"dataset.path: {local}: neither Parquet files nor images are in it")
    is_table = tables_found > images_found
    chosen = parquet if is_table else found.filter(extensions=[*ImageFolder.EXTENSIONS], file_names=METADATA_FILES)
    chosen = type(chosen)({name: files for name, files in chosen.items() if files})
    split = settings.split.partition("[")[0]
    if "+" not in split and split not in chosen:
        raise UsageError(f"dataset.split: {local} has no split {split!r}; it has {', '.join(map(str, chosen))}")
    if is_table:
        return Parquet(data_files=chosen, cache_dir=cache)
    return ImageFolder(data_files=chosen, cache_dir=cache, drop_labels=True)


def _files_by_split(local: Path) -> Any:
    from datasets.data_files import DataFilesDict, get_data_patterns, sanitize_patterns
    from datasets.exceptions import DatasetsError

    name = glob.escape(str(local.resolve()))  # the library takes brackets in a path for a pattern
    try:
        patterns = get_data_patterns(name) if local.is_dir() else sanitize_patterns(name)
        return DataFilesDict.from_patterns(patterns, base_path=name if local.is_dir() else None)
    except (DatasetsError, OSError, ValueError):
        raise UsageError(f"dataset.path: {local}: neither Parquet files nor images are in it") from None


def outline(settings: DatasetSettings, local: Path) -> tuple[list[str], int | None]:
    """Columns and samples of the split, without decoding an image; None samples for a part of a split.

    Raises:
        UsageError: the library cannot load what is there.
    """
    with tempfile.TemporaryDirectory(prefix="bridgetower-ray-look-") as cache:
        try:
            builder = local_builder(settings, local, cache)
            split = settings.split
            if "[" in split or "+" in split:
                stream = builder.as_streaming_dataset(split=next(iter(builder.config.data_files)))
                return list(stream.column_names), None
            return _columns_and_rows(builder, split)
        except UsageError:
            raise
        except Exception as error:  # whatever a reader of somebody's files raises: it is the data that cannot be used
            raise UsageError(f"dataset.path: {local}: cannot be loaded: {first_line(error)}") from None


def _columns_and_rows(builder: Any, split: str) -> tuple[list[str], int]:
    import pyarrow.parquet

    if type(builder).__name__ == "Parquet":
        files = [pyarrow.parquet.ParquetFile(file) for file in builder.config.data_files[split]]
        return list(files[0].schema_arrow.names), sum(file.metadata.num_rows for file in files)
    import datasets

    stream = builder.as_streaming_dataset(split=split)
    columns = list(stream.column_names)
    return columns, sum(1 for _ in stream.cast_column("image", datasets.Image(decode=False)))


def load_local(settings: DatasetSettings, local: Path) -> "datasets.Dataset":
    """The samples of the split, images undecoded. Raises what the library raises."""
    builder = local_builder(settings, local)
    builder.download_and_prepare()
    return builder.as_dataset(split=settings.split)


def first_line(error: Exception) -> str:
    """What an error, or what caused it, says in its first line."""
    cause = error.__cause__ or error
    return (str(cause).splitlines() or [type(cause).__name__])[0]
