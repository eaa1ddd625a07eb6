"""A rehearsal: every cell of a sweep through the same scheduling, tracking and report, on this machine's CPU.

It shows, before anyone pays for nodes, that the sweep, its names and its report work. It measures nothing: its figures
bear names of their own, its outcome is `rehearsed`, and it logs to an experiment of its own.
"""

from dataclasses import replace

from bridgetower_ray.sweep.accelerators import ACCELERATORS, Accelerator
from bridgetower_ray.sweep.cells import Cell, Trial
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.plan import Inventory, Plan, PlannedCell
from bridgetower_ray.sweep.settings import REHEARSAL_SUFFIX, DatasetSettings, MeasureSettings

MOST_RANKS = 2
SAMPLES, BATCH, STEPS, TOKENS = 32, 2, 12, 16
WARMUP_STEPS = 1
CPU = ACCELERATORS["cpu"]


def rehearsal_of(plan: Plan) -> Plan:
    """The same cells under the same names, made small: preset:tiny, drawn cartoons, few steps, one repeat.

    Cells that the plan prunes stay pruned; all others can run, for the cluster is made to hold them.
    """
    measure = _once(plan.spec.measure)
    spec = plan.spec.model_copy(update={"name": plan.spec.name + REHEARSAL_SUFFIX, "measure": measure})
    cells = tuple(_small(cell) for cell in plan.cells)
    own = {cell.setting: cell for cell in cells if cell.runnable and cell.same_as is None}
    first_repeats = [trial for trial in plan.trials if trial.repeat == 1]
    trials = tuple(_trial(trial, own[trial.setting]) for trial in first_repeats)
    return Plan(spec, cells, plan.excluded, trials)


def _once(measure: MeasureSettings) -> MeasureSettings:
    """One repeat, whatever was asked."""
    asked = {"repeats": 1, "precision": None, "goal": None, "budget": None}
    return measure.model_copy(update={**asked, "warmup_steps": WARMUP_STEPS, "ceilings": False})


def _small(planned: PlannedCell) -> PlannedCell:
    cell = planned.cell
    training = cell.training.model_copy(
        update={
            "per_device_train_batch_size": BATCH,
            "gradient_accumulation_steps": 1,
            "max_steps": STEPS + cell.prefetched_batches,
            "num_train_epochs": None,
            "bf16": False,
            "max_seq_length": TOKENS,
            "dataloader_pin_memory": False,
            # Nothing of the sweep shows in them: trials share this machine's cores, and compiling takes minutes.
            "cpu_binding": "none",
            "torch_compile": False,
        }
    )
    small = Cell(
        accelerator=_on_cpu(cell.accelerator),
        devices=min(cell.devices, MOST_RANKS),
        model="preset:tiny",
        dataset=DatasetSettings(path="builtin:cartoons", max_train_samples=SAMPLES),
        training=training,
        measure=_once(cell.measure),
    )
    outcome = planned.outcome if planned.outcome.kind is Kind.PRUNED else Outcome(Kind.RUNNABLE)
    return replace(planned, cell=small, outcome=outcome)


def _on_cpu(accelerator: Accelerator) -> Accelerator:
    """Scheduled as the accelerator, trained as a CPU."""
    return replace(
        accelerator,
        device=CPU.device,
        process_group_backend=CPU.process_group_backend,
        trainer=CPU.trainer,
        asynchronous=CPU.asynchronous,
    )


def _trial(trial: Trial, planned: PlannedCell) -> Trial:
    return trial.model_copy(
        update={"cell": planned.cell, "resources": planned.resources, "python": None, "rehearsal": True}
    )


def simulated_nodes(plan: Plan) -> Inventory:
    """A node for each accelerator of the sweep, with just what its largest trial asks for."""
    nodes: dict[str, dict[str, float]] = {}
    for trial in plan.trials:
        node = nodes.setdefault(trial.cell.accelerator.marker, {})
        for name, amount in trial.resources.items():
            node[name] = max(node.get(name, 0.0), amount)
        node[trial.cell.accelerator.marker] = 1
    return list(nodes.values())
