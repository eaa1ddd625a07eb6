"""The published figures, as data: what was reported, under which settings, and where."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bridgetower_ray.report.records import HEADLINE, CellResult, Record, SweepResults
from bridgetower_ray.report.tables import Table, figure
from bridgetower_ray.sweep.accelerators import ACCELERATORS
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.plan import make_plan
from bridgetower_ray.sweep.spec import SweepSpec
from bridgetower_ray.sweep.sweep_run import CellRecord, SweepRun, describe_sweep_run


@dataclass(frozen=True)
class Published:
    """A published benchmark. `samples_per_second` is by accelerator, loader workers and media pipeline.

    `settings` are those that it is known to have had; `not_said` are settings of which nothing is known, on any device
    or on GPUs; `always_differs` is what no setting of ours can make alike. `flops_per_sample` are those of a forward
    and a backward pass of its model, by our own count.
    """

    name: str
    source: str
    settings: Mapping[str, object]
    samples_per_second: Mapping[tuple[str, int, bool], float]
    flops_per_sample: float
    not_said: frozenset[str]
    not_said_of_gpus: frozenset[str]
    always_differs: tuple[str, ...]
    unknown: tuple[str, ...]
    second_reference: str


BRIDGETOWER_BLOG = Published(
    name="bridgetower-blog",
    source="Hugging Face blog, 'Accelerating Vision-Language Models: BridgeTower on Habana Gaudi2', 2023",
    settings={
        "model": "BridgeTower/bridgetower-large-itm-mlm-itc",
        "dataset": {
            "path": "jmhessel/newyorker_caption_contest",
            "config": "matching",
            "caption_column": "image_description",
        },
        # In full, so that no default of ours is taken for theirs; what is not on their command is the Trainer's own.
        "training": {
            "per_device_train_batch_size": 48,
            "gradient_accumulation_steps": 1,
            "num_train_epochs": 5,
            "max_steps": None,
            "learning_rate": 1e-5,
            "weight_decay": 0.0,
            "lr_scheduler_type": "linear",
            "optim": "adamw_torch",
            "bf16": True,
            "gradient_checkpointing": False,
            "seed": 42,
            "max_seq_length": 128,
            "freeze_text_pooler": True,
            "dataloader_prefetch_factor": None,
            "dataloader_persistent_workers": False,
            "dataloader_pin_memory": True,
            "dataloader_non_blocking": False,
            "dataloader_drop_last": False,
            "multiprocessing_context": "fork",
            "input_pipeline": "reference",
            "cpu_threads_per_rank": "auto",
            "cpu_binding": "cores",
            "torch_compile": False,
            "use_lazy_mode": True,
            "use_hpu_graphs_for_inference": True,
            "gaudi_config_name": "Habana/clip",
            "sdp_on_bf16": True,
            "torch_compile_backend": None,
            "pipelining_fwd_bwd": False,
        },
        "devices": 8,
    },
    samples_per_second={
        ("gaudi2", 0, False): 601.5,
        ("gaudi2", 1, False): 747.4,
        ("gaudi2", 2, False): 768.7,
        ("gaudi2", 2, True): 847.7,
        ("h100", 0, False): 336.5,
        ("h100", 1, False): 580.1,
        ("h100", 2, False): 602.1,
        ("a100-80gb", 0, False): 227.5,
        ("a100-80gb", 1, False): 339.7,
        ("a100-80gb", 2, False): 345.4,
    },
    flops_per_sample=1.48886e12,
    not_said=frozenset({"distribution_strategy", "ddp_bucket_cap_mb"}),
    not_said_of_gpus=frozenset({"cpu_binding", "cpu_threads_per_rank"}),
    always_differs=(
        "the software is of another year (optimum-habana 1.7 and its contemporaries)",
        "nothing is logged inside the window, published every 10 steps",
        "devices are synchronised at the window's edges, published not",
    ),
    unknown=(
        "versions of the software on the GPUs",
        "distribution_strategy on the Gaudi: the article's command names none, which is ddp, the example's fast_ddp",
        "how the GPUs' ranks were bound, and how many threads they had",
        "the data set's revision",
        "number of runs (one value each is given)",
        "samples a device: the article's text says 48, the example's README 40",
    ),
    second_reference=(
        "The maintainers' CI for the same run (8 devices, batch 48, 2 workers, media pipeline, one value each, "
        "5 % tolerance): Gaudi2 904.93, Gaudi3 783.48 samples/s."
    ),
)
NOT_OF_THE_DATA = ("image_cache_limit_gib", "image_column")
PUBLISHED = {BRIDGETOWER_BLOG.name: BRIDGETOWER_BLOG}


def published_results(published: Published) -> SweepResults:
    """Published figures in the form of a sweep run of one repeat, so that the same code renders both."""
    accelerators = list(dict.fromkeys(name for name, _, _ in published.samples_per_second))
    settings = {key: value for key, value in published.settings.items() if key != "devices"}
    spec = SweepSpec.model_validate_json(
        json.dumps(
            {
                "name": published.name,
                **settings,
                "measure": {"repeats": 1},
                "axes": {
                    "accelerator": accelerators,
                    "dataloader_num_workers": [0, 1, 2],
                    "mediapipe_dataloader": [False, True],
                },
                "exclude": [{"mediapipe_dataloader": True, "dataloader_num_workers": [0, 1]}],
                "baseline": {"accelerator": accelerators[-1], "dataloader_num_workers": 0},
            }
        )
    )
    sweep_run = describe_sweep_run("published", make_plan(spec), {})
    return SweepResults(sweep_run, tuple(CellResult(cell, _records(published, cell), 1) for cell in sweep_run.cells))


def _records(published: Published, cell: CellRecord) -> tuple[Record, ...]:
    value = published.samples_per_second.get(_key(cell.axes))
    if value is None:
        return ()
    figures = {HEADLINE: value, "flops_per_sample": published.flops_per_sample}
    return (Record(cell.cell_id, 1, cell.setting, Outcome(Kind.MEASURED), "", 0, figures, {}),)


def _key(axes: Mapping[str, object]) -> tuple[str, int, bool]:
    workers = axes.get("dataloader_num_workers", 0)
    return (
        str(axes["accelerator"]),
        int(workers) if isinstance(workers, int) else 0,
        axes.get("mediapipe_dataloader") is True,
    )


def against_published(results: SweepResults) -> Table | None:
    """Measured over published, cell by cell, with all that keeps the two from being the same experiment.

    None for a sweep that names no published benchmark; a table without rows, which says so, where no cell of it was
    measured on the published hardware.
    """
    published = PUBLISHED.get(results.sweep_run.published or "")
    if published is None:
        return None
    rows = []
    for one in _both_have(results, published):
        ours, reference = one.throughput or 0, published.samples_per_second[_key(one.cell.axes)]
        rows.append((one.cell.setting, (figure(ours), figure(reference), f"{ours / reference:.2f}")))
    title, columns = f"Against {published.name}", ("measured", "published", "measured / published")
    if not rows:
        note = f"The comparison with {published.source} does not apply: nothing was measured on its hardware."
        return Table(title, "setting", columns, (), (note,))
    notes = (f"Published: {published.source}.", *differences(results, published), published.second_reference)
    return Table(title, "setting", columns, tuple(rows), notes)


def _both_have(results: SweepResults, published: Published) -> list[CellResult]:
    return [one for one in results.measured if _key(one.cell.axes) in published.samples_per_second]


def differences(results: SweepResults, published: Published) -> tuple[str, ...]:
    """What of every setting differs from the published run, cell by cell, and what of them is not known."""
    theirs = published_results(published).sweep_run
    found = list(dict.fromkeys(_differences_of_data(results.sweep_run, theirs)))
    cells = {_key(cell.axes): cell for cell in theirs.cells}
    for one in _both_have(results, published):
        gpu = ACCELERATORS[_key(one.cell.axes)[0]].device == "cuda"
        not_said = published.not_said | (published.not_said_of_gpus if gpu else frozenset())
        words = _differences_of_cells(one.cell, cells[_key(one.cell.axes)], not_said)
        found += [difference for difference in words if difference not in found]
    differs = f"Differs: {'; '.join((*found, *published.always_differs))}."
    return differs, f"Not known of the published run: {'; '.join(published.unknown)}."


def _differences_of_data(ours: SweepRun, theirs: SweepRun) -> Iterator[str]:
    if ours.model != theirs.model:
        yield f"model {ours.model}, published {theirs.model}"
    if ours.model.startswith("preset:"):
        yield "weights are random, published pretrained"
    for name, value in theirs.dataset.items():
        if name not in NOT_OF_THE_DATA and ours.dataset.get(name) != value:
            yield f"dataset.{name} {_said(ours.dataset.get(name))}, published {_said(value)}"


def _differences_of_cells(ours: CellRecord, theirs: CellRecord, not_said: frozenset[str]) -> Iterator[str]:
    for name, value in theirs.settings.items():
        if name in ours.settings and name not in not_said and ours.settings[name] != value:
            yield f"{name} {_said(ours.settings[name])}, published {_said(value)}"
    if ours.devices is not None and ours.devices != theirs.devices:
        yield f"{ours.devices} devices, published {theirs.devices}"


def _said(value: object) -> str:
    return "none" if value is None else str(value)
