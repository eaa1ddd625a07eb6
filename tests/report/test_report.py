"""Records, comparisons, tables and pages from runs that the test makes up."""

import csv
import math
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest

from bridgetower_ray.report.comparisons import compare
from bridgetower_ray.report.efficiency_table import efficiency_table
from bridgetower_ray.report.findings import findings
from bridgetower_ray.report.plots import plots
from bridgetower_ray.report.published import BRIDGETOWER_BLOG, published_results
from bridgetower_ray.report.records import gather
from bridgetower_ray.report.render import document_of, to_html, to_markdown, write_report
from bridgetower_ray.report.results_table import to_table
from bridgetower_ray.report.tables import cell_table, speedup_tables, throughput_table
from bridgetower_ray.sweep.accelerators import dense_bf16_peak
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.sweep.spec import SweepSpec
from bridgetower_ray.sweep.sweep_run import SweepRun
from tests.conftest import MINI
from tests.records import FakeRun, results_of, run_of, sweep_run_of

SpecOf = Callable[[str], SweepSpec]
THREE = (
    MINI.replace("[cpu]", "[gaudi2, h100]")
    .replace("[0, 1]", "[0, 2]")
    .replace("accelerator: cpu,", "accelerator: h100,")
    .replace("max_steps: 9", "max_steps: 90")
    + "exclude: [{mediapipe_dataloader: true, dataloader_num_workers: 0}]\n"
)
ALL = {
    "gaudi2 · workers=0": [600.0, 603.0],
    "gaudi2 · workers=2": [768.0, 770.0],
    "gaudi2 · workers=2 · mediapipe": [847.0, 849.0],
    "h100 · workers=0": [336.0, 337.0],
    "h100 · workers=2": [601.0, 603.0],
}


def test_the_throughput_table_has_the_published_shape(spec_of: SpecOf) -> None:
    table = throughput_table(results_of(sweep_run_of(spec_of(THREE)), ALL))
    assert table.columns == ("workers=0", "workers=2", "workers=2 · mediapipe")
    assert [label for label, _ in table.rows] == ["Gaudi2 HPU", "H100 GPU"]
    assert [entry.split()[0] for entry in table.rows[0][1]] == ["601.5", "769.0", "848.0"]
    assert table.rows[1][1][2] == "n/a"
    assert any("hardware decoder" in note for note in table.notes)


def test_speedups_are_of_three_kinds(spec_of: SpecOf) -> None:
    across, loaders, baseline = speedup_tables(results_of(sweep_run_of(spec_of(THREE)), ALL))
    assert "over H100 GPU at the same loader setting" in across.title
    assert [entry.split()[0] for entry in across.rows[0][1]] == ["1.79x", "1.28x", "1.41x"]
    assert "over workers=0 on the same accelerator" in loaders.title
    assert [entry.split()[0] for entry in loaders.rows[0][1]] == ["·", "1.28x", "1.41x"]
    assert baseline.title == "Speedup over the baseline, h100 · workers=0"
    assert baseline.rows[0][1][2].startswith("2.52x [")


def test_a_ratio_that_the_interval_does_not_separate_from_one_prints_a_tilde(spec_of: SpecOf) -> None:
    noisy = {**ALL, "gaudi2 · workers=2": [500.0, 900.0]}
    loaders = speedup_tables(results_of(sweep_run_of(spec_of(THREE)), noisy))[1]
    assert loaders.rows[0][1][1].startswith("~ ")
    assert any("repeats" in note for note in loaders.notes)


def test_one_repeat_prints_no_interval_and_says_so(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(THREE.replace("repeats: 2", "repeats: 1")))
    tables = speedup_tables(results_of(sweep_run, {setting: values[:1] for setting, values in ALL.items()}))
    assert tables[0].rows[0][1][0] == "1.79x (one repeat)"
    assert any("no interval" in note for note in tables[0].notes)


