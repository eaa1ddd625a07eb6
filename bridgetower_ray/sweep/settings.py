"""The settings that a sweep file may hold, section by section; `spec` puts them together."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from bridgetower_ray.sweep.question import LEAST_ROUNDS, MOST_ROUNDS, Goal, Percentage, Question

AxisValue = str | int | float | bool
REHEARSAL_SUFFIX = "-rehearsal"  # of a rehearsal's experiment
SLUG = r"^[a-z0-9][a-z0-9._-]{0,62}$"
NAME = r"^[a-z0-9][a-z0-9._-]{0,72}$"  # a sweep's slug, with room for REHEARSAL_SUFFIX
MOST_SEED = 2**32 - 1  # of numpy's generator, which transformers seeds too
COUNT, RANGE = "one count", "a range"  # the two forms of `repeats`
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """Base of what comes from a file: no unknown keys, no coercion, no change afterwards."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class DatasetSettings(Strict):
    """Which images and captions."""

    path: Annotated[str, Field(min_length=1)] = Field(
        description="a hub data set, a folder of images, a .parquet file or folder, or builtin:cartoons"
    )
    config: str | None = Field(None, description="configuration of a hub data set")
    revision: str | None = Field(None, description="revision of a hub data set")
    split: str = "train"
    image_column: str = "image"
    caption_column: str = "text"
    max_train_samples: Positive | None = Field(None, description="use the first so many samples")
    image_cache_limit_gib: Annotated[float, Field(gt=0)] = Field(
        50.0, description="most disk that the images of input_pipeline: cached may take on a node"
    )


class TrainingSettings(Strict):
    """Named as in transformers.TrainingArguments; the rest as in optimum-habana's BridgeTower example."""

    per_device_train_batch_size: Positive = 8
    gradient_accumulation_steps: Positive = 1
    num_train_epochs: Annotated[float, Field(gt=0)] | None = None
    max_steps: Positive | None = None
    learning_rate: Annotated[float, Field(gt=0)] = 5e-5
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    lr_scheduler_type: Literal["linear", "cosine", "constant"] = "linear"
    optim: Literal["adamw_torch", "adamw_torch_fused", "adafactor"] = "adamw_torch"
    bf16: bool = False
    gradient_checkpointing: bool = False
    seed: Annotated[int, Field(ge=0, le=MOST_SEED)] = 42
    max_seq_length: Annotated[int, Field(ge=2, le=512)] = 128
    freeze_text_pooler: bool = True
    dataloader_num_workers: Count = 0
    dataloader_prefetch_factor: Positive | None = Field(None, description="batches a worker; torch's own is 2")
    dataloader_persistent_workers: bool = False
    dataloader_pin_memory: bool = True
    dataloader_drop_last: bool = True
    dataloader_non_blocking: bool = Field(
        False, description="copy pinned batches to the device without waiting for it (accelerator_config.non_blocking)"
    )
    multiprocessing_context: Literal["fork", "forkserver", "spawn"] = Field("fork", description="of the workers")
    mediapipe_dataloader: bool = False
    input_pipeline: Literal["reference", "fast", "cached"] = Field(
        "reference", description="as published; in 8 bits with one resize; resized once and read from a memory map"
    )
    cpu_threads_per_rank: Positive | Literal["auto"] = Field(
        1, description="OMP_NUM_THREADS of each rank; auto is its share of the CPUs, as without a limit"
    )
    cpu_binding: Literal["none", "cores", "numa"] = Field(
        "none", description="CPUs of each rank: any; whole cores of its own near its device; its device's NUMA node"
    )
    torch_compile: bool = Field(False, description="by the device's own backend; on a Gaudi it wants lazy mode off")
    ddp_bucket_cap_mb: Positive | None = Field(None, description="of DDP; by default 25 on CUDA and 230 on a Gaudi")
    use_lazy_mode: bool = Field(True, description="Gaudi only: collect operations into graphs; false is eager mode")
    use_hpu_graphs_for_inference: bool = Field(True, description="Gaudi only: as published; no part of a training step")
    gaudi_config_name: Annotated[str, Field(min_length=1)] = Field(
        "Habana/clip", description="Gaudi only: a folder with gaudi_config.json, or its name on the hub"
    )
    sdp_on_bf16: bool = Field(False, description="Gaudi only: attention sums in bf16")
    torch_compile_backend: Literal["hpu_backend"] | None = Field(None, description="Gaudi only; wants lazy mode off")
    distribution_strategy: Literal["ddp", "fast_ddp"] = Field(
        "ddp", description="Gaudi only; fast_ddp is optimum-habana's own"
    )
    pipelining_fwd_bwd: bool = Field(False, description="Gaudi only: forward pass executed while backward is built")


