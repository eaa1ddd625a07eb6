"""What a sweep asks for where it names a certainty in place of a count."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

MOST_PRECISION = 0.5
PERCENTAGE = r"^\d+(\.\d+)?%$"
LEAST_ROUNDS, MOST_ROUNDS = 2, 12  # where the file does not say


def _share(value: Any) -> float:
    """`3%` -> 0.03."""
    if not isinstance(value, str) or re.fullmatch(PERCENTAGE, value) is None:
        raise PydanticCustomError("percentage", "is no percentage such as 3%")
    share = float(value.removesuffix("%")) / 100
    if not 0 < share <= MOST_PRECISION:
        raise PydanticCustomError("percentage", "must be above 0% and at most 50%")
    return share


Percentage = Annotated[
    float,
    BeforeValidator(_share),
    PlainSerializer(lambda share: f"{100 * share:.12g}%"),
    WithJsonSchema({"type": "string", "pattern": PERCENTAGE}),
]
Goal = Literal["table", "fastest"]


class Question(BaseModel):
    """How sure a sweep is to be: the half-width of each ratio's 95 % interval as a share, and what it may take.

    A round runs every cell of an accelerator once; there are `least` to `most` of them. With the goal `fastest` a cell
    that cannot be its accelerator's fastest leaves the rounds. A budget is in hours of single devices, or in money.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    precision: float
    least: int = LEAST_ROUNDS
    most: int = MOST_ROUNDS
    goal: Goal = "table"
    accelerator_hours: float | None = None
    cost: float | None = None

    @property
    def has_budget(self) -> bool:
        """Whether hours or money may end it."""
        return self.accelerator_hours is not None or self.cost is not None

    @property
    def text(self) -> str:
        """`each ratio within ±3 %, in 2 to 12 rounds`."""
        what = "each ratio" if self.goal == "table" else "the fastest cell of each accelerator"
        return f"{what} within ±{100 * self.precision:g} %, in {self.least} to {self.most} rounds"
