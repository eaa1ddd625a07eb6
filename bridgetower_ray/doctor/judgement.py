"""Judges the nodes of a cluster: what is wrong, and what to do. Pure; the nodes looked at themselves."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bridgetower_ray.doctor.facts import SHARED_MEMORY, NodeFacts
from bridgetower_ray.doctor.hardware import VISIBLE_MODULES
from bridgetower_ray.sweep.accelerators import ACCELERATORS, MARKER_PREFIX, count_devices
from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.sweep.outcomes import Kind
from bridgetower_ray.sweep.plan import Plan
from bridgetower_ray.sweep.presets import PRESETS

GIB = 2**30
MEMORY_PER_RANK = 8 * GIB  # the large model in float32 is 3.5 GB, twice while a checkpoint is read
DISK_WANTED = 10 * GIB  # the large checkpoint is 3.5 GB, the published data set 1 GB, prepared data as much again
TRAINS = ("torch", "transformers", "accelerate")
LARGE_IMAGE = 294  # side of BridgeTower Large's images, taken for a checkpoint that is not looked into
# Builds from PyPI or download.pytorch.org; vendors add words of their own (2.8.0a0+5228986c39.nv25.06, 2.6.0+hpu_1.21).
STOCK_TORCH = re.compile(r"\d+\.\d+\.\d+(\+(cpu|cu\d+|rocm[\d.]+|xpu))?")


@dataclass(frozen=True)
class Node:
    """A node as Ray knows it, with what it found; `facts` is a text where it could not look at itself."""

    name: str
    declared: Mapping[str, float]
    facts: NodeFacts | str
    head: bool = False


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: with which node, what, and what to do. `serious`: a trial there would not run."""

    node: str
    serious: bool
    what: str
    do: str

    def __str__(self) -> str:
        return f"{'error' if self.serious else 'warning'}: {self.node}: {self.what}; {self.do}"


def examine(nodes: Sequence[Node], plan: Plan | None = None) -> list[Finding]:
    """Everything that is wrong with the nodes, the serious first.

    Args:
        plan: a sweep laid out on these nodes; what only some sweep needs is judged by this one's needs.
    """
    looked = [(node, node.facts) for node in nodes if isinstance(node.facts, NodeFacts)]
    findings = [_silent(node, node.facts) for node in nodes if isinstance(node.facts, str)]
    head = next((facts for node, facts in looked if node.head), looked[0][1] if looked else None)
    for node, facts in looked:
        cells = cells_for(node, plan)
        for check in (
            _software(node, facts, head or facts),
            _torch(node, facts),
            _devices(node, facts),
            _numbering(node, facts),
        ):
            findings += check
        findings += [*_media_pipeline(node, facts, cells), *_room(node, facts, cells), *_niceness(node, facts)]
    findings += [*_differences(looked), *_unheld(plan)]
    if unlike := unlike_majors(nodes, plan):
        findings.append(unlike)
    return sorted(findings, key=lambda finding: not finding.serious)


def cells_for(node: Node, plan: Plan | None) -> list[Cell]:
    """The cells of a plan that would run on a node."""
    planned = plan.cells if plan else ()
    return [one.cell for one in planned if one.runnable and node.declared.get(one.cell.accelerator.marker, 0) > 0]


def kind_of(declared: Mapping[str, float]) -> str | None:
    """The known accelerator that a node is there for: the CPU, which every node has, only where it has no other."""
    names = [one.name for one in ACCELERATORS.values() if declared.get(one.marker, 0) > 0]
    return next((name for name in names if name != "cpu"), names[0] if names else None)


def _silent(node: Node, why: str) -> Finding:
    absent = why.startswith("ModuleNotFoundError")
    do = "install bridgetower-ray for the Python that runs Ray there" if absent else "look at the node's Ray logs"
    return Finding(node.name, True, f"could not look at itself: {why}", do)


def _software(node: Node, facts: NodeFacts, head: NodeFacts) -> Iterator[Finding]:
    same = "use one version on all nodes"
    if facts.ray != head.ray:
        yield Finding(node.name, True, f"Ray {facts.ray}, the head has {head.ray}", same)
    if facts.python != head.python:
        serious = facts.python.rsplit(".", 1)[0] != head.python.rsplit(".", 1)[0]
        alike = "Ray joins them only where RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL is minor on both"
        yield Finding(
            node.name, serious, f"Python {facts.python}, the head has {head.python}", same if serious else alike
        )
    if facts.source != head.source:
        yield Finding(
            node.name, True, "another state of bridgetower-ray than the head's", "bring the same source to every node"
        )


