"""Compiled graphs of a cell, kept on the node for its next trials: only the first of them compiles."""

import importlib.metadata
import os
import platform
import re

from bridgetower_ray.data.cache import cache_root
from bridgetower_ray.doctor.hardware import cpu_model
from bridgetower_ray.sweep.cells import Cell

FOLDER = "compiled"  # in the node's cache
# Gaudi's bridge: `<path>,<clear it at the start>,<megabytes>`; at the limit it removes the oldest recipes.
# https://docs.habana.ai/en/latest/PyTorch/Reference/Runtime_Flags.html
RECIPES = "PT_HPU_RECIPE_CACHE_CONFIG"
RECIPE_MEGABYTES = 8192
# torch.compile's own, and Triton's, which it uses on CUDA.
# https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_configuration_tutorial.html
INDUCTOR, TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
COMPILE_CACHES = (INDUCTOR, TRITON)
KEPT = "BRIDGETOWER_RAY_COMPILE_CACHE"  # what was declared
COMPILED_BY = ("torch", "habana-torch-plugin", "triton")


def declare_compile_caches(cell: Cell, repeat: int) -> None:
    """Tell the libraries that compile for a cell where their caches are; what the host's environment says stays.

    torch.compile tries kernels out and keeps the fastest: each repeat has a cache of its own, or all repeats would
    have the luck of the first.
    """
    os.environ.pop(KEPT, None)
    if not cell.compiles:
        return
    if cell.measure.compile_cache:
        folder = cache_root() / FOLDER / _compiled_by()
        if cell.accelerator.device == "hpu":
            os.environ.setdefault(RECIPES, f"{folder / 'recipes'},false,{RECIPE_MEGABYTES}")
        else:
            for name, of_library in ((INDUCTOR, "inductor"), (TRITON, "triton")):
                os.environ.setdefault(name, str(folder / f"{of_library}-{repeat}"))
    declared = os.environ.get(RECIPES if cell.accelerator.device == "hpu" else INDUCTOR, "")
    os.environ[KEPT] = "kept" if declared.partition(",")[0] else "none"


def compile_cache() -> str | None:
    """`kept` or, where every trial compiles for itself, `none`; None for a cell of which nothing is compiled.

    As it was declared: torch, once it is imported, names a folder in any case.
    """
    return os.environ.get(KEPT)


def _compiled_by() -> str:
    """What compiles, and for which CPU, so that none is given another's graphs: `torch-2.9.1_Intel-Xeon-…`."""
    found = []
    for package in COMPILED_BY:
        try:
            found.append(f"{package}-{importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return re.sub(r"[^\w.+-]+", "-", "_".join([*found, cpu_model() or platform.machine()]))
