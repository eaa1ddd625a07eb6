"""Compiled graphs of a cell, kept on the node for its next trials: only the first of them compiles."""

import importlib.metadata
import os
import re

from bridgetower_ray.data.cache import cache_root
from bridgetower_ray.sweep.cells import Cell

FOLDER = "compiled"  # in the node's cache
# Gaudi's bridge: `<path>,<clear it at the start>,<megabytes>`; at the limit it removes the oldest recipes.
# https://docs.habana.ai/en/latest/PyTorch/Reference/Runtime_Flags.html
RECIPES = "PT_HPU_RECIPE_CACHE_CONFIG"
RECIPE_MEGABYTES = 8192
# torch.compile's own, and Triton's, which it uses on CUDA.
# https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_configuration_tutorial.html
INDUCTOR, TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
COMPILED_BY = ("torch", "habana-torch-plugin", "triton")


def declare_compile_caches(cell: Cell) -> None:
    """Tell the libraries that compile for a cell where their caches are; what the host's environment says stays."""
    if not cell.measure.compile_cache or not cell.compiles:
        return
    folder = cache_root() / FOLDER / _software()
    if cell.accelerator.device == "hpu":
        os.environ.setdefault(RECIPES, f"{folder / 'recipes'},false,{RECIPE_MEGABYTES}")
    else:
        os.environ.setdefault(INDUCTOR, str(folder / "inductor"))
        os.environ.setdefault(TRITON, str(folder / "triton"))


def compile_cache(cell: Cell) -> str | None:
    """`kept` or, where every trial compiles for itself, `none`; None for a cell of which nothing is compiled."""
    if not cell.compiles:
        return None
    declared = os.environ.get(RECIPES if cell.accelerator.device == "hpu" else INDUCTOR, "")
    return "kept" if declared.partition(",")[0] else "none"


def _software() -> str:
    """What compiles, so that no version is given another's graphs: `torch-2.9.1_triton-3.5.1`."""
    found = []
    for package in COMPILED_BY:
        try:
            found.append(f"{package}-{importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return re.sub(r"[^\w.+-]", "-", "_".join(found))
