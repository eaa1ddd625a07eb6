"""Reads a sweep file: what stands there or a refusal, in bounded time and memory, each value with its line.

PyYAML parses; what a plain scalar means is decided here, by YAML 1.2's core schema: what YAML 1.1 would turn into
another number or into a date is refused, with the way to write it.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from bridgetower_ray.errors import UsageError

Location = tuple[str | int, ...]

MOST_BYTES = 64 * 1024
MOST_DEPTH = 20
MOST_VALUES = 10_000  # with every alias written out
MOST_DIGITS = 30
STRING_TAG = "tag:yaml.org,2002:str"
NULLS = {"", "~", "null", "Null", "NULL"}
BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
INTEGER = re.compile(r"[-+]?(0|[1-9]\d*)")
FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
# What YAML 1.1, or a reader of some other kind, takes for a number or a date that is not the one that is written.
TREACHEROUS = (
    (re.compile(r"[-+]?0[\d_]+"), "a number with a leading zero is octal to some readers; write it without"),
    (re.compile(r"[-+]?0[oxb][\da-fA-F_]+"), "write the number in decimal"),
    (re.compile(r"[-+]?\d+(:[0-5]?\d)+(\.\d*)?"), "some readers take it for a number in base 60; write it in decimal"),
    (re.compile(r"[-+]?\d[\d_]*_[\d_]*(\.[\d_]*)?"), "write the number without underscores"),
    (re.compile(r"\d{4}-\d\d?-\d\d?([Tt ].*)?"), "some readers take it for a date; put it in quotes"),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), "no setting takes a number that is not finite"),
)


@dataclass(frozen=True)
class SweepFile:
    """The parsed values and, for each place in them, the line (from 1) where it stands."""

    path: Path
    values: dict[str, Any]
    lines: dict[Location, int]

    def line_of(self, location: Location) -> int:
        """The line of a place, or of the nearest place around it that stands in the file."""
        for length in range(len(location), -1, -1):
            if location[:length] in self.lines:
                return self.lines[location[:length]]
        return 1


def read_sweep_file(path: Path) -> SweepFile:
    """Parse `path`.

    Raises:
        UsageError: the file is absent, unreadable, no YAML, no mapping, repeats a key, is too large or too deep, or
            holds a value that would not be what is written.
    """
    text = _text(path)
    try:
        _check_depth(yaml.parse(text, Loader=yaml.BaseLoader), path)
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise UsageError(f"{path}{_position(error)}: not valid YAML: {_problem(error)}") from None
    reading = _Reading(path)
    values = reading.value(root, ()) if root is not None else None
    if not isinstance(values, dict):
        raise UsageError(f"{path}:1: a sweep is a mapping of keys to values, such as `name: my-sweep`")
    return SweepFile(path, values, reading.lines)


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            reason = "is a folder, not a sweep file" if path.is_dir() else "no such file"
            raise UsageError(f"{path}: {reason}")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    if len(content) > MOST_BYTES:
        raise UsageError(f"{path}: over {MOST_BYTES // 1024} KiB: no sweep file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None


def _check_depth(events: Iterator[yaml.Event], path: Path) -> None:
    """Before anything walks the tree, whose nesting is a limit of Python's own."""
    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            mark: Any = event.start_mark
            raise UsageError(f"{path}:{mark.line + 1}: nested more than {MOST_DEPTH} deep; a sweep needs 4 levels")


@dataclass
class _Reading:
    """Nodes -> values, counted, with the line of each place."""

    path: Path
    lines: dict[Location, int] = field(default_factory=dict)
    _count: int = 0
    _open: list[int] = field(default_factory=list)

    def value(self, node: yaml.Node, location: Location) -> Any:
        self._count += 1
        if self._count > MOST_VALUES:
            self._refuse(node, f"with its aliases written out the file holds over {MOST_VALUES} values")
        self.lines.setdefault(location, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            self._refuse(node, "an alias inside what it stands for")
        self._open.append(id(node))
        try:
            return self._mapping(node, location) if isinstance(node, yaml.MappingNode) else self._list(node, location)
        finally:
            self._open.pop()

    def _list(self, node: yaml.Node, location: Location) -> list[Any]:
        if node.tag != yaml.BaseLoader.DEFAULT_SEQUENCE_TAG:
            self._refuse_tag(node)
        return [self.value(one, (*location, index)) for index, one in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        if node.tag != yaml.BaseLoader.DEFAULT_MAPPING_TAG:
            self._refuse_tag(node)
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(key, "a key is a word, not a list or a mapping")
            name = str(key.value)
            if name in seen:
                raise UsageError(f"{self.path}:{line}: the key {name!r} stands already in line {seen[name]}")
            seen[name] = line
            if name == "<<" and key.style is None:
                merged = self._merged(value, location)
                continue
            self.lines[(*location, name)] = line
            own[name] = self.value(value, (*location, name))
        return merged | own

    def _merged(self, node: yaml.Node, location: Location) -> dict[str, Any]:
        """What `<<: *other` brings: the keys that the mapping does not have itself; of several the first counts."""
        found: dict[str, Any] = {}
        for one in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            values = self.value(one, location)
            if not isinstance(values, dict):
                self._refuse(one, "<< takes a mapping, or a list of them")
            found = values | found
        return found

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text = str(node.value)
        if node.style is not None or node.tag != STRING_TAG:
            return text if node.tag == STRING_TAG else self._refuse_tag(node)
        if text in NULLS:
            return None
        if text in BOOLEANS:
            return BOOLEANS[text]
        for pattern, what_to_do in TREACHEROUS:
            if pattern.fullmatch(text):
                self._refuse(node, f"{_short(text)} may not mean what stands there: {what_to_do}")
        if not (FLOAT.fullmatch(text)):
            return text
        if len(text) > MOST_DIGITS or not math.isfinite(float(text)):
            self._refuse(node, f"{_short(text)} is no number that a setting could take")
        return int(text) if INTEGER.fullmatch(text) else float(text)

    def _refuse_tag(self, node: yaml.Node) -> NoReturn:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        self._refuse(node, f"{_short(tag)}: tags are not read; write the value without one")

    def _refuse(self, node: yaml.Node, why: str) -> NoReturn:
        raise UsageError(f"{self.path}:{node.start_mark.line + 1}: {why}")


def _short(text: str) -> str:
    return text if len(text) <= MOST_DIGITS else f"{text[:MOST_DIGITS]}…"


def _position(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}" if mark else ""


def _problem(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or error).splitlines()[0]
