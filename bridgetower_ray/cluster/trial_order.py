"""Hands Tune the trials, in the plan's order, no more at a time than the nodes can soon take.

A grid would be copied by Tune for each of its trials; and every trial that Tune knows of holds a request for resources,
which takes Ray longer the more there are.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray.tune.search import Searcher

from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.plan import Inventory
from bridgetower_ray.training.job import Driver, Job

SPARE = 2  # trials of a kind that wait beyond those that its nodes hold, for nodes that are still to come


class TrialOrder(Searcher):  # type: ignore[misc]
    """A queue for each kind of bundle, of which so many trials wait in Tune that a node finds one when it is free."""

    def __init__(
        self,
        trials: Sequence[Trial],
        nodes: Inventory,
        base_folder: str,
        how: Mapping[str, Any],
        wants: Callable[[Trial], bool | None] = lambda _: True,
    ) -> None:
        """Prepare the queues.

        Args:
            wants: whether a trial is to be run; None while what is under way has to end to know.
        """
        super().__init__()
        self._trials, self._base_folder, self._how = trials, base_folder, dict(how)
        self._wants = wants
        self._driver = Driver.this_process()
        self._queues: dict[str, deque[int]] = {}
        for index, trial in enumerate(trials):
            self._queues.setdefault(_kind(trial), deque()).append(index)
        self._most = {
            kind: SPARE + sum(_held(trials[queue[0]].resources, node) for node in nodes)
            for kind, queue in self._queues.items()
        }
        self._waiting: dict[str, set[int]] = {kind: set() for kind in self._queues}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """What the actor of the next trial is told; None while enough of every kind wait, or none can be decided on."""
        for queue in self._queues.values():
            while queue and self._wants(self._trials[queue[0]]) is False:
                queue.popleft()
        if not any(self._queues.values()):
            return Searcher.FINISHED  # type: ignore[no-any-return]
        short = [
            (queue[0], kind)
            for kind, queue in self._queues.items()
            if queue and len(self._waiting[kind]) < self._most[kind] and self._wants(self._trials[queue[0]])
        ]
        if not short:
            return None
        index, kind = min(short)
        trial = self._trials[index]
        self._queues[kind].popleft()
        self._waiting[kind].add(index)
        job = Job(trial=trial, base_folder=self._base_folder, driver=self._driver).model_dump_json()
        return {"trial": {"index": index, "job": job, "resources": dict(trial.resources), **self._how}}

    @property
    def left(self) -> set[int]:
        """Trials that are to be run or have been, as far as is known: neither dropped nor undecided."""
        return {index for index, trial in enumerate(self._trials) if self._wants(trial)}

    def began(self, index: int) -> None:
        """A trial waits no more; one that begins again did not wait here."""
        self._waiting[_kind(self._trials[index])].discard(index)

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        """Nothing is searched for."""
        return True

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """No result changes what comes next."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: this product restores from MLflow."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: this product restores from MLflow."""


def _kind(trial: Trial) -> str:
    return trial.cell.accelerator.marker + str(sorted(trial.resources.items()))


def _held(resources: Mapping[str, float], node: Mapping[str, float]) -> int:
    """How many such bundles a node holds at once."""
    return int(min(node.get(name, 0) // amount for name, amount in resources.items() if amount))
