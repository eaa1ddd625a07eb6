"""Packages that transformers imports where it finds them, and that nothing in a rank uses: a fifth of its imports."""

import sys

# scikit-learn and scipy come in through the code for generating text.
UNUSED = ("sklearn", "scipy")


def hide_unused() -> None:
    """Have libraries find these packages absent, unless one is there already."""
    for name in UNUSED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # what the import system takes for absent
