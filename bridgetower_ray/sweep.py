"""The Tune run: one Tuner over all trials, each asking for its accelerator's resources."""

import logging
import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray import tune

from bridgetower_ray.cells import Trial
from bridgetower_ray.outcomes import Kind, Outcome
from bridgetower_ray.recording import Recorder
from bridgetower_ray.training.job import Job
from bridgetower_ray.trial import TrialActor

QUIET_TUNE = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",  # MLflow knows what is done; Tune's own state is not used
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


def run_trials(trials: Sequence[Trial], base_folder: Path, recorder: Recorder, retries: int = 0) -> None:
    """Run trials, as many at once as the cluster holds; every one ends up in the recorder.

    Returns early, with the trials under way marked interrupted, on SIGINT or SIGTERM.

    Args:
        retries: how often a trial starts again after its actor or node has died; a training that fails is
            a result, and is not tried again.
    """
    os.environ.update(QUIET_TUNE)
    # Above the number of trials, or a slow pool fills the window of pending ones and the others idle.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(len(trials) + 16)
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    configs = [
        {"index": index, "job": Job(trial=trial, base_folder=str(base_folder)).model_dump_json()}
        for index, trial in enumerate(trials)
    ]
    with tempfile.TemporaryDirectory(prefix="bridgetower-ray-tune-") as folder, _sigterm_as_sigint():
        tuner = tune.Tuner(
            tune.with_resources(TrialActor, lambda config: _resources(trials[config["trial"]["index"]])),
            param_space={"trial": tune.grid_search(configs)},
            tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(
                name="sweep",
                storage_path=folder,
                callbacks=[_Report(recorder)],
                failure_config=tune.FailureConfig(max_failures=retries),
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                verbose=0,
            ),
        )
        tuner.fit()
    recorder.interrupt("the sweep was stopped")


def _resources(trial: Trial) -> tune.PlacementGroupFactory:
    return tune.PlacementGroupFactory([dict(trial.resources)])


class _Report(tune.Callback):
    """Hands what Tune hears to the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune pickles its callbacks to restore from, and this product restores from MLflow."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._recorder.began(_index(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._recorder.heard(_index(trial), result)
        if "outcome" in result:
            outcome = Outcome(Kind(result["outcome"]["kind"]), result["outcome"]["reason"])
            self._recorder.finished(_index(trial), outcome, result["log"])

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
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


@contextmanager
def _sigterm_as_sigint() -> Iterator[None]:
    """Stop on SIGTERM as on Ctrl-C, which Tune knows how to do."""

    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
