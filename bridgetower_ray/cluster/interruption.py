"""Ctrl-C, SIGTERM and a closed terminal, at any moment of a command: what is done about them is one of four things.

Nothing has begun: leave at once. Something must not be cut in two: wait until it is done. Something is held that must
be let go: raise. Tune is at work: have it stop. The first signal counts; those that follow while all is being put in
order are not heard, until somebody insists.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INSISTED = 4  # signals after which the process ends as it is
SOON_SECONDS = 0.05
STATUS_SIGTERM = 143
STATUS_OTHERS = 130


class Interrupted(KeyboardInterrupt):
    """The command was told to stop. Not an Exception, so that nothing takes it for a failure."""


class Interruption:
    """The process's own: the signal that came, if one did, and what is done when one comes."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._heard = 0
        self._dropped = False  # whether what was raised for it came to nothing
        self._react: Callable[[], None] = self._leave

    @property
    def status(self) -> int:
        """Exit status of a command that was stopped."""
        return STATUS_SIGTERM if self.signal == signal.SIGTERM else STATUS_OTHERS

    def listen(self) -> None:
        """Take the signals over, once more where a library has taken them; what is ignored (`nohup`) stays so."""
        sys.unraisablehook = self._say_again
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._hear)

    def _hear(self, number: int, _frame: Any) -> None:
        self._heard += not self._dropped
        if number == signal.SIGHUP:
            _forget_terminal()
        if self.signal is None or self._dropped:
            self.signal, self._dropped = self.signal or number, False
            self._react()
        elif self._heard >= INSISTED:
            os._exit(self.status)

    def _leave(self) -> None:
        self.say()
        os._exit(self.status)

    def say(self) -> None:
        """The one line."""
        os.write(2, b"bridgetower-ray: interrupted\n")

    def _say_again(self, lost: Any) -> None:
        """Raise once more what Python has dropped, as it does while it destroys an object or locks an import.

        A moment later, for what is raised in here would be dropped too.
        """
        if not isinstance(lost.exc_value, Interrupted):
            sys.__unraisablehook__(lost)
        elif self.signal is not None:
            self._dropped = True
            to_main = (threading.main_thread().ident, self.signal)
            again = threading.Timer(SOON_SECONDS, signal.pthread_kill, to_main)
            again.daemon = True
            again.start()

    def check(self) -> None:
        """Raise if a signal has come."""
        if self.signal is not None:
            raise Interrupted

    @contextmanager
    def reacting(self, react: Callable[[], None]) -> Iterator[None]:
        """Have `react` called when a signal comes."""
        before, self._react = self._react, react
        try:
            yield
        finally:
            self._react = before

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Raise `Interrupted` when a signal comes, so that what is held is let go."""
        with self.reacting(self.check):
            self.check()
            yield

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Let what must not be cut in two come to its end; then raise."""
        with self.reacting(lambda: None):
            yield
        self.check()


@contextmanager
def processes_outlive_terminal() -> Iterator[None]:
    """Have what is started meanwhile not end when the terminal closes: whoever started it ends it, in order.

    A blocked signal stays blocked in child processes; for this one it only waits.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forget_terminal() -> None:
    """Nothing can be written to a terminal that is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nowhere, stream.fileno())
        except (OSError, ValueError):
            continue


interruption = Interruption()
