"""How far the ranks of a trial were apart: who was last to have its batch, and by how much."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


def rank_figures(steps: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """From the window's steps of every rank; nothing for a single one.

    `rank_spread_fraction` is the share of the time in which the quickest rank had its batch and the last had not yet,
    `slowest_rank` the one that was last most often, in `slowest_rank_share` of the steps. The ranks' clocks are not
    compared: each step's fetch is by its rank's own. Gradients are averaged at the end of a step, so that whoever has
    its batch early waits there, and the steps as a whole are equally long on all ranks.
    """
    fetches: dict[int, dict[int, float]] = {}
    seconds: dict[int, float] = {}
    for step in steps:
        if not step["warmup"]:
            fetches.setdefault(step["step"], {})[step.get("rank", 0)] = step["fetch_seconds"]
            seconds[step["step"]] = max(seconds.get(step["step"], 0.0), step["seconds"])
    ranks = {rank for one in fetches.values() for rank in one}
    whole = {step: one for step, one in fetches.items() if len(one) == len(ranks)}
    if len(ranks) < 2 or not whole:
        return {}
    spread = sum(max(one.values()) - min(one.values()) for one in whole.values())
    last = Counter(max(one, key=one.__getitem__) for one in whole.values())
    slowest, times = last.most_common(1)[0]
    return {
        "rank_spread_fraction": spread / sum(seconds[step] for step in whole),
        "slowest_rank": float(slowest),
        "slowest_rank_share": times / len(whole),
    }
