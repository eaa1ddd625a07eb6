"""A cell is one setting of the sweep, a trial one measurement of it: the values that travel between rooms."""

import hashlib
import json
import math
from collections.abc import Mapping
from functools import cached_property

from bridgetower_ray.sweep.accelerators import Accelerator
from bridgetower_ray.sweep.settings import (
    AxisValue,
    DatasetSettings,
    MeasureSettings,
    Strict,
    TrainingSettings,
)

SHORT_NAMES = {
    "per_device_train_batch_size": "batch",
    "gradient_accumulation_steps": "accumulation",
    "max_seq_length": "tokens",
    "cpu_threads_per_rank": "threads",
    "dataloader_num_workers": "workers",
    "dataloader_prefetch_factor": "prefetch",
    "dataloader_persistent_workers": "persistent",
    "dataloader_pin_memory": "pinned",
    "dataloader_non_blocking": "non-blocking",
    "cpu_binding": "binding",
    "torch_compile": "compiled",
    "ddp_bucket_cap_mb": "bucket MB",
    "mediapipe_dataloader": "mediapipe",
    "input_pipeline": "pipeline",
    "multiprocessing_context": "context",
    "use_lazy_mode": "lazy",
    "sdp_on_bf16": "sdp bf16",
    "distribution_strategy": "distribution",
    "pipelining_fwd_bwd": "pipelined",
}
MEDIA_LOADER = "bridgetower_ray.data.mediapipe.MediaPipeLoader"  # what must be at work where it is asked for
STAND_IN_LOADER = "stand-in"  # what a rehearsal has in its place
STEADY_QUEUES = 20  # times the queues that a window is to be long
MEDIA_PREFETCHED_BATCHES = 3  # the most that the media pipeline holds


