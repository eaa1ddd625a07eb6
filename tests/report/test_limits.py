"""What the report concludes from the ceilings: verdicts, shares of a speedup, workers."""

from collections.abc import Callable
from typing import Any

import pytest

from bridgetower_ray.report.limits import speedup_pairs, worker_advice
from bridgetower_ray.report.records import gather
from bridgetower_ray.report.tables import host_share_table, limits_table
from bridgetower_ray.sweep.spec import SweepSpec
from tests.conftest import MINI
from tests.records import run_of, sweep_run_of

SpecOf = Callable[[str], SweepSpec]


def with_ceilings(sweep_run: Any, setting: str, throughput: float, compute: float, loader: float) -> list[Any]:
    workers = setting.partition("workers=")[2][0]
    facts = {
        "env.cpus_usable": "8",
        "run.ranks": "1",
        "env.asynchronous": "True",
        "run.dataloader_num_workers": workers,
    }
    figures = {
        "compute_ceiling_samples_per_second": compute,
        "loader_ceiling_samples_per_second": loader,
        "data_wait_fraction": 1 - throughput / compute,
    }
    return [
        run_of(sweep_run, setting, repeat, throughput * (1 + repeat / 1000), facts=facts, **figures)
        for repeat in (1, 2)
    ]


def test_the_report_says_how_much_of_a_speedup_is_the_hosts_doing(spec_of: SpecOf) -> None:
    text = MINI.replace("[cpu]", "[gaudi2, h100]").replace("accelerator: cpu", "accelerator: h100")
    sweep_run = sweep_run_of(spec_of(text))
    runs = with_ceilings(sweep_run, "gaudi2 · workers=0", 600, 900, 620)
    runs += with_ceilings(sweep_run, "h100 · workers=0", 300, 750, 310)
    runs += with_ceilings(sweep_run, "h100 · workers=1", 580, 750, 590)
    results = gather(sweep_run, runs)
    pair = next(iter(speedup_pairs(results)))
    assert (pair.compute_only.value, pair.host_factor.value) == pytest.approx((1.2, 2.0 / 1.2))
    table = host_share_table(results)
    assert table is not None
    assert table.rows[0][1][1:] == ("1.20x [1.20, 1.20]", "1.67x [1.66, 1.67]")


def test_the_limits_table_has_verdict_and_estimate(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    runs = with_ceilings(sweep_run, "cpu · workers=1", 300, 750, 310)
    table = limits_table(gather(sweep_run, runs))
    assert table is not None
    assert table.rows[0][1] == ("300.4", "750.0", "310.0", "60%*", "loader-bound")
    assert any("estimate" in note for note in table.notes)


def test_a_cell_above_a_ceiling_gets_no_verdict_no_advice_and_no_share_from_it(spec_of: SpecOf) -> None:
    text = MINI.replace("[cpu]", "[gaudi2, h100]").replace("accelerator: cpu", "accelerator: h100")
    sweep_run = sweep_run_of(spec_of(text))
    runs = with_ceilings(sweep_run, "gaudi2 · workers=1", 600, 500, 900)
    runs += with_ceilings(sweep_run, "h100 · workers=1", 300, 750, 310)
    results = gather(sweep_run, runs)
    above = results.find("gaudi2 · workers=1")
    assert above is not None
    assert (above.verdict, above.compute_ceiling, above.loader_ceiling) == (None, None, 900)
    assert list(speedup_pairs(results)) == []
    assert [advice.subject for advice in worker_advice(results)] == ["h100"]
    table = limits_table(results)
    assert table is not None
    assert table.rows[0][1][1] == "500.0 exceeded"


def test_the_advice_names_the_workers_that_would_reach_the_device(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    runs = with_ceilings(sweep_run, "cpu · workers=1", 300, 750, 310)
    (advice,) = worker_advice(gather(sweep_run, runs))
    assert advice.sentence == "cpu: 3 workers a rank would load as fast as the device computes."


def test_the_advice_is_as_wide_as_the_ceilings_of_the_repeats(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    facts = {"env.cpus_usable": "4", "run.ranks": "1", "run.dataloader_num_workers": "1"}
    runs = [
        run_of(
            sweep_run,
            "cpu · workers=1",
            repeat,
            150.0,
            facts=facts,
            compute_ceiling_samples_per_second=750.0,
            loader_ceiling_samples_per_second=loader,
        )
        for repeat, loader in ((1, 240.0), (2, 160.0))
    ]
    (advice,) = worker_advice(gather(sweep_run, runs))
    assert advice.sentence.startswith("cpu: 4 to 5 workers a rank would load as fast as the device computes")
    assert advice.sentence.endswith("(CPUs are there for 4).")