@pytest.mark.parametrize(
    "fact", ["data.fingerprint", "model.parameters", "run.total_batch", "run.total_steps", "run.precision"]
)
def test_no_ratio_is_made_across_other_work(fact: str, spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(THREE))
    runs = [run_of(sweep_run, "gaudi2 · workers=0", repeat, 600.0 + repeat, facts={fact: "other"}) for repeat in (1, 2)]
    runs += [run_of(sweep_run, "h100 · workers=0", repeat, 336.0 + repeat) for repeat in (1, 2)]
    results = gather(sweep_run, runs)
    one, other = results.find("gaudi2 · workers=0"), results.find("h100 · workers=0")
    assert one is not None
    assert other is not None
    comparison = compare(one, other)
    assert comparison.ratio is None
    assert f"other work: {fact.partition('.')[2]}" in comparison.why_not


def batches_on(spec_of: SpecOf, accelerators: str) -> SweepRun:
    text = MINI.replace("per_device_train_batch_size: 4, ", "").replace("[cpu]", accelerators)
    text = text.replace("  dataloader_num_workers: [0, 1]", "  per_device_train_batch_size: [4, 8]")
    return sweep_run_of(spec_of(text.partition("baseline")[0]))


def test_a_batch_axis_excuses_no_batch_that_other_devices_make(spec_of: SpecOf) -> None:
    """8 devices x 4 samples against 1 x 4, and against 1 x 8: the axis is not why they differ."""
    sweep_run = batches_on(spec_of, "[gaudi2, cpu]")
    runs = []
    for setting, batch, ranks in (("gaudi2 · batch=4", 32, 8), ("cpu · batch=4", 4, 1), ("cpu · batch=8", 8, 1)):
        facts = {"run.total_batch": str(batch), "run.ranks": str(ranks)}
        runs += [run_of(sweep_run, setting, repeat, 10.0 * batch + repeat, facts=facts) for repeat in (1, 2)]
    results = gather(sweep_run, runs)
    wide = results.find("gaudi2 · batch=4")
    for setting in ("cpu · batch=4", "cpu · batch=8"):
        narrow = results.find(setting)
        assert wide is not None
        assert narrow is not None
        assert compare(wide, narrow).why_not.startswith("other work: total_batch 32 /")


@pytest.mark.parametrize(
    "fact", ["env.host", "env.torch", "env.cpus_usable", "env.device_names", "env.device_power_limit_watts"]
)
def test_unlike_hosts_or_software_inside_a_cell_stand_beside_its_ratio(fact: str, spec_of: SpecOf) -> None:
    """Both cells were measured on both: their facts are the same, and not alike."""
    sweep_run = sweep_run_of(spec_of(MINI))
    runs = [
        run_of(sweep_run, f"cpu · workers={workers}", repeat, 10.0 + workers + repeat, facts={fact: f"this-{repeat}"})
        for workers in (0, 1)
        for repeat in (1, 2)
    ]
    table = speedup_tables(gather(sweep_run, runs))[0]
    assert any(f"{fact.removeprefix('env.')} this-1 and this-2 / this-1 and this-2" in note for note in table.notes)


def test_unlike_data_inside_a_cell_forbid_its_ratio(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    runs = [
        run_of(sweep_run, f"cpu · workers={workers}", repeat, 10.0, facts={"data.fingerprint": str(repeat)})
        for workers in (0, 1)
        for repeat in (1, 2)
    ]
    assert speedup_tables(gather(sweep_run, runs)) == []


def gone(sweep_run: SweepRun) -> SweepRun:
    """The same, planned again after its nodes went."""
    cells = [cell.model_copy(update={"kind": Kind.UNAVAILABLE, "reason": "no node has it"}) for cell in sweep_run.cells]
    return sweep_run.model_copy(update={"cells": tuple(cells)})


def test_what_was_measured_stays_measured_when_its_node_is_gone(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI.replace("[false, true]", "[false]")))
    runs = [run_of(sweep_run, "cpu · workers=0", repeat, 50.0 + repeat) for repeat in (1, 2)]
    runs += [run_of(sweep_run, "cpu · workers=1", 1, 60.0)]
    results = gather(gone(sweep_run), runs)
    assert results.summary == "1 of 2 cells measured"
    outcomes = [(row["setting"], row["repeat"], row["outcome"]) for row in to_table(results).to_pylist()]
    assert outcomes == [
        ("cpu · workers=0", 1, "measured"),
        ("cpu · workers=0", 2, "measured"),
        ("cpu · workers=1", 1, "measured"),
        ("cpu · workers=1", 2, "unavailable"),
    ]
    assert any("unavailable (no node has it) (1 of 2 repeats are measured)" in one for one in findings(results))


