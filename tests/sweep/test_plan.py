"""From a spec to cells with outcomes and trials in order."""

from collections.abc import Callable

import pytest

from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.sweep.plan import Plan, estimate_seconds, make_plan
from bridgetower_ray.sweep.spec import SweepSpec, load_spec
from tests.conftest import MINI, SWEEPS

PlanOf = Callable[[str], Plan]
SpecOf = Callable[[str], SweepSpec]
HETEROGENEOUS = MINI.replace("[cpu]", "[gaudi2, h100]").replace("accelerator: cpu,", "accelerator: h100,")


def blog() -> Plan:
    return make_plan(load_spec(SWEEPS / "blog.yaml")[0])


def test_the_published_matrix_has_ten_runnable_cells_and_two_that_are_not_applicable() -> None:
    kinds = [cell.outcome.kind for cell in blog().cells]
    assert (kinds.count(Kind.RUNNABLE), kinds.count(Kind.PRUNED), len(blog().trials)) == (10, 2, 30)


def test_a_pruned_cell_says_why() -> None:
    pruned = [cell for cell in blog().cells if cell.outcome.kind is Kind.PRUNED]
    assert [cell.axes["accelerator"] for cell in pruned] == ["h100", "a100-80gb"]
    assert all("hardware decoder" in cell.outcome.reason for cell in pruned)


def test_trials_take_the_accelerators_in_turn_and_the_repeats_interleaved() -> None:
    trials = blog().trials
    assert [trial.cell.accelerator.name for trial in trials[:3]] == ["gaudi2", "h100", "a100-80gb"]
    assert [trial.repeat for trial in trials] == sorted(trial.repeat for trial in trials)


def test_a_setting_without_effect_is_one_run_shown_in_both_places(plan_of: PlanOf) -> None:
    plan = plan_of(HETEROGENEOUS)
    twin = next(cell for cell in plan.cells if cell.setting == "gaudi2 · workers=1 · mediapipe")
    assert twin.same_as == "gaudi2 · workers=0 · mediapipe"
    assert sum(trial.setting == twin.same_as for trial in plan.trials) == 2
    assert any("without effect" in warning for warning in plan.warnings)


def test_cell_ids_do_not_depend_on_names_prices_or_repeats(plan_of: PlanOf) -> None:
    other = MINI.replace("name: mini", "name: other").replace("repeats: 2", "repeats: 5")
    priced = other + "accelerators: {cpu: {price_per_hour: 2.5}}\n"
    assert [cell.cell.cell_id for cell in plan_of(MINI).cells] == [cell.cell.cell_id for cell in plan_of(priced).cells]


@pytest.mark.parametrize(
    ("change", "warm"),
    [
        (("cpu", "cpu"), True),
        (("cpu", "h100"), True),
        (("cpu", "gaudi2"), False),
        (("training: {", "training: {cpu_binding: cores, "), False),
        (("ceilings: false", "ceilings: false, start: cold"), False),
    ],
)
def test_ranks_start_warm_but_where_libraries_look_for_cpus_or_devices_when_they_are_imported(
    change: tuple[str, str], warm: bool, plan_of: PlanOf
) -> None:
    assert {one.cell.starts_warm for one in plan_of(MINI.replace(*change)).trials} == {warm}


def test_cell_ids_are_the_same_on_every_machine(plan_of: PlanOf) -> None:
    assert plan_of(MINI).cells[0].cell.cell_id == "9b9679bf07d8"


@pytest.mark.parametrize(
    "change",
    [
        ("max_steps: 9", "max_steps: 10"),
        ("batch_size: 4", "batch_size: 8"),
        ("warmup_steps: 2", "warmup_steps: 3"),
        ("max_train_samples: 24", "max_train_samples: 25"),
        ("preset:tiny", "preset:base"),
        ("ceilings: false", "ceilings: false, start: cold"),
    ],
)
def test_cell_ids_change_with_what_decides_the_measurement(change: tuple[str, str], plan_of: PlanOf) -> None:
    before, after = plan_of(MINI), plan_of(MINI.replace(*change))
    assert before.cells[0].cell.cell_id != after.cells[0].cell.cell_id


def test_the_warm_up_drains_what_the_queues_hold(plan_of: PlanOf) -> None:
    plan = plan_of(MINI.replace("[0, 1]", "[0, 2]").replace("max_steps: 9", "max_steps: 90"))
    workers = {cell.axes["dataloader_num_workers"]: cell for cell in plan.cells if cell.runnable}
    assert (workers[0].cell.warmup_steps, workers[2].cell.warmup_steps) == (2, 2 * 2 + 2)
    assert workers[2].window_steps == 84


def test_a_window_short_against_the_queues_is_flagged(plan_of: PlanOf) -> None:
    assert any("short window" in warning for warning in plan_of(MINI).warnings)
    long_enough = plan_of(MINI.replace("max_steps: 9", "max_steps: 44"))
    assert not any("short window" in warning for warning in long_enough.warnings)


