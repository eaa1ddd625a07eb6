"""Runs the ranks of a trial as one process group: starts them, hears them, ends them. Knows nothing of Ray.

One process group holds every rank and every loader worker, so one `killpg` reaches them all, and each rank asks
the kernel to end it when the supervisor dies.
"""

import contextlib
import ctypes
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from bridgetower_ray.cluster.handed_down import as_a_child_of_the_raylet
from bridgetower_ray.cluster.rank_environment import handed_to_ranks, rank_environment
from bridgetower_ray.cluster.rendezvous import RendezvousPort
from bridgetower_ray.cluster.warm_process import NotForkedError, WarmProcess, reap
from bridgetower_ray.doctor.processes import wait_until_gone
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.training.events import EVENTS_FD
from bridgetower_ray.training.supervised import PROCESS_START

POLL_SECONDS = 0.05
LAST_WORDS_SECONDS = 1.0  # for what a rank said before it ended to come through its pipe
LEAVE_SECONDS = 5.0  # for ranks that have said all to end by themselves
GONE_SECONDS = 5.0  # for processes that were killed to be gone
LOG_TAIL_BYTES = 200_000
LOG_MOST_BYTES = 20 * LOG_TAIL_BYTES
BLOCK_BYTES = 512  # of st_blocks
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
WORKER_KILLED = re.compile(r"DataLoader worker .*(killed by signal: Killed|exited unexpectedly)")
EXCEPTION_LINE = re.compile(r"^[\w.]+(Error|Exception|Interrupt|Exit|Warning)\b.*")


