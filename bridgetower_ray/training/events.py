"""JSON lines from a rank to whoever started it: a pipe under a supervisor, standard output by hand."""

import json
import os
import time
from typing import Any

EVENTS_FD = "BRIDGETOWER_RAY_EVENTS_FD"  # file descriptor to write to; standard output where it is not set


class Events:
    """Writes events; every rank but the first writes only its steps and its failure."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._stream = os.fdopen(_events_descriptor(), "w", encoding="utf-8")

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event, from rank 0 only."""
        if self._rank == 0:
            self._write(event, fields)

    def phase(self, phase: str) -> None:
        """Say what begins now, by the clock that all processes of a host share."""
        self.emit("phase", phase=phase, at=time.monotonic())

    def steps(self, **fields: Any) -> None:
        """Write steps, from every rank."""
        self._write("steps", {"rank": self._rank, **fields})

    def failed(self, kind: str, reason: str, whole_node: bool = False) -> None:
        """Say why this rank gives up; `whole_node`: every other trial of the kind would, here."""
        self._write("failed", {"kind": kind, "reason": reason, "rank": self._rank, "whole_node": whole_node})

    def ends(self) -> None:
        """Say, from every rank, that nothing is left to say or to do."""
        self._write("ends", {"rank": self._rank})

    def _write(self, event: str, fields: dict[str, Any]) -> None:
        self._stream.write(json.dumps({"event": event, **fields}) + "\n")
        self._stream.flush()


def _events_descriptor() -> int:
    """The supervisor's pipe; by hand a copy of standard output, which libraries' own prints then no longer reach."""
    given = os.environ.get(EVENTS_FD)
    if given is not None:
        return int(given)
    stdout = os.dup(1)
    os.dup2(2, 1)
    return stdout
