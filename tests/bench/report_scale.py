"""How long a report over 1,000 trials takes, beside what the store needs to hand out its runs."""

import tempfile
import time
from pathlib import Path

from bridgetower_ray.report.records import gather
from bridgetower_ray.report.render import document_of, write_report
from bridgetower_ray.store.location import default_uri
from bridgetower_ray.store.tracking import Tracking
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.plan import make_plan
from bridgetower_ray.sweep.spec import load_spec
from bridgetower_ray.sweep.sweep_run import TrialRecord
from tests.conftest import MINI
from tests.records import experiment_of
from tests.store.test_tracking import record_of

TRIALS = 1000
WORKERS = 100


def main() -> None:
    """Fill a SQLite store, read it, and print the seconds of each part."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = MINI.replace("[0, 1]", str(list(range(WORKERS)))).replace("repeats: 2", f"repeats: {TRIALS // WORKERS}")
        (folder / "sweep.yaml").write_text(
            text.replace("[false, true]", "[false]").replace("max_steps: 9", "max_steps: 999")
        )
        spec = load_spec(folder / "sweep.yaml")[0]
        plan, tracking = make_plan(spec), Tracking(default_uri(folder))
        experiment = experiment_of(tracking, spec)
        record = record_of(spec)
        started = time.monotonic()
        for number, trial in enumerate(plan.trials):
            _write(tracking, experiment, record, trial, 40 + number % 7)
        print(f"{len(plan.trials)} trials written in {time.monotonic() - started:.0f} s")
        started = time.monotonic()
        runs = tracking.runs(experiment, record.sweep_run)
        answered = time.monotonic()
        described = tracking.described(experiment, record.sweep_run)
        assert described is not None
        results = gather(described, runs)
        write_report(document_of(results), results, folder / "report")
        print(f"the store answered in {answered - started:.1f} s")
        print(f"the report took {time.monotonic() - answered:.1f} s more (aim 10 s)")


def _write(tracking: Tracking, experiment: str, record: TrialRecord, trial: Trial, throughput: float) -> None:
    one = record.model_copy(update={"trial": trial, "measured": {"train_samples_per_second": throughput}})
    tracking.write(tracking.start(experiment, one.sweep_run, trial, one.attempt, one.started_ms), one)