def test_the_smoke_sweep_has_no_short_window() -> None:
    assert not make_plan(load_spec(SWEEPS / "smoke.yaml")[0], rows=256).warnings


def test_a_window_without_steps_is_refused(plan_of: PlanOf) -> None:
    with pytest.raises(UsageError, match=r"cpu · workers=1: a window without steps: of 4 steps 4 are warm-up"):
        plan_of(MINI.replace("max_steps: 9", "max_steps: 4"))


def test_epochs_give_a_window_once_the_samples_are_known(spec_of: SpecOf) -> None:
    spec = spec_of(MINI.replace("max_steps: 9", "num_train_epochs: 3"))
    assert make_plan(spec).cells[0].window_steps is None
    assert make_plan(spec, rows=24).cells[0].window_steps == 3 * 6 - 2
    with pytest.raises(UsageError, match="3 samples are less than one batch of 4"):
        make_plan(spec, rows=3)


def test_a_sweep_without_a_runnable_cell_is_refused(plan_of: PlanOf) -> None:
    with pytest.raises(UsageError, match="no cell of the sweep 'mini' can run: mediapipe_dataloader needs Gaudi"):
        plan_of(MINI.replace("[false, true]", "[true]"))


def test_a_sweep_that_excludes_everything_is_refused(plan_of: PlanOf) -> None:
    with pytest.raises(UsageError, match="leave no such cell"):
        plan_of(MINI + "exclude: [{accelerator: cpu}]\n")


def test_a_node_without_the_devices_makes_a_cell_unavailable_and_says_what_is_missing(spec_of: SpecOf) -> None:
    nodes = [{"CPU": 8, "GPU": 4, "bridgetower_h100": 1, "bridgetower_node": 1}, {"CPU": 2, "bridgetower_node": 1}]
    plan = make_plan(spec_of(HETEROGENEOUS + "accelerators: {h100: {devices: 4}}\n"), nodes)
    outcomes = {cell.axes["accelerator"]: cell.outcome for cell in plan.cells if cell.loader == "workers=0"}
    assert outcomes["h100"].kind is Kind.RUNNABLE
    assert outcomes["gaudi2"].kind is Kind.UNAVAILABLE
    assert "HPU: 8 (largest has 0)" in outcomes["gaudi2"].reason


def test_isolation_by_devices_reserves_cpus_for_ranks_and_their_workers(plan_of: PlanOf) -> None:
    plan = plan_of(HETEROGENEOUS + "scheduling: {isolation: devices}\n")
    one = next(cell for cell in plan.cells if cell.setting == "h100 · workers=1")
    assert one.resources["CPU"] == 8 * (1 + 1)
    assert "bridgetower_node" not in one.resources


def test_arms_with_other_total_batches_are_warned_of(plan_of: PlanOf) -> None:
    assert any(
        "differ in samples a step" in one
        for one in plan_of(HETEROGENEOUS.replace("h100]", "cpu]").replace("h100,", "cpu,")).warnings
    )


def test_an_axis_that_the_baseline_leaves_open_takes_its_first_value() -> None:
    baseline = blog().baseline
    assert baseline is not None
    assert baseline.setting == "a100-80gb · workers=0"


def test_a_trial_reads_back_from_its_own_json(plan_of: PlanOf) -> None:
    trial = plan_of(MINI).trials[0]
    assert Trial.model_validate_json(trial.model_dump_json()) == trial


def test_the_time_is_estimated_only_where_every_cell_has_been_run(plan_of: PlanOf) -> None:
    plan = plan_of(MINI)
    seconds = {trial.cell.cell_id: 10.0 for trial in plan.trials}
    assert estimate_seconds(plan, seconds) == 40.0
    assert estimate_seconds(plan, dict(list(seconds.items())[:1])) is None


def test_gaudis_own_settings_are_one_run_on_an_accelerator_that_has_none(plan_of: PlanOf) -> None:
    plan = plan_of(HETEROGENEOUS.replace("[false, true]", "[false]\n  use_lazy_mode: [true, false]"))
    runs = {cell.setting: cell.same_as for cell in plan.cells if cell.loader.startswith("workers=0")}
    assert runs == {
        "gaudi2 · workers=0 · lazy": None,
        "gaudi2 · workers=0": None,
        "h100 · workers=0 · lazy": None,
        "h100 · workers=0": "h100 · workers=0 · lazy",
    }


def test_compilation_under_lazy_mode_is_pruned_on_gaudi_alone(plan_of: PlanOf) -> None:
    plan = plan_of(HETEROGENEOUS.replace("max_steps: 9", "max_steps: 9, torch_compile_backend: hpu_backend"))
    pruned = {str(cell.outcome) for cell in plan.cells if cell.axes["accelerator"] == "gaudi2"}
    assert pruned == {"pruned(torch_compile on a Gaudi needs use_lazy_mode: false)"}
    assert any(cell.runnable for cell in plan.cells if cell.axes["accelerator"] == "h100")


