"""A sweep run: one pass over a sweep. What describes it, and what each of its trials left behind."""

import secrets
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.plan import Plan
from bridgetower_ray.sweep.settings import REHEARSAL_SUFFIX, AxisValue, Strict
from bridgetower_ray.sweep.spec import SweepSpec

REHEARSAL_BANNER = "REHEARSAL on a CPU: no figure here is a measurement"


class CellRecord(Strict):
    """A planned cell as the record keeps it."""

    cell_id: str
    setting: str
    loader: str
    axes: dict[str, AxisValue]
    kind: Kind
    reason: str = ""
    same_as: str | None = None


class SweepRun(Strict):
    """The description that travels with every run of it, so that a report needs nothing but MLflow."""

    id: str
    spec: SweepSpec
    cells: tuple[CellRecord, ...]
    baseline: str | None
    accelerator_labels: dict[str, str]
    stack: dict[str, str]

    @property
    def experiment(self) -> str:
        """The MLflow experiment it logs to."""
        return self.spec.name

    @property
    def rehearsal(self) -> bool:
        """Whether it measures nothing."""
        return self.spec.name.endswith(REHEARSAL_SUFFIX)


class TrialRecord(Strict):
    """All that one attempt at a trial left: raw steps, environment, figures, outcome.

    `attempt` is unique: a record that is written twice is still one run.
    """

    attempt: str = Field(default_factory=lambda: secrets.token_hex(8))
    sweep_run: SweepRun
    trial: Trial
    started_ms: int
    ended_ms: int
    outcome: Outcome
    node: str = ""
    environment: dict[str, Any] | None = None
    measured: dict[str, Any] | None = None
    steps: tuple[dict[str, Any], ...] = ()
    system: tuple[dict[str, Any], ...] = ()
    verdict: str | None = None
    flags: tuple[str, ...] = ()
    log: str = ""


def new_sweep_run_id() -> str:
    """Readable, sortable and unique: `20261201-104500-3fa1`."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def describe_sweep_run(identity: str, plan: Plan, stack: dict[str, str]) -> SweepRun:
    """The sweep run that carries out `plan`."""
    spec = plan.spec
    return SweepRun(
        id=identity,
        spec=spec,
        cells=tuple(
            CellRecord(
                cell_id=cell.cell.cell_id,
                setting=cell.setting,
                loader=cell.loader,
                axes=cell.axes,
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
