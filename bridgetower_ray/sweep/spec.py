"""What a sweep YAML may say. The list is explicit: a key that is not here is an error, not a wish."""

import difflib
import json
import re
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    create_model,
    model_validator,
)

from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.accelerators import ACCELERATORS, MARKER_PREFIX, NODE_RESOURCE, Accelerator, variant
from bridgetower_ray.sweep.file import Location, SweepFile, read_sweep_file
from bridgetower_ray.sweep.settings import (
    COUNT,
    HPU_SETTINGS,
    NAME,
    RANGE,
    REHEARSAL_SUFFIX,
    SLUG,
    SWEEPABLE,
    AcceleratorSettings,
    AxisValue,
    BudgetSettings,
    DatasetSettings,
    MeasureSettings,
    RepeatRange,
    SchedulingSettings,
    Strict,
    TrainingSettings,
)


def _axis(name: str) -> Any:
    """The field of an axis: one or more values of what the training setting of that name may be, but not `null`."""
    field = TrainingSettings.model_fields[name]
    types = [one for one in get_args(field.annotation) if one is not NoneType]
    a_value: Any = types[0] if NoneType in get_args(field.annotation) and len(types) == 1 else field.annotation
    value_type: Any = Annotated[a_value, *field.metadata] if field.metadata else a_value
    return (Annotated[tuple[value_type, ...], Field(min_length=1)] | None, None)


Axes: type[Strict] = create_model(
    "Axes",
    __base__=Strict,
    __doc__="The product of these lists is the sweep.",
    accelerator=(Annotated[tuple[str, ...], Field(min_length=1)], ...),
    **{name: _axis(name) for name in SWEEPABLE},
)


class SweepSpec(Strict):
    """A whole sweep file."""

    name: Annotated[str, Field(pattern=NAME)] = Field(description="lower-case slug; names the MLflow experiment")
    model: Annotated[str, Field(min_length=1)]
    dataset: DatasetSettings
    training: TrainingSettings = TrainingSettings()
    measure: MeasureSettings = MeasureSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    axes: Axes
    exclude: tuple[dict[str, AxisValue | tuple[AxisValue, ...]], ...] = ()
    accelerators: dict[Annotated[str, Field(pattern=SLUG)], AcceleratorSettings] = Field(default_factory=dict)
    baseline: dict[str, AxisValue] | None = None
    published: Literal["bridgetower-blog"] | None = None

    @property
    def axis_values(self) -> dict[str, tuple[AxisValue, ...]]:
        """Each axis that the file names, with its values: the accelerator first, loader settings last."""
        values = {name: getattr(self.axes, name) for name in ("accelerator", *SWEEPABLE)}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def accelerator_names(self) -> tuple[str, ...]:
        """The accelerator axis."""
        return tuple(str(name) for name in self.axis_values["accelerator"])

    def accelerator(self, name: str) -> Accelerator:
        """The known accelerator of that name, or the sweep's own."""
        settings = self.accelerators.get(name)
        if settings and settings.like:
            return variant(name, settings.like)
        return ACCELERATORS[name]

    def devices(self, name: str) -> int:
        """Devices that a trial on this accelerator takes."""
        settings = self.accelerators.get(name)
        return settings.devices if settings and settings.devices else self.accelerator(name).devices

    @property
    def prices(self) -> dict[str, float]:
        """What an hour of each accelerator costs, where the file says it."""
        settings = self.accelerators.items()
        return {name: one.price_per_hour for name, one in settings if one.price_per_hour is not None}

    @property
    def peaks(self) -> dict[str, float]:
        """TFLOP/s of one device of each accelerator, where the file says it."""
        settings = self.accelerators.items()
        return {name: one.peak_tflops for name, one in settings if one.peak_tflops is not None}

    @model_validator(mode="after")
    def _consistent(self) -> "SweepSpec":
        for check in (
            _check_length,
            _check_model,
            _check_accelerators,
            _check_axes,
            _check_hpu_settings,
            _check_binding,
            _check_question,
            _check_exclude,
            _check_baseline,
        ):
            check(self)
        return self


RANGE_EXAMPLE = "{min: 2, max: 12}"
FOUND_LENGTH = 60  # of a value that is quoted in an error


