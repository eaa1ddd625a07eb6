"""The ranks: the model's shapes, and a real training by hand, without Ray and without MLflow."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import BridgeTowerForContrastiveLearning

from bridgetower_ray.cluster.supervision import ProcessGroup
from bridgetower_ray.report.flags import flags
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.plan import Plan
from bridgetower_ray.sweep.presets import PRESETS
from bridgetower_ray.training.job import Job
from bridgetower_ray.training.model import load_model, preset_config
from tests.conftest import MINI

PlanOf = Callable[[str], Plan]


def write_job(trial: Trial, folder: Path) -> Path:
    file = folder / "trial.json"
    file.write_text(Job(trial=trial, base_folder=str(folder)).model_dump_json())
    return file


def train(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bridgetower_ray.training", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def events_of(output: str) -> dict[str, list[dict[str, Any]]]:
    events: dict[str, list[dict[str, Any]]] = {}
    for line in output.splitlines():
        event = json.loads(line)
        events.setdefault(event["event"], []).append(event)
    return events


def test_a_neighbour_during_the_ceilings_is_a_flag_of_its_own(tmp_path: Path, plan_of: PlanOf) -> None:
    """A real busy process begins when the window has closed."""
    trial = plan_of(MINI.replace("ceilings: false", "ceilings: true")).trials[0]
    command = [sys.executable, "-m", "bridgetower_ray.training", str(write_job(trial, tmp_path))]
    figures: dict[str, Any] = {}
    busy: subprocess.Popen[bytes] | None = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as training:
        assert training.stdout is not None
        for line in training.stdout:
            event = json.loads(line)
            figures |= event if event["event"] in ("measured", "figures") else {}
            if event["event"] == "measured":
                busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    assert busy is not None
    busy.kill()
    busy.wait()
    assert figures["ceilings_foreign_cpu_cores"] > 0.5
    assert any(flag.endswith("cores while the ceilings were taken") for flag in flags(figures, 0))


def test_the_transformers_at_work_is_the_one_that_was_asked_for() -> None:
    assert transformers.__version__.partition(".")[0] == os.environ.get("EXPECTED_TRANSFORMERS", "4")


def test_the_large_preset_has_the_parameters_of_the_published_model() -> None:
    with torch.device("meta"):
        model = BridgeTowerForContrastiveLearning(preset_config("preset:large"))
    assert round(sum(one.numel() for one in model.parameters()) / 1e6, 1) == 866.6
    model.bridgetower.text_model.pooler = None
    assert round(sum(one.numel() for one in model.parameters()) / 1e6, 1) == 865.6


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_makes_a_valid_shape(preset: str) -> None:
    with torch.device("meta"):
        assert BridgeTowerForContrastiveLearning(preset_config(preset)).config.logit_scale_init_value == 2.6592


def test_freezing_the_text_pooler_takes_it_away() -> None:
    assert load_model("preset:tiny", None, freeze_text_pooler=True).bridgetower.text_model.pooler is None


def test_a_checkpoint_folder_loads_with_its_own_weights_and_tokenizer(tmp_path: Path, plan_of: PlanOf) -> None:
    from bridgetower_ray.data.preparation import prepare

    cell = plan_of(MINI).cells[0].cell
    saved = load_model("preset:tiny", None, freeze_text_pooler=False)
    saved.save_pretrained(tmp_path / "checkpoint")
    for file in Path(prepare(cell, tmp_path).tokenizer_folder).iterdir():
        (tmp_path / "checkpoint" / file.name).write_bytes(file.read_bytes())
    local = prepare(cell.model_copy(update={"model": "./checkpoint"}), tmp_path)
    loaded = load_model("./checkpoint", local.model_folder, freeze_text_pooler=False)
    assert local.tokenizer_folder == local.model_folder == str(tmp_path / "checkpoint")
    torch.testing.assert_close(loaded.state_dict(), saved.state_dict())


def test_a_trial_file_trains_by_hand_and_prints_json_lines(tmp_path: Path, plan_of: PlanOf) -> None:
    done = train(write_job(plan_of(MINI.replace("[0, 1]", "[0]")).trials[0], tmp_path))
    assert done.returncode == 0, done.stderr
    events = events_of(done.stdout)
    measured, environment = events["measured"][0], events["environment"][0]
    assert measured["window_steps"] == 7
    assert measured["window_samples"] == 28
    assert measured["train_samples_per_second"] == pytest.approx(28 / measured["window_seconds"])
    assert 0 < measured["data_wait_fraction"] < 1
    assert len([step for event in events["steps"] for step in event["steps"]]) == 9
    assert environment["effective"]["loader"] == "torch.utils.data.dataloader.DataLoader"
    assert environment["torch_threads"] == 1
    assert environment["data"]["samples"] == 24


def test_ceilings_come_after_the_measurement_and_are_rates_of_the_same_kind(tmp_path: Path, plan_of: PlanOf) -> None:
    text = (
        MINI.replace("ceilings: false", "ceilings: true").replace("[0, 1]", "[1]").replace("workers: 0}", "workers: 1}")
    )
    done = train(write_job(plan_of(text).trials[0], tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.index('"measured"') < done.stdout.index('"compute_ceiling_samples_per_second"')
    figures = events_of(done.stdout)["figures"]
    ceilings = {name: value for event in figures for name, value in event.items()}
    assert ceilings["compute_ceiling_samples_per_second"] > 0
    assert ceilings["loader_ceiling_samples_per_second"] > 0


def test_two_ranks_train_together_and_count_their_samples_together(tmp_path: Path, plan_of: PlanOf) -> None:
    text = MINI.replace("max_steps: 9", "max_steps: 5").replace("ceilings: false", "ceilings: true")
    text += "accelerators: {cpu: {devices: 2}}\n"
    file = write_job(plan_of(text).trials[0], tmp_path)
    group = ProcessGroup([sys.executable, "-m", "bridgetower_ray.training", str(file)], 2, tmp_path)
    events = group.wait(300)
    assert str(group.outcome) == "measured", group.log()
    measured = next(event for event in events if event["event"] == "measured")
    assert (measured["window_steps"], measured["window_samples"]) == (3, 3 * 2 * 4)
    ceilings = {name: value for event in events if event["event"] == "figures" for name, value in event.items()}
    assert ceilings["compute_ceiling_samples_per_second"] > 0
    assert ceilings["loader_ceiling_samples_per_second"] > 0


def test_a_trial_for_two_devices_started_as_one_process_says_how_to_start_it(tmp_path: Path, plan_of: PlanOf) -> None:
    trial = plan_of(MINI + "accelerators: {cpu: {devices: 2}}\n").trials[0]
    done = train(write_job(trial, tmp_path))
    assert done.returncode == 1
    assert events_of(done.stdout)["failed"][0]["reason"].endswith(
        "torchrun --nproc-per-node 2 -m bridgetower_ray.training TRIAL.json"
    )


@pytest.mark.parametrize("accelerator", ["gaudi2", "h100"])
def test_a_device_that_is_not_there_is_one_line_and_no_number(
    accelerator: str, tmp_path: Path, plan_of: PlanOf
) -> None:
    text = MINI.replace("cpu", accelerator) + f"accelerators: {{{accelerator}: {{devices: 1}}}}\n"
    done = train(write_job(plan_of(text).trials[0], tmp_path))
    events = events_of(done.stdout)
    assert done.returncode == 1
    assert events["failed"][0]["kind"] == "failed"
    assert "measured" not in events
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("lazy", "value"), [("true", "1"), ("false", "0")])
def test_gaudis_mode_is_in_the_environment_before_torch_is_imported(
    lazy: str, value: str, tmp_path: Path, plan_of: PlanOf
) -> None:
    text = MINI.replace("cpu", "gaudi2").replace("max_steps: 9", f"max_steps: 9, use_lazy_mode: {lazy}")
    file = write_job(plan_of(text).trials[0], tmp_path)
    code = (
        "import os, sys; from pathlib import Path; from bridgetower_ray.training.job import Job;"
        "from bridgetower_ray.training.before_imports import settle;"
        f"settle(Job.read(Path({str(file)!r})).trial, 0);"
        "print(os.environ['PT_HPU_LAZY_MODE'], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == [value, "False"], done.stderr


def test_out_of_memory_is_told_apart_from_other_failures(tmp_path: Path, plan_of: PlanOf) -> None:
    """The large preset does not fit into 3 GiB: torch's own allocator fails."""
    limit = 3 * 2**30
    file = write_job(plan_of(MINI.replace("preset:tiny", "preset:large")).trials[0], tmp_path)
    code = (
        f"import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}));"
        f"sys.argv = ['training', {str(file)!r}]; runpy.run_module('bridgetower_ray.training', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300, env=os.environ
    )
    assert done.returncode != 0
    assert events_of(done.stdout)["failed"][0]["kind"] == "out_of_memory", done.stderr[-2000:]


@pytest.mark.parametrize(("content", "message"), [("{}", "no trial"), (None, "No such file")])
def test_a_file_that_is_no_trial_is_one_line_and_status_two(content: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "trial.json"
    if content is not None:
        file.write_text(content)
    done = train(file)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("module", "status"), [("bridgetower_ray.training", 2), ("bridgetower_ray.training.prepare", 1)]
)
def test_a_process_of_a_trial_leaves_though_a_librarys_thread_would_hold_it(module: str, status: int) -> None:
    code = (
        "import runpy, sys, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        f"sys.argv = ['x', '/absent/trial.json']; runpy.run_module({module!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == status
    assert "/absent/trial.json: No such file or directory" in done.stderr


def test_torch_still_makes_storage_that_crosses_to_another_process_without_a_copy() -> None:
    """A private interface: the version that takes it away turns this red."""
    try:
        storage = torch.UntypedStorage._new_shared(16)
    except AttributeError:
        pytest.fail(f"torch {torch.__version__} has no UntypedStorage._new_shared")
    assert storage.is_shared()
    assert len(storage) == 16
