"""Verdicts, predicted workers, and ceilings that are none."""

import math

import pytest

from bridgetower_ray.report.diagnosis import exceeds, predict_workers, takes_turns, verdict


@pytest.mark.parametrize(
    ("throughput", "compute", "loader", "turns", "expected"),
    [
        (50, 100, 52, False, "loader-bound"),
        (98, 100, 300, False, "compute-bound"),
        (97, 100, 105, False, "balanced"),
        (60, 100, 105, False, "host-contended"),
        (50, 100, 100, True, "serial"),
        (95, 100, 2000, True, "compute-bound"),
        (50, None, 100, False, None),
        (50, 100, None, True, None),
    ],
)
def test_the_verdict_follows_its_rule(
    throughput: float, compute: float | None, loader: float | None, turns: bool, expected: str | None
) -> None:
    assert verdict(throughput, compute, loader, turns) == expected


@pytest.mark.parametrize(
    ("workers", "mediapipe", "copies_ahead", "expected"),
    [(0, False, False, True), (1, False, False, False), (0, True, False, False), (0, False, True, False)],
)
def test_only_without_workers_and_with_copies_that_wait_do_loading_and_computing_take_turns(
    workers: int, mediapipe: bool, copies_ahead: bool, expected: bool
) -> None:
    assert takes_turns(workers, mediapipe, copies_ahead) is expected


@pytest.mark.parametrize(("without", "with_workers"), [(336.5, 602.1), (227.5, 345.4)])
def test_the_published_gpu_cells_without_workers_are_serial(without: float, with_workers: float) -> None:
    """Taking turns, 1 / 336.5 = 1 / 602.1 + 1 / loader: the loader alone gives 763 a second, and 666."""
    loader = 1 / (1 / without - 1 / with_workers)
    assert verdict(without, with_workers, loader, takes_turns(0, mediapipe=False, copies_ahead=False)) == "serial"


def test_the_predicted_workers_are_the_fewest_that_reach_the_compute_ceiling() -> None:
    predicted = predict_workers([95, 105], {0: [500], 1: [40], 2: [76, 60]}, cpus=8, ranks=1)
    assert predicted is not None
    assert predicted.fewest == math.ceil(95 / 40) == 3
    assert predicted.most == math.ceil(105 / 30) == 4
    assert predicted.possible


def test_more_workers_than_cpus_are_said_to_be_out_of_reach() -> None:
    predicted = predict_workers([1000], {1: [40]}, cpus=16, ranks=8)
    assert predicted is not None
    assert (predicted.fewest, predicted.cpus_per_rank, predicted.possible) == (25, 2, False)


def test_cells_without_workers_predict_nothing() -> None:
    assert predict_workers([100], {0: [50]}, cpus=8, ranks=1) is None


@pytest.mark.parametrize(
    ("throughput", "lowest", "highest", "expected"),
    [
        (101, 99.5, 100.5, False),
        (103, 99.5, 100.5, True),
        (109, 95, 105, False),
        (111, 95, 105, True),
        (103, None, None, True),
    ],
)
def test_a_ceiling_is_exceeded_by_more_than_its_spread(
    throughput: float, lowest: float | None, highest: float | None, expected: bool
) -> None:
    assert exceeds(throughput, 100, lowest, highest) is expected
