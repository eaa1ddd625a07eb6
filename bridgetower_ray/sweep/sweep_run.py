"""A sweep run: one pass over a sweep. What describes it, and what each of its trials left behind."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.plan import Plan
from bridgetower_ray.sweep.question import Question
from bridgetower_ray.sweep.settings import REHEARSAL_SUFFIX, AxisValue, MeasureSettings, Strict

REHEARSAL_BANNER = "REHEARSAL on a CPU: no figure here is a measurement"


class _Described(BaseModel):
    """Base of what is read back by other versions than the one that wrote it: what they do not know they pass over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class CellRecord(_Described):
    """A planned cell as the record keeps it; `settings` are those of its training that are in effect."""

    cell_id: str
    setting: str
    loader: str
    axes: dict[str, AxisValue]
    settings: dict[str, Any] = Field(default_factory=dict)
    devices: int | None = None
    kind: Kind
    reason: str = ""
    same_as: str | None = None


class Decision(_Described):
    """What was decided upon an accelerator's rounds: after which one, with which widest interval, and why no other.

    `widest` is a half-width as a share, None while a ratio has no interval; `why` is empty where rounds are to follow.
    """

    rounds: int
    widest: float | None
    why: str
    over_budget: bool = False


class SweepRun(_Described):
    """What a report must know of the sweep file beside the records: the file as it was when last it was run.

    `experiment` is the sweep's name and that of its MLflow experiment; `axes` holds the values of each axis,
    `prices` those per hour by accelerator, `peaks` TFLOP/s of a device where the file gives them, `stack` the driver's
    software. Where it asks a question, `repeats` are those of every cell, and `decisions` say by accelerator what the
    rounds came to when last it was run.
    """

    id: str
    experiment: str
    model: str
    dataset: dict[str, Any]
    axes: dict[str, tuple[AxisValue, ...]]
    repeats: int
    cells: tuple[CellRecord, ...]
    question: Question | None = None
    decisions: dict[str, Decision] = Field(default_factory=dict)
    baseline: str | None = None
    published: str | None = None
    prices: dict[str, float] = Field(default_factory=dict)
    peaks: dict[str, float] = Field(default_factory=dict)
    accelerator_labels: dict[str, str] = Field(default_factory=dict)
    stack: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _of_version_0_1(cls, values: Any) -> Any:
        """A description that held the whole sweep file under `spec`, of which a later version may not know all."""
        if not isinstance(values, dict) or not isinstance(spec := values.get("spec"), dict):
            return values
        of_accelerators = spec.get("accelerators") or {}
        prices = {name: settings.get("price_per_hour") for name, settings in of_accelerators.items()}
        return {
            **values,
            "experiment": spec["name"],
            "model": spec["model"],
            "dataset": spec["dataset"],
            "axes": _values_of_axes([cell["axes"] for cell in values["cells"]]),
            "repeats": spec.get("measure", {}).get("repeats", MeasureSettings().least_repeats),
            "published": spec.get("published"),
            "prices": {name: price for name, price in prices.items() if price is not None},
        }

    @property
    def rehearsal(self) -> bool:
        """Whether it measures nothing."""
        return self.experiment.endswith(REHEARSAL_SUFFIX)


def _values_of_axes(cells: Sequence[Mapping[str, AxisValue]]) -> dict[str, tuple[AxisValue, ...]]:
    return {name: tuple(dict.fromkeys(axes[name] for axes in cells)) for name in (cells[0] if cells else ())}


class TrialRecord(Strict):
    """All that one attempt at a trial left: every rank's steps, seconds of each phase, environment, figures, outcome.

    `attempt` is unique: a record that is written twice is still one run.
    """

    attempt: str = Field(default_factory=lambda: secrets.token_hex(8))
    sweep_run: str
    trial: Trial
    started_ms: int
    ended_ms: int
    outcome: Outcome
    node: str = ""
    environment: dict[str, Any] | None = None
    measured: dict[str, Any] | None = None
    steps: tuple[dict[str, Any], ...] = ()
    phases: dict[str, float] = Field(default_factory=dict)
    system: tuple[dict[str, Any], ...] = ()
    verdict: str | None = None
    flags: tuple[str, ...] = ()
    log: str = ""

    @property
    def seconds(self) -> float:
        """From its beginning to its end."""
        return (self.ended_ms - self.started_ms) / 1000

    @field_validator("sweep_run", mode="before")
    @classmethod
    def _of_version_0_1(cls, value: Any) -> Any:
        """A record that still waits on a disk may hold the sweep run's description instead of its id."""
        return value["id"] if isinstance(value, dict) else value


def must_be_alike(accelerator: str, fingerprint: str, software: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """What all trials of a sweep run must have alike, by what it is called: its data, and an accelerator's software."""
    return {
        "the data set": {"fingerprint": fingerprint},
        f"the software that trains on {accelerator}": dict(software),
    }


def changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs between two states of something, part by part: `torch 2.12 -> 2.13`."""
    return [
        f"{name} {before.get(name, '-')} -> {now.get(name, '-')}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


def new_sweep_run_id() -> str:
    """Readable, sortable and unique: `20261201-104500-3fa1`."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def describe_sweep_run(identity: str, plan: Plan, stack: dict[str, str]) -> SweepRun:
    """The sweep run that carries out `plan`."""
    spec = plan.spec
    return SweepRun(
        id=identity,
        experiment=spec.name,
        model=spec.model,
        dataset=spec.dataset.model_dump(mode="json"),
        axes=spec.axis_values,
        repeats=spec.measure.least_repeats,
        question=spec.measure.question,
        published=spec.published,
        prices=spec.prices,
        peaks=spec.peaks,
        cells=tuple(
            CellRecord(
                cell_id=cell.cell.cell_id,
                setting=cell.setting,
                loader=cell.loader,
                axes=cell.axes,
                settings=cell.cell.training.model_dump(mode="json"),
                devices=cell.cell.devices,
                kind=cell.outcome.kind,
                reason=cell.outcome.reason,
                same_as=cell.same_as,
            )
            for cell in plan.cells
        ),
        baseline=plan.baseline.setting if plan.baseline else None,
        accelerator_labels={name: spec.accelerator(name).label for name in spec.accelerator_names},
        stack=stack,
    )