class Cell(Strict):
    """One setting, resolved: all that decides what is measured, and nothing that does not."""

    accelerator: Accelerator
    devices: int
    model: str
    dataset: DatasetSettings
    training: TrainingSettings
    measure: MeasureSettings

    @cached_property
    def cell_id(self) -> str:
        """12 hex digits of what decides the measurement; the same on every machine.

        Settings at their defaults are left out, so that a new setting does not rename old cells.
        """
        decisive = {
            "accelerator": self.accelerator.name,
            "device": self.accelerator.device,
            "devices": self.devices,
            "model": self.model,
            "dataset": self.dataset.model_dump(exclude_defaults=True, exclude={"image_cache_limit_gib"}),
            "training": self.training.model_dump(exclude_defaults=True),
            "warmup_steps": self.measure.warmup_steps,
            **({"start": "cold"} if self.measure.start == "cold" else {}),
        }
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def prepared_images(self) -> str:
        """The form in which the node must have the images ready, beside the data set as it is."""
        if self.training.mediapipe_dataloader:
            return "jpeg"
        return "resized" if self.training.input_pipeline == "cached" else ""

    @property
    def wanted_cpus(self) -> int:
        """Processes that load or launch work at once: the ranks and their loaders' workers."""
        return self.devices * (1 + self.training.dataloader_num_workers)

    @property
    def prefetched_batches(self) -> int:
        """Batches that the loader's queues of one rank can hold."""
        if self.training.mediapipe_dataloader:
            return MEDIA_PREFETCHED_BATCHES
        return self.training.dataloader_num_workers * (self.training.dataloader_prefetch_factor or 0)

    @property
    def sums_attention_in_float32(self) -> bool:
        """Whether torch's attention on a Gaudi leaves bf16, as it does unless it is told otherwise."""
        return self.accelerator.device == "hpu" and self.training.bf16 and not self.training.sdp_on_bf16

    @property
    def copies_ahead(self) -> bool:
        """Whether a batch is on its way to the device while that still computes, without a worker's help."""
        return self.accelerator.asynchronous and self.training.dataloader_non_blocking

    @property
    def starts_warm(self) -> bool:
        """Whether its ranks may be forked from a process that has imported what they need.

        Not where they are bound to CPUs, which libraries look at when they are imported; nor on a Gaudi, whose bridge
        looks for its devices and ranks then.
        """
        return self.measure.start == "warm" and self.training.cpu_binding == "none" and self.accelerator.device != "hpu"

    @property
    def kind_of_process(self) -> str:
        """What decides, beside the interpreter, in which process its ranks find all imported as they would do it."""
        return f"{self.accelerator.device} {self.devices} {self.training.cpu_threads_per_rank}"

    @property
    def compiles(self) -> bool:
        """Whether graphs are compiled for it: on a Gaudi always, elsewhere by torch.compile."""
        return self.accelerator.device == "hpu" or self.training.torch_compile

    @property
    def warmup_steps(self) -> int:
        """Steps before the window: as asked, but enough to drain queues that filled before the start."""
        return max(self.measure.warmup_steps, self.prefetched_batches + 2)

    @property
    def steady_window_steps(self) -> int:
        """A window shorter than this is flagged: what the queues held would show in its throughput."""
        return STEADY_QUEUES * self.prefetched_batches

    @property
    def total_batch(self) -> int:
        """Samples of one optimizer step over all devices."""
        return self.training.per_device_train_batch_size * self.devices * self.training.gradient_accumulation_steps

    def total_steps(self, rows: int | None) -> int | None:
        """Optimizer steps of the run, warm-up included; None if the number of samples is not known.

        Epochs are counted as transformers' Trainer does (`Trainer.set_initial_training_values`): what is left of an
        epoch after the last full accumulation is a step too.

        Raises:
            ValueError: the data set holds less than one batch for every device.
        """
        if rows is not None and not self.batches_of_a_rank(rows):
            size = self.training.per_device_train_batch_size
            wanted = f"{size}" if self.devices == 1 else f"{size} for each of {self.devices} devices"
            raise ValueError(f"{rows} samples are less than one batch of {wanted}")
        if self.training.max_steps is not None:
            return self.training.max_steps
        if rows is None:
            return None
        steps = math.ceil(self.batches_of_a_rank(rows) / self.training.gradient_accumulation_steps)
        return math.ceil(steps * (self.training.num_train_epochs or 0))

    def batches_of_a_rank(self, rows: int) -> int:
        """Batches that each rank is given in an epoch, as accelerate deals them out."""
        full = self.training.dataloader_drop_last
        batches = rows / self.training.per_device_train_batch_size
        dealt = (math.floor(batches) if full else math.ceil(batches)) / self.devices
        return math.floor(dealt) if full else math.ceil(dealt)


class Trial(Strict):
    """One repeat of a cell, with the words that people know it by."""

    setting: str
    axes: dict[str, AxisValue]
    cell: Cell
    repeat: int
    resources: dict[str, float]
    python: str | None = None
    price_per_hour: float | None = None
    peak_tflops: float | None = None
    rehearsal: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """What identifies a result: never Tune's trial id, which changes from run to run."""
        return self.cell.cell_id, self.repeat

    @property
    def name(self) -> str:
        """As its MLflow run is called: `gaudi2 · workers=2 · mediapipe · #1`."""
        return f"{self.setting} · #{self.repeat}"


def setting_label(axes: Mapping[str, AxisValue]) -> str:
    """`gaudi2 · workers=2 · mediapipe`: each axis in short; a switch shows only when it is on."""
    parts = [str(axes["accelerator"])]
    return " · ".join(parts + [loader for loader in [loader_label(axes)] if loader])


def loader_label(axes: Mapping[str, AxisValue]) -> str:
    """A setting without its accelerator: the column of the published table."""
    parts = []
    for name, value in axes.items():
        short = SHORT_NAMES.get(name, name)
        if value is True:
            parts.append(short)
        elif name != "accelerator" and value is not False:
            parts.append(f"{short}={value}")
    return " · ".join(parts)
