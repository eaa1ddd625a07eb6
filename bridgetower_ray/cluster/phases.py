"""How long each phase of a trial lasts."""

import time
from collections.abc import Callable


class Phases:
    """Seconds spent in each phase: `preparing` the node, `starting` processes, and what the ranks say of themselves."""

    def __init__(self, first: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._phase, self._since = clock, first, clock()
        self._seconds: dict[str, float] = {}

    def enter(self, phase: str, at: float | None = None) -> None:
        """Another phase begins: `at`, or now; what began earlier than the phase before it is taken to begin with it."""
        at = max(self._since, self._clock() if at is None else at)
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + at - self._since
        self._phase, self._since = phase, at

    def so_far(self) -> dict[str, float]:
        """Seconds by phase, up to now."""
        self.enter(self._phase)
        return dict(self._seconds)
