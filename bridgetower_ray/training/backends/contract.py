"""What a backend is: one kind of device as the training sees it, and the arguments that mean the same on all."""

from pathlib import Path
from typing import Any, Protocol

from transformers import Trainer, TrainingArguments

from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.sweep.settings import HPU_SETTINGS

# Where the sweep file's names are not TrainingArguments' own.
OWN_SETTINGS = {
    "max_seq_length",
    "freeze_text_pooler",
    "multiprocessing_context",
    "mediapipe_dataloader",
    "input_pipeline",
    "cpu_threads_per_rank",
    "cpu_binding",
    "dataloader_non_blocking",
    "torch_compile",
    "ddp_bucket_cap_mb",
    *HPU_SETTINGS,
}


class Backend(Protocol):
    """One kind of device as the worker sees it."""

    asynchronous: bool
    trainer_class: type[Trainer]

    def set_seed(self, seed: int) -> None:
        """Seed every generator that the training draws from."""

    def arguments(self, cell: Cell, total_steps: int, output_folder: Path) -> TrainingArguments:
        """The Trainer's arguments for a cell."""

    def trainer_arguments(self, arguments: TrainingArguments) -> dict[str, Any]:
        """What the Trainer's class takes beyond what every Trainer takes."""

    def synchronize(self) -> None:
        """Return when the device has nothing left to do."""

    def device_name(self) -> str:
        """The name that the device gives itself."""

    def peak_memory_bytes(self) -> int | None:
        """Most device memory allocated since the start; None where that cannot be told."""

    def counters(self) -> dict[str, int]:
        """Since the start: `graph_compilations`, `cpu_fallbacks` (operations that the device left to the host).

        Without what does not happen here, or what the library does not say.
        """

    def facts(self, trainer: Trainer) -> dict[str, Any]:
        """What the trainer really does with the device: its precision, and the device's own settings."""


def common_arguments(cell: Cell, total_steps: int, output_folder: Path) -> dict[str, Any]:
    """The arguments that mean the same on every device.

    Nothing but training happens inside the window: no logging, evaluation or saving; the NaN filter is off
    since it would synchronise a CUDA device at every step, and `report_to` is none since another MLflow
    writer would start otherwise.
    """
    training = cell.training
    settings = training.model_dump(exclude=OWN_SETTINGS | {"num_train_epochs", "max_steps"})
    if training.ddp_bucket_cap_mb is not None:  # each Trainer has a default of its own
        settings["ddp_bucket_cap_mb"] = training.ddp_bucket_cap_mb
    return {
        **settings,
        "accelerator_config": {"non_blocking": training.dataloader_non_blocking},
        "max_steps": total_steps,
        "output_dir": str(output_folder),
        "remove_unused_columns": False,
        "ddp_find_unused_parameters": False,
        "logging_strategy": "no",
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
