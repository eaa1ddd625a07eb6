"""Which CPUs a rank may use, and how many threads it gets: settled before torch is imported."""

import os
from collections.abc import Mapping, Sequence

from bridgetower_ray.doctor.conditions import CPUS, cpus_of_numa_nodes, from_list
from bridgetower_ray.doctor.hardware import usable_cpus
from bridgetower_ray.doctor.kernel_files import content
from bridgetower_ray.doctor.vendor_libraries import library_for
from bridgetower_ray.errors import TrialError
from bridgetower_ray.sweep.cells import Cell

Cpus = frozenset[int]
USABLE_AT_START = usable_cpus()  # the trial's: what a rank is bound to is only its own


def bind(cell: Cell, rank: int) -> int:
    """Give this rank its CPUs; how many threads it gets.

    `auto` threads are the rank's share of the CPUs that the trial may use, as training without a thread limit has.

    Raises:
        TrialError: there are fewer cores than ranks to bind.
    """
    training, ranks = cell.training, cell.devices
    share = USABLE_AT_START // ranks
    if training.cpu_binding != "none":
        usable = frozenset(os.sched_getaffinity(0))
        places = _places(cell, usable, ranks)
        chosen = places if training.cpu_binding == "numa" else by_cores(usable, places, _siblings(usable))
        os.sched_setaffinity(0, chosen[rank])
        share = min(share, len(chosen[rank]) // chosen.count(chosen[rank]))
    return max(1, share) if training.cpu_threads_per_rank == "auto" else training.cpu_threads_per_rank


def worker_threads(cell: Cell) -> int:
    """Threads of each loader worker; under `auto` the one that torch gives it."""
    threads = cell.training.cpu_threads_per_rank
    return 1 if threads == "auto" else threads


def _places(cell: Cell, usable: Cpus, ranks: int) -> list[Cpus]:
    """The CPUs near each rank: those of its device's NUMA node, or of the nodes in turn where that is not known."""
    nodes = {number: cpus & usable for number, cpus in cpus_of_numa_nodes().items() if cpus & usable} or {0: usable}
    library = library_for(cell.accelerator)
    return near(nodes, library.numa_nodes() if library is not None else (), ranks)


def near(nodes: Mapping[int, Cpus], of_devices: Sequence[int | None], ranks: int) -> list[Cpus]:
    """The CPUs of the NUMA node of each rank.

    Args:
        nodes: CPUs that may be used, by NUMA node.
        of_devices: the node of each device, in the ranks' order, as far as it is known. Where it is not known of all,
            ranks take the nodes in turn, as `mpirun --map-by socket` has them.
    """
    known = list(of_devices[:ranks])
    if len(known) < ranks or any(node not in nodes for node in known):
        numbers = sorted(nodes)
        known = [numbers[rank % len(numbers)] for rank in range(ranks)]
    return [nodes[node] for node in known if node is not None]


def by_cores(usable: Cpus, places: Sequence[Cpus], siblings: Mapping[int, Cpus]) -> list[Cpus]:
    """Whole cores for each rank, none of them another's: as many for each, near it, as its neighbours leave.

    Where a place has fewer cores than ranks, all cores are dealt out, near ones first. So does
    `mpirun --bind-to core --map-by socket:PE=<cores / ranks>`, which optimum-habana's `distributed_runner` starts.

    Args:
        places: CPUs near each rank.
        siblings: for each CPU those of its core, itself among them.

    Raises:
        TrialError: there are fewer cores than ranks.
    """
    cores = sorted({min(siblings[cpu]): siblings[cpu] & usable for cpu in usable}.items())
    near_each = [sum(core <= place for _, core in cores) // places.count(place) for place in places]
    each = min(near_each) or len(cores) // len(places)
    if each == 0:
        raise TrialError(f"cpu_binding: cores: {len(places)} ranks want a core each, {len(cores)} are there")
    left = [core for _, core in cores]
    chosen: list[Cpus] = []
    for place in places:
        left.sort(key=lambda core: not core <= place)  # stable: near ones first
        own, left = left[:each], left[each:]
        left.sort(key=min)
        chosen.append(frozenset().union(*own))
    return chosen


def _siblings(cpus: Cpus) -> dict[int, Cpus]:
    """The CPUs of each CPU's core; itself alone where the kernel does not say."""
    lists = {cpu: content(CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list") for cpu in cpus}
    return {cpu: from_list(text) or frozenset({cpu}) for cpu, text in lists.items()}
