"""The real optimum-habana under our backend: trained on a CPU, and its HPU arguments as far as no chip is needed."""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from optimum.habana import GaudiTrainer, GaudiTrainingArguments

from bridgetower_ray.data.preparation import prepare
from bridgetower_ray.errors import TrialError
from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.sweep.plan import make_plan
from bridgetower_ray.sweep.spec import load_spec
from bridgetower_ray.training.autocast_lists import AUTOCAST_LISTS, declare_autocast_lists
from bridgetower_ray.training.backends.choice import backend_for
from bridgetower_ray.training.backends.gaudi import GaudiBackend, write_gaudi_config
from bridgetower_ray.training.backends.standard import TorchBackend
from bridgetower_ray.training.edges import Edges
from bridgetower_ray.training.events import Events
from bridgetower_ray.training.meter import Meter
from bridgetower_ray.training.model import load_model
from bridgetower_ray.training.samples import make_samples
from bridgetower_ray.training.trainer import trainer_for
from bridgetower_ray.training.variables import forget_unheard
from tests.conftest import SWEEPS
from tests.training.gaudi.conftest import Native, NativeModule

TrialOf = Callable[..., Trial]


@pytest.fixture
def hpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Stands in for `torch.hpu` and the bridge; the calls that matter, in order."""
    calls: list[str] = []
    device = NativeModule("torch.hpu")
    vars(device).update(
        is_available=lambda: True,
        device_count=lambda: 2,
        current_device=lambda: 0,
        synchronize=lambda: calls.append("synchronize"),
        get_device_name=lambda: "GAUDI2",
        max_memory_allocated=lambda: 7,
    )
    monkeypatch.setattr(torch, "hpu", device, raising=False)
    core = importlib.import_module("habana_frameworks.torch.core")
    monkeypatch.setitem(vars(core), "mark_step", lambda: calls.append("mark_step"))
    _forget_devices()
    yield calls
    monkeypatch.undo()
    _forget_devices()


def _forget_devices() -> None:
    """What accelerate remembers of the devices there are."""
    from accelerate.state import AcceleratorState
    from accelerate.utils import imports

    imports.is_hpu_available.cache_clear()
    AcceleratorState._reset_state(reset_partial_state=True)


def test_the_real_gaudi_trainer_trains_under_our_meter(on_cpu: None, trial_of: TrialOf, run: Any) -> None:
    events = {event["event"]: event for event in run(trial_of())}
    assert events["environment"]["effective"]["trainer"] == "AveragingGaudiTrainer"
    assert events["environment"]["effective"]["precision"] == "float32"
    assert (events["measured"]["window_steps"], events["measured"]["window_samples"]) == (7, 28)
    assert events["measured"]["train_samples_per_second"] > 0
    # On a device that computes while the host goes on, a fetch is no wait for data.
    assert not {"host_fetch_fraction", "data_wait_fraction"} & events["measured"].keys()


def test_bf16_is_told_though_the_gaudi_trainer_turns_the_argument_off(
    on_cpu: None, trial_of: TrialOf, run: Any
) -> None:
    """Before the training what is set up, after it what the pass ran in: the HPU's autocast does nothing on a CPU."""
    environments = [event for event in run(trial_of(bf16=True)) if event["event"] == "environment"]
    precisions = [event["effective"]["precision"] for event in environments]
    assert precisions == ["bf16 autocast", "float32"]


def test_ceilings_are_measured_on_the_gaudi_trainer_too(on_cpu: None, trial_of: TrialOf, run: Any) -> None:
    trial = trial_of(dataloader_num_workers=1)
    with_ceilings = trial.cell.model_copy(update={"measure": trial.cell.measure.model_copy(update={"ceilings": True})})
    events = run(trial.model_copy(update={"cell": with_ceilings}))
    figures = {name: value for event in events if event["event"] == "figures" for name, value in event.items()}
    assert figures["compute_ceiling_samples_per_second"] > 0


