"""How often the intervals of ratios hold the truth, and what they cost, by simulation with a fixed seed."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy

from bridgetower_ray.report.rounds import Rounds
from bridgetower_ray.report.stats import ratio_of_means

SPREAD, DRIFT, SEED, SWEEPS = 0.03, 0.02, 2026, 1000
RATIOS = (1.0, 1.02, 1.05, 1.3)  # of the cells after the first to the first, in turn


@dataclass(frozen=True)
class Noise:
    """What a log throughput has beside its cell's own: each cell's spread, what rounds share, and the tails.

    Rounds are all alike (still), each a little better or worse (unlike), or that and worse by the same from each to the
    next (drift).
    """

    equal: bool
    rounds: Literal["still", "unlike", "drift"]
    heavy: bool

    def __str__(self) -> str:
        words = ("equal" if self.equal else "unequal", self.rounds)
        return " ".join((*words, "heavy tails" if self.heavy else "normal"))


EXPERIMENTS = tuple(
    Noise(equal, rounds, heavy)
    for equal in (True, False)
    for rounds in ("still", "unlike", "drift")
    for heavy in (False, True)
)


def true_ratio(cell: int) -> float:
    """Of a cell to the first."""
    return 1.0 if cell == 0 else RATIOS[(cell - 1) % len(RATIOS)]


def rounds_of(generator: Any, cells: int, rounds: int, noise: Noise) -> dict[tuple[str, int], float]:
    """The throughputs of one simulated sweep; unequal spreads go from half to twice the usual one."""
    spreads = numpy.full(cells, SPREAD) if noise.equal else SPREAD * numpy.geomspace(0.5, 2.0, cells)
    generator.shuffle(spreads)
    errors = (
        generator.standard_t(3, (cells, rounds)) / 3**0.5 if noise.heavy else generator.standard_normal((cells, rounds))
    )
    logs = errors * spreads[:, None] + numpy.log([true_ratio(cell) for cell in range(cells)])[:, None]
    if noise.rounds != "still":
        logs = logs + DRIFT * generator.standard_normal(rounds)
    if noise.rounds == "drift":
        logs = logs - DRIFT * numpy.arange(rounds)
    return {(str(cell), when): float(numpy.exp(logs[cell, when])) for cell in range(cells) for when in range(rounds)}


def held(throughputs: Mapping[tuple[str, int], float], cells: int, noise: Noise) -> tuple[float, float]:
    """Share of the intervals to the first cell that hold the truth; share of equal cells that are told apart."""
    found = Rounds(throughputs)
    inside, false = [], []
    for cell in range(1, cells):
        within = found.ratio(str(cell), "0")
        assert within is not None
        low, high = within.ratio.low or 0.0, within.ratio.high or 0.0
        inside.append(low <= true_ratio(cell) <= high)
        if true_ratio(cell) == 1:
            false.append(within.ratio.separated is True)
    return statistics.mean(inside), statistics.mean(false)


def half_width(throughputs: Mapping[tuple[str, int], float], cells: int, rounds: int, within: bool) -> float:
    """The widest half-width of the intervals to the first cell."""
    widest = 0.0
    for cell in range(1, cells):
        one, other = ([throughputs[name, when] for when in range(rounds)] for name in (str(cell), "0"))
        found = Rounds(throughputs).ratio(str(cell), "0") if within else None
        ratio = found.ratio if found else ratio_of_means(one, other)
        widest = max(widest, ((ratio.high or 0.0) - (ratio.low or 0.0)) / 2 / ratio.value)
    return widest


def main() -> None:
    """A line for each number of cells and noise, at three rounds."""
    print(f"{'cells':>5}  {'noise':<26}{'coverage':>9}  {'false':>6}  {'widest, rounds':>14}  {'by arms':>8}")
    for cells in (3, 5, 10):
        for noise in EXPERIMENTS:
            generator = numpy.random.default_rng(SEED)
            sweeps = [rounds_of(generator, cells, 3, noise) for _ in range(SWEEPS)]
            shares = [held(one, cells, noise) for one in sweeps]
            widths = [
                statistics.median(half_width(one, cells, 3, within) for one in sweeps[:100]) for within in (True, False)
            ]
            coverage, false = (statistics.mean(share[place] for share in shares) for place in (0, 1))
            print(f"{cells:>5}  {noise!s:<26}{coverage:>8.1%}  {false:>6.1%}  {widths[0]:>14.1%}  {widths[1]:>8.1%}")


if __name__ == "__main__":
    main()
