"""Ranks forked from a warm process: real ones, with all imported that a rank needs."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bridgetower_ray.cluster import warm_process
from bridgetower_ray.cluster.rank_environment import handed_to_ranks, rank_environment
from bridgetower_ray.cluster.supervision import ProcessGroup
from bridgetower_ray.cluster.warm_process import Forked, NotForkedError, WarmProcess
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.sweep.plan import Plan
from bridgetower_ray.training.job import Job
from tests.conftest import ONE_CELL

PlanOf = Callable[[str], Plan]

SHARED_KILOBYTES = 40_000  # a tenth of what a rank has imported
# What a rank says of itself, as the module that it is started as.
LOOK = """
import json, os, resource, signal, sys, tempfile, threading
from bridgetower_ray.training.supervised import die_with_supervisor, leave
die_with_supervisor()
umask = os.umask(0)
os.umask(umask)
said = {
    "environment": dict(os.environ),
    "niceness": os.getpriority(os.PRIO_PROCESS, 0),
    "policy": os.sched_getscheduler(0),
    "affinity": sorted(os.sched_getaffinity(0)),
    "umask": umask,
    "limits": {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")},
    "oom": open("/proc/self/oom_score_adj").read(),
    "blocked": sorted(int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "ignored": sorted(int(one) for one in signal.valid_signals() if signal.getsignal(one) == signal.SIG_IGN),
    "folder": os.getcwd(),
    "temporary": tempfile.gettempdir(),
    "name": open("/proc/self/comm").read(),
    "listed": open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0)),
    "input": os.readlink("/proc/self/fd/0"),
    "leads": os.getpgid(0) == os.getpid(),
    "parent": os.getppid(),
    "threads": len(os.listdir("/proc/self/task")),
    "main": __spec__.name,
    "descriptors": sorted(os.readlink(f"/proc/self/fd/{n}").partition(":")[0] for n in os.listdir("/proc/self/fd")
                          if int(n) > 2 and os.path.exists(f"/proc/self/fd/{n}")),
    "imported": "torch" in sys.modules,
    "shared_kilobytes": int(open("/proc/self/smaps_rollup").read().partition("Shared_Dirty:")[2].split()[0]),
}
with os.fdopen(int(os.environ["BRIDGETOWER_RAY_EVENTS_FD"]), "w") as events:
    events.write(json.dumps({"event": "said", **said}) + chr(10))
