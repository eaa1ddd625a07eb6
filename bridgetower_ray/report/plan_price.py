"""What a sweep's question is expected to cost, before it is asked. Without scipy: a plan is to answer at once."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

from bridgetower_ray.errors import UsageError
from bridgetower_ray.report.efficiency import Spent
from bridgetower_ray.report.stats import CONFIDENCE
from bridgetower_ray.report.stopping import LAG
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.plan import Plan, estimate_seconds
from bridgetower_ray.sweep.question import Question

PRIOR_SPREAD, PRIOR_RANGE = 0.03, (0.015, 0.06)  # of a cell's throughputs from round to round
PRIOR_SECONDS = 300.0  # of a trial
LEAST_SECONDS = 30.0  # a trial that nothing is known of takes no less: it has to start
RANGE_SHARE = 0.8  # of the spreads that earlier throughputs leave possible
LEFT_AT_LEAST = 2  # cells of which it takes all rounds to tell which is the fastest


@dataclass(frozen=True)
class Earlier:
    """Earlier measured trials by cell id: the seconds that one took, and the throughputs of all."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    throughputs: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Range:
    """What is expected, between the least and the most that are likely."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True)
class Price:
    """Of a question: trials, hours of single devices, money where prices are given, seconds on the clock; and why."""

    trials: Range
    accelerator_hours: Range
    cost: Range | None
    seconds: Range
    basis: str


def price_of(plan: Plan, question: Question, earlier: Earlier) -> Price:
    """What a plan's question is expected to take."""
    spreads, of_spread = _spreads(earlier)
    known = [earlier.seconds[cell] for cell in _cells(plan.trials) if cell in earlier.seconds]
    otherwise = sum(known) / len(known) if known else PRIOR_SECONDS
    seconds = {cell: earlier.seconds.get(cell, otherwise) for cell in _cells(plan.trials)}
    runs = [_expected_trials(plan.trials, question, spread) for spread in (spreads.low, spreads.expected, spreads.high)]
    spent = [_spent(trials, seconds) for trials in runs]
    prices = set(plan.spec.accelerator_names) <= plan.spec.prices.keys()
    return Price(
        trials=Range(*(float(len(trials)) for trials in runs)),
        accelerator_hours=Range(*(one.accelerator_hours for one in spent)),
        cost=Range(*(one.cost for one in spent)) if prices else None,
        seconds=Range(*(estimate_seconds(replace(plan, trials=tuple(trials)), seconds) or 0.0 for trials in runs)),
        basis=f"{of_spread}; {_of_seconds(len(known), len(seconds))}",
    )


def check_budget(plan: Plan, question: Question, earlier: Earlier) -> None:
    """Refuse a question whose least rounds are above its budget, unless they have been measured.

    Raises:
        UsageError: with the price of a round; by earlier trials, or else by the least that a trial can take.
    """
    first = [trial for trial in plan.trials if trial.repeat == 1]
    if all(len(earlier.throughputs.get(cell, ())) >= question.least for cell in _cells(first)):
        return
    seconds = {cell: earlier.seconds.get(cell, LEAST_SECONDS) for cell in _cells(first)}
    spent = _spent(first, seconds)
    for price, limit, unit in (
        (spent.accelerator_hours, question.accelerator_hours, "accelerator hours"),
        (spent.cost, question.cost, "in money"),
    ):
        if limit is not None and question.least * price > limit:
            raise UsageError(
                f"measure.budget: a round takes about {price:.2g} {unit} ({len(first)} trials), and the least are "
                f"{question.least} rounds: the budget of {limit:g} does not hold them"
            )


def _spreads(earlier: Earlier) -> tuple[Range, str]:
    """Standard deviations of a cell's log throughput, and where they are from."""
    logs = [[math.log(value) for value in values] for values in earlier.throughputs.values() if len(values) > 1]
    degrees = sum(len(values) - 1 for values in logs)
    squares = sum((value - sum(values) / len(values)) ** 2 for values in logs for value in values)
    if not degrees or not squares:
        low, high = PRIOR_RANGE
        return Range(low, PRIOR_SPREAD, high), f"a spread of {PRIOR_SPREAD:.0%} is assumed ({low:.1%} to {high:.0%})"
    least, most = (squares / _chi_squared((1 + sign * RANGE_SHARE) / 2, degrees) for sign in (1, -1))
    found = Range(math.sqrt(least), math.sqrt(squares / degrees), math.sqrt(most))
    return found, f"spread of the earlier trials {found.expected:.1%} ({found.low:.1%} to {found.high:.1%})"


def _of_seconds(known: int, cells: int) -> str:
    if not known:
        return f"{PRIOR_SECONDS / 60:g} minutes a trial are assumed"
    return "duration of the earlier trials" + (f", known of {known} of {cells} cells" if known < cells else "")


def _cells(trials: Sequence[Trial]) -> dict[str, str]:
    """Cell ids, in order, with their accelerators."""
    return {trial.cell.cell_id: trial.cell.accelerator.name for trial in trials}


def _expected_trials(trials: Sequence[Trial], question: Question, spread: float) -> list[Trial]:
    """Those that are run if the spread is that."""
    accelerators = list(_cells(trials).values())
    across = len(set(accelerators)) > 1 and question.goal == "table"
    rounds = {name: _rounds(question, accelerators.count(name), spread, across) for name in set(accelerators)}
    wanted = [trial for trial in trials if trial.repeat <= rounds[trial.cell.accelerator.name]]
    if question.goal == "table":
        return wanted
    first = {name: [cell for cell, of in _cells(trials).items() if of == name][:LEFT_AT_LEAST] for name in rounds}
    return [
        trial for trial in wanted if trial.repeat <= LAG + 1 or trial.cell.cell_id in first[trial.cell.accelerator.name]
    ]


def _rounds(question: Question, cells: int, spread: float, across: bool) -> int:
    """After how many the widest interval is expected to be as narrow as asked for."""
    for after in range(LAG, question.most):
        within = _t((cells - 1) * (after - 1)) * math.sqrt(2 / after) if cells > 1 else 0.0
        sides = math.sqrt(2) if across else 1.0
        alone = _t(after - 1) * sides / math.sqrt(after) if across or cells == 1 else 0.0
        if max(within, alone) * spread * math.sqrt(after / (after + 1)) <= question.precision:
            return max(after + 1, question.least)
    return question.most


def _t(degrees: int) -> float:
    """Student's quantile of the report's intervals, to a few per cent from three degrees on.

    R. A. Fisher and E. A. Cornish, "The percentile points of distributions having known cumulants", Technometrics 2,
    1960.
    """
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    terms = (z, (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return math.fsum(term / degrees**power for power, term in enumerate(terms))


def _chi_squared(share: float, degrees: int) -> float:
    """Its quantile (E. B. Wilson and M. M. Hilferty, "The distribution of chi-square", PNAS 17, 1931)."""
    z = NormalDist().inv_cdf(share)
    root = max(0.1, 1 - 2 / (9 * degrees) + z * math.sqrt(2 / (9 * degrees)))
    return degrees * root * root * root


def _spent(trials: Sequence[Trial], seconds: Mapping[str, float]) -> Spent:
    found = Spent()
    for trial in trials:
        found.add(trial, seconds[trial.cell.cell_id])
    return found
