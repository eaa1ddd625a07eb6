"""Process groups: real processes, killed for real."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest

from bridgetower_ray.cluster import rendezvous, supervision
from bridgetower_ray.cluster.rank_environment import rank_environment
from bridgetower_ray.cluster.rendezvous import RendezvousPort
from bridgetower_ray.cluster.supervision import ProcessGroup
from bridgetower_ray.sweep.outcomes import LONGEST_REASON, Kind

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
os.write(int(os.environ["BRIDGETOWER_RAY_EVENTS_FD"]), b'{"event": "ready", "pid": %d}\\n' % os.getpid())
time.sleep(600)
"""


def group(code: str, folder: Path, ranks: int = 1, timeout_seconds: float | None = None) -> ProcessGroup:
    return ProcessGroup([sys.executable, "-c", code], ranks, folder, timeout_seconds=timeout_seconds)


def wait_for_end(one: ProcessGroup) -> Kind:
    one.wait(60)
    assert one.outcome is not None
    return one.outcome.kind


def pids_of(one: ProcessGroup, number: int) -> list[int]:
    pids: list[int] = []
    while len(pids) < number:
        pids += [event["pid"] for event in one.wait(0.2) if event["event"] == "ready"]
    return pids


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_group_whose_ranks_all_end_well_is_measured(tmp_path: Path) -> None:
    assert wait_for_end(group("pass", tmp_path, ranks=2)) is Kind.MEASURED


def test_events_arrive_in_order_and_broken_lines_are_passed_over(tmp_path: Path) -> None:
    code = """
import os
fd = int(os.environ["BRIDGETOWER_RAY_EVENTS_FD"])
os.write(fd, b'{"event": "a", "n": 1}\\nnot json\\n{"event": "a", "n": 2}\\n{"event": "a"')
"""
    assert [event["n"] for event in group(code, tmp_path).wait(60)] == [1, 2]


def test_the_real_errors_last_line_becomes_the_reason(tmp_path: Path) -> None:
    one = group("import sys; print('starting'); [][1]", tmp_path)
    assert wait_for_end(one) is Kind.FAILED
    assert one.outcome is not None
    assert one.outcome.reason == "IndexError: list index out of range"


def test_what_a_rank_says_of_its_failure_counts_before_its_log(tmp_path: Path) -> None:
    code = """
import os, sys
fd = int(os.environ["BRIDGETOWER_RAY_EVENTS_FD"])
os.write(fd, b'{"event": "failed", "kind": "out_of_memory", "reason": ""}\\n')
sys.exit(1)
"""
    assert wait_for_end(group(code, tmp_path)) is Kind.OUT_OF_MEMORY


def test_the_first_rank_to_fail_ends_the_group(tmp_path: Path) -> None:
    code = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit('rank one gave up')\ntime.sleep(600)"
    one = group(code, tmp_path, ranks=2)
    assert wait_for_end(one) is Kind.FAILED
    assert one.outcome is not None
    assert one.outcome.reason == "rank one gave up"
    assert not any(alive(pid) for pid in one.pids)


def test_a_rank_killed_by_a_signal_is_named(tmp_path: Path) -> None:
    one = group(STUBBORN, tmp_path, ranks=2)
    pids_of(one, 2)
    os.kill(one.pids[1], signal.SIGKILL)
    assert wait_for_end(one) is Kind.FAILED
    assert one.outcome is not None
    assert one.outcome.reason == "rank 1 was killed by SIGKILL"


def test_the_deadline_ends_ranks_that_ignore_sigterm_and_their_children(tmp_path: Path) -> None:
    one = group(STUBBORN, tmp_path, ranks=2, timeout_seconds=1)
    pids = pids_of(one, 4)
    assert wait_for_end(one) is Kind.TIMED_OUT
    assert not any(alive(pid) for pid in pids)


def test_stopping_a_group_leaves_no_process(tmp_path: Path) -> None:
    one = group(STUBBORN, tmp_path)
    pids = pids_of(one, 2)
    one.stop("enough")
    assert one.outcome is not None
    assert one.outcome.kind is Kind.INTERRUPTED
    assert not any(alive(pid) for pid in pids)


def test_a_rank_whose_supervisor_died_before_it_could_notice_ends() -> None:
    """Of a supervisor there is left the end of the pipe that the rank has."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    code = "from bridgetower_ray.training import supervised; supervised.die_with_supervisor(); print('trains')"
    rank = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "BRIDGETOWER_RAY_EVENTS_FD": str(write_end)},
        pass_fds=(write_end,),
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(write_end)
    assert (rank.returncode, rank.stdout) == (1, "")


def test_an_interpreter_that_is_not_there_is_a_failed_trial(tmp_path: Path) -> None:
    one = ProcessGroup(["/absent/python"], 1, tmp_path)
    assert wait_for_end(one) is Kind.FAILED


SAID_ALL = """
import os, sys, time
os.write(int(os.environ["BRIDGETOWER_RAY_EVENTS_FD"]), b'{"event": "ends"}\\n')
"""


@pytest.mark.parametrize("then", ["time.sleep(600)", "os.kill(os.getpid(), 9)", "sys.exit(3)"])
def test_ranks_that_have_said_all_are_measured_however_they_end(
    then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "LEAVE_SECONDS", 0.2)
    one = group(SAID_ALL + then, tmp_path, ranks=2, timeout_seconds=60)
    assert wait_for_end(one) is Kind.MEASURED
    assert not any(alive(pid) for pid in one.pids)


def test_last_words_that_come_after_the_exit_status_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe is read by a thread: the rank may be seen to have been killed before what it said is."""
    seen, exit_status, read = threading.Event(), supervision._exit_status, ProcessGroup._read

    def status_first(process: "subprocess.Popen[bytes]") -> int | None:
        status = exit_status(process)
        if status is not None:
            seen.set()
        return status

    def then_words(one: ProcessGroup, rank: int, read_end: int) -> None:
        seen.wait()
        read(one, rank, read_end)

    monkeypatch.setattr(supervision, "_exit_status", status_first)
    monkeypatch.setattr(ProcessGroup, "_read", then_words)
    measured = SAID_ALL.replace('{"event": "ends"}', '{"event": "measured"}\\n{"event": "ends"}')
    one = group(measured + "os.kill(os.getpid(), 9)", tmp_path)
    events = one.wait(60)
    assert one.outcome is not None
    assert (one.outcome.kind, [event["event"] for event in events]) == (Kind.MEASURED, ["measured"])