class _Misfit(ValueError):
    """A fault found across keys, with the place it is to be reported at."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(message)
        self.location = location


def _check_length(spec: SweepSpec) -> None:
    training = spec.training
    if training.max_steps is None and training.num_train_epochs is None:
        raise _Misfit(("training",), "a window needs steps: give max_steps or num_train_epochs")
    if training.max_steps is not None and training.num_train_epochs is not None:
        raise _Misfit(("training", "max_steps"), "give max_steps or num_train_epochs, not both")


def _check_model(spec: SweepSpec) -> None:
    presets = ("preset:tiny", "preset:base", "preset:large")
    if spec.model.startswith("preset:") and spec.model not in presets:
        raise _Misfit(("model",), f"unknown preset {spec.model!r}; there are {', '.join(presets)}")
    if spec.dataset.path.startswith("builtin:") and spec.dataset.path != "builtin:cartoons":
        raise _Misfit(("dataset", "path"), f"unknown data set {spec.dataset.path!r}; built in is builtin:cartoons")


def _check_accelerators(spec: SweepSpec) -> None:
    for name, settings in spec.accelerators.items():
        if MARKER_PREFIX + name == NODE_RESOURCE:
            raise _Misfit(("accelerators", name), f"{name} is what a whole node is counted by; name it otherwise")
        if settings.like is not None and settings.like not in ACCELERATORS:
            raise _Misfit(("accelerators", name, "like"), _unknown("accelerator", settings.like, ACCELERATORS))
        if settings.like is not None and name in ACCELERATORS:
            raise _Misfit(("accelerators", name, "like"), f"{name} is known already; `like` is for a new name")
        if settings.like is None and name not in ACCELERATORS:
            hint = "; one of your own needs `like: <a known one>`"
            raise _Misfit(("accelerators", name), _unknown("accelerator", name, ACCELERATORS) + hint)
    known = {**ACCELERATORS, **spec.accelerators}
    for index, name in enumerate(spec.accelerator_names):
        if name not in known:
            raise _Misfit(("axes", "accelerator", index), _unknown("accelerator", name, known))


def _check_axes(spec: SweepSpec) -> None:
    for name, values in spec.axis_values.items():
        if name in spec.training.model_fields_set:
            raise _Misfit(("axes", name), f"{name} stands under training too; keep one of the two")
        if len(set(values)) != len(values):
            raise _Misfit(("axes", name), f"the axis {name} repeats a value")


def _check_hpu_settings(spec: SweepSpec) -> None:
    """What only Gaudi knows would do nothing in a sweep without one."""
    if any(spec.accelerator(name).device == "hpu" for name in spec.accelerator_names):
        return
    for section, named in (("training", spec.training.model_fields_set), ("axes", spec.axis_values)):
        for name in HPU_SETTINGS:
            if name in named:
                raise _Misfit((section, name), f"{name} is a setting of Gaudi accelerators, and the sweep has none")


def _check_binding(spec: SweepSpec) -> None:
    """Trials that share a node would each take its CPUs for their own."""
    bound = spec.axis_values.get("cpu_binding", (spec.training.cpu_binding,))
    if spec.scheduling.isolation == "devices" and set(bound) != {"none"}:
        raise _Misfit(("scheduling", "isolation"), "cpu_binding wants trials that have their node (isolation: node)")


def _check_question(spec: SweepSpec) -> None:
    """A precision takes the place of a count, and what belongs to it is nothing without it."""
    measure = spec.measure
    if measure.precision is None:
        ranged = ["repeats"] if isinstance(measure.repeats, RepeatRange) else []
        for name in [*ranged, *(name for name in ("goal", "budget") if getattr(measure, name) is not None)]:
            where = ("measure", name)
            raise _Misfit(where, f"{'.'.join(where)} belongs to a precision: give one, such as `precision: 3%`")
        return
    if "repeats" in measure.model_fields_set and not isinstance(measure.repeats, RepeatRange):
        found = f"measure has a count and a precision; keep one, or give repeats a range such as {RANGE_EXAMPLE}"
        raise _Misfit(("measure", "repeats"), found)
    if isinstance(measure.repeats, RepeatRange) and measure.repeats.min > measure.repeats.max:
        found = f"measure.repeats: min {measure.repeats.min} is above max {measure.repeats.max}"
        raise _Misfit(("measure", "repeats"), found)
    if measure.budget is not None:
        _check_budget(spec, measure.budget)


def _check_budget(spec: SweepSpec, budget: BudgetSettings) -> None:
    where = ("measure", "budget")
    if (budget.accelerator_hours is None) == (budget.cost is None):
        raise _Misfit(where, "measure.budget takes one of accelerator_hours and cost")
    without = [name for name in spec.accelerator_names if name not in spec.prices]
    if budget.cost is not None and without:
        names = ", ".join(without)
        raise _Misfit((*where, "cost"), f"measure.budget.cost wants prices: accelerators.{names}: price_per_hour")


def _check_exclude(spec: SweepSpec) -> None:
    for index, rule in enumerate(spec.exclude):
        if not rule:
            raise _Misfit(("exclude", index), "an empty rule would exclude every cell")
        for name, value in rule.items():
            for one in value if isinstance(value, tuple) else (value,):
                _check_axis_value(spec, ("exclude", index, name), name, one)


def _check_baseline(spec: SweepSpec) -> None:
    for name, value in (spec.baseline or {}).items():
        _check_axis_value(spec, ("baseline", name), name, value)


def _check_axis_value(spec: SweepSpec, location: Location, name: str, value: AxisValue) -> None:
    if name not in spec.axis_values:
        raise _Misfit(location, _unknown("axis", name, spec.axis_values))
    values = spec.axis_values[name]
    if not any(same_value(value, other) for other in values):
        raise _Misfit(location, f"{value!r} is no value of the axis {name}, which has {list(values)}")


def same_value(left: AxisValue, right: AxisValue) -> bool:
    """Equal and of one kind: `1` is not `true`."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _unknown(kind: str, name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"unknown {kind} {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}")


