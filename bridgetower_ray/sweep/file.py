"""Reads a YAML file strictly: safe tags only, no duplicate keys, and each value's line kept for errors."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bridgetower_ray.errors import UsageError

Location = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """SafeLoader that also reads 1e-5 as a number, as YAML 1.2 and every user do."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


@dataclass(frozen=True)
class SweepFile:
    """The parsed values and, for each place in them, the line (from 1) where it stands."""

    path: Path
    text: str
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
        UsageError: the file is absent, unreadable, no YAML, no mapping, or repeats a key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    try:
        root = yaml.compose(text, Loader=_Loader)
        lines: dict[Location, int] = {}
        _walk(root, (), lines, path)
        # _Loader is a SafeLoader: it builds plain values and nothing else.
        values = yaml.load(text, Loader=_Loader)  # noqa: S506
    except yaml.YAMLError as error:
        raise UsageError(f"{path}{_position(error)}: not valid YAML: {_problem(error)}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path}:1: a sweep is a mapping of keys to values, such as `name: my-sweep`")
    return SweepFile(path, text, values, lines)


def _walk(node: yaml.Node | None, location: Location, lines: dict[Location, int], path: Path) -> None:
    if node is None:
        return
    lines.setdefault(location, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in seen:
                raise UsageError(f"{path}:{line}: the key {name!r} stands already in line {seen[name]}")
            seen[name] = line
            lines[(*location, name)] = line
            _walk(value, (*location, name), lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*location, index), lines, path)


def _position(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}" if mark else ""


def _problem(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or error).splitlines()[0]
