"""What a sample cost before and after: the same cells in two sweep runs."""

from collections.abc import Sequence

from bridgetower_ray.report.efficiency_table import COLUMNS
from bridgetower_ray.report.regressions import COST_COLUMNS, Change
from bridgetower_ray.report.stats import ratio_of_means
from bridgetower_ray.report.tables import Table

TITLES = {column.name: column.title for column in COLUMNS}


def cost_changes_table(found: Sequence[Change]) -> Table | None:
    """After over before of each figure that some cell has on both sides; None where none has any."""
    entries = [(one.setting, {name: _entry(one, name) for name in COST_COLUMNS}) for one in found]
    shown = [name for name in COST_COLUMNS if any(row[name] for _, row in entries)]
    if not shown:
        return None
    rows = tuple((setting, tuple(row[name] for name in shown)) for setting, row in entries)
    notes = ("after / before with its 95 % interval, not adjusted for the number of cells.",)
    return Table("What a sample costs, before and after", "setting", tuple(TITLES[name] for name in shown), rows, notes)


def _entry(one: Change, name: str) -> str:
    """Nothing where the two did other work, or a side lacks the figure in some repeat."""
    if one.ratio is None or one.after is None or not (one.before.costs[name] and one.after.costs[name]):
        return ""
    return ratio_of_means(one.after.costs[name], one.before.costs[name]).text