def load_spec(path: Path) -> tuple[SweepSpec, SweepFile]:
    """Read and check a sweep file.

    Raises:
        UsageError: with the file, the line and what to do.
    """
    source = read_sweep_file(path)
    try:
        # JSON is the strict mode in which a list may become a tuple.
        spec = SweepSpec.model_validate_json(json.dumps(source.values))
    except ValidationError as error:
        raise UsageError(_explain(error, source)) from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from None
    if spec.name.endswith(REHEARSAL_SUFFIX):
        raise UsageError(f"{path}:{source.line_of(('name',))}: names that end in {REHEARSAL_SUFFIX} are for rehearsals")
    if re.fullmatch(SLUG, spec.name) is None:
        line = source.line_of(("name",))
        raise UsageError(f"{path}:{line}: a name has at most 63 letters, this one has {len(spec.name)}")
    return spec, source


def _explain(error: ValidationError, source: SweepFile) -> str:
    details = error.errors()
    first = next((one for one in details if one["type"] == "extra_forbidden"), details[0])
    misfit = first.get("ctx", {}).get("error")
    if isinstance(misfit, _Misfit):
        return f"{source.path}:{source.line_of(misfit.location)}: {misfit}"
    location = tuple(part for part in first["loc"] if part not in (COUNT, RANGE))
    where, line = ".".join(str(part) for part in location), source.line_of(location)
    return f"{source.path}:{line}: {_sentence(first, where, location)}"


def _sentence(first: Any, where: str, location: Location) -> str:
    match first["type"]:
        case "extra_forbidden":
            parent = ".".join(str(part) for part in location[:-1])
            inside = f" in {parent}" if parent else ""
            return _unknown("key", str(location[-1]), _valid_keys(location[:-1])) + inside
        case "missing":
            return f"{where} is missing"
        case "too_short":
            return f"{where} is an empty axis; give it a value or leave it out"
        case "string_pattern_mismatch":
            return f"{where}: {_found(first)} is no slug (lower-case letters, digits, '.', '_', '-')"
        case "bool_type":
            return f"{where}: {_found(first)} is neither true nor false"
    return f"{where}: {first['msg']} (found {_found(first)})"


def _found(error: Any) -> str:
    text = "null" if error["input"] is None else repr(error["input"])
    return text if len(text) <= FOUND_LENGTH else f"{text[:FOUND_LENGTH]}…"


def _valid_keys(parent: Location) -> list[str]:
    sections: dict[Location, type[BaseModel]] = {
        ("dataset",): DatasetSettings,
        ("training",): TrainingSettings,
        ("measure",): MeasureSettings,
        ("measure", "repeats"): RepeatRange,
        ("measure", "budget"): BudgetSettings,
        ("scheduling",): SchedulingSettings,
        ("axes",): Axes,
    }
    of_accelerator = AcceleratorSettings if parent[:1] == ("accelerators",) else SweepSpec
    return list(sections.get(parent, of_accelerator).model_fields)


def sweep_schema() -> dict[str, Any]:
    """The JSON Schema of a sweep file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **SweepSpec.model_json_schema()}
