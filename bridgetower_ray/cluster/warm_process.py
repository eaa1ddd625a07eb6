"""The supervisor's end of a warm process: has it fork ranks, and takes them for its own children."""

import contextlib
import ctypes
import json
import os
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bridgetower_ray.cluster.handed_down import as_a_child_of_the_raylet
from bridgetower_ray.errors import BridgetowerRayError

WARM = "bridgetower_ray.training.warm"
PR_SET_CHILD_SUBREAPER = 36
IMPORT_SECONDS = 120.0  # that a warm process may take; ranks start cold if it takes longer
FORK_SECONDS = 30.0
LONGEST_ANSWER = 2**14


class Forked:
    """A rank that a warm process forked: a child of this process, as one that it started itself."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        """Wait until it has ended; its exit status, minus the signal if one ended it."""
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class NotForkedError(BridgetowerRayError):
    """A rank was not forked, and is to start cold."""


class WarmProcess:
    """A process of an interpreter that has imported what ranks of one kind need."""

    def __init__(self, interpreter: str, job_file: Path, environment: Mapping[str, str]) -> None:
        """Start it.

        Args:
            job_file: of a trial of that kind.
            environment: of a single rank of that trial.

        Raises:
            OSError: the interpreter cannot be started.
        """
        _adopt_orphans()
        self._started = time.monotonic()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        with theirs:
            self._process = subprocess.Popen(
                [interpreter, "-m", WARM, str(theirs.fileno()), str(job_file)],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        as_a_child_of_the_raylet(self._process.pid)
        self.refusal: str | None = None  # why no rank is forked from it; empty once they can be
        self.lost = False  # it has been ready, and is gone: another may do

    def settled(self, seconds: float) -> bool:
        """Whether it is known, within `seconds`, if ranks can be forked: `refusal` is not None then."""
        if self.refusal is None:
            left = self._started + IMPORT_SECONDS - time.monotonic()
            answer = self._answer(max(0.0, min(seconds, left)))
            if answer is not None:
                self._refuse(**answer)
            elif left <= seconds:
                self._refuse(f"the warm process was not ready within {IMPORT_SECONDS:g} s")
        return self.refusal is not None

    def fork(self, command: Sequence[str], environment: Mapping[str, str], events: int, log: int, group: int) -> Forked:
        """A new rank.

        Args:
            command: a module and its arguments, as after `python -m`.
            environment: of the rank, alike to that of the warm process in all that is read at imports.
            events: the descriptor that the rank writes its events to.
            log: the descriptor that it writes its output to.
            group: the process group to be in, 0 for its own.

        Raises:
            NotForkedError: none can be, now or any more; `refusal` and the error say why.
        """
        if self.refusal != "":
            raise NotForkedError(self.refusal)
        told = {
            "module": command[0],
            "arguments": list(command[1:]),
            "environment": dict(environment),
            "folder": str(Path.cwd()),
            "group": group,
        }
        # A rank goes on once it is known here: one that comes too late ends as it finds that nobody waits for it.
        wait, go = os.pipe()
        try:
            socket.send_fds(self._channel, [json.dumps(told).encode()], [events, log, wait])
            answer = self._answer(FORK_SECONDS) or {"refusal": "the warm process does not answer", "lost": True}
            if "refusal" not in answer:
                os.write(go, b"1")
                return Forked(answer["pid"])
        except OSError as error:
            answer = {"refusal": f"the warm process cannot be asked: {error.strerror}", "lost": True}
        finally:
            os.close(wait)
            os.close(go)
        self._refuse(**answer)
        raise NotForkedError(self.refusal)

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        """The next message; None if none came within `seconds`."""
        if not select.select([self._channel], [], [], seconds)[0]:
            return None
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads(self._channel.recv(LONGEST_ANSWER))
            return found
        return {"refusal": f"the warm process ended: {self._last_words() or 'it said nothing'}", "lost": True}

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""

    def _refuse(self, refusal: str, lost: bool = False) -> None:
        self.lost = lost and self.refusal == ""
        self.refusal = refusal
        if refusal:
            self.end()

    def end(self) -> None:
        """End it; its ranks live on."""
        self._channel.close()
        self._process.kill()
        self._process.wait()
        self._log.close()
        self.refusal = self.refusal or "it was ended"


def _adopt_orphans() -> None:
    """Become the parent of what is left behind below this process: so do ranks that are forked become its children."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def reap(group: int) -> None:
    """Take note of the end of all processes of a group that became this one's children."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
