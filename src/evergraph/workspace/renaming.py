"""What classes are called in one version that were called otherwise in another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evergraph.workspace.state import Renaming, Return

__all__ = ["current_name", "renamings"]


def renamings(
    renamed: Iterable[Renaming], returns: Sequence[Return], then: int, now: int
) -> tuple[tuple[str, str], ...]:
    """How classes were renamed, old name and new, from one version to another; in this order.

    What was renamed until then and is not so now, because an earlier version was returned to, gets its old name again;
    of a merger nobody can tell which name that was. What was renamed since then gets its new name.

    Parameters
    ----------
    renamed, returns
        All renamings and returns there were, oldest first.
    then, now
        The two versions.

    Examples
    --------
    >>> renamed, returns = [Renaming(3, "A", "B")], [Return(5, to=2)]
    >>> renamings(renamed, [], 2, 4), renamings(renamed, returns, 4, 5), renamings(renamed, returns, 2, 5)
    ((('A', 'B'),), (('B', 'A'),), ())
    """
    events = [(event, _led_to(event, then, returns), _led_to(event, now, returns)) for event in renamed]
    undone = [(event.new, event.old) for event, before, after in reversed(events) if before and not after]
    lost = {event.new for event, before, after in events if before and not after and event.merged}
    done = [(event.old, event.new) for event, before, after in events if after and not before]
    return (*((old, new) for old, new in undone if old not in lost), *done)


def _led_to(event: Renaming, version: int, returns: Sequence[Return]) -> bool:
    """Whether a version came of the one in which a class was renamed."""
    for back in reversed(returns):
        if event.version >= back.version:
            break
        if back.version <= version:
            version = back.to
    return event.version <= version


def current_name(name: str, steps: Iterable[tuple[str, str]]) -> str:
    """What a class is called after some renamings.

    Examples
    --------
    >>> current_name("A", [("A", "B"), ("B", "C")])
    'C'
    """
    for old, new in steps:
        name = new if name == old else name
    return name