def test_a_rank_that_fails_before_the_other_has_said_all_fails_the_group(tmp_path: Path) -> None:
    code = f"import os, sys\nif os.environ['RANK'] == '1': sys.exit('gave up')\n{SAID_ALL}\ntime.sleep(600)"
    assert wait_for_end(group(code, tmp_path, ranks=2)) is Kind.FAILED


def test_temporary_files_of_the_ranks_lie_in_the_trials_folder() -> None:
    with tempfile.TemporaryDirectory(prefix="trial-") as name:
        one = group("import tempfile; print('in', tempfile.mkdtemp())", Path(name))
        wait_for_end(one)
        assert f"in {name}/" in one.log()


def test_a_folder_whose_name_is_too_long_for_sockets_holds_no_temporary_files(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 80)
    long.mkdir()
    one = group("import tempfile; print('in', tempfile.mkdtemp())", long)
    wait_for_end(one)
    assert f"in {long}" not in one.log()


def test_a_single_rank_is_told_of_no_rendezvous() -> None:
    inherited = {"RANK": "3", "MASTER_ADDR": "elsewhere", "HOME": "/home"}
    names = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    assert names & rank_environment(inherited, 0, 1, 29500).keys() == set()
    assert names <= rank_environment(inherited, 0, 2, 29500).keys()


def test_the_log_names_its_ranks(tmp_path: Path) -> None:
    one = group("import os; print('I am', os.environ['RANK'])", tmp_path, ranks=2)
    wait_for_end(one)
    assert "[rank 1]\nI am 1" in one.log()


def test_the_interpreters_own_tools_are_found_first(tmp_path: Path) -> None:
    one = group("import os; print('found in', os.environ['PATH'].split(':')[0])", tmp_path)
    wait_for_end(one)
    assert f"found in {Path(sys.executable).parent}" in one.log()


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_threads_that_ray_sets_do_not_reach_the_ranks(ranks: int) -> None:
    environment = rank_environment({"OMP_NUM_THREADS": "64"}, 0, ranks, 29500)
    assert (environment["OMP_NUM_THREADS"], environment["MKL_NUM_THREADS"]) == ("1", "1")


def test_the_stores_credentials_do_not_reach_the_ranks() -> None:
    assert "MLFLOW_TRACKING_PASSWORD" not in rank_environment({"MLFLOW_TRACKING_PASSWORD": "x"}, 0, 1, 29500)


def test_an_output_without_end_is_cut_on_the_disk_and_its_last_lines_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 4 * supervision.LOG_TAIL_BYTES
    monkeypatch.setattr(supervision, "LOG_MOST_BYTES", most)
    code = "for line in range(300_000): print('an output that goes on and on', line)\nprint('the end')"
    one = group(code, tmp_path)
    assert wait_for_end(one) is Kind.MEASURED
    assert (tmp_path / "train.log").stat().st_blocks * 512 < 300_000 * 30
    assert one.log().endswith("299999\nthe end\n")


def test_an_output_is_emptied_where_the_file_system_can_not_give_a_part_back(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_text("x" * 10_000)
    supervision._free(file, 0)  # no file system frees nothing
    assert file.stat().st_size == 0


def test_a_last_line_without_end_is_cut_in_the_reason(tmp_path: Path) -> None:
    one = group("raise SystemExit('x' * 200_000)", tmp_path)
    wait_for_end(one)
    assert one.outcome is not None
    assert len(one.outcome.reason) == LONGEST_REASON + 1


def test_a_loaders_worker_that_is_killed_for_memory_is_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter([3, *[4] * 1000])
    monkeypatch.setattr(supervision, "_kernel_oom_kills", lambda: next(kills))
    reason = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. "
    said = json.dumps({"event": "failed", "kind": "failed", "reason": reason}) + "\n"
    code = f"import os\nos.write(int(os.environ['BRIDGETOWER_RAY_EVENTS_FD']), {said.encode()!r})\nraise SystemExit(1)"
    one = group(code, tmp_path)
    assert wait_for_end(one) is Kind.OUT_OF_MEMORY


def test_two_trials_of_a_host_have_two_ports_and_one_that_ended_gives_its_back() -> None:
    ports = [RendezvousPort() for _ in range(50)]
    assert len({port.number for port in ports}) == 50
    monopolist = RendezvousPort()
    ports.append(monopolist)
    for port in ports:
        port.let_go()


def test_a_port_that_is_another_trials_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "PORTS", range(20_000, 20_002))
    first, second = RendezvousPort(), RendezvousPort()
    assert {first.number, second.number} == {20_000, 20_001}
    with pytest.raises(OSError, match="no port is free"):
        RendezvousPort()
    first.let_go()
    third = RendezvousPort()
    assert third.number == first.number
    for port in (second, third):
        port.let_go()
