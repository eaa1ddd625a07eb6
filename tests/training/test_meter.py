"""The meter's arithmetic, on a clock that the test moves."""

import pytest

from bridgetower_ray.training.meter import Meter, Step


class Clock:
    """Time that passes only when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


def drive(meter: Meter, clock: Clock, steps: int, fetch: float, rest: float, samples: int = 4) -> None:
    for _ in range(steps):
        meter.fetch_begins()
        clock.passes(fetch)
        meter.fetch_ends(samples)
        clock.passes(rest)
        meter.step_ends()


def test_the_window_holds_the_steps_after_the_warm_up_from_their_first_fetch_on() -> None:
    clock = Clock()
    meter = Meter(2, 5, lambda: None, clock)
    drive(meter, clock, 2, fetch=10, rest=10)
    drive(meter, clock, 3, fetch=1, rest=3)
    window = meter.window()
    assert window.seconds == pytest.approx(12)
    assert [step.step for step in window.steps] == [3, 4, 5]
    assert window.host_fetch_fraction == pytest.approx(0.25)


def test_time_between_steps_belongs_to_the_window() -> None:
    clock = Clock()
    meter = Meter(0, 2, lambda: None, clock)
    drive(meter, clock, 1, fetch=1, rest=1)
    clock.passes(5)
    drive(meter, clock, 1, fetch=1, rest=1)
    assert meter.window().seconds == pytest.approx(9)
    assert [step.seconds for step in meter.steps] == pytest.approx([2, 7])


def test_the_ranks_and_the_device_settle_at_both_edges_and_nowhere_else() -> None:
    clock, settled = Clock(), []
    meter = Meter(2, 5, lambda: settled.append(len(meter.steps)), clock)
    drive(meter, clock, 5, fetch=1, rest=1)
    assert settled == [2, 4]


def test_what_settling_takes_counts_at_the_end_and_not_at_the_start() -> None:
    clock = Clock()
    meter = Meter(1, 2, lambda: clock.passes(7), clock)
    drive(meter, clock, 2, fetch=1, rest=1)
    assert meter.window().seconds == pytest.approx(1 + 1 + 7)


def test_work_that_an_asynchronous_device_still_has_to_do_is_in_the_window() -> None:
    """The host queues work at once and fetches meanwhile; only the edge waits for the device."""
    clock = Clock()
    device_free_at = 0.0

    def settle() -> None:
        clock.now = max(clock.now, device_free_at)

    meter = Meter(1, 11, settle, clock)
    for _ in range(11):
        meter.fetch_begins()
        clock.passes(0.1)
        meter.fetch_ends(4)
        device_free_at = max(clock.now, device_free_at) + 1.0
        meter.step_ends()
    window = meter.window()
    assert window.seconds == pytest.approx(10 * 1.0 + 0.1)
    assert window.fetch_seconds == pytest.approx(1.0)


def test_epoch_boundaries_inside_the_window_are_counted_with_their_cost() -> None:
    clock = Clock()
    meter = Meter(1, 5, lambda: None, clock)
    for number in range(5):
        if number in (0, 3):
            meter.epoch_begins()
        drive(meter, clock, 1, fetch=6 if number == 3 else 1, rest=1)
    assert meter.window().epochs_begun == 1
    assert meter.window().epoch_boundary_seconds == pytest.approx(6)


def test_samples_are_counted_and_not_computed_from_the_batch_size() -> None:
    clock = Clock()
    meter = Meter(0, 2, lambda: None, clock)
    drive(meter, clock, 1, 1, 1, samples=4)
    drive(meter, clock, 1, 1, 1, samples=3)
    assert sum(step.samples for step in meter.window().steps) == 7


def test_each_step_reaches_the_sink_as_it_ends() -> None:
    clock, seen = Clock(), []

    def sink(step: Step, now: float) -> None:
        seen.append((step.step, step.warmup, now))

    drive(Meter(1, 2, lambda: None, clock, sink), clock, 2, fetch=1, rest=1)
    assert seen == [(1, True, 102.0), (2, False, 104.0)]


@pytest.mark.parametrize(("warmup", "total"), [(0, 0), (3, 3), (4, 3), (-1, 3)])
def test_a_window_without_steps_is_refused(warmup: int, total: int) -> None:
    with pytest.raises(ValueError, match="without steps"):
        Meter(warmup, total, lambda: None)


def test_a_window_that_never_closed_gives_no_number() -> None:
    clock = Clock()
    meter = Meter(1, 4, lambda: None, clock)
    drive(meter, clock, 3, 1, 1)
    with pytest.raises(RuntimeError, match="3 of 4 steps"):
        meter.window()


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("load", [0.001, 0.01, 0.05])
def test_throughput_is_what_the_loader_and_the_device_allow(workers: int, load: float) -> None:
    """B samples a step, l seconds to load one, c to compute a step: B/(Bl+c), or B/max(Bl/W, c) with workers."""
    batch, compute = 4, 0.04
    clock = Clock()
    meter = Meter(10, 210, lambda: None, clock)
    ready_at = [clock.now + batch * load * (index + 1) / max(workers, 1) for index in range(210)]
    for index in range(210):
        meter.fetch_begins()
        clock.now = max(clock.now, ready_at[index]) if workers else clock.now + batch * load
        meter.fetch_ends(batch)
        clock.passes(compute)
        meter.step_ends()
    expected = batch / max(batch * load / workers, compute) if workers else batch / (batch * load + compute)
    window = meter.window()
    # Queues without a bound can hide the loader until they are empty: hold the loader-bound cases to it exactly.
    assert batch * len(window.steps) / window.seconds == pytest.approx(expected, rel=0.03)