def test_fewer_repeats_in_the_sweep_file_leave_a_measured_cell_measured(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI.replace("repeats: 2", "repeats: 3")))
    runs = [run_of(sweep_run, "cpu · workers=0", repeat, 50.0 + repeat) for repeat in (1, 2)]
    assert gather(sweep_run, runs).measured == ()
    assert len(gather(sweep_run_of(spec_of(MINI)), runs).measured) == 1


def test_two_prices_on_record_are_no_obstacle_the_sweep_files_counts(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI + "accelerators: {cpu: {price_per_hour: 12.0}}\n"))
    ceiling = {"compute_ceiling_samples_per_second": 90.0}
    runs = [
        run_of(sweep_run, "cpu · workers=0", repeat, 50.0, facts={"env.price_per_hour": f"{9 + repeat}.0"}, **ceiling)
        for repeat in (1, 2)
    ]
    table = efficiency_table(gather(sweep_run, runs))
    assert table is not None
    assert table.columns == ("samples a dollar",)
    assert table.rows[0][1] == ("15,000 [15,000, 15,000]",)


def test_the_published_figures_have_the_share_of_the_chips_peak_that_their_work_needs() -> None:
    table = efficiency_table(published_results(BRIDGETOWER_BLOG))
    assert table is not None
    shares = {setting: entries[0] for setting, entries in table.rows}
    assert shares["gaudi2 · workers=2 · mediapipe"] == "37%"
    assert shares["a100-80gb · workers=2"] == "21%"
    assert shares["h100 · workers=2"] == "11%"
    assert any("989 TFLOP/s" in note and "SXM" in note for note in table.notes)


def test_a_peak_of_the_sweep_files_own_takes_the_known_ones_place(spec_of: SpecOf) -> None:
    text = MINI.replace("[cpu]", "[h100]").replace("accelerator: cpu", "accelerator: h100")
    text = (
        text.replace("training: {", "training: {bf16: true, ")
        + "accelerators: {h100: {peak_tflops: 500, devices: 1}}\n"
    )
    sweep_run = sweep_run_of(spec_of(text))
    runs = [run_of(sweep_run, "h100 · workers=0", repeat, 100.0, flops_per_sample=1e12) for repeat in (1, 2)]
    table = efficiency_table(gather(sweep_run, runs))
    assert table is not None
    assert (table.columns, table.rows[0][1]) == (("MFU",), ("20% [20%, 20%]",))
    assert "Peak of h100: 500 TFLOP/s in bf16 (the sweep file)." in table.notes


@pytest.mark.parametrize(
    ("device", "peak"), [("NVIDIA H100 80GB HBM3", 989), ("NVIDIA H100 PCIe", 756), ("NVIDIA H100 NVL", 835)]
)
def test_the_peak_is_that_of_the_device_which_was_there(device: str, peak: float) -> None:
    found = dense_bf16_peak("h100", device)
    assert found is not None
    assert found[0] == peak
    assert dense_bf16_peak("my-chip", device) is None


def test_a_sweep_whose_loader_has_no_name_of_its_own_has_titles_all_the_same(spec_of: SpecOf) -> None:
    text = MINI.replace("  dataloader_num_workers: [0, 1]\n", "").replace(", dataloader_num_workers: 0", "")
    spec = spec_of(text.replace("[false, true]", "[false]").replace("[cpu]", "[cpu, gaudi2]"))
    sweep_run = sweep_run_of(spec)
    titles = [
        table.title for table in speedup_tables(results_of(sweep_run, {"cpu": [9.0, 9.1], "gaudi2": [50.0, 51.0]}))
    ]
    assert titles
    assert not any("over ," in title or title.endswith("over ") for title in titles)