class RepeatRange(Strict):
    """How many rounds a question may take."""

    min: Annotated[int, Field(ge=LEAST_ROUNDS)] = LEAST_ROUNDS
    max: Annotated[int, Field(ge=LEAST_ROUNDS)] = MOST_ROUNDS


class BudgetSettings(Strict):
    """What a question may cost, by the one or by the other."""

    accelerator_hours: Annotated[float, Field(gt=0)] | None = Field(None, description="hours of single devices")
    cost: Annotated[float, Field(gt=0)] | None = Field(None, description="by price_per_hour of the accelerators")


class MeasureSettings(Strict):
    """How a cell is measured: so many times, or as often as a precision takes."""

    warmup_steps: Count = 3
    repeats: Annotated[
        Annotated[Positive, Tag(COUNT)] | Annotated[RepeatRange, Tag(RANGE)],
        Discriminator(lambda value: RANGE if isinstance(value, dict | RepeatRange) else COUNT),
    ] = Field(3, description="of each cell; with a precision {min, max}")
    precision: Percentage | None = Field(
        None, description="in place of a count: half-width of each ratio's 95 % interval, such as 3%"
    )
    goal: Goal | None = Field(
        None, description="of a precision: the whole table, or the fastest cell of each accelerator"
    )
    budget: BudgetSettings | None = Field(None, description="of a precision: what it may cost")
    order_seed: Count = Field(0, description="of the order in which each round runs an accelerator's cells")
    ceilings: bool = True
    compile_cache: bool = Field(
        True, description="keep compiled graphs on the node, so that only the first trial of a cell compiles them"
    )
    start: Literal["warm", "cold"] = Field(
        "warm", description="warm: ranks are forked from a process that has imported what they need, where one can be"
    )
    timeout_minutes: Annotated[float, Field(gt=0)] = 30.0
    preparation_minutes: Annotated[float, Field(gt=0)] = Field(
        120.0, description="how long a node may take to have data, images and checkpoint ready"
    )

    @property
    def question(self) -> Question | None:
        """What is asked; None where a count is given."""
        if self.precision is None:
            return None
        repeats = self.repeats if isinstance(self.repeats, RepeatRange) else RepeatRange()
        budget = self.budget or BudgetSettings()
        return Question(
            precision=self.precision,
            least=repeats.min,
            most=repeats.max,
            goal=self.goal or "table",
            **budget.model_dump(),
        )

    @property
    def least_repeats(self) -> int:
        """Of every cell."""
        return self.question.least if self.question else self._count

    @property
    def most_repeats(self) -> int:
        """Of any cell."""
        return self.question.most if self.question else self._count

    @property
    def _count(self) -> int:
        return self.repeats if isinstance(self.repeats, int) else self.repeats.min


class AcceleratorSettings(Strict):
    """What a sweep says of one accelerator."""

    devices: Positive | None = Field(None, description="devices a trial takes, all on one node")
    price_per_hour: Annotated[float, Field(gt=0)] | None = Field(None, description="of a node's devices in use")
    peak_tflops: Annotated[float, Field(gt=0)] | None = Field(
        None, description="dense bf16 peak of one device in TFLOP/s, where the known one is not this device's"
    )
    python: str | None = Field(None, description="interpreter that trains, a path or a name; it needs no Ray")
    like: str | None = Field(None, description="known accelerator that this one, of your own, behaves like")


class SchedulingSettings(Strict):
    """How trials share nodes, and what happens when the infrastructure fails."""

    isolation: Literal["node", "devices"] = "node"
    retries: Count = Field(1, description="of a trial whose actor or node died; an error of the training is a result")
    node_wait_minutes: Annotated[float, Field(ge=0)] = Field(
        5.0, description="how long trials wait for a node that can hold them, once none is left"
    )


SWEEPABLE = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "optim",
    "bf16",
    "gradient_checkpointing",
    "max_seq_length",
    "cpu_threads_per_rank",
    "cpu_binding",
    "torch_compile",
    "ddp_bucket_cap_mb",
    "dataloader_num_workers",
    "dataloader_prefetch_factor",
    "dataloader_persistent_workers",
    "dataloader_pin_memory",
    "dataloader_non_blocking",
    "multiprocessing_context",
    "input_pipeline",
    "mediapipe_dataloader",
    "use_lazy_mode",
    "sdp_on_bf16",
    "distribution_strategy",
    "pipelining_fwd_bwd",
)
HPU_SETTINGS = (
    "use_lazy_mode",
    "use_hpu_graphs_for_inference",
    "gaudi_config_name",
    "sdp_on_bf16",
    "torch_compile_backend",
    "distribution_strategy",
    "pipelining_fwd_bwd",
)
