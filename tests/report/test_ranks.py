"""How far the ranks of a trial were apart."""

from typing import Any

import pytest

from bridgetower_ray.report.ranks import rank_figures


def steps_of(rank: int, fetches: list[float]) -> list[dict[str, Any]]:
    common = {"rank": rank, "seconds": 1.0, "samples": 4, "epoch_start": False}
    return [
        {**common, "step": number, "warmup": number == 1, "fetch_seconds": fetch}
        for number, fetch in enumerate(fetches, start=1)
    ]


def test_the_rank_that_is_last_to_have_its_batch_is_named() -> None:
    figures = rank_figures([*steps_of(0, [9, 0.1, 0.1, 0.4]), *steps_of(1, [0, 0.3, 0.5, 0.1])])
    assert figures == pytest.approx(
        {"rank_spread_fraction": (0.2 + 0.4 + 0.3) / 3, "slowest_rank": 1.0, "slowest_rank_share": 2 / 3}
    )


def test_one_rank_is_not_compared_with_itself() -> None:
    assert rank_figures(steps_of(0, [1, 2, 3])) == {}