def test_a_difference_that_is_a_declared_axis_is_what_is_compared(spec_of: SpecOf) -> None:
    text = MINI.replace("per_device_train_batch_size: 4, ", "") + ""
    spec = spec_of(
        text.replace("  dataloader_num_workers: [0, 1]", "  per_device_train_batch_size: [4, 8]").replace(
            ", dataloader_num_workers: 0", ""
        )
    )
    sweep_run = sweep_run_of(spec)
    runs = [run_of(sweep_run, "cpu · batch=4", repeat, 50.0 + repeat) for repeat in (1, 2)]
    runs += [
        run_of(sweep_run, "cpu · batch=8", repeat, 80.0 + repeat, facts={"run.total_batch": "8"}) for repeat in (1, 2)
    ]
    tables = speedup_tables(gather(sweep_run, runs))
    assert tables[0].rows[0][1][1].startswith("1.58x")


def test_another_stack_gives_a_ratio_with_a_flag(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(THREE))
    runs = [
        run_of(sweep_run, "gaudi2 · workers=0", repeat, 600.0 + repeat, facts={"env.torch": "2.7.1"})
        for repeat in (1, 2)
    ]
    runs += [run_of(sweep_run, "h100 · workers=0", repeat, 336.0 + repeat) for repeat in (1, 2)]
    across = speedup_tables(gather(sweep_run, runs))[0]
    assert across.rows[0][1][0].endswith("†")
    assert any("torch 2.7.1 / 2.13.0" in note for note in across.notes)


