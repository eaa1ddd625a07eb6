"""Whether stopping keeps its word, and what it saves, by simulation with a fixed seed.

Every sweep is simulated to its end; a question is put to it, and beside it stands the design of a fixed count: the
rounds after which Welch's intervals of the same throughputs are first as narrow. Where throughput drifts they may never
be: then the fixed design is counted at MOST rounds.
"""

import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy

from bridgetower_ray.report.rounds import Rounds
from bridgetower_ray.report.stats import Ratio, ratio_of_means
from bridgetower_ray.report.stopping import Course, Ended, Pool, course
from bridgetower_ray.sweep.question import Goal, Question
from tests.bench.coverage import EXPERIMENTS, SEED, Noise, rounds_of, true_ratio

SWEEPS, MOST, PRECISION = 400, 40, 0.03
Throughputs = dict[tuple[str, int], float]


@dataclass(frozen=True)
class Simulated:
    """One sweep: shares of its intervals that hold the truth and that tell equal cells apart, trials, and the fixed.

    `lost` is whether a cell that is the fastest was given up.
    """

    inside: float
    false: float
    trials: int
    fixed: int
    lost: bool


def simulate(cells: int, noise: Noise, goal: Goal, seed: int) -> Simulated:
    """A sweep with a question put to it."""
    throughputs = rounds_of(numpy.random.default_rng((SEED, seed)), cells, MOST, noise)
    names = tuple(str(cell) for cell in range(cells))
    question = Question(precision=PRECISION, most=MOST, goal=goal)
    ended = {key: Ended(value, "one") for key, value in _from_one(throughputs).items()}
    found = course(question, Pool(names, ("0",), across=False), ended)
    ran = {key: value for key, value in throughputs.items() if found.wants(key[0], key[1] + 1)}
    pairs = _pairs(names, found, goal)
    ratios = [_ratio(ran, *pair).at_least(PRECISION) for pair in pairs]
    truths = [true_ratio(int(one)) / true_ratio(int(other)) for one, other in pairs]
    inside = [(one.low or 0) <= truth <= (one.high or 0) for one, truth in zip(ratios, truths, strict=True)]
    false = [bool(one.separated) for one, truth in zip(ratios, truths, strict=True) if truth == 1]
    best = max(map(true_ratio, range(cells)))
    lost = any(true_ratio(int(name)) == best for name in found.given_up)
    fixed = cells * _fixed_rounds(throughputs, cells)
    return Simulated(_mean(inside), _mean(false), len(ran), fixed, lost)


def _from_one(throughputs: Throughputs) -> Throughputs:
    return {(cell, when + 1): value for (cell, when), value in throughputs.items()}


def _pairs(names: Sequence[str], found: Course, goal: Goal) -> list[tuple[str, str]]:
    """Those that the question is about: of a table all over the first; of the fastest, those that are left."""
    if goal == "table":
        return [(name, "0") for name in names[1:]]
    left = sorted(set(names) - found.given_up.keys())
    return [(name, left[0]) for name in left[1:]]


def _ratio(throughputs: Throughputs, one: str, other: str) -> Ratio:
    within = Rounds(throughputs).ratio(one, other)
    assert within is not None
    return within.ratio


def _fixed_rounds(throughputs: Throughputs, cells: int) -> int:
    """After which all of Welch's intervals to the first cell are as narrow; the most if they never are."""
    arms = [[throughputs[str(cell), when] for when in range(MOST)] for cell in range(cells)]
    for rounds in range(2, MOST):
        widths = (ratio_of_means(arm[:rounds], arms[0][:rounds]).half_width for arm in arms[1:])
        if all(width is not None and width <= PRECISION for width in widths):
            return rounds
    return MOST


def _mean(values: Sequence[float]) -> float:
    return statistics.mean(values) if values else float("nan")


def main() -> None:
    """A line for each number of cells and noise; then the goal `fastest` with ten cells."""
    print(f"each ratio within {PRECISION:.0%}, {SWEEPS} sweeps a line, spread 3 %")
    print(f"{'cells':>5}  {'noise':<26}{'coverage':>9}{'false':>8}{'trials':>8}{'fixed':>8}{'share':>7}{'lost':>7}")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for cells, goal in ((3, "table"), (5, "table"), (10, "table"), (10, "fastest")):
            for noise in EXPERIMENTS:
                sweeps = list(pool.map(partial(simulate, cells, noise, goal), range(SWEEPS), chunksize=10))
                print(_line(cells if goal == "table" else f"{cells} f", noise, sweeps), flush=True)


def _line(cells: object, noise: Noise, sweeps: Sequence[Simulated]) -> str:
    trials, fixed = (
        statistics.mean(values) for values in zip(*((one.trials, one.fixed) for one in sweeps), strict=True)
    )
    coverage, false = (float(numpy.nanmean([getattr(one, name) for one in sweeps])) for name in ("inside", "false"))
    lost = statistics.mean(one.lost for one in sweeps)
    costs = f"{trials:>8.1f}{fixed:>8.1f}{trials / fixed:>7.2f}"
    return f"{cells:>5}  {noise!s:<26}{coverage:>9.1%}{false:>8.1%}{costs}{lost:>7.1%}"


if __name__ == "__main__":
    main()
