"""What can become of a cell or a trial: one vocabulary for plan, terminal, MLflow and report."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

LONGEST_REASON = 500


class Kind(StrEnum):
    """`runnable` is a plan's word and `running` a live trial's; the others are final."""

    RUNNABLE = "runnable"
    RUNNING = "running"
    MEASURED = "measured"
    REHEARSED = "rehearsed"
    PRUNED = "pruned"
    UNAVAILABLE = "unavailable"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not_run"


@dataclass(frozen=True)
class Outcome:
    """An outcome with its reason, cut to what can be read; `reason` is empty where the kind says all."""

    kind: Kind
    reason: str = ""

    def __post_init__(self) -> None:
        if len(self.reason) > LONGEST_REASON:
            object.__setattr__(self, "reason", f"{self.reason[:LONGEST_REASON]}…")

    def __str__(self) -> str:
        return f"{self.kind}({self.reason})" if self.reason else str(self.kind)


def by_what_was_measured(outcome: Outcome, measured: Mapping[str, Any] | None) -> Outcome:
    """A window that has closed is measured, whatever befell the ceilings after it; none is none, whatever is said."""
    if measured is None:
        ended_well = outcome.kind is Kind.MEASURED
        return Outcome(Kind.FAILED, "the training ended without a measurement") if ended_well else outcome
    missing = [str(measured[name]) for name in measured if name.endswith("_ceiling_failed")]
    if outcome.kind is not Kind.MEASURED:
        missing.append(str(outcome))
    return Outcome(Kind.MEASURED, f"without a ceiling: {'; '.join(missing)}" if missing else "")