def test_a_cell_is_measured_only_when_all_its_repeats_are(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    results = gather(sweep_run, [run_of(sweep_run, "cpu · workers=0", 1, 40.0)])
    assert results.summary == "0 of 2 cells measured"
    assert str(results.cells[0].outcome) == "not_run"
    assert "cpu · workers=0: not run (1 of 2 repeats are measured)" in " ".join(findings(results))


def test_the_measured_attempt_counts_and_counts_once(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    runs = [
        run_of(sweep_run, "cpu · workers=0", 1, None, start_ms=1, reason="killed"),
        run_of(sweep_run, "cpu · workers=0", 1, 40.0, start_ms=2),
        run_of(sweep_run, "cpu · workers=0", 1, 99.0, start_ms=3),
        run_of(sweep_run, "cpu · workers=0", 2, 41.0, start_ms=2),
    ]
    assert gather(sweep_run, runs).cells[0].throughputs == (40.0, 41.0)


def test_runs_of_another_tool_are_passed_over(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    foreign = [FakeRun({"outcome": "splendid"}), FakeRun({"mlflow.runName": "mine"}, {"train_samples_per_second": 1e6})]
    assert gather(sweep_run, foreign).records == ()


@pytest.mark.parametrize("value", [math.nan, math.inf, 1.8e308, 0.0])
def test_a_throughput_that_is_no_number_is_a_failed_trial(value: float, spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    results = gather(sweep_run, [run_of(sweep_run, "cpu · workers=0", 1, value)])
    assert results.cells[0].throughputs == ()
    assert str(results.cells[0].outcome) == "failed(its throughput is no number)"


def test_the_findings_begin_with_how_much_was_measured_and_the_fastest(spec_of: SpecOf) -> None:
    first, second, third, *_ = findings(results_of(sweep_run_of(spec_of(THREE)), ALL))
    assert first == "5 of 5 cells measured."
    assert third.startswith("gaudi2 · workers=2 · mediapipe is 1.41x [")
    assert third.endswith("over h100 · workers=2.")
    assert second.startswith("Fastest: gaudi2 · workers=2 · mediapipe with 848.0 samples/s, 2.52x [")


def test_a_straggling_rank_is_named_in_the_findings(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    apart = {"rank_spread_fraction": 0.12, "slowest_rank_share": 0.8}

    def said(second: float, spread: float = 0.12) -> list[str]:
        ranks = {**apart, "rank_spread_fraction": spread}
        runs = [run_of(sweep_run, "cpu · workers=0", 1, 10.0, slowest_rank=3.0, **ranks)]
        runs += [run_of(sweep_run, "cpu · workers=0", 2, 10.0, slowest_rank=second, **ranks)]
        return [one for one in findings(gather(sweep_run, runs)) if "of a step apart" in one]

    start = "cpu · workers=0: the ranks had their batches 12% of a step apart; "
    assert said(3.0) == [f"{start}rank 3 was the last in 80% of the steps."]
    assert said(5.0) == [f"{start}not the same rank was the last in each repeat."]
    assert said(3.0, spread=0.01) == []


def test_costs_are_plotted_where_they_are_known(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    energy = {"device_energy_joules": 2000.0, "window_samples": 1000.0}
    runs = [run_of(sweep_run, "cpu · workers=0", repeat, 10.0 + repeat, **energy) for repeat in (1, 2)]
    titles = [svg[svg.index("aria-label=") :][:40] for svg in plots(gather(sweep_run, runs))]
    assert any("J a sample of each cell" in title for title in titles)
    assert not any("dollar" in title for title in titles)


def test_failures_stand_in_the_findings_with_their_reasons(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    results = gather(sweep_run, [run_of(sweep_run, "cpu · workers=1", 1, None, outcome="timed_out", reason="not done")])
    assert "Not measured: cpu · workers=1: timed out (not done)." in findings(results)


def test_samples_left_out_are_named(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    facts = {"data.samples_left_out": "1", "data.left_out": "7.jpg (truncated)"}
    results = gather(sweep_run, [run_of(sweep_run, "cpu · workers=0", 1, 40.0, facts=facts)])
    assert any("1: 7.jpg (truncated)" in sentence for sentence in findings(results))


def test_html_and_markdown_in_a_reason_are_shown_and_not_obeyed(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    bad = "<script>alert(1)</script> | **bold** [a](b)"
    document = document_of(gather(sweep_run, [run_of(sweep_run, "cpu · workers=0", 1, None, reason=bad)]))
    assert "<script>alert" not in to_html(document)
    assert "&lt;script&gt;" in to_html(document)
    assert r"\<script\>alert(1)\</script\> \| \*\*bold\*\* \[a\](b)" in to_markdown(document)


def test_a_report_has_four_files_and_needs_no_network(folder: Path, spec_of: SpecOf) -> None:
    results = results_of(sweep_run_of(spec_of(THREE)), ALL)
    files = write_report(document_of(results), results, folder / "reports")
    assert sorted(file.name for file in (folder / "reports").iterdir()) == sorted(file.name for file in files)
    html = (folder / "reports" / "report.html").read_text()
    assert '<svg role="img" aria-label=' in html
    assert not re.search(r"(src|href)=[\"']https?:", html)
    assert "<script" not in html


def test_the_csv_has_a_row_a_trial_with_its_outcome(folder: Path, spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    results = gather(sweep_run, [run_of(sweep_run, "cpu · workers=0", 1, 40.0, trial_seconds=9.0)])
    write_report(document_of(results), results, folder)
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["outcome"] for row in rows] == ["measured", "not_run", "pruned", "not_run", "not_run", "pruned"]
    assert rows[0]["train_samples_per_second"] == "40"
    assert pyarrow.parquet.read_table(folder / "results.parquet").num_rows == 6


def test_the_same_results_give_the_same_page(spec_of: SpecOf) -> None:
    results = results_of(sweep_run_of(spec_of(THREE)), ALL)
    assert to_html(document_of(results)) == to_html(document_of(results))


def test_every_cell_is_listed_the_pruned_too(spec_of: SpecOf) -> None:
    table = cell_table(results_of(sweep_run_of(spec_of(THREE)), ALL))
    assert len(table.rows) == 6
    assert any("pruned" in entries[0] for _, entries in table.rows)