print("said it")
leave(0)
"""


@pytest.fixture
def job_file(plan_of: PlanOf, tmp_path: Path) -> Path:
    file = tmp_path / "trial.json"
    file.write_text(Job(trial=plan_of(ONE_CELL).trials[0], base_folder=str(tmp_path)).model_dump_json())
    return file


@contextlib.contextmanager
def warm_from(job_file: Path) -> Iterator[WarmProcess]:
    """A warm process, ready or not to be."""
    one = WarmProcess(sys.executable, job_file, environment_in(job_file.parent))
    try:
        assert one.settled(100)
        yield one
    finally:
        one.end()


def environment_in(folder: Path) -> dict[str, str]:
    return rank_environment(handed_to_ranks(sys.executable, folder), 0, 1, 0)


@pytest.fixture
def module_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Code -> the command that runs it as a module."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    (tmp_path / "modules").mkdir()

    def write(code: str) -> list[str]:
        (tmp_path / "modules" / "rank_code.py").write_text(code)
        return [sys.executable, "-m", "rank_code", str(tmp_path / "trial.json")]

    return write


def said_by(group: ProcessGroup) -> list[dict[str, Any]]:
    events = [event for event in group.wait(60) if event["event"] == "said"]
    assert group.outcome is not None
    assert group.outcome.kind is Kind.MEASURED, group.outcome
    return events


def test_a_warm_rank_is_for_all_purposes_one_started_cold(
    job_file: Path, module_of: Callable[[str], list[str]], tmp_path: Path
) -> None:
    command, folder = module_of(LOOK), tmp_path / "trial"
    folder.mkdir()
    (cold,) = said_by(ProcessGroup(command, 1, folder))
    with warm_from(job_file) as warm:
        assert warm.refusal == ""
        group = ProcessGroup(command, 1, folder, warm=warm)
        (forked,) = said_by(group)
    assert [cold.pop("imported"), forked.pop("imported")] == [False, True]
    assert [one.pop("shared_kilobytes") < SHARED_KILOBYTES for one in (cold, forked)] == [True, True]
    starts = [one["environment"].pop("BRIDGETOWER_RAY_PROCESS_START") for one in (cold, forked)]
    assert starts == ["cold", "warm"]
    for one in (cold, forked):  # a number of a descriptor
        assert one["environment"].pop("BRIDGETOWER_RAY_EVENTS_FD").isdigit()
    # The imports leave these behind in a cold rank, too, once it has made them.
    left = forked["environment"].keys() - cold["environment"].keys()
    assert left <= {"TOKENIZERS_PARALLELISM", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}
    cold["environment"] |= {name: forked["environment"][name] for name in left}
    assert forked == cold
    assert group.log() == "said it\n"


def test_ranks_of_one_group_are_forked_with_a_rendezvous_each(
    job_file: Path, module_of: Callable[[str], list[str]], tmp_path: Path
) -> None:
    with warm_from(job_file) as warm:
        group = ProcessGroup(module_of(LOOK), 2, tmp_path, warm=warm)
        said = said_by(group)
    assert sorted(one["environment"]["RANK"] for one in said) == ["0", "1"]
    assert {one["environment"]["WORLD_SIZE"] for one in said} == {"2"}
    assert sorted(one["leads"] for one in said) == [False, True]
    assert {one["parent"] for one in said} == {os.getpid()}


def test_where_a_later_rank_can_not_be_forked_all_start_cold_and_the_node_is_not_to_blame(
    job_file: Path, module_of: Callable[[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork, forked = WarmProcess.fork, []

    def fails_once(warm: WarmProcess, *arguments: Any) -> Forked:
        if forked:
            raise NotForkedError("no memory")
        forked.append(fork(warm, *arguments))
        return forked[0]

    monkeypatch.setattr(WarmProcess, "fork", fails_once)
    with warm_from(job_file) as warm:
        group = ProcessGroup(module_of(LOOK), 2, tmp_path, warm=warm)
        said = said_by(group)
    assert {one["environment"]["BRIDGETOWER_RAY_PROCESS_START"] for one in said} == {"cold: no memory"}
    assert sorted(one["environment"]["RANK"] for one in said) == ["0", "1"]
    assert not group.whole_node
    assert not psutil.pid_exists(forked[0].pid)


def test_caches_of_compiled_graphs_are_each_ranks_own(
    plan_of: PlanOf, module_of: Callable[[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warm process was told of one for its own trial, and torch has named another while it was imported."""
    caches = {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
    for variable in caches:  # torch, imported here, has named its own
        monkeypatch.delenv(variable, raising=False)
    trial = plan_of(ONE_CELL.replace("max_steps: 9", "max_steps: 9, torch_compile: true")).trials[0]
    (tmp_path / "trial.json").write_text(Job(trial=trial, base_folder=str(tmp_path)).model_dump_json())
    with warm_from(tmp_path / "trial.json") as warm:
        (said,) = said_by(ProcessGroup(module_of(LOOK), 1, tmp_path, warm=warm))
    assert not caches & said["environment"].keys()


def test_a_rank_killed_before_it_is_one_has_failed_and_none_starts_in_its_place(
    job_file: Path, module_of: Callable[[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warm_from(job_file) as warm:
        answered = warm._answer

        def and_killed(seconds: float) -> dict[str, Any] | None:
            answer = answered(seconds)
            assert answer is not None
            os.kill(answer["pid"], signal.SIGKILL)
            return answer

        monkeypatch.setattr(warm, "_answer", and_killed)
        group = ProcessGroup(module_of("raise SystemExit('it ran')"), 1, tmp_path, warm=warm)
        group.wait(60)
        assert group.outcome is not None
        assert group.outcome.reason == "rank 0 was killed by SIGKILL"
        assert warm.refusal == ""


def test_exit_statuses_signals_and_last_lines_of_warm_ranks_count(
    job_file: Path, module_of: Callable[[str], list[str]], tmp_path: Path
) -> None:
    with warm_from(job_file) as warm:
        reasons = []
        for code in ("[][1]", "raise SystemExit('gave up')", "import os; os.kill(os.getpid(), 9)"):
            group = ProcessGroup(module_of(code), 1, tmp_path, warm=warm)
            group.wait(60)
            assert group.outcome is not None
            reasons.append(group.outcome.reason)
    assert reasons == ["IndexError: list index out of range", "gave up", "rank 0 was killed by SIGKILL"]


def test_a_stopped_group_of_warm_ranks_leaves_no_process_and_no_zombie(
    job_file: Path, module_of: Callable[[str], list[str]], tmp_path: Path
) -> None:
    code = """
import os, time
if os.fork() == 0 and os.fork() == 0:
    os.write(int(os.environ["BRIDGETOWER_RAY_EVENTS_FD"]), b'{"event": "ready"}\\n')
time.sleep(600)
"""
    with warm_from(job_file) as warm:
        before = {one.pid for one in psutil.Process().children(recursive=True)}
        group = ProcessGroup(module_of(code), 1, tmp_path, warm=warm)
        while not group.wait(0.2):
            assert group.outcome is None
        assert len({one.pid for one in psutil.Process().children(recursive=True)} - before) == 3
        group.stop("enough")
        assert {one.pid for one in psutil.Process().children(recursive=True)} == before


def test_a_warm_process_and_its_ranks_end_with_their_supervisor(
    job_file: Path, module_of: Callable[[str], list[str]], tmp_path: Path
) -> None:
    command = module_of(
        "import os, time\nfrom bridgetower_ray.training.supervised import die_with_supervisor\n"
        "die_with_supervisor()\n"
        """os.write(int(os.environ["BRIDGETOWER_RAY_EVENTS_FD"]), b'{"event": "ready"}\\n')\ntime.sleep(600)"""
    )
    code = f"""
import os, sys, time
from pathlib import Path
from bridgetower_ray.cluster.supervision import ProcessGroup
from tests.cluster.test_warm_process import environment_in, warm_from
with warm_from(Path({str(job_file)!r})) as warm:
    group = ProcessGroup({command!r}, 1, Path({str(tmp_path)!r}), warm=warm)
    while not group.wait(0.2):
        pass
    print(warm._process.pid, *group.pids, flush=True)
    time.sleep(600)
"""
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    ended_with_it = [psutil.Process(int(pid)) for pid in supervisor.stdout.readline().split()]
    assert len(ended_with_it) == 2
    supervisor.kill()
    supervisor.wait()
    _, alive = psutil.wait_procs(ended_with_it, timeout=30)
    assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []


def test_a_process_with_threads_of_its_own_forks_none_and_the_rank_starts_cold(
    job_file: Path, module_of: Callable[[str], list[str]], tmp_path: Path
) -> None:
    command = module_of(LOOK)
    (tmp_path / "modules" / "sitecustomize.py").write_text(
        "import sys, threading, time\nif 'bridgetower_ray.training.warm' in sys.orig_argv:\n"
        "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    with warm_from(job_file) as warm:
        assert warm.refusal == "2 threads run once all is imported"
        (rank,) = said_by(ProcessGroup(command, 1, tmp_path, warm=warm))
    assert rank["imported"] is False
    assert rank["environment"]["BRIDGETOWER_RAY_PROCESS_START"] == "cold: 2 threads run once all is imported"


@pytest.mark.parametrize(
    ("disturbed", "reason"),
    [
        ('warm.DEVICES = ("/dev/zero",); held = open("/dev/zero")', "/dev/zero is open once all is imported"),
        ('import pathlib; warm.HUGE_PAGES = pathlib.Path("pages")', "transparent huge pages are always on: a fork"),
    ],
)
def test_a_process_that_would_not_be_as_a_cold_one_forks_none(disturbed: str, reason: str, folder: Path) -> None:
    """Another file of the device folder stands for an accelerator, a file of ours for the kernel's."""
    (folder / "pages").write_text("[always] madvise never")
    code = f"from bridgetower_ray.training import warm\n{disturbed}\nprint(warm.what_forbids_a_fork())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(reason)


def test_an_interpreter_without_what_ranks_need_says_so(
    job_file: Path, module_of: Callable[[str], list[str]], tmp_path: Path
) -> None:
    module_of("")
    (tmp_path / "modules" / "torch.py").write_text("raise ImportError('no torch here')")
    with warm_from(job_file) as warm:
        assert warm.refusal == "ImportError: no torch here"
        assert not warm.lost


def test_a_warm_process_that_was_killed_is_lost_and_the_rank_starts_cold(
    job_file: Path, module_of: Callable[[str], list[str]], tmp_path: Path
) -> None:
    with warm_from(job_file) as warm:
        os.kill(warm._process.pid, signal.SIGKILL)
        (rank,) = said_by(ProcessGroup(module_of(LOOK), 1, tmp_path, warm=warm))
        assert warm.lost
    assert rank["environment"]["BRIDGETOWER_RAY_PROCESS_START"].startswith("cold: the warm process ")


def test_a_warm_process_that_takes_too_long_is_not_waited_for(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_process, "IMPORT_SECONDS", 0.1)
    with warm_from(job_file) as warm:
        assert warm.refusal == "the warm process was not ready within 0.1 s"