def test_its_own_throughput_and_ours_agree_where_their_windows_do(
    trial_of: TrialOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GaudiTrainer's window opens after the fetch of its first step, ours before it: that fetch is taken out."""
    cell = trial_of(max_steps=60).cell
    prepared = prepare(cell, tmp_path)
    backend = GaudiBackend(on_hpu=False)
    arguments = backend.arguments(cell, 60, tmp_path)
    meter = Meter(cell.warmup_steps, 60, lambda: None, clock=time.time)
    model = load_model(cell.model, None, freeze_text_pooler=True)
    trainer = trainer_for(backend, arguments, meter, model, make_samples(cell, prepared, 64))
    assert isinstance(trainer, GaudiTrainer)
    theirs = trainer.train().metrics["train_samples_per_second"]
    window = meter.window()
    ours = sum(step.samples for step in window.steps) / (window.seconds - window.steps[0].fetch_seconds)
    assert theirs == pytest.approx(ours, rel=0.05)


def test_the_real_arguments_take_every_flag_of_the_published_run(
    hpu: list[str], trial_of: TrialOf, tmp_path: Path
) -> None:
    """The flags as `sweeps/blog.yaml` has them."""
    blog = make_plan(load_spec(SWEEPS / "blog.yaml")[0])
    cell = next(one.cell for one in blog.cells if one.setting == "gaudi2 · workers=0")
    arguments = GaudiBackend().arguments(cell, 9, tmp_path)
    assert isinstance(arguments, GaudiTrainingArguments)
    assert arguments.device.type == "hpu"
    assert (arguments.use_habana, arguments.use_lazy_mode, arguments.use_hpu_graphs_for_inference) == (True, True, True)
    assert (arguments.sdp_on_bf16, arguments.bf16, arguments.throughput_warmup_steps) == (True, True, 3)
    assert (arguments.per_device_train_batch_size, arguments.max_steps, arguments.learning_rate) == (48, 9, 1e-5)
    assert arguments.report_to == []


def test_the_real_arguments_take_compilation(hpu: list[str], trial_of: TrialOf, tmp_path: Path) -> None:
    trial = trial_of(use_lazy_mode=False, torch_compile_backend="hpu_backend")
    arguments = GaudiBackend().arguments(trial.cell, 9, tmp_path)
    assert (arguments.torch_compile, arguments.torch_compile_backend, arguments.use_lazy_mode) == (
        True,
        "hpu_backend",
        False,
    )


def test_ranks_meet_through_hccl(
    hpu: list[str], trial_of: TrialOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as it goes without a chip: the environment that our supervisor gives, and the call that is made."""
    from bridgetower_ray.cluster.rank_environment import rank_environment

    variables = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    given = rank_environment({}, rank=1, ranks=2, master_port=29500)
    for name in variables:
        monkeypatch.setenv(name, given[name])
    met: list[Any] = []
    monkeypatch.setattr(
        torch.distributed,
        "init_process_group",
        lambda **how: met.append((how["backend"], *(os.environ[name] for name in variables))),
    )
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *_: int(os.environ["WORLD_SIZE"]))
    monkeypatch.setattr(torch.distributed, "get_rank", lambda *_: int(os.environ["RANK"]))
    monkeypatch.setattr(torch.distributed, "new_group", lambda *_, **__: Native())
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: bool(met))
    GaudiBackend().arguments(trial_of().cell, 9, tmp_path)
    assert met == [("hccl", "1", "1", "2", "127.0.0.1", "29500")]
    assert "habana_frameworks.torch.distributed.hccl" in sys.modules


def test_the_offline_configuration_is_the_published_one_but_for_what_the_sweep_says(
    trial_of: TrialOf, tmp_path: Path
) -> None:
    def config(**training: Any) -> dict[str, Any]:
        written: dict[str, Any] = json.loads(
            (write_gaudi_config(trial_of(**training).cell, tmp_path) / "gaudi_config.json").read_text()
        )
        return written

    assert config() == {"use_fused_adam": True, "use_fused_clip_norm": True, "use_torch_autocast": False}
    assert config(optim="adafactor")["use_fused_adam"] is False


def test_a_configuration_that_can_not_be_had_is_one_line(
    trial_of: TrialOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(TrialError, match="gaudi_config_name: Habana/absent cannot be had: "):
        write_gaudi_config(trial_of(gaudi_config_name="Habana/absent").cell, tmp_path)


@pytest.mark.parametrize(("lazy", "calls"), [(True, ["mark_step", "synchronize"]), (False, ["synchronize"])])
def test_the_device_is_brought_to_rest_as_its_mode_wants(
    lazy: bool, calls: list[str], hpu: list[str], trial_of: TrialOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1" if lazy else "0")
    backend = GaudiBackend()
    backend.arguments(trial_of(use_lazy_mode=lazy).cell, 9, tmp_path)
    hpu.clear()
    backend.synchronize()
    assert hpu == calls
    assert (backend.device_name(), backend.peak_memory_bytes()) == ("GAUDI2", 7)


def test_graphs_compiled_inside_the_window_are_counted(hpu: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([[("TotalNumber", 3), ("TotalTime", 9)], [("TotalNumber", 5), ("TotalTime", 9)]])
    metric = Native()
    vars(metric)["stats"] = lambda: next(counts)
    metrics = importlib.import_module("habana_frameworks.torch.hpu.metrics")
    asked = {"graph_compilation": metric}
    monkeypatch.setitem(vars(metrics), "metric_global", lambda name: asked[name])
    edges = Edges(GaudiBackend(), Events(rank=0))
    edges.settle()
    edges.settle()
    assert edges.counted() == {"graph_compilations": 2}


def test_operations_left_to_the_host_inside_the_window_are_counted(
    hpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"graph_compilation": iter([3, 3]), "cpu_fallback": iter([1, 5])}

    def metric_global(name: str) -> Any:
        metric = Native()
        vars(metric)["stats"] = lambda: [("TotalNumber", next(counts[name])), ("FallbackOps", "")]
        return metric

    metrics = importlib.import_module("habana_frameworks.torch.hpu.metrics")
    monkeypatch.setitem(vars(metrics), "metric_global", metric_global)
    edges = Edges(GaudiBackend(), Events(rank=0))
    edges.settle()
    edges.settle()
    assert edges.counted() == {"graph_compilations": 0, "cpu_fallbacks": 4}


def test_an_accumulated_update_is_the_standard_trainers(trial_of: TrialOf, tmp_path: Path) -> None:
    """A plain sum of the accumulated gradients would be twice as large: plain SGD would show it in one step."""
    forget_unheard()  # accelerate's, which arguments that compile leave behind

    def weights_after_a_step(backend: Any) -> dict[str, torch.Tensor]:
        cell = trial_of(gradient_accumulation_steps=2, max_steps=3, learning_rate=0.1).cell
        arguments = backend.arguments(cell, 1, tmp_path)
        arguments.optim, arguments.max_grad_norm, arguments.lr_scheduler_type = "sgd", 0.0, "constant"
        backend.set_seed(7)
        model = load_model(cell.model, None, freeze_text_pooler=True)
        samples = make_samples(cell, prepare(cell, tmp_path), 64)
        model.eval()  # no dropout: both draw alike, but from generators of their own
        meter = Meter(0, 1, lambda: None)
        trainer_for(backend, arguments, meter, model, samples).train()
        return {name: value.detach().clone() for name, value in model.named_parameters()}

    gaudi, standard = weights_after_a_step(GaudiBackend(on_hpu=False)), weights_after_a_step(TorchBackend("cpu"))
    for name, value in standard.items():
        torch.testing.assert_close(gaudi[name], value, rtol=1e-4, atol=1e-6, msg=name)


def test_a_configurations_own_lists_are_declared_before_the_bridge_is_imported(
    hpu: list[str], trial_of: TrialOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`GaudiConfig` itself raises once the bridge is there, as it is by the time the arguments are made."""
    for variable in AUTOCAST_LISTS.values():
        monkeypatch.setenv(variable, "")
    lists = {"autocast_bf16_ops": ["addmm", "bmm"], "autocast_fp32_ops": ["softmax"]}
    (tmp_path / "gaudi_config.json").write_text(json.dumps({"use_fused_adam": True, **lists}))
    declare_autocast_lists(str(tmp_path))
    assert Path(os.environ["PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST"]).read_text() == "addmm\nbmm\n"
    assert Path(os.environ["PT_HPU_AUTOCAST_FP32_OPS_LIST"]).read_text() == "softmax\n"
    assert "habana_frameworks.torch.core" in sys.modules
    cell = trial_of(bf16=True, gaudi_config_name=str(tmp_path)).cell
    arguments = GaudiBackend().arguments(cell, 9, tmp_path / "scratch")
    assert isinstance(arguments, GaudiTrainingArguments)


def test_what_else_a_gaudi_may_be_swept_over_reaches_the_real_arguments(
    hpu: list[str], trial_of: TrialOf, tmp_path: Path
) -> None:
    cell = trial_of(pipelining_fwd_bwd=True, dataloader_non_blocking=True).cell
    both = cell.training.model_copy(update={"distribution_strategy": "fast_ddp", "ddp_bucket_cap_mb": 64})
    arguments = GaudiBackend().arguments(cell.model_copy(update={"training": both}), 9, tmp_path)
    assert isinstance(arguments, GaudiTrainingArguments)
    assert (arguments.distribution_strategy, arguments.pipelining_fwd_bwd) == ("fast_ddp", True)
    assert (arguments.ddp_bucket_cap_mb, arguments.accelerator_config.non_blocking) == (64, True)
    assert GaudiBackend().arguments(trial_of().cell, 9, tmp_path).ddp_bucket_cap_mb == 230


def test_a_host_whose_torch_sees_no_hpu_is_one_line(
    hpu: list[str], trial_of: TrialOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    vars(vars(torch)["hpu"])["is_available"] = lambda: False
    with pytest.raises(TrialError, match=r"Gaudi2 HPU: torch \S+ sees no HPU on this host"):
        backend_for(trial_of().cell)
