"""One trial on its node, as a Tune trainable: prepares the node, then reports what its ranks say."""

import json
import shutil
import time
from pathlib import Path
from typing import Any, ClassVar

import ray
from ray import tune

from bridgetower_ray.cluster.claim import unlike_the_first
from bridgetower_ray.cluster.phases import Phases
from bridgetower_ray.cluster.rank_environment import handed_to_ranks, rank_environment, read_at_imports
from bridgetower_ray.cluster.supervision import ProcessGroup
from bridgetower_ray.cluster.trial_folder import own_folder
from bridgetower_ray.cluster.warm_process import WarmProcess
from bridgetower_ray.data.preparation import Prepared
from bridgetower_ray.doctor.hardware import system_sample
from bridgetower_ray.doctor.host_energy import HostEnergy
from bridgetower_ray.doctor.interpreter import interpreter
from bridgetower_ray.doctor.software import source_hash
from bridgetower_ray.doctor.telemetry import Telemetry
from bridgetower_ray.doctor.vendor_libraries import library_for
from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.sweep_run import must_be_alike
from bridgetower_ray.training.job import Job

REPORT_SECONDS = 2.0
SYSTEM_SAMPLE_SECONDS = 10.0
PREPARE = ("-m", "bridgetower_ray.training.prepare")
TRAIN = ("-m", "bridgetower_ray.training")


