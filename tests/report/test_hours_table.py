"""Where the accelerator hours went, by known phases."""

from collections.abc import Callable

from bridgetower_ray.report.hours_table import hours_table
from bridgetower_ray.report.records import gather
from bridgetower_ray.sweep.spec import SweepSpec
from tests.conftest import MINI
from tests.records import run_of, sweep_run_of

SpecOf = Callable[[str], SweepSpec]


def test_the_phases_of_every_trial_are_added_up_over_its_devices(spec_of: SpecOf) -> None:
    text = MINI.replace("[cpu]", "[h100]").replace("accelerator: cpu", "accelerator: h100")
    sweep_run = sweep_run_of(spec_of(text))
    phases = {"phase/importing_seconds": 900.0, "phase/measuring_seconds": 2700.0}
    failed = {"phase/importing_seconds": 1800.0}
    runs = [
        run_of(sweep_run, "h100 · workers=0", 1, 10.0, **phases),
        run_of(sweep_run, "h100 · workers=1", 1, None, **failed),
    ]
    table = hours_table(gather(sweep_run, runs))
    assert table is not None
    assert table.columns == ("hours", "imports", "window")
    assert table.rows == (("H100 GPU", ("12", "50%", "50%")),)  # 8 devices for 5,400 s


def test_a_sweep_of_which_no_trial_left_its_phases_has_no_such_table(spec_of: SpecOf) -> None:
    sweep_run = sweep_run_of(spec_of(MINI))
    assert hours_table(gather(sweep_run, [run_of(sweep_run, "cpu · workers=0", 1, 10.0)])) is None
