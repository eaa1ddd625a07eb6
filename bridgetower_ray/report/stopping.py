"""When an accelerator's rounds have answered what a sweep asks, by what they measured and nothing else.

After each round is looked at how wide the intervals are. The next round is under way by then, so that few nodes wait
for a look; it is the last one if by the spread seen so far it makes the widest interval as narrow as asked for. That
favours looks that are narrow by luck. Therefore no ratio of throughputs in the report has an interval narrower than
what was asked for: with observations beyond the stop, a fixed width covers whatever the spread is (Y. S. Chow and
H. Robbins, "On the asymptotic theory of fixed-width sequential confidence intervals for the mean", Annals of
Mathematical Statistics 36, 1965; G. Simons, "On the cost of not knowing the variance when making a fixed-width
confidence interval for the mean", the same 39, 1968). `python -m tests.bench stopping` simulates it.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bridgetower_ray.report.rounds import Rounds
from bridgetower_ray.report.stats import CONFIDENCE, Ratio, geometric_mean, interval_of_mean, ratio_of_means
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.sweep.question import Question
from bridgetower_ray.sweep.sweep_run import SweepRun

LAG = 2  # the look at a round decides upon the round after the next
RULE = (
    "A look after each round; the round then under way is the last if it makes the widest interval narrow enough. "
    "No ratio of throughputs is given an interval narrower than the precision asked for, which makes up for the looks."
)


class Why(StrEnum):
    """Why an accelerator's rounds ended."""

    PRECISE = "precise enough"
    ONE_LEFT = "one cell is left"
    MOST = "the most rounds that the sweep allows"
    BUDGET = "the budget"
    NOTHING = "no cell could be measured"


@dataclass(frozen=True)
class Ended:
    """How a trial ended: samples/s if it was measured, on which host, how many seconds it took."""

    throughput: float | None
    host: str | None
    seconds: float = 0.0


@dataclass(frozen=True)
class Pool:
    """The cells of one accelerator that are run, by their ids, and those of them that the others are compared with.

    `across` says whether ratios to other accelerators' cells are made too.
    """

    cells: tuple[str, ...]
    references: tuple[str, ...]
    across: bool


@dataclass(frozen=True)
class Look:
    """What the rounds up to one had come to: the widest half-width as a share, and the cells given up, with the why."""

    after: int
    widest: float
    given_up: Mapping[str, str]


@dataclass(frozen=True)
class Course:
    """The cells of each round that is decided upon, the looks that decided it, and why no other round follows.

    `pool` is the accelerator's.

    `complete` is whether all trials of these rounds have ended: the last rounds are decided upon before they are run.
    """

    pool: Pool
    rounds: tuple[frozenset[str], ...]
    looks: tuple[Look, ...]
    why: Why | None
    complete: bool

    @property
    def ended_by(self) -> Why | None:
        """Why the rounds ended; None unless they have."""
        return self.why if self.complete else None

    def wants(self, cell: str, repeat: int) -> bool | None:
        """Whether a cell is run in a round; None while that is not decided."""
        if repeat <= len(self.rounds):
            return cell in self.rounds[repeat - 1]
        return None if self.why is None else False

    def may_go_on(self, ended: "Trials") -> bool:
        """Whether the round has ended that the next decision looks at."""
        return self.why is None and not _under_way(self.rounds, len(self.rounds) + 1 - LAG, ended)

    def asked(self, cell: str) -> int:
        """Rounds that the cell was to be run in, so far."""
        return sum(cell in cells for cells in self.rounds)

    @property
    def widest(self) -> float | None:
        """Of the newest look; None before any, or where a ratio had no interval."""
        newest = self.looks[-1].widest if self.looks else math.inf
        return newest if math.isfinite(newest) else None

    @property
    def given_up(self) -> dict[str, str]:
        """Cells that left the rounds before their end, and why."""
        return {cell: why for look in self.looks for cell, why in look.given_up.items()}


Trials = Mapping[tuple[str, int], Ended]


def pools(sweep_run: SweepRun, measured: Collection[str] = ()) -> dict[str, Pool]:
    """The accelerators whose cells are run, with those that the report compares with: first setting and baseline.

    Args:
        measured: ids of cells that have results. An accelerator whose nodes have gone has its course all the same.
    """
    plain_first = sorted(sweep_run.cells, key=lambda cell: bool(cell.axes.get("mediapipe_dataloader", False)))
    found: dict[str, list[str]] = {}
    runnable = {str(cell.axes["accelerator"]) for cell in sweep_run.cells if cell.kind is Kind.RUNNABLE}
    for cell in sweep_run.cells:
        name = str(cell.axes["accelerator"])
        takes_part = cell.kind is Kind.RUNNABLE or (name not in runnable and cell.cell_id in measured)
        if takes_part and cell.same_as is None:
            found.setdefault(name, []).append(cell.cell_id)
    compared_with = {
        cell.cell_id
        for cell in sweep_run.cells
        if cell.loader == plain_first[0].loader or cell.setting == sweep_run.baseline
    }
    return {
        name: Pool(tuple(cells), tuple(cell for cell in cells if cell in compared_with), len(found) > 1)
        for name, cells in found.items()
    }