def _torch(node: Node, facts: NodeFacts) -> Iterator[Finding]:
    if not any(name.startswith(MARKER_PREFIX) for name in node.declared):
        return  # a head that trains nothing
    own = facts.interpreter
    if own.error or own.torch_error:
        what = f"{own.executable} cannot train: {own.error or own.torch_error}"
        yield Finding(node.name, True, what, "install torch and transformers for it, or name another under `python:`")
        return
    if own.missing:
        what = f"{own.executable} cannot train: {', '.join(own.missing)} missing"
        yield Finding(node.name, True, what, "install them for it, with the torch that is there as a constraint")
    stock = STOCK_TORCH.fullmatch(own.torch) is not None
    unfit = own.torch_cuda is None or not own.torch_devices  # a stock build for CUDA trains, if more slowly
    reinstall = "start from a fresh container and install with the container's own torch as a constraint"
    if _has(node, "hpu") and stock:
        yield Finding(node.name, True, f"torch {own.torch} is a stock build, which drives no Gaudi", reinstall)
    elif _has(node, "cuda") and facts.nvidia_container and stock:
        yield Finding(node.name, unfit, f"NVIDIA's torch was replaced by the stock build {own.torch}", reinstall)
    elif _has(node, "cuda") and own.torch_cuda is None:
        yield Finding(node.name, True, f"torch {own.torch} is a build without CUDA", "install a CUDA build of torch")
    elif (_has(node, "cuda") or _has(node, "hpu")) and not own.torch_devices:
        yield Finding(
            node.name, True, f"torch {own.torch} sees no device", "check the driver and the container's options"
        )


def _has(node: Node, device: str) -> bool:
    """Whether a node declares an accelerator, known or of a sweep's own, that torch calls `device`."""
    resource = {"hpu": "HPU", "cuda": "GPU"}[device]
    known = [one.marker for one in ACCELERATORS.values() if one.device == device]
    return any(node.declared.get(name, 0) > 0 for name in (resource, *known))


def _devices(node: Node, facts: NodeFacts) -> Iterator[Finding]:
    redeclare = 'start Ray with --resources="$(bridgetower-ray doctor --resources)"'
    for accelerator in ACCELERATORS.values():
        declared = node.declared.get(accelerator.marker, 0) > 0 and accelerator.ray_resource is not None
        there = accelerator.name in facts.devices
        if declared and not there:
            yield Finding(node.name, True, f"declares {accelerator.marker}, but no such device is there", redeclare)
        if there and not declared:
            yield Finding(node.name, False, f"has {accelerator.label} devices that it does not declare", redeclare)
    resources: tuple[Literal["HPU"], Literal["GPU"]] = ("HPU", "GPU")
    for resource in resources:
        found = count_devices(facts.devices, resource)
        if found and node.declared.get(resource, 0) > found:
            what = f"declares {resource}: {node.declared[resource]:g}, but {found} are there"
            yield Finding(node.name, True, what, redeclare)


def _numbering(node: Node, facts: NodeFacts) -> Iterator[Finding]:
    """What names a device, or a process on it, otherwise than this tool would take it."""
    if facts.modules not in ((), tuple(range(len(facts.modules)))) and not facts.visible_modules:
        numbers = ",".join(map(str, facts.modules))
        what = f"its Gaudis are the modules {numbers}, which Ray would number from 0"
        yield Finding(node.name, True, what, f"start Ray with {VISIBLE_MODULES}={numbers} in its environment")
    if facts.hidden_device_processes:
        what = f"{facts.hidden_device_processes} processes on the devices cannot be seen from this container"
        yield Finding(node.name, False, what, "start it with --pid=host (Kubernetes: hostPID: true)")
    if facts.device_processes:
        yield Finding(
            node.name,
            False,
            f"others are on the devices: {', '.join(facts.device_processes)}",
            "end them before a sweep",
        )


def _media_pipeline(node: Node, facts: NodeFacts, cells: Iterable[Cell]) -> Iterator[Finding]:
    if not _has(node, "hpu") or not facts.interpreter.media_pipeline_error:
        return
    wanted = any(cell.training.mediapipe_dataloader for cell in cells)
    what = f"the media pipeline cannot be imported: {facts.interpreter.media_pipeline_error}"
    yield Finding(node.name, wanted, what, "install habana-media-loader in the version of the Gaudi software there")


