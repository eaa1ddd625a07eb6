"""Spec x inventory -> cells with outcomes, and the trials in the order they run. Pure: no Ray, no torch."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.accelerators import Accelerator, bundle
from bridgetower_ray.sweep.cells import SHORT_NAMES, Cell, Trial, loader_label, setting_label
from bridgetower_ray.sweep.effective import effective
from bridgetower_ray.sweep.outcomes import Kind, Outcome
from bridgetower_ray.sweep.settings import AxisValue, TrainingSettings
from bridgetower_ray.sweep.spec import SweepSpec, same_value

Inventory = Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class PlannedCell:
    """One combination of the axes: what it is, what is to become of it, and why.

    `window_steps` is None while the number of samples is not known. `same_as` names the setting whose
    run stands for this one too, where the two differ only in a setting without effect.
    """

    axes: dict[str, AxisValue]
    cell: Cell
    outcome: Outcome
    resources: dict[str, float]
    window_steps: int | None
    same_as: str | None = None

    @property
    def setting(self) -> str:
        """The cell's readable name."""
        return setting_label(self.axes)

    @property
    def loader(self) -> str:
        """The cell's name without its accelerator."""
        return loader_label(self.axes)

    @property
    def runnable(self) -> bool:
        """Whether trials of it can run."""
        return self.outcome.kind is Kind.RUNNABLE

    @property
    def short_window(self) -> bool:
        """Whether the window is too short against what the loader's queues hold."""
        return self.window_steps is not None and self.window_steps < self.cell.steady_window_steps


@dataclass(frozen=True)
class Plan:
    """All cells of a sweep that its `exclude` leaves, and the trials of those that can run."""

    spec: SweepSpec
    cells: tuple[PlannedCell, ...]
    excluded: int
    trials: tuple[Trial, ...]
    warnings: tuple[str, ...] = ()

    @property
    def to_measure(self) -> tuple[PlannedCell, ...]:
        """The N of "n of N cells measured": without the pruned; what runs once for two counts once."""
        return tuple(cell for cell in self.cells if cell.outcome.kind is not Kind.PRUNED and cell.same_as is None)

    @property
    def runnable_cells(self) -> int:
        """Cells that trials are run of."""
        return sum(cell.runnable and cell.same_as is None for cell in self.cells)

    @property
    def baseline(self) -> PlannedCell | None:
        """The cell that others are compared with; axes that the sweep file leaves open take their first value."""
        if self.spec.baseline is None:
            return None
        wanted = {name: self.spec.baseline.get(name, values[0]) for name, values in self.spec.axis_values.items()}
        return next((cell for cell in self.cells if cell.axes == wanted), None)


def make_plan(spec: SweepSpec, inventory: Inventory | None = None, rows: int | None = None) -> Plan:
    """Lay out a sweep.

    Args:
        inventory: each node's Ray resources; None plans without looking at a cluster.
        rows: samples of the data set, where they can be known without loading it.

    Raises:
        UsageError: a window without steps, no runnable cell, a baseline that is not among the cells, or a fastest cell
            asked for where there is but one.
    """
    plan = lay_out(spec, inventory, rows)
    if plan.trials and spec.measure.goal == "fastest" and plan.runnable_cells == len(_accelerators(plan.trials)):
        raise UsageError("measure.goal: fastest: no accelerator has two cells that can run, of which one is the faster")
    if not plan.trials:
        reasons = sorted({cell.outcome.reason for cell in plan.cells if cell.outcome.reason}) or ["all are excluded"]
        raise UsageError(f"no cell of the sweep {spec.name!r} can run: {'; '.join(reasons)}")
    return plan


def _accelerators(trials: Iterable[Trial]) -> set[str]:
    return {trial.cell.accelerator.name for trial in trials}


def lay_out(spec: SweepSpec, inventory: Inventory | None = None, rows: int | None = None) -> Plan:
    """The same for a sweep of which it may be that nothing can run.

    Raises:
        UsageError: a window without steps, or a baseline that is not among the cells.
    """
    combinations = list(_combinations(spec))
    kept = [axes for axes in combinations if not _excluded(spec, axes)]
    cells = tuple(_share_runs([_planned(spec, axes, inventory, rows) for axes in kept]))
    warnings = (*_warnings(spec, cells), *_slow_attention(cells), *_crowded(cells, inventory or ()))
    plan = Plan(spec, cells, len(combinations) - len(kept), tuple(_trials(spec, cells)), warnings)
    if spec.baseline is not None and plan.baseline is None:
        raise UsageError(f"baseline {spec.baseline}: the exclude rules leave no such cell")
    return plan


