"""One trial on its node, as a Tune trainable: prepares the node, then reports what its ranks say."""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray import tune

from bridgetower_ray.hardware import system_sample
from bridgetower_ray.outcomes import Kind, Outcome
from bridgetower_ray.supervision import ProcessGroup
from bridgetower_ray.training.job import Job

REPORT_SECONDS = 2.0
SYSTEM_SAMPLE_SECONDS = 10.0
PREPARE = ("-m", "bridgetower_ray.training.prepare")
TRAIN = ("-m", "bridgetower_ray.training")


class TrialActor(tune.Trainable):
    """Each `step` reports the events of up to two seconds; the last one carries the outcome and the log.

    A training that fails is a result like another, not an error: Tune's errors are left to actors and nodes
    that die. The actor is used again for the next trial; nothing of a training lives in it.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Take the trial that the driver sent."""
        told = config["trial"]
        self._job = Job.model_validate_json(told["job"])
        self._worker = tuple(told.get("worker", TRAIN))
        self._folder = Path(tempfile.mkdtemp(prefix="bridgetower-ray-trial-"))
        self._group: ProcessGroup | None = None
        self._preparing = told.get("prepare", True)
        self._started = self._sampled = time.monotonic()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Be the actor of another trial."""
        self.cleanup()
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Report what the processes said since the last report."""
        if self._group is None:
            self._group = self._start()
        events = self._group.wait(REPORT_SECONDS)
        outcome = self._group.outcome
        if outcome is None:
            return self._report(events)
        if self._preparing and outcome.kind is Kind.MEASURED:
            self._take_prepared(events)
            return self._report([])
        return self._report(events, outcome)

    def _start(self) -> ProcessGroup:
        cell = self._job.trial.cell
        file = self._folder / "trial.json"
        file.write_text(self._job.model_dump_json())
        module = PREPARE if self._preparing else self._worker
        return ProcessGroup(
            [self._job.trial.python or sys.executable, *module, str(file)],
            ranks=1 if self._preparing else cell.devices,
            folder=self._folder,
            threads_per_rank=cell.training.cpu_threads_per_rank,
            timeout_seconds=None if self._preparing else cell.measure.timeout_minutes * 60,
        )

    def _take_prepared(self, events: list[dict[str, Any]]) -> None:
        ready = next(event["prepared"] for event in events if event["event"] == "prepared")
        self._job = Job.model_validate_json(self._job.model_copy(update={"prepared": ready}).model_dump_json())
        self._preparing, self._group = False, None

    def _report(self, events: list[dict[str, Any]], outcome: Outcome | None = None) -> dict[str, Any]:
        report: dict[str, Any] = {
            "phase": "preparing" if self._preparing else "training",
            "node": ray.util.get_node_ip_address(),
            "events": events + self._system_events(),
        }
        if outcome is not None:
            report["outcome"] = {"kind": str(outcome.kind), "reason": outcome.reason}
            report["log"] = self._group.log() if self._group else ""
            report["done"] = True
        return report

    def _system_events(self) -> list[dict[str, Any]]:
        now = time.monotonic()
        if now - self._sampled < SYSTEM_SAMPLE_SECONDS:
            return []
        self._sampled = now
        return [{"event": "system", "seconds": now - self._started, **system_sample()}]

    def cleanup(self) -> None:
        """End every process of the trial and remove its folder."""
        if self._group is not None:
            self._group.stop("the trial was stopped")
            self._group = None
        shutil.rmtree(self._folder, ignore_errors=True)
