"""What was found, in plain sentences made from the records."""

from collections.abc import Iterator, Sequence

from bridgetower_ray.report.comparisons import Grid, compare
from bridgetower_ray.report.diagnosis import Verdict
from bridgetower_ray.report.limits import held_back_by, worker_advice
from bridgetower_ray.report.question_table import answers
from bridgetower_ray.report.records import CellResult, SweepResults
from bridgetower_ray.report.tables import ceiling_text, figure, percent
from bridgetower_ray.report.window_length import window_advice
from bridgetower_ray.sweep.outcomes import Kind

NAMES_LENGTH = 300
RANKS_APART = 0.05  # of a step, between the first and the last rank to have its batch


def findings(results: SweepResults) -> list[str]:
    """The sentences, the most important first."""
    return [
        f"{results.summary}.",
        *_fastest(results),
        *_over_other_accelerators(results),
        *_answered(results),
        *_limits(results),
        *(advice.sentence for advice in worker_advice(results)),
        *_pipelines(results),
        *window_advice(results),
        *_stragglers(results),
        *_hidden_neighbours(results),
        *_not_measured(results),
        *_flagged(results),
        *_left_out(results),
    ]


def _fastest(results: SweepResults) -> Iterator[str]:
    fastest = _fastest_cell(results)
    if fastest is None:
        return
    sentence = f"Fastest: {fastest.cell.setting} with {figure(fastest.throughput or 0)} samples/s"
    baseline = results.baseline
    if baseline is None or baseline is fastest or not baseline.measured:
        yield f"{sentence}."
        return
    over = compare(fastest, baseline, results)
    yield (f"{sentence}, {over.text} over the baseline {baseline.cell.setting}." if over.ratio else f"{sentence}.")


def _fastest_cell(results: SweepResults) -> CellResult | None:
    """Of those that were not given up: these had fewer rounds, which may have been the better ones."""
    given_up = {cell for found in results.courses.values() for cell in found.given_up}
    left = [one for one in results.measured if one.cell.cell_id not in given_up]
    return max(left, key=lambda one: one.throughput or 0.0, default=None)


def _over_other_accelerators(results: SweepResults) -> Iterator[str]:
    """The fastest cell over every other accelerator's like setting."""
    fastest = _fastest_cell(results)
    if fastest is None:
        return
    grid, name = Grid(results), str(fastest.cell.axes["accelerator"])
    for other in grid.accelerators:
        over = grid.over_like(name, other, fastest.cell.loader)
        if over is not None and over.ratio is not None:
            yield f"{fastest.cell.setting} is {over.text.rstrip(' ‡')} over {over.denominator.cell.setting}."


def _answered(results: SweepResults) -> Iterator[str]:
    """Whether what the sweep asked for was reached, accelerator by accelerator."""
    for one in answers(results):
        reached = "" if one.widest is None else f", the widest within ±{one.widest:.1%}"
        ended = "" if one.course.ended_by is None else "ended by: "
        asked = f"{one.accelerator}: asked for {one.question.text}"
        yield f"{asked}; {len(one.course.rounds)} rounds{reached}; {ended}{one.why}."


VERDICTS = {
    Verdict.LOADER_BOUND: "The loader is the limit (loader-bound)",
    Verdict.SERIAL: "Loading and computing take turns (serial: no workers)",
    Verdict.HOST_CONTENDED: "Well below both ceilings, so the host is the limit (host-contended)",
    Verdict.BALANCED: "Loader and compute are about equal limits (balanced)",
    Verdict.COMPUTE_BOUND: "Compute is the limit (compute-bound)",
}


def _limits(results: SweepResults) -> Iterator[str]:
    for verdict, words in VERDICTS.items():
        settings = held_back_by(results, verdict)
        if settings:
            yield f"{words}: {', '.join(settings)}."


def _pipelines(results: SweepResults) -> Iterator[str]:
    """What each input pipeline could feed, beside what the device could take."""
    groups: dict[tuple[object, ...], list[CellResult]] = {}
    for one in results.measured:
        if "input_pipeline" in one.cell.axes and one.loader_ceiling and one.compute_ceiling:
            key = tuple(value for name, value in one.cell.axes.items() if name != "input_pipeline")
            groups.setdefault(key, []).append(one)
    for group in groups.values():
        name = " · ".join(part for part in group[0].cell.setting.split(" · ") if not part.startswith("pipeline="))
        loads = ", ".join(f"{one.cell.axes['input_pipeline']} {ceiling_text(one, 'loader')}" for one in group)
        takes = ceiling_text(max(group, key=lambda one: one.compute_ceiling or 0), "compute")
        seconds = sorted(float(value) for one in group for value in one.facts("data.image_cache_build_seconds"))
        loads += f" (images resized once, in {_range(seconds)} s)" if seconds else ""
        yield f"{name}: the loader alone could feed, samples/s: {loads}; the device could take {takes}."


def _range(ordered: Sequence[float]) -> str:
    least, most = figure(ordered[0]), figure(ordered[-1])
    return least if least == most else f"{least} to {most}"


def _stragglers(results: SweepResults) -> Iterator[str]:
    """Cells whose ranks wait for one another, and for whom."""
    for one in results.measured:
        spread = one.mean("rank_spread_fraction") or 0.0
        if spread >= RANKS_APART:
            last, share = set(one.values("slowest_rank")), one.mean("slowest_rank_share") or 0.0
            who = f"rank {last.pop():.0f} was the last in {percent(share)} of the steps" if len(last) == 1 else ""
            who = who or "not the same rank was the last in each repeat"
            yield f"{one.cell.setting}: the ranks had their batches {percent(spread)} of a step apart; {who}."


def _hidden_neighbours(results: SweepResults) -> Iterator[str]:
    """Said once: where nobody could tell the trial's own processes on the devices from others'."""
    hidden = {str(one.cell.axes["accelerator"]) for one in results.measured if one.mean("hidden_device_processes")}
    if hidden:
        yield (
            f"Not known on {', '.join(sorted(hidden))}: whether others were on the devices, for the trials ran in "
            "containers that do not see the host's processes (--pid=host)."
        )


def _flagged(results: SweepResults) -> Iterator[str]:
    for one in results.cells:
        if one.flags and one.cell.same_as is None:
            yield f"Doubtful: {one.cell.setting}: {'; '.join(one.flags)}."


def _not_measured(results: SweepResults) -> Iterator[str]:
    for one in results.to_measure:
        if not one.measured and not one.rehearsed:
            yield f"Not measured: {one.cell.setting}: {_why(one)}."


def _why(one: CellResult) -> str:
    outcome = one.outcome
    had = f" ({len(one.throughputs)} of {one.repeats} repeats are measured)" if one.throughputs else ""
    return f"{str(outcome.kind).replace('_', ' ')}{f' ({outcome.reason})' if outcome.reason else ''}{had}"


def _left_out(results: SweepResults) -> Iterator[str]:
    measured = [record.facts for record in results.records if record.outcome.kind is Kind.MEASURED]
    left_out = {(facts.get("data.samples_left_out", "0"), facts.get("data.left_out", "")) for facts in measured}
    for count, names in sorted(left_out - {("0", "")}):
        yield f"Left out of the data set, since they cannot be read: {count}: {_shortened(names)}."


def _shortened(text: str) -> str:
    return text if len(text) <= NAMES_LENGTH else f"{text[:NAMES_LENGTH]}… (environment.json of each run has them all)"
