"""Before and after, cell by cell."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from bridgetower_ray.errors import UsageError
from bridgetower_ray.report.cost_changes import cost_changes_table
from bridgetower_ray.report.records import gather
from bridgetower_ray.report.regressions import Arm, arms_of, changes, changes_table, gate, read_arms
from bridgetower_ray.report.results_table import to_table
from bridgetower_ray.sweep.spec import SweepSpec
from tests.conftest import MINI, command
from tests.records import results_of, run_of, sweep_run_of

SpecOf = Callable[[str], SweepSpec]
FAST, NOISY = "cpu · workers=0", "cpu · workers=1"


def arms(spec: SweepSpec, throughputs: Mapping[str, list[float]]) -> dict[str, Arm]:
    return arms_of(to_table(results_of(sweep_run_of(spec), throughputs)))


def marks(before: dict[str, Arm], after: dict[str, Arm]) -> dict[str, str]:
    return {one.setting: one.mark for one in changes(before, after)}


def test_a_clear_change_is_named_and_an_unclear_one_is_a_tilde(spec_of: SpecOf) -> None:
    spec = spec_of(MINI.replace("repeats: 2", "repeats: 3"))
    before = arms(spec, {FAST: [100.0, 101.0, 100.5], NOISY: [100.0, 120.0, 90.0]})
    after = arms(spec, {FAST: [90.0, 90.5, 91.0], NOISY: [99.0, 118.0, 95.0]})
    assert marks(before, after) == {FAST: "slower", NOISY: "~"}
    assert marks(after, before) == {FAST: "faster", NOISY: "~"}


def test_only_a_cell_that_is_slower_by_more_than_the_limit_fails(spec_of: SpecOf) -> None:
    spec = spec_of(MINI.replace("repeats: 2", "repeats: 3"))
    before = arms(spec, {FAST: [100.0, 101.0, 100.5]})
    after = arms(spec, {FAST: [95.0, 95.5, 96.0]})
    change = next(one for one in changes(before, after) if one.setting == FAST)
    assert change.mark == "slower"
    assert not change.slower_by_more_than(0.05)
    assert change.slower_by_more_than(0.04)


def test_p_values_are_adjusted_for_the_number_of_cells(spec_of: SpecOf) -> None:
    spec = spec_of(MINI.replace("repeats: 2", "repeats: 3"))
    barely = {"before": [100.0, 101.5, 98.5], "after": [97.0, 95.5, 94.5]}
    alone = changes(arms(spec, {FAST: barely["before"]}), arms(spec, {FAST: barely["after"]}))
    first = next(one for one in alone if one.setting == FAST)
    both = changes(
        arms(spec, {FAST: barely["before"], NOISY: barely["before"]}),
        arms(spec, {FAST: barely["after"], NOISY: barely["after"]}),
    )
    assert first.p is not None
    assert first.p < 0.05
    assert [one.p for one in both] == pytest.approx([2 * first.p] * 2)


def test_one_repeat_resolves_nothing(spec_of: SpecOf) -> None:
    spec = spec_of(MINI.replace("repeats: 2", "repeats: 1"))
    assert marks(arms(spec, {FAST: [100.0]}), arms(spec, {FAST: [50.0]}))[FAST] == "~"


def test_a_new_failure_is_marked(spec_of: SpecOf) -> None:
    spec = spec_of(MINI)
    sweep_run = sweep_run_of(spec)
    failed = gather(sweep_run, [run_of(sweep_run, FAST, 1, None), run_of(sweep_run, FAST, 2, 100.0)])
    found = changes(arms(spec, {FAST: [100.0, 101.0]}), arms_of(to_table(failed)))
    change = next(one for one in found if one.setting == FAST)
    assert (change.mark, change.why_not) == ("!", "after: failed")


def test_other_data_under_the_same_cell_give_no_ratio(spec_of: SpecOf) -> None:
    spec = spec_of(MINI)
    sweep_run = sweep_run_of(spec)
    runs = [run_of(sweep_run, FAST, repeat, 99.0 + repeat, facts={"data.fingerprint": "beef"}) for repeat in (1, 2)]
    found = changes(arms(spec, {FAST: [100.0, 101.0]}), arms_of(to_table(gather(sweep_run, runs))))
    change = next(one for one in found if one.setting == FAST)
    assert (change.mark, change.why_not) == ("–", "other work: data.fingerprint")


def test_the_same_cell_in_two_sweep_runs_is_a_tilde(spec_of: SpecOf) -> None:
    spec = spec_of(MINI.replace("repeats: 2", "repeats: 3"))
    found = changes(arms(spec, {FAST: [100.0, 103.0, 98.0]}), arms(spec, {FAST: [101.0, 99.0, 102.0]}))
    row = next(entries for label, entries in changes_table(found).rows if label == FAST)
    assert row[3] == "~"
    assert row[2].startswith("1.00")


def test_sweeps_without_a_common_cell_are_told_so(spec_of: SpecOf) -> None:
    one = arms(spec_of(MINI), {FAST: [1.0, 1.0]})
    other = arms(spec_of(MINI.replace("max_steps: 9", "max_steps: 10")), {FAST: [1.0, 1.0]})
    with pytest.raises(UsageError, match="no cell in common"):
        changes(one, other)


def test_a_parquet_of_another_tool_is_told_so(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(UsageError, match=r"not a results\.parquet of this tool: it has no cell_id"):
        read_arms(tmp_path / "other.parquet")
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        read_arms(tmp_path / "text.parquet")


@pytest.mark.parametrize(("limit", "status"), [("5%", 1), ("0.2", 0), ("lots", 2)])
def test_a_saved_baseline_serves_as_a_gate(limit: str, status: int, tmp_path: Path, spec_of: SpecOf) -> None:
    spec = spec_of(MINI.replace("repeats: 2", "repeats: 3"))
    for name, values in (("old", [100.0, 101.0, 100.5]), ("new", [90.0, 90.5, 91.0])):
        table = to_table(results_of(sweep_run_of(spec), {FAST: values}))
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
    done = command("compare", "old.parquet", "new.parquet", "--fail-over", limit, cwd=tmp_path)
    assert done.returncode == status, done.stdout + done.stderr
    assert ("gate failed: slower by more than 5 %: cpu · workers=0" in done.stdout) == (status == 1)


def arms_on(values: Mapping[str, list[float]], host: str = "host-a", failed: tuple[str, ...] = ()) -> dict[str, Arm]:
    rows = [
        {"cell_id": cell, "setting": cell, "outcome": "measured", "train_samples_per_second": one, "env.host": host}
        for cell, figures in values.items()
        for one in figures
    ]
    rows += [
        {"cell_id": cell, "setting": cell, "outcome": "failed", "train_samples_per_second": None} for cell in failed
    ]
    return arms_of(pyarrow.Table.from_pylist(rows))


STEADY = {"a": [100.0, 101.0, 99.0], "b": [150.0, 151.0, 149.0]}


@pytest.mark.parametrize(
    ("after", "strict", "passed", "said"),
    [
        (arms_on(STEADY), False, True, "no cell is known to be slower by more than 5 %"),
        (arms_on({"a": STEADY["a"]}, failed=("b",)), False, False, "failed or gone: b"),
        (arms_on({"a": STEADY["a"]}), False, False, "failed or gone: b"),
        (arms_on({"a": [40.0], "b": STEADY["b"]}), False, True, "not resolved, for want of repeats: a"),
        (arms_on({"a": [40.0], "b": STEADY["b"]}), True, False, "not resolved, for want of repeats: a"),
        (arms_on({"a": [80.0, 80.5, 81.0], "b": STEADY["b"]}), False, False, "slower by more than 5 %: a"),
        (arms_on(STEADY, host="host-b"), False, True, "not one and the same (host host-a -> host-b)"),
    ],
    ids=["the same", "a new failure", "a cell gone", "one repeat", "one repeat, strictly", "slower", "another host"],
)
def test_the_gate_says_what_it_decided_and_why(after: dict[str, Arm], strict: bool, passed: bool, said: str) -> None:
    verdict = gate(changes(arms_on(STEADY), after), 0.05, strict)
    assert verdict.passed is passed
    assert said in verdict.sentence
    assert verdict.sentence.startswith("gate passed: " if passed else "gate failed: ")


def test_energy_is_compared_where_every_repeat_of_both_sides_has_it() -> None:
    costs = {"joules_per_sample": (2.0, 2.1, 1.9)}

    def arm(**of_a_sample: Any) -> Arm:
        return Arm("cpu", (10.0, 10.1, 9.9), ("measured",) * 3, costs=defaultdict(tuple, of_a_sample))

    before = {"a": arm(**costs), "b": arm(**costs)}
    table = cost_changes_table(changes(before, {"a": arm(joules_per_sample=(1.0, 1.05, 0.95)), "b": arm()}))
    assert table is not None
    assert table.columns == ("J a sample",)
    assert [entries[0][:5] for _, entries in table.rows] == ["0.50x", ""]
    assert cost_changes_table(changes({"b": arm()}, {"b": arm()})) is None


def test_another_host_stands_beside_each_ratio() -> None:
    table = changes_table(changes(arms_on(STEADY), arms_on(STEADY, host="host-b")))
    assert all("†" in entries[2] for _, entries in table.rows)
    assert "† a: host host-a -> host-b." in table.notes
