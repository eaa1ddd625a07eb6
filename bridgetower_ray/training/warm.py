"""`python -m bridgetower_ray.training.warm SOCKET TRIAL.json`: import what a rank needs once, then fork ranks from it.

A rank that is forked finds everything imported and nothing else done: no device is open, no thread runs, no random
number was drawn, and no rank leaves anything behind for the next. It is handed on to the supervisor, as a child like
one that the supervisor started itself. What every rank of this process shares, and cold ones do not, is the seed of
Python's hashes and where libraries lie in memory.
"""

import ctypes
import json
import os
import re
import runpy
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from bridgetower_ray.doctor.conditions import HUGE_PAGES
from bridgetower_ray.doctor.kernel_files import content
from bridgetower_ray.doctor.software import git_commit, library_versions, source_hash
from bridgetower_ray.errors import BridgetowerRayError
from bridgetower_ray.training.before_imports import settle
from bridgetower_ray.training.compile_caches import COMPILE_CACHES
from bridgetower_ray.training.events import EVENTS_FD
from bridgetower_ray.training.job import Job
from bridgetower_ray.training.supervised import PROCESS_START, die_with_parent, leave

NAME = "bt-ray-warm"  # of the process, of 15 characters at most; a rank's is as that of a cold one
LONGEST_REQUEST = 2**17
DESCRIPTORS = 3
DEVICES = ("/dev/nvidia", "/dev/accel", "/dev/dri", "/dev/kfd", "/dev/hl")
OWN_NAME = Path("/proc/self/comm")
MADV_POPULATE_WRITE = 23
WRITABLE_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw.p .*?^Anonymous: +(\d+) kB", re.MULTILINE | re.DOTALL)
ARGUMENTS_AT = (45, 46)  # in /proc/self/stat after the name: `arg_start` and `arg_end` of proc(5)
AtStart = tuple[str, dict[str, str]]  # a process's name and its environment
NO_THREAD = "JE_ARROW_MALLOC_CONF"


def main() -> int:
    """Serve until the supervisor closes the socket; exit status 1 if what a rank needs cannot be imported."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    die_with_parent()
    name, began = OWN_NAME.read_text().strip(), dict(os.environ)
    OWN_NAME.write_text(NAME)
    try:
        settle(Job.read(Path(sys.argv[2])).trial, 0)
        _import_all(began)
    except (BridgetowerRayError, ImportError) as error:
        _say(channel, refusal=f"{type(error).__name__}: {error}".splitlines()[0])
        return 1
    _say(channel, refusal=what_forbids_a_fork())
    while request := _next_request(channel):
        told, descriptors = request
        reason = what_forbids_a_fork()
        if reason:
            _say(channel, refusal=reason)
        else:
            _fork(channel, told, descriptors, (name, began))
        for descriptor in descriptors:
            os.close(descriptor)
    return 0


def _import_all(began: dict[str, str]) -> None:
    """Import what a rank does, without the thread that Arrow's allocator would have: a fork leaves it behind anyway."""
    for state_of_the_code in (source_hash, git_commit, library_versions):
        state_of_the_code()  # of what is imported now, whatever becomes of the files
    os.environ.setdefault(NO_THREAD, "background_thread:false")
    import bridgetower_ray.training.worker  # noqa: F401 - imported for those who are forked

    for name in (NO_THREAD, *COMPILE_CACHES):  # the one is for here, the others are each rank's own
        _set(name, began.get(name))


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _say(channel: socket.socket, **answer: Any) -> None:
    channel.send(json.dumps(answer).encode())


