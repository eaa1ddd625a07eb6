"""The published benchmark through our own code, and our own runs beside it."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from bridgetower_ray.report.comparisons import compare
from bridgetower_ray.report.published import BRIDGETOWER_BLOG, against_published, published_results
from bridgetower_ray.report.published_command import command_table
from bridgetower_ray.report.render import document_of_published, to_html, to_markdown
from bridgetower_ray.report.tables import speedup_tables, throughput_table
from bridgetower_ray.sweep.plan import make_plan
from bridgetower_ray.sweep.settings import TrainingSettings
from bridgetower_ray.sweep.spec import SweepSpec, load_spec
from tests.conftest import MINI, SWEEPS, command
from tests.records import results_of, sweep_run_of

RESULTS = published_results(BRIDGETOWER_BLOG)
MEDIA = "gaudi2 · workers=2 · mediapipe"


def test_the_published_table_is_the_published_one() -> None:
    rows = dict(throughput_table(RESULTS).rows)
    assert rows["Gaudi2 HPU"] == ("601.5", "747.4", "768.7", "847.7")
    assert rows["H100 GPU"] == ("336.5", "580.1", "602.1", "n/a")
    assert rows["A100 80GB GPU"] == ("227.5", "339.7", "345.4", "n/a")


@pytest.mark.parametrize(
    ("numerator", "denominator", "stated"),
    [
        ("gaudi2 · workers=2", "h100 · workers=2", "1.28"),
        ("gaudi2 · workers=2", "a100-80gb · workers=2", "2.23"),
        ("gaudi2 · workers=2", "gaudi2 · workers=0", "1.28"),
        ("h100 · workers=2", "h100 · workers=0", "1.79"),
        ("a100-80gb · workers=2", "a100-80gb · workers=0", "1.52"),
        (MEDIA, "gaudi2 · workers=0", "1.41"),
        (MEDIA, "h100 · workers=2", "1.41"),
        (MEDIA, "a100-80gb · workers=2", "2.45"),
        (MEDIA, "h100 · workers=2", "1.4"),
        (MEDIA, "a100-80gb · workers=2", "2.5"),
    ],
)
def test_each_published_ratio_comes_out(numerator: str, denominator: str, stated: str) -> None:
    one, other = RESULTS.find(numerator), RESULTS.find(denominator)
    assert one is not None
    assert other is not None
    ratio = compare(one, other).ratio
    assert ratio is not None
    assert f"{ratio.value:.{len(stated.partition('.')[2])}f}" == stated


def test_the_hardware_decoder_is_compared_with_the_others_like_setting() -> None:
    over_h100, over_a100, *_ = speedup_tables(RESULTS)
    assert over_h100.rows[0][1][-1] == "1.41x (one repeat) ‡"
    assert over_a100.rows[0][1][-1] == "2.45x (one repeat) ‡"
    assert any("workers=2, for it cannot have the same setting" in note for note in over_h100.notes)


def test_the_published_report_says_that_it_was_not_measured_here() -> None:
    document = document_of_published(BRIDGETOWER_BLOG)
    assert "PUBLISHED figures, not measured by this tool" in to_html(document)
    assert "904.93" in to_markdown(document)
    assert "783.48" in to_markdown(document)


def test_our_cells_stand_beside_the_published_ones_with_what_differs() -> None:
    spec = load_spec(SWEEPS / "blog.yaml")[0]
    results = results_of(sweep_run_of(spec), {MEDIA: [848.0] * 3, "h100 · workers=2": [590.0] * 3})
    table = against_published(results)
    assert table is not None
    assert dict(table.rows)[MEDIA] == ("848.0", "847.7", "1.00")
    differs = next(note for note in table.notes if note.startswith("Differs"))
    assert "dataloader_drop_last True, published False" in differs
    assert "cpu_binding" not in differs
    assert "published every 10 steps" in differs
    unknown = next(note for note in table.notes if note.startswith("Not known"))
    assert "README 40" in unknown
    assert "distribution_strategy" in unknown


def test_other_settings_are_listed_as_differences(spec_of: Callable[[str], SweepSpec]) -> None:
    text = MINI.replace("cpu", "gaudi2") + "published: bridgetower-blog\naccelerators: {gaudi2: {devices: 4}}\n"
    results = results_of(sweep_run_of(spec_of(text)), {"gaudi2 · workers=0": [100.0, 101.0]})
    table = against_published(results)
    assert table is not None
    differs = next(note for note in table.notes if note.startswith("Differs"))
    for words in ("weights are random", "batch_size 4, published 48", "4 devices, published 8", "builtin:cartoons"):
        assert words in differs


def test_binding_and_threads_are_differences_on_the_gaudi_of_which_they_are_known_alone() -> None:
    text = (SWEEPS / "blog.yaml").read_text().replace("cpu_binding: cores", "cpu_binding: none")
    text = text.replace("sdp_on_bf16: true", "sdp_on_bf16: false")
    spec = SweepSpec.model_validate_json(json.dumps(yaml.safe_load(text.replace("1.0e-5", "0.00001"))))

    def differs(setting: str) -> str:
        table = against_published(results_of(sweep_run_of(spec), {setting: [848.0] * 3}))
        assert table is not None
        return next(note for note in table.notes if note.startswith("Differs"))

    assert "cpu_binding none, published cores" in differs(MEDIA)
    assert "sdp_on_bf16 False, published True" in differs(MEDIA)
    assert "cpu_binding" not in differs("h100 · workers=2")


def test_every_setting_of_the_published_run_is_either_stated_or_said_not_to_be_known() -> None:
    """No default of ours may be taken for theirs."""
    stated = set(BRIDGETOWER_BLOG.settings["training"]) | BRIDGETOWER_BLOG.not_said
    axes = {"dataloader_num_workers", "mediapipe_dataloader"}
    assert stated | axes == set(TrainingSettings.model_fields)


# The article's command for its Gaudi2, as it stands there, with the flags that its text adds.
COMMAND = """
gaudi_spawn.py --use_mpi --world_size 8 run_bridgetower.py --output_dir /tmp/bridgetower-test
--model_name_or_path BridgeTower/bridgetower-large-itm-mlm-itc
--dataset_name jmhessel/newyorker_caption_contest --dataset_config_name matching
--image_column image --caption_column image_description --remove_unused_columns=False
--do_train --do_eval --do_predict --per_device_train_batch_size="40" --per_device_eval_batch_size="16"
--num_train_epochs 5 --learning_rate="1e-5" --push_to_hub --report_to tensorboard --hub_model_id bridgetower
--overwrite_output_dir --use_habana --use_lazy_mode --use_hpu_graphs_for_inference --gaudi_config_name Habana/clip
--throughput_warmup_steps 3 --logging_steps 10 --dataloader_num_workers 2 --mediapipe_dataloader
"""
OF_NO_CONCERN = {
    "--output_dir", "--overwrite_output_dir", "--push_to_hub", "--hub_model_id", "--per_device_eval_batch_size",
}  # fmt: skip


def test_every_flag_of_the_published_command_stands_beside_ours() -> None:
    table = command_table(make_plan(load_spec(SWEEPS / "blog.yaml")[0]))
    told = {flag for name, _ in table.rows for flag in name.split() if flag.startswith("--")}
    assert set(re.findall(r"--\w+", COMMAND)) - OF_NO_CONCERN - told == set()
    differing = {name for name, entries in table.rows if entries[2] == "differs"}
    assert differing == {
        "--do_train --do_eval --do_predict",
        "--dataloader_drop_last",
        "--throughput_warmup_steps",
        "--logging_steps",
        "--report_to",
    }


def test_flags_of_a_device_that_the_sweep_has_not_are_left_out() -> None:
    text = (
        (SWEEPS / "blog.yaml").read_text().replace("[gaudi2, h100, a100-80gb]", "[h100]").replace("1.0e-5", "0.00001")
    )
    values = yaml.safe_load(text.replace("a100-80gb, data", "h100, data").replace("  sdp_on_bf16: true\n", ""))
    values["axes"].pop("mediapipe_dataloader"), values.pop("exclude"), values["accelerators"].pop("a100-80gb")
    table = command_table(make_plan(SweepSpec.model_validate_json(json.dumps(values))))
    assert not any("lazy" in name or "mediapipe" in name for name, _ in table.rows)
    assert not any("training." in entries[1] for _, entries in table.rows)


def test_the_command_prints_the_flags_and_refuses_a_sweep_without_a_benchmark(tmp_path: Path) -> None:
    done = command("plan", str(SWEEPS / "blog.yaml"), "--published", cwd=tmp_path, COLUMNS="200")
    assert done.returncode == 0
    assert "--sdp_on_bf16" in done.stdout
    wrong = command("plan", str(SWEEPS / "smoke.yaml"), "--published", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "names no published benchmark" in wrong.stderr


def test_on_other_hardware_the_comparison_does_not_apply(spec_of: Callable[[str], SweepSpec]) -> None:
    sweep_run = sweep_run_of(spec_of(MINI + "published: bridgetower-blog\n"))
    table = against_published(results_of(sweep_run, {"cpu · workers=0": [50.0, 51.0]}))
    assert table is not None
    assert table.rows == ()
    assert "does not apply" in table.notes[0]


def test_the_command_writes_the_published_report(tmp_path: Path) -> None:
    done = command("report", "--published", "bridgetower-blog", cwd=tmp_path)
    assert done.returncode == 0
    assert "847.7" in done.stdout
    wrong = command("report", "--published", "other", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "there are bridgetower-blog" in wrong.stderr


def test_no_setting_that_differs_from_the_published_run_is_passed_over(spec_of: Callable[[str], SweepSpec]) -> None:
    text = (SWEEPS / "blog.yaml").read_text()
    text = text.replace("config: matching", "config: ranking\n  max_train_samples: 512")
    text = text.replace("  bf16: true", "  bf16: true\n  optim: adafactor\n  gradient_accumulation_steps: 4")
    text = text.replace("  mediapipe_dataloader", "  input_pipeline: [cached]\n  mediapipe_dataloader")
    text = text.replace(
        "- {mediapipe_dataloader: true, dataloader_num_workers: [0, 1]}", "- {mediapipe_dataloader: true}"
    )
    results = results_of(sweep_run_of(spec_of(text)), {"h100 · workers=2 · pipeline=cached": [590.0] * 3})
    table = against_published(results)
    assert table is not None
    differs = next(note for note in table.notes if note.startswith("Differs"))
    for words in (
        "dataset.config ranking, published matching",
        "dataset.max_train_samples 512, published none",
        "optim adafactor, published adamw_torch",
        "gradient_accumulation_steps 4, published 1",
        "input_pipeline cached, published reference",
    ):
        assert words in differs