def _room(node: Node, facts: NodeFacts, cells: Sequence[Cell]) -> Iterator[Finding]:
    need = max((shared_memory_need(cell) for cell in cells), default=0)
    if need > facts.shared_memory:
        what = f"{SHARED_MEMORY} holds {_gib(facts.shared_memory)}, the loaders' queues need {_gib(need)}"
        yield Finding(node.name, True, what, "start the container with --ipc=host or a larger --shm-size")
    large = [cell for cell in cells if cell.model != "preset:tiny"]
    memory = max((cell.devices * MEMORY_PER_RANK for cell in large), default=0)
    if memory > facts.memory_available:
        what = f"{_gib(facts.memory_available)} of memory are free, the ranks may need {_gib(memory)}"
        yield Finding(node.name, False, what, "free some, or take fewer devices")
    if large and facts.disk_free < DISK_WANTED:
        what = f"{_gib(facts.disk_free)} of disk are free for prepared data and checkpoints"
        yield Finding(node.name, False, what, f"make room for {_gib(DISK_WANTED)} or set BRIDGETOWER_RAY_CACHE")


def _niceness(node: Node, facts: NodeFacts) -> Iterator[Finding]:
    if facts.niceness > 0 and any(name.startswith(MARKER_PREFIX) for name in node.declared):
        what = f"ranks would run with niceness {facts.niceness}: any ordinary process is served first"
        yield Finding(node.name, False, what, "start Ray with RAY_worker_niceness=0 and without nice")


def shared_memory_need(cell: Cell) -> int:
    """Bytes of the batches that all ranks' queues hold at once, with the one that is being trained on."""
    training = cell.training
    if not training.dataloader_num_workers:
        return 0
    side = PRESETS[cell.model].image if cell.model in PRESETS else LARGE_IMAGE
    pixel = 4 if training.input_pipeline == "reference" else 1
    tokens = 2 * 8 * training.max_seq_length
    batch = training.per_device_train_batch_size * (3 * side * side * pixel + tokens)
    return cell.devices * (cell.prefetched_batches + 1) * batch


def _differences(looked: Sequence[tuple[Node, NodeFacts]]) -> Iterator[Finding]:
    """Nodes of one kind that are not alike: their trials would not measure the same thing."""
    for accelerator in ACCELERATORS.values():
        alike = [(node, facts) for node, facts in looked if kind_of(node.declared) == accelerator.name]
        for node, facts in alike[1:]:
            first_node, first = alike[0]
            differing = [
                f"{name} {there or 'none'}, not {here or 'none'}"
                for name, there, here in _comparable(facts, first)
                if there != here
            ]
            if differing:
                what = f"differs from {first_node.name}: {'; '.join(differing)}"
                yield Finding(node.name, False, what, "make them alike, or compare only what ran on one of them")


def _comparable(one: NodeFacts, other: NodeFacts) -> Iterator[tuple[str, str, str]]:
    yield "driver", one.driver or "", other.driver or ""
    yield "CPU", one.cpu_model, other.cpu_model
    yield "CPUs", str(one.cpus), str(other.cpus)
    yield "devices", str(len(one.devices)), str(len(other.devices))
    yield "torch", one.interpreter.torch, other.interpreter.torch
    for name in sorted({*one.interpreter.versions, *other.interpreter.versions} - {"torch", "ray", "python"}):
        yield name, one.interpreter.versions.get(name, ""), other.interpreter.versions.get(name, "")


def unlike_majors(nodes: Sequence[Node], plan: Plan | None) -> Finding | None:
    """What trains on the nodes of a sweep, where it differs in its major version; None where it does not."""
    training = [(node, node.facts) for node in nodes if isinstance(node.facts, NodeFacts) and _trains(node, plan)]
    said = []
    for library in TRAINS:
        by_major: dict[str, list[str]] = {}
        for node, facts in training:
            if version := facts.interpreter.versions.get(library):
                by_major.setdefault(version.partition(".")[0], []).append(node.name)
        if len(by_major) > 1:
            each = (f"{major} ({', '.join(names)})" for major, names in sorted(by_major.items()))
            said.append(f"{library} {', '.join(each)}")
    if not said:
        return None
    return Finding(
        "the cluster", plan is not None, f"unlike major versions train: {'; '.join(said)}", "install the same"
    )


def _trains(node: Node, plan: Plan | None) -> bool:
    if plan is not None:
        return bool(cells_for(node, plan))
    return any(name.startswith(MARKER_PREFIX) for name in node.declared)


def _unheld(plan: Plan | None) -> Iterator[Finding]:
    by_reason: dict[str, list[str]] = {}
    for planned in plan.cells if plan else ():
        if planned.outcome.kind is Kind.UNAVAILABLE:
            by_reason.setdefault(planned.outcome.reason, []).append(planned.setting)
    for reason, settings in by_reason.items():
        what = f"{reason}, which {len(settings)} cells need: {', '.join(settings)}"
        yield Finding("the cluster", True, what, "add such a node, or take these cells out of the sweep")


def _gib(size: int) -> str:
    return f"{size / GIB:.3g} GiB"
