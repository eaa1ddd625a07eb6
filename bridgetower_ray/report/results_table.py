"""The records as one table, a row a trial: what `results.parquet` and `results.csv` hold."""

from collections.abc import Mapping, Sequence

import pyarrow

from bridgetower_ray.report.records import HEADLINE, CellResult, Record, SweepResults
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.sweep_run import SweepRun

FIGURES = (
    HEADLINE,
    "window_seconds",
    "window_steps",
    "window_samples",
    "data_wait_fraction",
    "host_fetch_fraction",
    "compute_ceiling_samples_per_second",
    "loader_ceiling_samples_per_second",
    "epoch_boundaries",
    "epoch_boundary_seconds",
    "foreign_cpu_cores",
    "own_services_cpu_cores",
    "train_loss",
    "peak_device_memory_bytes",
    "joules_per_sample",
    "host_joules_per_sample",
    "samples_per_watt_hour",
    "samples_per_dollar",
    "flops_per_sample",
    "model_flops_utilisation",
    "compute_ceiling_flops_utilisation",
    "rank_spread_fraction",
    "slowest_rank_share",
    "trial_seconds",
)
FACTS = (
    "data.fingerprint", "data.samples", "data.samples_left_out", "model.parameters", "run.loader", "run.precision",
    "run.ranks", "run.total_batch", "run.total_steps", "run.warmup_steps", "env.host", "env.cpu_model",
    "env.device_names", "env.device_power_limit_watts", "env.device_mig", "env.driver", "env.python", "env.torch",
    "env.transformers", "env.variables", "env.code_hash",
    "env.code_commit",
)  # fmt: skip


def to_table(results: SweepResults) -> pyarrow.Table:
    """A row a trial, those that never ran included: cell, outcome, figures, facts."""
    rows = [row for one in results.cells if one.cell.same_as is None for row in _rows(results.sweep_run, one)]
    axes = list(results.sweep_run.axes)
    text = ("sweep", "sweep_run", "cell_id", "setting", *axes, "outcome", "reason", "flags", "run_id", *FACTS)
    fields = [pyarrow.field(name, pyarrow.string()) for name in text]
    fields.insert(4, pyarrow.field("repeat", pyarrow.int64()))
    fields += [pyarrow.field(name, pyarrow.float64()) for name in FIGURES]
    return pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(fields))


def _rows(sweep_run: SweepRun, one: CellResult) -> list[dict[str, object]]:
    common: dict[str, object] = {
        "sweep": sweep_run.experiment,
        "sweep_run": sweep_run.id,
        "cell_id": one.cell.cell_id,
        "setting": one.cell.setting,
        **{name: str(value) for name, value in one.cell.axes.items()},
    }
    planned = Outcome(Kind.NOT_RUN) if one.cell.kind is Kind.RUNNABLE else Outcome(one.cell.kind, one.cell.reason)
    if not one.records and one.cell.kind is not Kind.RUNNABLE:
        return [{**common, **_row(None, planned)}]
    by_repeat = {record.repeat: record for record in one.records}
    return [{**common, "repeat": repeat, **_row(by_repeat.get(repeat), planned)} for repeat in _repeats(one, by_repeat)]


def _repeats(one: CellResult, by_repeat: Mapping[int, Record]) -> Sequence[int]:
    return range(1, max([one.repeats, *by_repeat]) + 1)


def _row(record: Record | None, planned: Outcome) -> dict[str, object]:
    if record is None:
        return {"outcome": str(planned.kind), "reason": planned.reason}
    return {
        "outcome": str(record.outcome.kind),
        "reason": record.outcome.reason,
        "flags": "; ".join(record.flags),
        "run_id": record.run_id,
        **{name: record.facts.get(name) for name in FACTS},
        **{name: record.figures.get(name) for name in FIGURES},
    }