class Child(Protocol):
    """A process of which this one is the parent."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def returncode(self) -> int | None:
        """Its exit status once it was waited for."""

    def wait(self) -> int:
        """Wait until it has ended; its exit status."""


class ProcessGroup:
    """`ranks` copies of one command, heard through a pipe each, their output in a log file each."""

    def __init__(
        self,
        command: Sequence[str],
        ranks: int,
        folder: Path,
        timeout_seconds: float | None = None,
        warm: WarmProcess | None = None,
    ) -> None:
        """Start the group.

        Args:
            folder: of the trial's own; logs and temporary files of the ranks lie in it.
            timeout_seconds: the group is ended, and its outcome is `timed_out`, so long after this call.
            warm: forks the ranks, if it can and the command is `python -m` of its interpreter; else they start cold.
        """
        self._folder, self._timeout = folder, timeout_seconds
        self._warm = warm if "-m" in command[1:2] else None
        self._events: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        self._readers: list[threading.Thread] = []
        self._processes: list[Child] = []
        self._failures: list[tuple[int, Outcome]] = []
        self._ended: set[int] = set()
        self._all_ended_at: float | None = None
        self.whole_node = False
        self._oom_kills = _kernel_oom_kills()
        self._started = time.monotonic()
        self.outcome: Outcome | None = None
        self._port: RendezvousPort | None = None
        try:
            self._port = RendezvousPort() if ranks > 1 else None
            try:
                self._start_all(command, ranks)
            except NotForkedError as error:  # never warm and cold ranks in one trial
                self._kill()
                self._readers, self._processes, self._warm = [], [], None
                self._start_all(command, ranks, f"cold: {error}")
        except OSError as error:
            self.whole_node = True
            self._end(Outcome(Kind.FAILED, f"{command[0]} cannot be started: {error.strerror}"))

    def _start_all(self, command: Sequence[str], ranks: int, start: str = "cold") -> None:
        inherited = {**handed_to_ranks(command[0], self._folder), PROCESS_START: start}
        for rank in range(ranks):
            port = self._port.number if self._port else 0
            self._start(command, rank, rank_environment(inherited, rank, ranks, port))

    def _start(self, command: Sequence[str], rank: int, environment: dict[str, str]) -> None:
        read_end, write_end = os.pipe()
        reader = threading.Thread(target=self._read, args=(rank, read_end), daemon=True)
        try:
            self._log_file(rank).write_bytes(b"")
            with self._log_file(rank).open("ab") as log:  # to the end of what `_cut_logs` leaves
                process = self._process(command, environment, write_end, log.fileno())
        finally:
            os.close(write_end)
            reader.start()
        as_a_child_of_the_raylet(process.pid)
        self._readers.append(reader)
        self._processes.append(process)

    def _process(self, command: Sequence[str], environment: dict[str, str], events: int, log: int) -> Child:
        group = self._processes[0].pid if self._processes else 0
        if self._warm is not None:
            return self._warm.fork(command[2:], environment, events, log, group)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**environment, EVENTS_FD: str(events)},
            pass_fds=(events,),
            process_group=group,
        )

    def _read(self, rank: int, read_end: int) -> None:
        with os.fdopen(read_end, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    self._events.put((rank, json.loads(line)))
                except ValueError:
                    continue  # a rank that was killed in the middle of a line

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the ranks."""
        return tuple(process.pid for process in self._processes)

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """The events of up to `seconds`, fewer if the group ends; `outcome` is set once it has."""
        until = time.monotonic() + seconds
        events: list[dict[str, Any]] = []
        while True:
            self._take(events)
            if self.outcome is None:
                self._cut_logs()
                self._look(events)
            if self.outcome is not None:
                self._take(events)
                return events
            if time.monotonic() >= until:
                return events
            time.sleep(POLL_SECONDS)

    def _take(self, events: list[dict[str, Any]]) -> None:
        while True:
            try:
                rank, event = self._events.get_nowait()
            except queue.Empty:
                return
            if event.get("event") == "ends":
                self._ended.add(rank)
            elif event.get("event") == "failed":
                self.whole_node = self.whole_node or bool(event.get("whole_node"))
                self._failures.append((rank, Outcome(Kind(event["kind"]), str(event["reason"]))))
            else:
                events.append(event)

    def _cut_logs(self) -> None:
        """Leave of an output that grows without end what is kept of it anyway."""
        for rank in range(len(self._processes)):
            file = self._log_file(rank)
            found = file.stat()
            if found.st_blocks * BLOCK_BYTES > LOG_MOST_BYTES:
                _free(file, found.st_size - LOG_TAIL_BYTES)

    def _look(self, events: list[dict[str, Any]]) -> None:
        """Set the outcome if the group has ended, or must be; what was said meanwhile goes to `events`."""
        statuses = [_exit_status(process) for process in self._processes]
        failed = next((rank for rank, status in enumerate(statuses) if status and rank not in self._ended), None)
        if failed is not None:
            self._readers[failed].join(timeout=LAST_WORDS_SECONDS)
            self._take(events)
            if failed not in self._ended:
                self._end(self._failure(failed, statuses[failed] or 0, events))
        elif all(status is not None for status in statuses) or self._should_have_left():
            self._end(Outcome(Kind.MEASURED))
        elif self._timeout is not None and time.monotonic() - self._started > self._timeout:
            self._end(Outcome(Kind.TIMED_OUT, f"not done within {self._timeout / 60:g} minutes"))

    def _should_have_left(self) -> bool:
        """Whether every rank has said all it had to say, and has had its time to end."""
        if len(self._ended) < len(self._processes):
            return False
        self._all_ended_at = self._all_ended_at or time.monotonic()
        return time.monotonic() - self._all_ended_at > LEAVE_SECONDS

    def _failure(self, rank: int, status: int, events: list[dict[str, Any]]) -> Outcome:
        """What a rank said of its end; failing that, what its exit status and its log say."""
        self._kill()
        self._take(events)
        short_of_memory = _kernel_oom_kills() > self._oom_kills
        if self._failures:
            said = self._failures[0][1]
            killed = short_of_memory and WORKER_KILLED.search(said.reason)
            return Outcome(Kind.OUT_OF_MEMORY, f"the host ran out of memory: {said.reason}") if killed else said
        if status == -signal.SIGKILL and short_of_memory:
            return Outcome(Kind.OUT_OF_MEMORY, f"rank {rank} was killed: the host ran out of memory")
        if status < 0:
            return Outcome(Kind.FAILED, f"rank {rank} was killed by {signal.Signals(-status).name}")
        return Outcome(Kind.FAILED, _error_line(self._tail(rank)) or f"rank {rank} ended with status {status}")

    def _end(self, outcome: Outcome) -> None:
        self._kill()
        if self._port is not None:
            self._port.let_go()
        self.outcome = outcome

    def stop(self, reason: str) -> None:
        """End the group at once, loader workers included."""
        if self.outcome is None:
            self._end(Outcome(Kind.INTERRUPTED, reason))

    def _kill(self) -> None:
        # The first rank is not reaped before this, so its process group id cannot be another's by now.
        if self._processes and self._processes[0].returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._processes[0].pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        if self._processes:
            wait_until_gone(self._processes[0].pid, GONE_SECONDS)
            reap(self._processes[0].pid)
        for reader in self._readers:
            reader.join(timeout=5)

    def _log_file(self, rank: int) -> Path:
        return self._folder / ("train.log" if rank == 0 else f"train.rank{rank}.log")

    def _tail(self, rank: int) -> str:
        with self._log_file(rank).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")

    def log(self) -> str:
        """The last lines of every rank's output, one rank after the other."""
        tails = {rank: self._tail(rank) for rank in range(len(self._processes))}
        if len(tails) == 1:
            return tails[0]
        return "\n".join(f"[rank {rank}]\n{tail}" for rank, tail in tails.items())


def _free(file: Path, length: int) -> None:
    """Give the disk back what a file begins with, while others write to its end and lose none of it.

    Where the file system cannot (`fallocate(2)`), the file is emptied.
    """
    with file.open("r+b") as opened:
        libc = ctypes.CDLL(None)
        mode = ctypes.c_int(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE)
        if libc.fallocate64(opened.fileno(), mode, ctypes.c_int64(0), ctypes.c_int64(length)) != 0:
            os.truncate(file, 0)


def _exit_status(process: Child) -> int | None:
    """Exit status of a process, minus the signal if one ended it, None while it runs; does not reap it."""
    found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _error_line(log: str) -> str:
    """The last line that names an exception, else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if EXCEPTION_LINE.match(line)), lines[-1] if lines else "")


def _kernel_oom_kills() -> int:
    """Processes that the kernel has ended for want of memory since the host started; 0 where it does not say."""
    try:
        counters = Path("/proc/vmstat").read_text().split()
    except OSError:
        return 0
    return int(counters[counters.index("oom_kill") + 1]) if "oom_kill" in counters else 0
