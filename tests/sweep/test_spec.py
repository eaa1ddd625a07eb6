"""What a sweep file may say, and how it is told what it may not."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.settings import SWEEPABLE, TrainingSettings
from bridgetower_ray.sweep.spec import SweepSpec, load_spec, sweep_schema
from tests.conftest import MINI, SWEEPS


def asking(what: str) -> str:
    """MINI with a question in place of its count."""
    return MINI.replace("repeats: 2", f"precision: 3%, {what}")


BAD = {
    "unknown key": (MINI.replace("max_steps", "max_step"), r":4: unknown key 'max_step'; did you mean 'max_steps'\?"),
    "unknown axis": (MINI.replace("  dataloader_num_workers: [", "  dataloader_workers: ["), r":8: unknown key 'dat"),
    "wrong type": (MINI.replace("repeats: 2", "repeats: two"), r":5: measure.repeats: .*integer"),
    "wrong type in an axis": (MINI.replace("[0, 1]", "[0, '1']"), r":8: axes.dataloader_num_workers.1: .*integer"),
    "a switch for a number": (MINI.replace("repeats: 2", "repeats: true"), r":5: measure.repeats: .*integer"),
    "empty axis": (MINI.replace("[0, 1]", "[]"), r":8: axes.dataloader_num_workers is an empty axis"),
    "duplicate key": (MINI + "name: other\n", r":11: the key 'name' stands already in line 1"),
    "unknown accelerator": (MINI.replace("[cpu]", "[gaudi22]"), r":7: unknown accelerator .*did you mean 'gaudi2'"),
    "no steps": (MINI.replace("max_steps: 9, ", ""), r":4: a window needs steps"),
    "two lengths": (MINI.replace("max_steps: 9", "max_steps: 9, num_train_epochs: 1"), r":4: .*not both"),
    "no slug": (MINI.replace("name: mini", "name: ../up"), r":1: name: '../up' is no slug"),
    "no name": (MINI.replace("name: mini\n", ""), r"name is missing"),
    "no mapping": ("- 1\n", r":1: a sweep is a mapping"),
    "no YAML": ("name: [\n", r"not valid YAML"),
    "object tag": (
        "name: !!python/object/apply:os.getcwd []\n",
        r":1: !!python\S+: tags are not read",
    ),
    "unknown preset": (MINI.replace("preset:tiny", "preset:small"), r":2: unknown preset"),
    "unknown built-in": (MINI.replace("builtin:cartoons", "builtin:photos"), r":3: unknown data set"),
    "repeated value": (MINI.replace("[0, 1]", "[0, 0]"), r":8: the axis dataloader_num_workers repeats a value"),
    "axis set twice": (MINI.replace("max_steps: 9", "max_steps: 9, dataloader_num_workers: 0"), r"keep one of the two"),
    "gaudi's own without one": (
        MINI.replace("max_steps: 9", "max_steps: 9, use_lazy_mode: false"),
        r":4: use_lazy_mode is a setting of Gaudi accelerators, and the sweep has none",
    ),
    "baseline off the axis": (MINI.replace("workers: 0}", "workers: 5}"), r":10: 5 is no value of the axis"),
    "exclude off the axis": (MINI + "exclude: [{bf16: true}]\n", r":11: unknown axis 'bf16'"),
    "empty exclude rule": (MINI + "exclude: [{}]\n", r":11: an empty rule"),
    "own accelerator without like": (MINI + "accelerators: {mi300: {devices: 2}}\n", r"needs `like:"),
    "not a number": (MINI.replace("1.0e-5", ".nan"), r":4: .nan may not mean what stands there"),
    "a word for a switch": (
        MINI.replace("max_steps: 9", "max_steps: 9, bf16: on"),
        r":4: training.bf16: 'on' is neither",
    ),
    "a seed that numpy refuses": (MINI.replace("max_steps: 9", "max_steps: 9, seed: 4294967296"), r":4: training.seed"),
    "a name without room for a rehearsal's": (MINI.replace("mini", "m" * 64), r":1: a name has at most 63 letters"),
    "a precision without a unit": (MINI.replace("repeats: 2", "precision: 3"), r":5: .*no percentage such as 3%"),
    "a precision of nothing": (MINI.replace("repeats: 2", "precision: 0%"), r":5: measure.precision: .*above 0%"),
    "a precision above half": (MINI.replace("repeats: 2", "precision: 51%"), r":5: measure.precision: .*at most 50%"),
    "a count and a precision": (MINI.replace("repeats: 2", "repeats: 2, precision: 3%"), r":5: .*a count and a prec"),
    "more at least than at most": (asking("repeats: {min: 5, max: 4}"), r":5: measure.repeats: min 5 is above max 4"),
    "less than two rounds": (asking("repeats: {min: 1}"), r":5: measure.repeats.min: .*greater than or equal to 2"),
    "an unknown bound": (asking("repeats: {most: 4}"), r":5: unknown key 'most'.* in measure.repeats"),
    "a range without a precision": (MINI.replace("repeats: 2", "repeats: {max: 4}"), r":5: .*belongs to a precision"),
    "a goal without a precision": (MINI.replace("repeats: 2", "goal: fastest"), r":5: .*belongs to a precision"),
    "an unknown goal": (asking("goal: cheapest"), r":5: measure.goal: .*'table' or 'fastest'"),
    "an empty budget": (asking("budget: {}"), r":5: measure.budget takes one of accelerator_hours and cost"),
    "a budget in money without prices": (asking("budget: {cost: 20}"), r":5: .*accelerators.cpu: price_per_hour"),
    "a long value": (MINI.replace("repeats: 2", f"repeats: {'x' * 500}"), r":5: .{,160}$"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_a_faulty_sweep_file_is_told_where_and_why(
    text: str, message: str, spec_of: Callable[[str], SweepSpec]
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        spec_of(text)
    assert "\n" not in str(caught.value)


def test_an_absent_sweep_file_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load_spec(tmp_path / "absent.yaml")


def test_a_binary_file_is_no_sweep_file(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        load_spec(tmp_path / "sweep.yaml")


def test_a_number_in_exponent_form_without_a_point_is_a_number(spec_of: Callable[[str], SweepSpec]) -> None:
    assert spec_of(MINI.replace("1.0e-5", "1e-5")).training.learning_rate == 1e-5


def test_an_accelerator_of_the_users_own_behaves_like_a_known_one(spec_of: Callable[[str], SweepSpec]) -> None:
    spec = spec_of(MINI.replace("[cpu]", "[cpu, l40s]") + "accelerators: {l40s: {like: h100, devices: 2}}\n")
    own = spec.accelerator("l40s")
    assert (own.device, own.marker, spec.devices("l40s")) == ("cuda", "bridgetower_l40s", 2)


def test_the_committed_schema_is_the_one_the_code_gives() -> None:
    assert json.loads((SWEEPS / "sweep.schema.json").read_text()) == sweep_schema()


@pytest.mark.parametrize("file", sorted(SWEEPS.glob("*.yaml")), ids=lambda file: file.name)
def test_every_sweep_in_the_folder_fits_schema_and_spec(file: Path) -> None:
    if file.name == "runtime_env.yaml":
        pytest.skip("no sweep, but what `ray job submit` reads")
    jsonschema.validate(yaml.safe_load(file.read_text()), sweep_schema())
    load_spec(file)


def test_the_schema_refuses_an_unknown_key() -> None:
    values = yaml.safe_load(MINI)
    values["training"]["max_step"] = 3
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, sweep_schema())


def test_training_settings_are_names_of_training_arguments() -> None:
    from transformers import TrainingArguments

    from bridgetower_ray.training.backends.contract import OWN_SETTINGS

    known = set(TrainingArguments.__dataclass_fields__)
    assert set(TrainingSettings.model_fields) - OWN_SETTINGS <= known
    assert set(SWEEPABLE) <= set(TrainingSettings.model_fields)


def test_null_is_no_value_of_an_axis(spec_of: Callable[[str], SweepSpec]) -> None:
    text = MINI.replace("[0, 1]", "[1]\n  dataloader_prefetch_factor: [null, 4]")
    with pytest.raises(
        UsageError, match=r"dataloader_prefetch_factor.0: Input should be a valid integer \(found null\)"
    ):
        spec_of(text)


def test_no_accelerator_is_called_what_a_whole_node_is_counted_by(spec_of: Callable[[str], SweepSpec]) -> None:
    with pytest.raises(UsageError, match="node is what a whole node is counted by"):
        spec_of(MINI.replace("[cpu]", "[cpu, node]") + "accelerators: {node: {like: h100}}\n")


def test_binding_wants_trials_that_have_their_node(spec_of: Callable[[str], SweepSpec]) -> None:
    shared = MINI + "scheduling: {isolation: devices}\n"
    spec_of(shared)
    with pytest.raises(UsageError, match="cpu_binding wants trials that have their node"):
        spec_of(shared.replace("training: {", "training: {cpu_binding: cores, "))
    with pytest.raises(UsageError, match="cpu_binding wants trials that have their node"):
        spec_of(shared.replace("axes:", "axes:\n  cpu_binding: [none, numa]"))
