"""The published figures, as data: what was reported, under which settings, and where."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bridgetower_ray.report.records import HEADLINE, CellResult, Record, SweepResults
from bridgetower_ray.report.tables import Table, figure
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.plan import make_plan
from bridgetower_ray.sweep.spec import SweepSpec
from bridgetower_ray.sweep.sweep_run import CellRecord, SweepRun, describe_sweep_run


@dataclass(frozen=True)
class Published:
    """A published benchmark. `samples_per_second` is by accelerator, loader workers and media pipeline.

    `flops_per_sample` are those of a forward and a backward pass of its model, by our own count.
    """

    name: str
    source: str
    settings: Mapping[str, object]
    samples_per_second: Mapping[tuple[str, int, bool], float]
    flops_per_sample: float
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
        "training": {
            "per_device_train_batch_size": 48,
            "learning_rate": 1e-5,
            "num_train_epochs": 5,
            "bf16": True,
            "max_seq_length": 128,
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
    unknown=(
        "versions of the software",
        "number of runs (one value each is given)",
        "samples a device: the article's text says 48, the example's README 40",
        "its window holds its own logging, and no device is synchronised at the window's edges",
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
        found += [words for words in _differences_of_cells(one.cell, cells[_key(one.cell.axes)]) if words not in found]
    differs = f"Differs: {'; '.join(found)}." if found else "No setting differs that is known."
    return differs, f"Not known of the published run: {'; '.join(published.unknown)}."


def _differences_of_data(ours: SweepRun, theirs: SweepRun) -> Iterator[str]:
    if ours.model != theirs.model:
        yield f"model {ours.model}, published {theirs.model}"
    if ours.model.startswith("preset:"):
        yield "weights are random, published pretrained"
    for name, value in theirs.dataset.items():
        if name not in NOT_OF_THE_DATA and ours.dataset.get(name) != value:
            yield f"dataset.{name} {_said(ours.dataset.get(name))}, published {_said(value)}"


def _differences_of_cells(ours: CellRecord, theirs: CellRecord) -> Iterator[str]:
    for name, value in theirs.settings.items():
        if name in ours.settings and ours.settings[name] != value:
            yield f"{name} {_said(ours.settings[name])}, published {_said(value)}"
    if ours.devices is not None and ours.devices != theirs.devices:
        yield f"{ours.devices} devices, published {theirs.devices}"


def _said(value: object) -> str:
    return "none" if value is None else str(value)
