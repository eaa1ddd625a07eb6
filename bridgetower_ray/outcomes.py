"""What can become of a cell or a trial: one vocabulary for plan, terminal, MLflow and report."""

from dataclasses import dataclass
from enum import StrEnum


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
    """An outcome with its reason; `reason` is empty where the kind says all."""

    kind: Kind
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.kind}({self.reason})" if self.reason else str(self.kind)