def _next_request(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """What a rank is to be, and the descriptors that it writes its events and its output to; None at the end."""
    message, descriptors, _, _ = socket.recv_fds(channel, LONGEST_REQUEST, DESCRIPTORS)
    return (json.loads(message), descriptors) if message else None


def what_forbids_a_fork() -> str:
    """Why no rank can be forked from this process; empty if one can.

    Threads that mind forks, as OpenBLAS's, end before one and begin anew after it: those that are left after a first
    fork are no such.
    """
    middle = os.fork()
    if middle == 0:
        os._exit(0)
    os.waitpid(middle, 0)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        return f"{threads} threads run once all is imported"
    if "[always]" in content(HUGE_PAGES):
        return "transparent huge pages are always on: a fork would take them from the memory it shares"
    opened = sorted(one for one in map(_opened, Path("/proc/self/fd").iterdir()) if one.startswith(DEVICES))
    return f"{opened[0]} is open once all is imported" if opened else ""


def _opened(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""  # the one that the list was read through


def _fork(channel: socket.socket, told: dict[str, Any], descriptors: list[int], at_start: AtStart) -> None:
    """Fork a rank by way of a process that ends at once, so that the supervisor becomes its parent."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        rank = _fork_into(told["group"], writer)
        if rank != 0:
            os._exit(0)
        for other in (reader, writer, channel.detach()):
            os.close(other)
        _wait_until_taken(descriptors[2])
        _run(told, descriptors, at_start)
    os.close(writer)
    os.waitpid(middle, 0)
    with os.fdopen(reader) as said:
        answer = said.read()
    _say(channel, **({"pid": int(answer)} if answer.isdigit() else {"refusal": answer or "the fork was killed"}))


def _fork_into(group: int, writer: int) -> int:
    """Fork a process into a group, 0 for its own, and write its pid; 0 in that process."""
    rank = -1
    try:
        rank = os.fork()
        if rank != 0:
            os.setpgid(rank, group)
            os.write(writer, str(rank).encode())
    except OSError as error:
        if rank > 0:
            os.kill(rank, signal.SIGKILL)
            os.waitpid(rank, 0)
        os.write(writer, f"no rank can be forked: {error.strerror}".encode())
    return rank


def _wait_until_taken(go: int) -> None:
    """Go on once the supervisor is this rank's parent and knows of it; end if it has given up waiting for it."""
    if not os.read(go, 1):
        os._exit(0)
    os.close(go)


def _become_a_rank(told: dict[str, Any], descriptors: list[int], at_start: AtStart) -> None:
    """Be as a process that was started with this environment and has imported what this one has."""
    (events, log, _), (name, began) = descriptors, at_start
    OWN_NAME.write_text(name)
    for output in (1, 2):
        os.dup2(log, output)
    os.close(log)
    os.set_inheritable(events, True)
    os.chdir(told["folder"])
    _be_listed_as([sys.executable, "-m", told["module"], *told["arguments"]])
    _change_environment(began, told["environment"])
    _own_memory()
    os.environ |= {EVENTS_FD: str(events), PROCESS_START: "warm"}
    tempfile.tempdir = None


def _be_listed_as(command: list[str]) -> None:
    """Have `ps` show the command that a cold rank would have, as far as it fits where this process's own stands."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = (int(fields[place]) for place in ARGUMENTS_AT)
    text = b"".join(part.encode() + b"\0" for part in command)[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))


def _own_memory() -> None:
    """Copy what is still shared with the process this one is forked from, lest steps in the window wait for that.

    Mappings of which little is in use are passed over. A kernel before 5.14 copies each page when it is first written.
    """
    libc = ctypes.CDLL(None)
    for place, size in _mappings_in_use(Path("/proc/self/smaps").read_text()):
        libc.madvise(ctypes.c_void_p(place), ctypes.c_size_t(size), MADV_POPULATE_WRITE)


def _mappings_in_use(smaps: str) -> Iterator[tuple[int, int]]:
    """Address and bytes of the private writable mappings of which half or more is in memory."""
    for first, last, kilobytes in WRITABLE_MAPPING.findall(smaps):
        place, size = int(first, 16), int(last, 16) - int(first, 16)
        if 2 * 1024 * int(kilobytes) >= size:
            yield place, size


def _change_environment(began: dict[str, str], wanted: dict[str, str]) -> None:
    """Make of this process's environment what it would be had it begun with `wanted`: libraries have added to it."""
    for variable in {*began, *wanted}:
        if began.get(variable) != wanted.get(variable):
            _set(variable, wanted.get(variable))


def _run(told: dict[str, Any], descriptors: list[int], at_start: AtStart) -> NoReturn:
    """As `python -m MODULE ARGUMENTS` with the environment and the outputs that the rank is told of."""
    status = 1
    try:
        _become_a_rank(told, descriptors, at_start)
        sys.argv = [told["module"], *told["arguments"]]
        runpy.run_module(told["module"], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        traceback.print_exc()
    leave(status)


if __name__ == "__main__":
    leave(main())