def test_the_warm_up_drains_what_the_media_pipeline_holds() -> None:
    cell = next(one.cell for one in blog().cells if one.setting == "gaudi2 · workers=2 · mediapipe")
    assert (cell.prefetched_batches, cell.warmup_steps) == (3, 5)


def test_more_ranks_and_workers_than_the_node_has_cpus_are_warned_of(spec_of: SpecOf) -> None:
    plan = make_plan(spec_of(MINI), [{"CPU": 1, "bridgetower_cpu": 1, "bridgetower_node": 1}])
    assert [one for one in plan.warnings if "share" in one] == [
        "cpu · workers=1: 2 ranks and workers share the node's 1 CPUs"
    ]


def test_compilation_is_one_question_on_every_device(plan_of: PlanOf) -> None:
    """Lazy against compiled on a Gaudi, eager against compiled elsewhere; both spellings are one cell."""
    plan = plan_of(HETEROGENEOUS.replace("[false, true]", "[false]\n  torch_compile: [false, true]"))
    lazy = {
        str(cell.outcome) for cell in plan.cells if cell.setting.startswith("gaudi2") and "compiled" in cell.setting
    }
    assert lazy == {"pruned(torch_compile on a Gaudi needs use_lazy_mode: false)"}
    eager = HETEROGENEOUS.replace("max_steps: 9", "max_steps: 9, use_lazy_mode: false")
    spelt = [
        plan_of(eager.replace("max_steps: 9", f"max_steps: 9, {words}")).cells[0].cell
        for words in ("torch_compile: true", "torch_compile_backend: hpu_backend")
    ]
    assert spelt[0].cell_id == spelt[1].cell_id
    assert spelt[0].training.torch_compile_backend == "hpu_backend"


def test_what_distributes_has_no_effect_on_one_device(plan_of: PlanOf) -> None:
    axes = "[false]\n  distribution_strategy: [ddp, fast_ddp]\n  ddp_bucket_cap_mb: [25, 230]"
    text = HETEROGENEOUS.replace("[false, true]", axes).replace("workers: [0, 1]", "workers: [0]")
    ids = lambda plan, name: [one.cell.cell_id for one in plan.cells if one.axes["accelerator"] == name]  # noqa: E731
    eight = plan_of(text)
    assert len(set(ids(eight, "gaudi2"))) == 3  # fast_ddp has no buckets
    assert len(set(ids(eight, "h100"))) == 2
    one = plan_of(text + "accelerators: {gaudi2: {devices: 1}, h100: {devices: 1}}\n")
    assert (len(set(ids(one, "gaudi2"))), len(set(ids(one, "h100")))) == (1, 1)


def test_a_copy_that_waits_for_nothing_needs_pinned_memory_and_a_device(plan_of: PlanOf) -> None:
    axes = "[false]\n  dataloader_pin_memory: [false, true]\n  dataloader_non_blocking: [false, true]"
    plan = plan_of(HETEROGENEOUS.replace("[false, true]", axes).replace("gaudi2, h100", "cpu, h100"))
    found = {one.setting: one.same_as for one in plan.cells if "workers=0" in one.setting}
    assert found["h100 · workers=0 · non-blocking"] == "h100 · workers=0"
    assert found["h100 · workers=0 · pinned · non-blocking"] is None
    assert found["cpu · workers=0 · pinned · non-blocking"] == "cpu · workers=0"
    ahead = [one.setting for one in plan.cells if one.cell.copies_ahead and one.same_as is None]
    assert ahead == ["h100 · workers=0 · pinned · non-blocking", "h100 · workers=1 · pinned · non-blocking"]


def test_a_gaudi_whose_attention_leaves_bf16_is_warned_of(plan_of: PlanOf) -> None:
    text = HETEROGENEOUS.replace("max_steps: 9", "max_steps: 9, bf16: true")
    (warning,) = (one for one in plan_of(text).warnings if "sdp_on_bf16" in one)
    assert warning.startswith("gaudi2: without sdp_on_bf16 attention computes in float32")
    assert not any("attention" in one for one in blog().warnings)


def test_what_the_loader_has_is_no_setting_of_the_media_pipeline(plan_of: PlanOf) -> None:
    axes = "[true]\n  dataloader_pin_memory: [false, true]\n  dataloader_non_blocking: [false, true]"
    plan = plan_of(
        HETEROGENEOUS.replace("[false, true]", axes).replace("gaudi2, h100", "gaudi2").replace("h100", "gaudi2")
    )
    assert len({one.cell.cell_id for one in plan.cells}) == 1