class TrialActor(tune.Trainable):
    """Each `step` reports the events of up to two seconds; the last one carries the outcome and the log.

    A training that fails is a result like another, not an error: Tune's errors are left to actors and nodes
    that die. The actor is used again for the next trial; nothing of a training lives in it, but what its node has
    ready it knows, and what its node has refused: a trial that must fail in the same way ends at once. It keeps the
    process from which its trials' ranks are forked.
    """

    _ready: ClassVar[dict[str, Prepared]] = {}
    _refused: ClassVar[dict[str, str]] = {}
    _warm: ClassVar[tuple[object, WarmProcess] | None] = None  # and of which kind

    def setup(self, config: dict[str, Any]) -> None:
        """Take the trial that the driver sent."""
        told = config["trial"]
        self._job = Job.model_validate_json(told["job"])
        self._worker = tuple(told.get("worker", TRAIN))
        self._claim, self._source = told.get("claim"), told.get("source")
        self._folder = own_folder()
        self._group: ProcessGroup | None = None
        self._telemetry: Telemetry | None = None
        self._said_prepared: Any = None
        self._phase = "starting"
        ready = self._ready.get(_preparation(self._job))
        self._job = self._job if ready is None else self._job.model_copy(update={"prepared": ready})
        self._preparing = ready is None
        self._phases = Phases("starting")
        self._started = self._sampled = time.monotonic()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Be the actor of another trial."""
        self.cleanup()
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Report what the processes said since the last report."""
        if self._source not in (None, source_hash()):
            return self._report([], Outcome(Kind.FAILED, f"node {_node()} has another state of bridgetower-ray"))
        if self._group is None:
            if reason := self._refusal():
                return self._report([], Outcome(Kind.FAILED, reason))
            warm = self._warm_process()
            if warm is not None and not self._settled(warm):
                return self._report([], phase="importing")
            self._group = self._start(warm)
        events = [said for event in self._group.wait(REPORT_SECONDS) for said in self._heard(event)]
        outcome = self._group.outcome
        if outcome is None:
            return self._report(events)
        if self._preparing:
            return self._report([] if outcome.kind is Kind.MEASURED else events, self._prepared(outcome))
        if self._group.whole_node:
            self._refused[_kind(self._job)] = outcome.reason
        return self._report(events, outcome)

    def _heard(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """An event, with what is known here of the window that it tells of."""
        if event.get("event") == "prepared":
            self._said_prepared = event
        if event.get("event") == "phase":
            self._phase = event["phase"]
            if not self._preparing:
                self._phases.enter(event["phase"], event.get("at"))
        if event.get("event") == "environment" and self._telemetry is not None:
            return [{**event, "device_facts": self._telemetry.device_facts()}]
        if event.get("event") == "measured" and "window_opened" in event and self._telemetry is not None:
            return [
                event,
                {"event": "figures", **self._telemetry.over(event["window_opened"], event["window_seconds"])},
            ]
        return [event]

    def _prepared(self, outcome: Outcome) -> Outcome | None:
        """What the end of the preparation is for the trial: None if it goes on."""
        if outcome.kind is Kind.TIMED_OUT:
            outcome = Outcome(Kind.TIMED_OUT, f"the preparation was {outcome.reason}; last: {self._phase}")
        final = self._take_prepared() if outcome.kind is Kind.MEASURED else outcome
        if final is not None and self._is_the_nodes(final):
            self._refused[_preparation(self._job)] = final.reason
        return final

    def _is_the_nodes(self, outcome: Outcome) -> bool:
        """Whether any other trial that needs this preparation would end in the same way."""
        said_all = self._said_prepared is not None
        return outcome.kind is Kind.TIMED_OUT or said_all or (self._group is not None and self._group.whole_node)

    def _refusal(self) -> str:
        """Why this trial cannot run here; empty if that is not known."""
        for key in (_preparation(self._job), _kind(self._job)):
            if key in self._refused:
                return self._refused[key]
        try:
            self._python = interpreter(self._job.trial.python, Path(self._job.base_folder))
        except UsageError as error:
            return str(error)
        return ""

    def _warm_process(self) -> WarmProcess | None:
        """The process from which the trial's ranks are forked, ready or not; None where they are to start cold."""
        cell = self._job.trial.cell
        if self._worker != TRAIN or not cell.starts_warm:
            return None
        environment = rank_environment(handed_to_ranks(self._python, self._folder), 0, 1, 0)
        kind = (self._python, cell.kind_of_process, read_at_imports(environment))
        if self._warm is not None:
            if self._warm[0] == kind and not self._warm[1].lost:
                return self._warm[1]
            self._warm[1].end()
            TrialActor._warm = None
        try:
            TrialActor._warm = (kind, WarmProcess(self._python, self._job_file(), environment))
        except OSError:
            return None  # a cold start will say why
        return TrialActor._warm[1]

    def _settled(self, warm: WarmProcess) -> bool:
        if warm.refusal is None:
            self._phases.enter("importing")
        return warm.settled(REPORT_SECONDS)

    def _job_file(self) -> Path:
        file = self._folder / "trial.json"
        file.write_text(self._job.model_dump_json())
        return file

    def _start(self, warm: WarmProcess | None) -> ProcessGroup:
        cell, measure = self._job.trial.cell, self._job.trial.cell.measure
        file = self._job_file()
        self._phases.enter("preparing" if self._preparing else "starting")
        module = PREPARE if self._preparing else self._worker
        if not self._preparing:
            self._telemetry = Telemetry(library_for(cell.accelerator), HostEnergy())
            self._telemetry.start()
        return ProcessGroup(
            [self._python, *module, str(file)],
            ranks=1 if self._preparing else cell.devices,
            folder=self._folder,
            timeout_seconds=60 * (measure.preparation_minutes if self._preparing else measure.timeout_minutes),
            warm=warm,
        )

    def _take_prepared(self) -> Outcome | None:
        """Go on to the training; an outcome if the node's data are not those of the other nodes."""
        if self._said_prepared is None:
            return Outcome(Kind.FAILED, "the preparation ended without saying what is ready")
        ready = Prepared.model_validate_json(json.dumps(self._said_prepared["prepared"]))
        alike = must_be_alike(self._job.trial.cell.accelerator.name, ready.fingerprint, self._said_prepared["software"])
        for what, value in alike.items() if self._claim else ():
            if reason := unlike_the_first(self._claim, what, value, _node()):
                return Outcome(Kind.FAILED, reason)
        self._ready[_preparation(self._job)] = ready
        self._job = self._job.model_copy(update={"prepared": ready})
        self._preparing, self._group = False, None
        self._phases.enter("starting")
        return None

    def _report(
        self, events: list[dict[str, Any]], outcome: Outcome | None = None, phase: str | None = None
    ) -> dict[str, Any]:
        report: dict[str, Any] = {
            "phase": phase or ("preparing" if self._preparing else "starting"),
            "node": _node(),
            "events": events + self._system_events(),
        }
        if outcome is not None:
            if self._group is not None:
                report["events"].append({"event": "phases", **self._phases.so_far()})
            report["outcome"] = {"kind": str(outcome.kind), "reason": outcome.reason}
            report["log"] = self._group.log() if self._group else ""
            report["done"] = True
        return report

    def _system_events(self) -> list[dict[str, Any]]:
        now = time.monotonic()
        if now - self._sampled < SYSTEM_SAMPLE_SECONDS:
            return []
        self._sampled = now
        devices = self._telemetry.newest() if self._telemetry is not None else {}
        return [{"event": "system", "seconds": now - self._started, **system_sample(), **devices}]

    def cleanup(self) -> None:
        """End every process of the trial and remove its folder."""
        if self._group is not None:
            self._group.stop("the trial was stopped")
            self._group = None
        if self._telemetry is not None:
            self._telemetry.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def _preparation(job: Job) -> str:
    """What decides which preparation a trial needs of its node."""
    cell = job.trial.cell
    parts = (job.base_folder, job.trial.python, cell.model, cell.dataset.model_dump_json(), cell.prepared_images)
    return json.dumps(parts)


def _kind(job: Job) -> str:
    """What trials have in common that a node refuses as such."""
    return json.dumps((job.base_folder, job.trial.python, job.trial.cell.accelerator.name))


def _node() -> str:
    address: str = ray.util.get_node_ip_address()
    return address
