"""Reading what the kernel says in files of /proc and /sys."""

from pathlib import Path


def content(file: Path) -> str:
    """A file's text; empty where it is not there or may not be read."""
    try:
        return file.read_text()
    except OSError:
        return ""
