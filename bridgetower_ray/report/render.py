"""One document, drawn as Markdown, HTML or terminal text, and written beside its data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
from jinja2 import Environment, PackageLoader
from rich.console import Console
from rich.table import Table as TerminalTable
from rich.text import Text

from bridgetower_ray.report.efficiency_table import efficiency_table
from bridgetower_ray.report.findings import findings
from bridgetower_ray.report.hours_table import hours_table
from bridgetower_ray.report.plots import plots
from bridgetower_ray.report.published import Published, against_published, published_results
from bridgetower_ray.report.question_table import question_table
from bridgetower_ray.report.records import SweepResults
from bridgetower_ray.report.results_table import to_table
from bridgetower_ray.report.tables import (
    Table,
    cell_table,
    host_share_table,
    limits_table,
    speedup_tables,
    throughput_table,
)
from bridgetower_ray.sweep.sweep_run import REHEARSAL_BANNER

MARKDOWN_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#"})


@dataclass(frozen=True)
class Document:
    """What a report says, before it is drawn."""

    title: str
    subtitle: str
    banner: str
    findings: tuple[str, ...]
    tables: tuple[Table, ...]
    plots: tuple[str, ...]
    cells: Table
    provenance: tuple[str, ...]


def document_of(
    results: SweepResults,
    provenance: tuple[str, ...] = (),
    address_of: Callable[[Sequence[str]], str] | None = None,
    mask: Callable[[str], str] = str,
) -> Document:
    """The report of a sweep run.

    Args:
        provenance: lines that say where the numbers come from, such as the store and its views.
        address_of: the address that shows some MLflow runs, by their ids.
        mask: takes secrets out of a text.
    """
    sweep_run = results.sweep_run
    stack = ", ".join(f"{name} {version}" for name, version in sweep_run.stack.items()) or "not known"
    return Document(
        title=f"{sweep_run.experiment}: {results.summary}",
        subtitle=f"{sweep_run.model} on {sweep_run.dataset['path']}, sweep run {sweep_run.id}",
        banner=REHEARSAL_BANNER if results.rehearsal else "",
        findings=tuple(mask(sentence) for sentence in findings(results)),
        tables=tuple(filter(None, _tables(results))),
        plots=tuple(plots(results)),
        cells=cell_table(results, address_of),
        provenance=(*provenance, f"Started with: {stack}."),
    )


def _tables(results: SweepResults) -> list[Table | None]:
    return [
        throughput_table(results),
        *speedup_tables(results),
        limits_table(results),
        host_share_table(results),
        efficiency_table(results),
        question_table(results),
        hours_table(results),
        against_published(results),
    ]


def document_of_published(published: Published) -> Document:
    """A published benchmark, rendered as our own runs are."""
    results = published_results(published)
    return replace(
        document_of(results),
        title=f"{published.name}: published figures",
        subtitle=published.source,
        banner="PUBLISHED figures, not measured by this tool",
        provenance=(*(f"Not known: {what}." for what in published.unknown), published.second_reference),
    )


def to_html(document: Document) -> str:
    """One self-contained page; every value is escaped."""
    environment = Environment(loader=PackageLoader("bridgetower_ray.report"), autoescape=True)
    return environment.get_template("report.html.j2").render(document=document)


def to_markdown(document: Document) -> str:
    """The same story for a pull request."""
    parts = [f"# {escape_markdown(document.title)}", escape_markdown(document.subtitle)]
    parts += [f"**{escape_markdown(document.banner)}**"] if document.banner else []
    parts += ["## What was found", "\n".join(f"- {escape_markdown(one)}" for one in document.findings)]
    for table in (*document.tables, document.cells):
        parts += [f"## {escape_markdown(table.title)}", markdown_table(table)]
        parts += ["\n".join(f"- {escape_markdown(note)}" for note in table.notes)] if table.notes else []
    parts += ["## How to check this", "\n".join(f"- {escape_markdown(line)}" for line in document.provenance)]
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    """A table in GitHub's Markdown."""
    lines = [(table.corner, *table.columns), ("---",) * (len(table.columns) + 1)]
    lines += [(label, *entries) for label, entries in table.rows]
    head, rule, *body = [[*line] for line in lines]
    escaped = [[_linked(entry, table.links) for entry in line] for line in (head, *body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (escaped[0], rule, *escaped[1:]))


def _linked(entry: str, links: Mapping[str, str]) -> str:
    return f"[{escape_markdown(entry)}](<{links[entry]}>)" if entry in links else escape_markdown(entry)


def summary_markdown(document: Document, report: str) -> str:
    """What fits into an experiment's description: the findings, the first table, and where the rest is."""
    parts = [
        f"**{escape_markdown(document.title)}**",
        f"**{escape_markdown(document.banner)}**" if document.banner else "",
    ]
    parts += ["\n".join(f"- {escape_markdown(one)}" for one in document.findings)]
    parts += [markdown_table(document.tables[0])] if document.tables else []
    parts += [f"The whole report: {escape_markdown(report)}"]
    return "\n\n".join(parts)


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is."""
    return " ".join(text.translate(MARKDOWN_SPECIAL).split())


def show(document: Document, console: Console) -> None:
    """Print what was found and the tables to a terminal."""
    console.print(Text(document.title, style="bold"))
    if document.banner:
        console.print(Text(document.banner, style="bold reverse"))
    for sentence in document.findings:
        console.print(Text(f"  {sentence}"))
    for table in document.tables:
        console.print()
        show_table(table, console)


def show_table(table: Table, console: Console) -> None:
    """Print one table with its notes to a terminal."""
    drawn = TerminalTable(title=table.title, title_justify="left", title_style="bold")
    for column in (table.corner, *table.columns):
        drawn.add_column(Text(column))
    for label, entries in table.rows:
        drawn.add_row(Text(label), *(Text(entry) for entry in entries))
    console.print(drawn)
    for note in table.notes:
        console.print(Text(f"  {note}", style="dim"))


def write_report(document: Document, results: SweepResults, folder: Path) -> list[Path]:
    """Write report.md, report.html, results.csv and results.parquet, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    table = to_table(results)
    files = [folder / name for name in ("report.md", "report.html", "results.csv", "results.parquet")]
    unfinished = [file.with_name(f".{file.name}.unfinished") for file in files]
    unfinished[0].write_text(to_markdown(document), encoding="utf-8")
    unfinished[1].write_text(to_html(document), encoding="utf-8")
    pyarrow.csv.write_csv(table, unfinished[2])
    pyarrow.parquet.write_table(table, unfinished[3])
    for ready, file in zip(unfinished, files, strict=True):
        ready.replace(file)
    return files
