"""A sweep file ends in values or in one line, whatever it holds; a value is what stands there."""

import random
from pathlib import Path

import pytest

from bridgetower_ray.errors import UsageError
from bridgetower_ray.sweep.file import MOST_BYTES, SweepFile, read_sweep_file
from tests.conftest import MINI

ALIASES = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
REFUSED = {
    "octal": ("n: 010\n", r":1: 010 may not mean what stands there: .*leading zero"),
    "sexagesimal": ("n: 1\nm: 1:30\n", r":2: 1:30 may not mean what stands there: .*base 60"),
    "hexadecimal": ("n: 0x10\n", r":1: 0x10 .*in decimal"),
    "underscores": ("n: 1_000\n", r":1: 1_000 .*without underscores"),
    "date": ("n: 2024-02-01\n", r":1: 2024-02-01 .*in quotes"),
    "impossible date": ("n: 2024-02-30\n", r":1: 2024-02-30 .*in quotes"),
    "infinity": ("n: .inf\n", r":1: .inf .*not finite"),
    "too large for a float": ("n: 1e999\n", r":1: 1e999 is no number"),
    "many digits": (f"n: {'9' * 5000}\n", r":1: 9{30}… is no number"),
    "tag of a kind": ("n: !!bool maybe\n", r":1: !!bool: tags are not read"),
    "tag of a mapping": ("n: !!set {a, b}\n", r":1: !!set: tags are not read"),
    "self-reference": ("n: &n {m: *n}\n", r":1: an alias inside what it stands for"),
    "nesting": (f"n: {'[' * 5000}{']' * 5000}\n", r":1: nested more than 20 deep"),
    "aliases without end": (ALIASES, r"with its aliases written out the file holds over 10000 values"),
    "a list as a key": ("? [a, b]\n: 1\n", r":1: a key is a word"),
    "two documents": ("a: 1\n---\nb: 2\n", r"not valid YAML"),
    "size": ("# " + "x" * MOST_BYTES, r"over 64 KiB: no sweep file"),
    "a control character": ("a: \x07\n", r"not valid YAML"),
}


def read(text: str, folder: Path) -> SweepFile:
    file = folder / "sweep.yaml"
    file.write_text(text)
    return read_sweep_file(file)


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_would_not_be_what_stands_there_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read(text, tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("8", 8), ("-3", -3), ("0", 0), ("1.5", 1.5), ("1e-5", 1e-5), ("1.0e-5", 1e-5), (".5", 0.5), ("true", True),
        ("null", None), ("~", None), ("on", "on"), ("no", "no"), ("'010'", "010"), ('"1:30"', "1:30"), ("v1.2", "v1.2"),
        ("3c6c4f6c", "3c6c4f6c"),
    ],
)  # fmt: skip
def test_a_value_is_what_stands_there(written: str, value: object, tmp_path: Path) -> None:
    found = read(f"n: {written}\n", tmp_path).values["n"]
    assert found == value
    assert type(found) is type(value)


def test_aliases_and_merged_keys_are_read(tmp_path: Path) -> None:
    text = "base: &base {a: 1, b: 2}\nnew: {<<: *base, b: 3}\nagain: *base\n"
    values = read(text, tmp_path).values
    assert values["new"] == {"a": 1, "b": 3}
    assert values["again"] == {"a": 1, "b": 2}


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + MINI.encode())
    assert read_sweep_file(file).values["name"] == "mini"


def test_a_folder_is_no_sweep_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder, not a sweep file"):
        read_sweep_file(tmp_path)


def test_any_damage_to_a_sweep_file_ends_in_values_or_in_one_line(tmp_path: Path) -> None:
    dice = random.Random(7)
    pieces = [
        "!!int ",
        "&a ",
        "*a",
        "[",
        "]",
        "{",
        "}",
        ":",
        "- ",
        "010",
        "1:30",
        "\t",
        "'",
        '"',
        "|",
        ">",
        "%",
        "?",
        "\x85",
    ]
    refusals = []
    for _ in range(300):
        text = list(MINI)
        for _ in range(dice.randint(1, 4)):
            text[dice.randrange(len(text))] = dice.choice(pieces)
        try:
            read("".join(text), tmp_path)
        except UsageError as error:
            refusals.append(str(error))
    assert len(refusals) > 50
    assert not any("\n" in one for one in refusals)
