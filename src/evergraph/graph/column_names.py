"""What the columns of tables are called."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Columns"]


@dataclass(frozen=True)
class Columns:
    """Which columns of tables hold what; the fields are the arguments of `read_tables`."""

    id: str = "id"
    time: str = "time"
    label: str = "label"
    text: str | None = None
    features: tuple[str, ...] = ()
    source: str = "source"
    target: str = "target"
    edge_time: str | None = None
