"""Numbers of things, in words."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with the word for one or for several.

    Examples
    --------
    >>> counted(1, "label"), counted(1_200, "vertex", "vertices")
    ('1 label', '1,200 vertices')
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