def _combinations(spec: SweepSpec) -> Iterator[dict[str, AxisValue]]:
    values = spec.axis_values
    for combination in itertools.product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def _excluded(spec: SweepSpec, axes: Mapping[str, AxisValue]) -> bool:
    return any(all(_matches(axes[name], wanted) for name, wanted in rule.items()) for rule in spec.exclude)


def _matches(value: AxisValue, wanted: AxisValue | tuple[AxisValue, ...]) -> bool:
    return any(same_value(value, one) for one in (wanted if isinstance(wanted, tuple) else (wanted,)))


def _planned(spec: SweepSpec, axes: dict[str, AxisValue], inventory: Inventory | None, rows: int | None) -> PlannedCell:
    name = str(axes["accelerator"])
    accelerator, devices = spec.accelerator(name), spec.devices(name)
    asked = spec.training.model_copy(update={key: value for key, value in axes.items() if key != "accelerator"})
    cell = Cell(
        accelerator=accelerator,
        devices=devices,
        model=spec.model,
        dataset=spec.dataset,
        training=effective(asked, accelerator, devices),
        measure=spec.measure,
    )
    resources = _resources(spec, cell)
    outcome = _outcome(cell, resources, inventory)
    window = None if outcome.kind is Kind.PRUNED else _window_steps(cell, rows, axes)
    return PlannedCell(axes, cell, outcome, resources, window)


def _resources(spec: SweepSpec, cell: Cell) -> dict[str, float]:
    whole_node = spec.scheduling.isolation == "node"
    cpus = 1 if whole_node else cell.wanted_cpus
    return bundle(cell.accelerator, cell.devices, cpus, whole_node)


def _outcome(cell: Cell, resources: Mapping[str, float], inventory: Inventory | None) -> Outcome:
    reason = impossible(cell.accelerator, cell.training, cell.devices)
    if reason:
        return Outcome(Kind.PRUNED, reason)
    if inventory is not None and (lacking := missing(resources, inventory)):
        return Outcome(Kind.UNAVAILABLE, lacking)
    return Outcome(Kind.RUNNABLE)


def impossible(accelerator: Accelerator, training: TrainingSettings, devices: int) -> str:
    """Why this combination can never run anywhere; empty if it can."""
    if training.mediapipe_dataloader and not accelerator.mediapipe:
        return "mediapipe_dataloader needs Gaudi's hardware decoder"
    if training.torch_compile_backend is not None and training.use_lazy_mode:
        return "torch_compile on a Gaudi needs use_lazy_mode: false"
    if training.gradient_checkpointing:
        return "gradient_checkpointing: transformers has none for BridgeTower"
    if not training.freeze_text_pooler and devices > 1:
        return "freeze_text_pooler: false leaves parameters unused, which several ranks would wait for"
    return ""


def missing(resources: Mapping[str, float], inventory: Inventory) -> str:
    """What keeps a bundle from every node, by the node that comes nearest; empty if one can hold it."""
    if not inventory:
        return "the cluster has no nodes"
    lacks = [[name for name, amount in resources.items() if node.get(name, 0) < amount] for node in inventory]
    nearest = min(range(len(inventory)), key=lambda index: len(lacks[index]))
    wants = [f"{name}: {resources[name]:g} (largest has {_largest(inventory, name)})" for name in lacks[nearest]]
    return f"no node has {', '.join(wants)}" if wants else ""


def _largest(inventory: Inventory, name: str) -> str:
    return f"{max(node.get(name, 0) for node in inventory):g}"


def _window_steps(cell: Cell, rows: int | None, axes: Mapping[str, AxisValue]) -> int | None:
    try:
        total = cell.total_steps(rows)
    except ValueError as error:
        raise UsageError(f"{setting_label(axes)}: a window without steps: {error}") from None
    if total is None:
        return None
    if total <= cell.warmup_steps:
        raise UsageError(
            f"{setting_label(axes)}: a window without steps: of {total} steps {cell.warmup_steps} are warm-up; "
            "raise training.max_steps or num_train_epochs"
        )
    return total - cell.warmup_steps


def _share_runs(cells: Iterable[PlannedCell]) -> Iterator[PlannedCell]:
    first: dict[str, str] = {}
    for cell in cells:
        pruned = cell.outcome.kind is Kind.PRUNED
        owner = cell.setting if pruned else first.setdefault(cell.cell.cell_id, cell.setting)
        yield cell if owner == cell.setting else replace(cell, same_as=owner)