def course(question: Question, pool: Pool, ended: Trials, most: int | None = None) -> Course:
    """What the rounds of an accelerator have come to.

    Args:
        ended: by cell id and round; trials of other accelerators are passed over.
        most: rounds that the budget leaves, where it ends them.
    """
    rounds, looks, why = _decided(question, pool, ended, most)
    return Course(pool, tuple(rounds), tuple(looks), why, not _under_way(rounds, len(rounds), ended))


def _under_way(rounds: Sequence[frozenset[str]], last: int, ended: Trials) -> bool:
    """Whether a trial of the rounds up to one has not ended."""
    return any((cell, when) not in ended for when in range(1, last + 1) for cell in rounds[when - 1])


def _decided(
    question: Question, pool: Pool, ended: Trials, most: int | None
) -> tuple[list[frozenset[str]], list[Look], Why | None]:
    limit = min(question.most, most or question.most)
    rounds = [frozenset(pool.cells)] * min(LAG, limit)
    looks: list[Look] = []
    while len(rounds) < limit:
        after = len(rounds) + 1 - LAG
        if _under_way(rounds, after, ended):
            return rounds, looks, None
        if len(rounds) < question.least:
            rounds.append(rounds[-1])
            continue
        looks.append(_look(question, pool, rounds[-1], ended, after))
        why, left = _stopped(question, looks[-1], rounds[-1])
        if why is not None:
            return rounds, looks, why
        rounds.append(left)
    return rounds, looks, Why.MOST if limit == question.most else Why.BUDGET


def _stopped(question: Question, look: Look, under_way: frozenset[str]) -> tuple[Why | None, frozenset[str]]:
    """Why the round under way is the last one, and the cells of the next if it is not."""
    left = under_way - look.given_up.keys()
    if not left:
        return Why.NOTHING, left
    if question.goal == "fastest" and len(left) == 1:
        return Why.ONE_LEFT, left
    expected = look.widest * math.sqrt(look.after / (look.after + 1))
    return (Why.PRECISE if expected <= question.precision else None), left


def _look(question: Question, pool: Pool, cells: frozenset[str], ended: Trials, after: int) -> Look:
    """At the rounds up to one, of the cells that are still in them; a later one may have trials that have ended too."""
    found = _Measured({key: one for key, one in ended.items() if key[0] in pool.cells and key[1] <= after})
    unmeasured = sorted(cell for cell in cells if not found.values(cell))
    if unmeasured and after == 1:
        return Look(after, math.inf, {})  # once may be chance
    given_up = dict.fromkeys(unmeasured, f"not measured in {after} rounds")
    left = [cell for cell in pool.cells if cell in cells and cell not in given_up]
    if question.goal == "table":
        return Look(after, found.widest(left, pool.references, pool.across), given_up)
    if not left:
        return Look(after, math.inf, given_up)
    leader = max(left, key=lambda cell: geometric_mean(found.values(cell)))
    # Each cell may be given up wrongly at each look: all of that together stays below one in twenty.
    share = (1 - CONFIDENCE) / max(1, len(pool.cells) - 1) / max(1, question.most - LAG)
    for cell in left:
        over = found.ratio(cell, leader, 1 - share) if cell != leader else None
        if over is not None and over.high is not None and over.high < 1:
            given_up[cell] = f"not the fastest: {over.text} of it after {after} rounds"
    return Look(after, found.widest([cell for cell in left if cell not in given_up], (leader,), False), given_up)


class _Measured:
    """The measured trials of some rounds of one accelerator."""

    def __init__(self, ended: Trials) -> None:
        self._throughputs: dict[tuple[str, Hashable], float] = {
            (cell, (repeat, one.host)): one.throughput
            for (cell, repeat), one in ended.items()
            if one.throughput is not None
        }
        self._rounds = Rounds(self._throughputs)

    def values(self, cell: str) -> list[float]:
        """Samples/s of a cell."""
        return [value for (name, _), value in self._throughputs.items() if name == cell]

    def ratio(self, one: str, other: str, confidence: float = CONFIDENCE) -> Ratio:
        """As the report makes it: within rounds where that can be, else of two independent arms."""
        within = self._rounds.ratio(one, other, confidence)
        return within.ratio if within else ratio_of_means(self.values(one), self.values(other), confidence)

    def widest(self, cells: Sequence[str], references: Sequence[str], across: bool) -> float:
        """The widest half-width of the ratios that are made of some cells; infinite where one has no interval.

        Of a ratio across accelerators, each side may bring half of the variance.
        """
        pairs = [(one, other) for other in references if other in cells for one in cells if one != other]
        widths = [self.ratio(one, other).half_width for one, other in pairs]
        if across or not pairs:
            sides = math.sqrt(2) if across else 1.0
            widths += [None if width is None else sides * width for width in map(self._half_width_of_mean, cells)]
        return max((math.inf if width is None else width for width in widths), default=0.0)

    def _half_width_of_mean(self, cell: str) -> float | None:
        values = self.values(cell)
        interval = interval_of_mean(values)
        return None if interval is None else (interval[1] - interval[0]) / 2 / geometric_mean(values)
