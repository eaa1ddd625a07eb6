"""Gaudi's backend: optimum-habana's GaudiTrainer. Imported only where a trial runs on a Gaudi."""

import json
from pathlib import Path
from typing import Any

import torch
from optimum.habana import GaudiConfig, GaudiTrainer, GaudiTrainingArguments
from optimum.habana.utils import set_seed
from transformers import Trainer, TrainingArguments

from bridgetower_ray.errors import TrialError
from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.training.autocast_lists import AUTOCAST_LISTS, gaudi_config_file
from bridgetower_ray.training.backends.contract import common_arguments

# Contents of gaudi_config.json of Habana/clip on the hub, which the published run names.
CLIP_CONFIG = {"use_fused_adam": True, "use_fused_clip_norm": True, "use_torch_autocast": True}
METRICS = {"graph_compilations": "graph_compilation", "cpu_fallbacks": "cpu_fallback"}  # ours: the bridge's
FUSED_ADAM_STANDS_FOR = ("adamw_torch", "adamw_torch_fused")


class AveragingGaudiTrainer(GaudiTrainer):
    """GaudiTrainer whose accumulated gradients are a mean, as the standard Trainer's are.

    optimum-habana 1.21 divides the loss by the accumulation's steps only where it pipelines forward and backward passes
    in lazy mode (`GaudiTrainer.training_step`); elsewhere the update would be that of a sum.
    """

    def compute_loss(self, *arguments: Any, **named: Any) -> Any:
        loss = super().compute_loss(*arguments, **named)
        divided = self.args.use_lazy_mode and self.args.pipelining_fwd_bwd
        steps = self.current_gradient_accumulation_steps
        return loss if divided or steps == 1 else loss / steps


class GaudiBackend:
    """GaudiTrainer on HPUs; with `on_hpu=False` on a CPU, where its own code can be tried without a chip."""

    trainer_class = AveragingGaudiTrainer
    asynchronous = True

    def __init__(self, on_hpu: bool = True) -> None:
        self._on_hpu = on_hpu
        self._lazy = False

    def set_seed(self, seed: int) -> None:
        """As optimum-habana does, the HPUs' generators included."""
        set_seed(seed)

    def arguments(self, cell: Cell, total_steps: int, output_folder: Path) -> TrainingArguments:
        """As the published benchmark's Gaudi side, with the sweep's settings; on a CPU without what needs the chip.

        Raises:
            TrialError: the Gaudi configuration cannot be had.
        """
        training = cell.training
        self._lazy = self._on_hpu and training.use_lazy_mode
        common = common_arguments(cell, total_steps, output_folder) | {"throughput_warmup_steps": cell.warmup_steps}
        if not self._on_hpu:
            return GaudiTrainingArguments(**common, use_habana=False, use_lazy_mode=False, use_cpu=True)
        compiled = {"torch_compile": True, "torch_compile_backend": training.torch_compile_backend}
        return GaudiTrainingArguments(
            **common,
            use_habana=True,
            use_lazy_mode=training.use_lazy_mode,
            use_hpu_graphs_for_inference=training.use_hpu_graphs_for_inference,
            sdp_on_bf16=training.sdp_on_bf16,
            distribution_strategy=training.distribution_strategy,
            pipelining_fwd_bwd=training.pipelining_fwd_bwd,
            gaudi_config_name=str(write_gaudi_config(cell, output_folder)),
            **(compiled if training.torch_compile_backend else {}),
        )

    def trainer_arguments(self, arguments: TrainingArguments) -> dict[str, Any]:
        """The Gaudi configuration; on a CPU an empty one."""
        name = arguments.gaudi_config_name
        return {"gaudi_config": GaudiConfig.from_pretrained(name) if name else GaudiConfig()}

    def synchronize(self) -> None:
        """Have what lazy mode has collected executed, and wait for it."""
        if not self._on_hpu:
            return
        if self._lazy:
            import habana_frameworks.torch.core as htcore

            htcore.mark_step()
        torch_hpu().synchronize()

    def device_name(self) -> str:
        """The name that the HPU gives itself."""
        return str(torch_hpu().get_device_name()) if self._on_hpu else "CPU"

    def peak_memory_bytes(self) -> int | None:
        """As the HPU's allocator counts it."""
        return int(torch_hpu().max_memory_allocated()) if self._on_hpu else None

    def counters(self) -> dict[str, int]:
        """As the bridge's own metrics count them; without those that it does not have."""
        counted = {name: _metric(metric) for name, metric in METRICS.items()} if self._on_hpu else {}
        return {name: count for name, count in counted.items() if count is not None}

    def facts(self, trainer: Trainer) -> dict[str, Any]:
        """The mode, and the Gaudi configuration in use; GaudiTrainer turns `args.bf16` off and keeps it elsewhere."""
        autocast = trainer.use_hpu_amp or trainer.use_cpu_amp
        return {
            "precision": "bf16 autocast" if autocast else "float32",
            "use_lazy_mode": self._lazy,
            "sdp_on_bf16": bool(trainer.args.sdp_on_bf16),
            "distribution_strategy": trainer.args.distribution_strategy,
            "pipelining_fwd_bwd": bool(trainer.args.pipelining_fwd_bwd),
            "torch_compile_backend": trainer.args.torch_compile_backend,
            "gaudi_config": trainer.gaudi_config.to_dict(),
        }


def _metric(name: str) -> int | None:
    try:
        from habana_frameworks.torch.hpu.metrics import metric_global

        return int(dict(metric_global(name).stats())["TotalNumber"])
    except (ImportError, AttributeError, KeyError, TypeError):
        return None


def torch_hpu() -> Any:
    """`torch.hpu`, which the Gaudi software adds to torch."""
    return vars(torch)["hpu"]


def write_gaudi_config(cell: Cell, folder: Path) -> Path:
    """A folder with the cell's Gaudi configuration, so that optimum-habana asks no hub for it.

    The configuration's own autocast is off and its fused Adam is kept for AdamW only: `bf16` and `optim` of the
    sweep mean on a Gaudi what they mean elsewhere. Its lists of operations were declared before the bridge was there.

    Raises:
        TrialError: it is neither a folder nor on a hub within reach, or has lists that nobody could declare in time.
    """
    name = cell.training.gaudi_config_name
    config = _named_config(name)
    lists = {key: config.pop(key, None) for key in AUTOCAST_LISTS}
    if all(lists.values()) and not gaudi_config_file(name).is_file():
        raise TrialError(f"gaudi_config_name: {name} has its own lists of operations; name a folder that holds it")
    config["use_torch_autocast"] = False
    config["use_fused_adam"] = config.get("use_fused_adam", False) and cell.training.optim in FUSED_ADAM_STANDS_FOR
    target = folder / "gaudi_config"
    target.mkdir(parents=True, exist_ok=True)
    (target / "gaudi_config.json").write_text(json.dumps(config))
    return target


def _named_config(name: str) -> dict[str, Any]:
    if name == "Habana/clip":
        return dict(CLIP_CONFIG)
    file = gaudi_config_file(name)
    try:
        found = json.loads(file.read_text()) if file.is_file() else GaudiConfig.from_pretrained(name).to_dict()
    except (OSError, ValueError) as error:
        raise TrialError(f"gaudi_config_name: {name} cannot be had: {str(error).splitlines()[0]}") from None
    return dict(found)
