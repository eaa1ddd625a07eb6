"""The media pipeline in a trial: made without anything to fall back to, and never taken for another loader."""

import os
from pathlib import Path
from typing import Any

from bridgetower_ray.data.jpeg_files import JpegFiles
from bridgetower_ray.data.preparation import Prepared
from bridgetower_ray.errors import TrialError
from bridgetower_ray.sweep.cells import MEDIA_LOADER, STAND_IN_LOADER, Cell
from bridgetower_ray.training.job import Job
from bridgetower_ray.training.samples import load_tokens, normalisation


def media_loader(job: Job, prepared: Prepared, image_size: int) -> Any:
    """The trial's loader if it is the media pipeline; None if the Trainer's own is to load, as in every rehearsal.

    Raises:
        TrialError: the pipeline cannot be built. The trial then fails: no other loader takes its place.
    """
    if job.trial.rehearsal or not job.trial.cell.training.mediapipe_dataloader:
        return None
    try:
        return _build(job.trial.cell, prepared, image_size)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise TrialError(f"the media pipeline cannot be built: {type(error).__name__}: {error}") from error


def _build(cell: Cell, prepared: Prepared, image_size: int) -> Any:
    from bridgetower_ray.data.mediapipe import MediaPipeLoader

    return MediaPipeLoader(
        JpegFiles(Path(prepared.jpeg_folder or "")),
        load_tokens(cell, prepared),
        image_size,
        normalisation(prepared.model_folder),
        cell.training.per_device_train_batch_size,
        cell.training.seed,
        rank=int(os.environ.get("RANK", "0")),
        ranks=cell.devices,
    )


def name_of_loader(job: Job, found: str) -> str:
    """What to record as the trial's loader, given the class that was found at work.

    Raises:
        TrialError: the media pipeline was asked for and something else loads, or the other way round.
    """
    asked = job.trial.cell.training.mediapipe_dataloader
    if job.trial.rehearsal:
        return STAND_IN_LOADER if asked else found
    if asked != (found == MEDIA_LOADER):
        raise TrialError(f"mediapipe_dataloader: {str(asked).lower()} was asked for, but {found} loads")
    return found
