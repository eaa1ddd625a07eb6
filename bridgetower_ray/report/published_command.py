"""The published run's command, flag by flag, beside what a sweep does in its place."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bridgetower_ray.report.tables import Table
from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.sweep.plan import Plan

NOT_GIVEN = "not given"


@dataclass(frozen=True)
class Flag:
    """A flag of the published command, its value, and where a cell has the like.

    `ours` is a path into a cell (`training.bf16`), or words for what this tool does instead. `device` limits it to
    cells of one kind of device.
    """

    name: str
    published: str
    ours: str
    note: str = ""
    device: str = ""


NOTES = (
    "Published: the article's command for its Gaudi2 (huggingface/blog, bridgetower.md, 2023), and what its text adds; "
    "for the GPUs the same script with the standard Trainer.",
    "The example: optimum-habana's examples/contrastive-image-text/README.md, said to reproduce the article.",
)
FLAGS = (
    Flag("gaudi_spawn.py --use_mpi", "cores", "training.cpu_binding", "mpirun --bind-to core; of the GPUs not known"),
    Flag("OMP_NUM_THREADS", "auto", "training.cpu_threads_per_rank", "no limit was set; of the GPUs not known"),
    Flag("--world_size", "8", "devices"),
    Flag("--model_name_or_path", "BridgeTower/bridgetower-large-itm-mlm-itc", "model"),
    Flag("--dataset_name", "jmhessel/newyorker_caption_contest", "dataset.path"),
    Flag("--dataset_config_name", "matching", "dataset.config"),
    Flag("--dataset_revision", NOT_GIVEN, "dataset.revision", "the example's is a script, which datasets 4 refuses"),
    Flag("--image_column", "image", "dataset.image_column"),
    Flag("--caption_column", "image_description", "dataset.caption_column"),
    Flag("--max_seq_length", "128", "training.max_seq_length", "the script's own default"),
    Flag("--remove_unused_columns", "False", "False"),
    Flag("--do_train --do_eval --do_predict", "all three", "training alone", "evaluation came after the training"),
    Flag("--per_device_train_batch_size", "48", "training.per_device_train_batch_size", "its command says 40"),
    Flag("--num_train_epochs", "5", "training.num_train_epochs"),
    Flag("--learning_rate", "1e-5", "training.learning_rate"),
    Flag("--dataloader_num_workers", "0, 1, 2", "training.dataloader_num_workers"),
    Flag("--mediapipe_dataloader", "False, True", "training.mediapipe_dataloader", device="hpu"),
    Flag("--dataloader_drop_last", "False", "training.dataloader_drop_last", "not given: short batches ended epochs"),
    Flag("--bf16", "True", "training.bf16", "not given; its text says bfloat16, on a Gaudi by Habana/clip"),
    Flag("--use_habana", "True", "True", device="hpu"),
    Flag("--use_lazy_mode", "True", "training.use_lazy_mode", device="hpu"),
    Flag("--use_hpu_graphs_for_inference", "True", "training.use_hpu_graphs_for_inference", device="hpu"),
    Flag("--gaudi_config_name", "Habana/clip", "training.gaudi_config_name", device="hpu"),
    Flag(
        "--distribution_strategy",
        NOT_GIVEN,
        "training.distribution_strategy",
        "the example's is fast_ddp, the default is ddp",
        "hpu",
    ),
    Flag("--sdp_on_bf16", "True", "training.sdp_on_bf16", "not there in 2023; the example's since 1.19", "hpu"),
    Flag("--throughput_warmup_steps", "3", "warmup_steps", "more where queues are to be drained"),
    Flag("--logging_steps", "10", "no logging in the window"),
    Flag("--report_to", "tensorboard", "none"),
)  # fmt: skip


def command_table(laid_out: Plan) -> Table:
    """Each flag with the published value and the sweep's own, over all cells that can run."""
    cells = [one.cell for one in laid_out.cells if one.runnable]
    concerned = [(flag, [cell for cell in cells if flag.device in ("", cell.accelerator.device)]) for flag in FLAGS]
    rows = tuple((flag.name, _row(flag, its)) for flag, its in concerned if its)
    return Table("The published command beside this sweep", "flag", ("published", "here", "", "note"), rows, NOTES)


def _row(flag: Flag, cells: Iterable[Cell]) -> tuple[str, ...]:
    ours = _ours(flag, cells)
    return (flag.published, ", ".join(ours), _word(flag, ours), flag.note)


def _ours(flag: Flag, cells: Iterable[Cell]) -> list[str]:
    """Each value once, in order."""
    found = {"none" if value is None else str(value): None for cell in cells for value in _at(cell, flag.ours)}
    return sorted(found) if found else [flag.ours]


def _at(cell: Cell, path: str) -> Iterator[object]:
    """The value at a path into a cell; nothing where the path is words."""
    value: object = cell
    for name in path.split("."):
        if not hasattr(value, name):
            return
        value = getattr(value, name)
    yield value


def _word(flag: Flag, ours: list[str]) -> str:
    """Empty where every value here is one of the published."""
    if flag.published == NOT_GIVEN:
        return "not known"
    published = [_plain(value) for value in flag.published.split(", ")]
    return "" if all(_plain(value) in published for value in ours) else "differs"


def _plain(value: str) -> str:
    """`1e-5` and `1e-05` are one value."""
    try:
        return repr(float(value))
    except ValueError:
        return value
