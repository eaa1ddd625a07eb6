"""A sweep's question while it runs: which trials it still wants, and how far it has come."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bridgetower_ray.report.efficiency import Spent
from bridgetower_ray.report.stopping import Course, Ended, Why, course, pools
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.progress import Outlook
from bridgetower_ray.sweep.question import Question
from bridgetower_ray.sweep.sweep_run import Decision, SweepRun


@dataclass
class Inquiry:
    """Decides from the results that there are, once for each round that has ended.

    Args:
        trials: all that the question may take, in order.
        before: results of earlier runs of the same sweep run, by cell id and round.
        already: what earlier attempts at trials took that have no result.
    """

    question: Question
    sweep_run: SweepRun
    trials: Sequence[Trial]
    before: Mapping[tuple[str, int], Ended]
    already: Spent = field(default_factory=Spent)
    _ended: dict[tuple[str, int], Ended] = field(init=False)
    _courses: dict[str, Course] = field(init=False)
    _over_budget: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._pools = pools(self.sweep_run, {cell for cell, _ in self.before})
        self._ended = dict(self.before)
        self._courses = {name: self._course(name) for name in self._pools}
        for name in self._pools:
            self._hold_to_budget(name, self._rounds_begun(name))

    def heard(self, trial: Trial, ended: Ended) -> Outlook:
        """A trial has ended; returns what is now expected."""
        self._ended[trial.key] = ended
        name = trial.cell.accelerator.name
        if self._courses[name].may_go_on(self._ended):
            opened = len(self._courses[name].rounds)
            self._courses[name] = self._course(name)
            self._hold_to_budget(name, opened)
        return self.outlook

    def wants(self, trial: Trial) -> bool | None:
        """Whether a trial is to be run; None while trials that are under way have to end to know."""
        return self._courses[trial.cell.accelerator.name].wants(trial.cell.cell_id, trial.repeat)

    def _course(self, name: str) -> Course:
        return course(self.question, self._pools[name], self._ended, self._over_budget.get(name))

    def _rounds_begun(self, name: str) -> int:
        """The last round of which a trial has ended."""
        return max((repeat for cell, repeat in self._ended if cell in self._pools[name].cells), default=0)

    def _hold_to_budget(self, name: str, opened: int) -> None:
        """Begin no round that the budget does not hold; those that were opened before are run to their end."""
        if not self.question.has_budget:
            return
        decided = len(self._courses[name].rounds)
        for most in range(max(opened, self.question.least), decided):
            self._over_budget[name] = most + 1
            self._courses[name] = self._course(name)
            if not self._affordable:
                self._over_budget[name] = most
                self._courses[name] = self._course(name)
                return
        self._over_budget.pop(name, None)
        self._courses[name] = self._course(name)

    @property
    def _affordable(self) -> bool:
        """Whether what is spent, with all that is open, is within the budget."""
        spent = Spent(self.already.accelerator_hours, self.already.cost)
        for trial in self.trials:
            if trial.key in self._ended:
                spent.add(trial, self._ended[trial.key].seconds)
            elif self.wants(trial):
                spent.add(trial, self._expected_seconds(trial))
        hours, cost = self.question.accelerator_hours or math.inf, self.question.cost or math.inf
        return spent.accelerator_hours <= hours and spent.cost <= cost

    def _expected_seconds(self, trial: Trial) -> float:
        """The mean of the cell's trials, or else of all trials."""
        of_cell = [one.seconds for (cell, _), one in self._ended.items() if cell == trial.cell.cell_id]
        known = of_cell or [one.seconds for one in self._ended.values()]
        return sum(known) / len(known) if known else 0.0

    @property
    def decisions(self) -> dict[str, Decision]:
        """What the rounds of each accelerator have come to."""
        return {name: self._decision(name) for name in self._pools}

    def _decision(self, name: str) -> Decision:
        found = self._course(name)
        why = found.ended_by or ""
        return Decision(rounds=len(found.rounds), widest=found.widest, why=why, over_budget=found.why is Why.BUDGET)

    @property
    def outlook(self) -> Outlook:
        """By the newest looks, whose spread tells how many rounds are to come. What was run before is left out."""
        rounds = {name: self._expected_rounds(found) for name, found in self._courses.items()}
        trials = sum(self._expected(trial, rounds) for trial in self.trials if trial.key not in self.before)
        open_looks = [one.looks[-1].widest for one in self._courses.values() if one.why is None and one.looks]
        widest = max((width for width in open_looks if math.isfinite(width)), default=None)
        return Outlook(trials, widest, self.question.precision)

    def _expected(self, trial: Trial, rounds: Mapping[str, int]) -> bool:
        found = self._courses[trial.cell.accelerator.name]
        wanted = found.wants(trial.cell.cell_id, trial.repeat)
        if wanted is not None:
            return wanted
        return trial.cell.cell_id in found.rounds[-1] and trial.repeat <= rounds[trial.cell.accelerator.name]

    def _expected_rounds(self, found: Course) -> int:
        if found.why is not None:
            return len(found.rounds)
        if found.widest is None:
            return self.question.most
        needed = math.ceil(found.looks[-1].after * (found.widest / self.question.precision) ** 2)
        return min(self.question.most, max(needed, len(found.rounds)))
