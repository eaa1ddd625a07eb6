"""What an MLflow run holds of a trial's record, as values: params, metrics, tags. Knows no mlflow."""

import json
from typing import Any, NamedTuple

from bridgetower_ray.report.records import HEADLINE, phase_figure
from bridgetower_ray.store.redaction import facts_without_credentials, redact, without_credentials
from bridgetower_ray.sweep.outcomes import Outcome
from bridgetower_ray.sweep.sweep_run import TrialRecord

PARAM_LENGTH = 6000
TAG_LENGTH = 5000


class Point(NamedTuple):
    """One value of a metric."""

    name: str
    value: float
    step: int


def outcome_tags(outcome: Outcome) -> dict[str, str]:
    """What became of the trial."""
    return {"outcome": str(outcome.kind), "reason": redact(outcome.reason)[:TAG_LENGTH]}


def judgement_tags(record: TrialRecord) -> dict[str, str]:
    """What to think of its figures, and where it ran."""
    tags = {"verdict": record.verdict or "", "flags": "; ".join(record.flags), "node": record.node}
    return {name: without_credentials(value)[:TAG_LENGTH] for name, value in tags.items() if value}


def source_tags(record: TrialRecord) -> dict[str, str]:
    """MLflow's columns for source and version."""
    commit = (record.environment or {}).get("code_commit")
    tags = {"mlflow.source.name": "bridgetower-ray run", "mlflow.source.type": "PROJECT"}
    return tags | ({"mlflow.source.git.commit": commit} if commit else {})


def metrics(record: TrialRecord) -> list[Point]:
    """The headline first, then the other figures, then the steps as series under `step/`."""
    figures = {name: value for name, value in (record.measured or {}).items() if isinstance(value, int | float)}
    ordered = {HEADLINE: figures.pop(HEADLINE)} if HEADLINE in figures else {}
    ordered |= figures
    ordered["trial_seconds"] = record.seconds
    points = [Point(name, float(value), 0) for name, value in ordered.items()]
    points += [Point(phase_figure(name), value, 0) for name, value in record.phases.items()]
    for step in (one for one in record.steps if not one.get("rank")):
        series = {"fetch_seconds": step["fetch_seconds"], "seconds": step["seconds"]}
        series["samples_per_second"] = step["samples"] / step["seconds"] if step["seconds"] else 0.0
        points += [Point(f"step/{name}", value, step["step"]) for name, value in series.items()]
    for sample in record.system:
        values = {name: value for name, value in sample.items() if name != "seconds"}
        points += [Point(f"system/{name}", value, int(sample["seconds"])) for name, value in values.items()]
    return points


def params(record: TrialRecord) -> dict[str, str]:
    """The axes under their bare names, as MLflow's compare page wants them; all else under a prefix."""
    trial = record.trial
    values: dict[str, Any] = {**trial.axes, "setting": trial.setting}
    values |= {f"train.{name}": value for name, value in trial.cell.training.model_dump().items()}
    values |= {f"measure.{name}": value for name, value in trial.cell.measure.model_dump().items()}
    values |= {
        "model.name": trial.cell.model,
        "data.path": trial.cell.dataset.path,
        "env.devices": trial.cell.devices,
    }
    for section, prefix in (("model", "model"), ("data", "data"), ("effective", "run"), ("versions", "env")):
        found = (record.environment or {}).get(section, {})
        values |= {f"{prefix}.{name}": value for name, value in found.items() if name != "left_out"}
    values["data.left_out"] = _names_of_left_out(record) or None
    for section in ("conditions", "device_facts"):
        values |= {f"env.{name}": value for name, value in (record.environment or {}).get(section, {}).items()}
    for name in (
        "host",
        "cpu_model",
        "cpus",
        "cpus_usable",
        "driver",
        "torch_threads",
        "variables",
        "code_commit",
        "code_hash",
    ):
        if record.environment and name in record.environment:
            values[f"env.{name}"] = record.environment[name]
    if record.environment:
        values["env.device_names"] = ", ".join(sorted(set(record.environment["devices"])))
        values["env.asynchronous"] = record.environment["asynchronous"]
    if trial.price_per_hour is not None:
        values["env.price_per_hour"] = trial.price_per_hour
    known = {name: without_credentials(str(value)) for name, value in values.items() if value is not None}
    return {name: value[:PARAM_LENGTH] for name, value in known.items()}


def _names_of_left_out(record: TrialRecord) -> str:
    data = (record.environment or {}).get("data", {})
    return "; ".join(f"{one['name']} ({one['reason']})" for one in data.get("left_out", ()))


def trial_file(record: TrialRecord) -> dict[str, Any]:
    """The trial as `python -m bridgetower_ray.training` takes it, to be run again by hand anywhere."""
    return {"trial": record.trial.model_dump(mode="json"), "base_folder": "."}


def as_json(values: Any) -> str:
    """Values that are read back: no text in them is masked but the credentials in addresses."""
    return json.dumps(facts_without_credentials(values), indent=2)