def _trials(spec: SweepSpec, cells: Sequence[PlannedCell]) -> Iterator[Trial]:
    """Round by round, and within one the accelerators in turn, so that none waits for another's block.

    Each round of an accelerator has an order of its own, or what drifts within a round would always be the same cells'.
    """
    runnable = [cell for cell in cells if cell.runnable and cell.same_as is None]
    for repeat in range(1, spec.measure.most_repeats + 1):
        pools = [
            _drawn((cell for cell in runnable if cell.axes["accelerator"] == name), spec.measure.order_seed, repeat)
            for name in spec.accelerator_names
        ]
        for cell in (cell for row in itertools.zip_longest(*pools) for cell in row if cell is not None):
            settings = spec.accelerators.get(cell.cell.accelerator.name)
            yield Trial(
                setting=cell.setting,
                axes=cell.axes,
                cell=cell.cell,
                repeat=repeat,
                resources=cell.resources,
                python=settings.python if settings else None,
                price_per_hour=settings.price_per_hour if settings else None,
                peak_tflops=settings.peak_tflops if settings else None,
            )


def _drawn(cells: Iterable[PlannedCell], seed: int, repeat: int) -> list[PlannedCell]:
    """In an order that nothing but the seed, the round and the cells decide."""
    return sorted(cells, key=lambda one: hashlib.sha256(f"{seed} {repeat} {one.cell.cell_id}".encode()).digest())


def _warnings(spec: SweepSpec, cells: Sequence[PlannedCell]) -> Iterator[str]:
    batches = {name: _total_batches(cells, name) for name in spec.accelerator_names}
    if len({tuple(sorted(batch)) for batch in batches.values()}) > 1:
        each = ", ".join(f"{name}: {'/'.join(map(str, sorted(batch)))}" for name, batch in batches.items())
        yield f"the arms differ in samples a step over all devices ({each}): no ratio is made across them"
    for cell in cells:
        if cell.runnable and cell.short_window:
            yield (
                f"{cell.setting}: short window: {cell.window_steps} steps, but queues of "
                f"{cell.cell.prefetched_batches} batches want {cell.cell.steady_window_steps} or more"
            )
    for cell in cells:
        if cell.same_as:
            yield f"{cell.setting} runs as {cell.same_as}: they differ only in a setting without effect"
    if spec.measure.most_repeats == 1:
        yield "one repeat gives no interval: measure.repeats: 3 or more says how sure a ratio is"


def _slow_attention(cells: Sequence[PlannedCell]) -> Iterator[str]:
    slow = {str(cell.axes["accelerator"]) for cell in cells if cell.runnable and cell.cell.sums_attention_in_float32}
    for name in sorted(slow):
        yield f"{name}: without sdp_on_bf16 attention computes in float32; optimum-habana's own example sets it"


def _crowded(cells: Sequence[PlannedCell], inventory: Inventory) -> Iterator[str]:
    """A trial that has its node to itself may still want more CPUs than the node has."""
    for cell in cells:
        nodes = [node.get("CPU", 0) for node in inventory if not missing(cell.resources, [node])]
        if cell.runnable and cell.same_as is None and nodes and max(nodes) < cell.cell.wanted_cpus:
            yield f"{cell.setting}: {cell.cell.wanted_cpus} ranks and workers share the node's {max(nodes):g} CPUs"


def _total_batches(cells: Sequence[PlannedCell], accelerator: str) -> set[int]:
    return {cell.cell.total_batch for cell in cells if cell.axes["accelerator"] == accelerator}


def estimate_seconds(plan: Plan, seconds_by_cell: Mapping[str, float]) -> float | None:
    """Wall time of the plan, one node an accelerator working beside the others, in seconds.

    Args:
        seconds_by_cell: seconds of an earlier trial, by cell id.

    Returns:
        None unless every cell has been run before.
    """
    by_accelerator: dict[str, float] = {}
    for trial in plan.trials:
        seconds = seconds_by_cell.get(trial.cell.cell_id)
        if seconds is None:
            return None
        name = trial.cell.accelerator.name
        by_accelerator[name] = by_accelerator.get(name, 0.0) + seconds
    return max(by_accelerator.values(), default=None)


def axis_title(name: str) -> str:
    """An axis in the words of the tables."""
    return SHORT_NAMES.get(name, name)
