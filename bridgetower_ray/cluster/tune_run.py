"""The Tune run: one Tuner over all trials, each asking for its accelerator's resources."""

import logging
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray import tune

from bridgetower_ray.cluster.inquiry import Inquiry
from bridgetower_ray.cluster.interruption import interruption
from bridgetower_ray.cluster.nodes import inventory
from bridgetower_ray.cluster.trial_actor import TrialActor
from bridgetower_ray.cluster.trial_order import TrialOrder
from bridgetower_ray.store.recorder import Recorder
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.plan import missing
from bridgetower_ray.sweep.settings import SchedulingSettings

QUIET_TUNE = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # signals are ours, from the first second to the last
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",  # MLflow knows what is done; Tune's own state is not used
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
LOOK_SECONDS = 2.0  # between two looks at the cluster's nodes
STOPPED = "the sweep was stopped"


def run_trials(
    trials: Sequence[Trial],
    base_folder: Path,
    recorder: Recorder,
    scheduling: SchedulingSettings,
    how: Mapping[str, Any],
    inquiry: Inquiry | None = None,
) -> None:
    """Run trials, as many at once as the cluster holds; every one ends up in the recorder.

    Returns early, with the trials under way marked interrupted, on a signal to stop.

    Args:
        how: told to every trial's actor beside its job: `claim`, the name under which the nodes' data are held to
            be the same; `source`, the hash of this package's source that the nodes must have; `worker`, what the
            interpreter is to run instead of the training.
        inquiry: which of the trials are wanted, where that follows from the others' results.
    """
    os.environ.update(QUIET_TUNE)
    # Above the number of trials, or a slow pool fills the window of pending ones and the others idle.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(len(trials) + 16)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # lost actors are told by the recorder, in one line
    wants = inquiry.wants if inquiry is not None else lambda _: True
    order = TrialOrder(trials, inventory(), str(base_folder), how, wants)
    stranded = Stranded(trials, order, recorder, scheduling.node_wait_minutes * 60)

    def stop() -> None:
        recorder.save_under_way(STOPPED)
        stranded.stopper.stop = True

    with tempfile.TemporaryDirectory(prefix="bridgetower-ray-tune-") as folder, interruption.reacting(stop):
        interruption.check()
        tuner = tune.Tuner(
            tune.with_resources(TrialActor, _resources),
            tune_config=tune.TuneConfig(search_alg=order, num_samples=len(trials), reuse_actors=True),
            run_config=tune.RunConfig(
                name="sweep",
                storage_path=folder,
                callbacks=[_Report(recorder, order), stranded],
                stop=stranded.stopper,
                failure_config=tune.FailureConfig(max_failures=scheduling.retries),
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                verbose=0,
            ),
        )
        try:
            tuner.fit()
        finally:
            with interruption.reacting(_nothing_more):
                _end(recorder, stranded)


def _end(recorder: Recorder, stranded: "Stranded") -> None:
    """What is still under way ends with the sweep, however the sweep ended."""
    stranded.give_up()
    recorder.save_under_way(STOPPED)  # all of it, before the store is asked about any
    recorder.interrupt(STOPPED)
    recorder.drain()


def _nothing_more() -> None:
    """The sweep is being ended as it is."""


def _resources(config: dict[str, Any]) -> tune.PlacementGroupFactory:
    return tune.PlacementGroupFactory([dict(config["trial"]["resources"])])


class _Report(tune.Callback):
    """Hands what Tune hears to the recorder."""

    def __init__(self, recorder: Recorder, order: TrialOrder) -> None:
        self._recorder, self._order = recorder, order

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune pickles its callbacks to restore from, and this product restores from MLflow."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._order.began(_index(trial))
        self._recorder.began(_index(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._recorder.heard(_index(trial), result)
        if "outcome" in result:
            outcome = Outcome(Kind(result["outcome"]["kind"]), result["outcome"]["reason"])
            self._recorder.finished(_index(trial), outcome, result["log"])

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._order.began(_index(trial))  # it may never have: then it is not to be waited for
        self._recorder.lost(_index(trial), _infrastructure_fault(trial))


def _index(trial: Any) -> int:
    return int(trial.config["trial"]["index"])


def _infrastructure_fault(trial: Any) -> str:
    """Why Tune gave a trial up: its actor or its node died, or its code raised."""
    try:
        error = trial.get_error()
    except (OSError, ValueError, EOFError):
        error = None
    lines = [line.strip() for line in str(error or "").splitlines() if line.strip()]
    return f"the trial's actor or node was lost: {lines[0]}" if lines else "the trial's actor or node was lost"


class Stranded(tune.Callback):
    """Ends a sweep of which only trials are left that no node can hold, nor any that is to come, after a wait."""

    def __init__(self, trials: Sequence[Trial], order: TrialOrder, recorder: Recorder, wait_seconds: float) -> None:
        self._trials, self._order, self._recorder, self._wait_seconds = trials, order, recorder, wait_seconds
        self._since: float | None = None
        self._looked = float("-inf")
        self._lacking: dict[int, str] = {}
        self.stopper = _Stopper(recorder)

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        now = time.monotonic()
        if self.stopper.stop or now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        self._lacking = {} if any(trial.status == "RUNNING" for trial in trials) else self._what_is_lacking()
        self._since = (self._since or now) if self._lacking else None
        self.stopper.stop = self._since is not None and now - self._since >= self._wait_seconds

    def _what_is_lacking(self) -> dict[int, str]:
        """By index what each trial that is left lacks; empty if one of them can be held."""
        nodes = inventory()
        left = self._order.left - self._recorder.ended.keys()
        lacking = {index: missing(self._trials[index].resources, nodes) for index in sorted(left)}
        return lacking if all(lacking.values()) else {}

    def give_up(self) -> None:
        """Record the trials that the sweep was ended without, if it was."""
        if self.stopper.stop and interruption.signal is None:
            for index, what in self._lacking.items():
                self._recorder.lost(index, f"{what}; none came within {self._wait_seconds / 60:g} minutes")


class _Stopper(tune.Stopper):
    """Stops the sweep when told to, and a trial that was begun again for nothing: it was measured when it was lost."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.stop = False

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return int(result["config"]["trial"]["index"]) in self._recorder.ended

    def stop_all(self) -> bool:
        return self.stop
