"""The answers of a review: which labels they mean, what they would do, and what contradicts them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from evergraph.errors import InputError, StaleError
from evergraph.graph import ids as id_columns
from evergraph.service.grouping import Grouping
from evergraph.service.schemas import Answers
from evergraph.workspace.change import Contents
from evergraph.workspace.spelling import find_resembling

__all__ = ["Meant", "resolve"]

_MOST = 50  # conflicts in a message


class ConflictError(StaleError):
    """Vertices got another label since the answers were given."""

    def __init__(self, conflicts: list[dict[str, Any]]) -> None:
        first, more = conflicts[0], len(conflicts) - 1
        others = f" ({more:,} more)" if more else ""
        super().__init__(
            f"vertex {first['id']!r} got the label {first['label']!r} meanwhile, and your answer is "
            f"{first['answer']!r}{others}",
            fix="keep the other labels (conflicts: keep), or replace them (conflicts: overwrite)",
        )
        self.facts = {"conflicts": conflicts[:_MOST]}


@dataclass(frozen=True)
class Meant:
    """The labels that answers mean.

    Parameters
    ----------
    ids, labels
        The labels, each vertex once.
    conflicts
        Vertices that have another label by now.
    keys
        Keys of the groups that are none.
    """

    ids: list[str | int]
    labels: list[str]
    conflicts: list[dict[str, Any]]
    keys: list[str]

    def preview(self, contents: Contents) -> dict[str, Any]:
        """Return what the answers would do."""
        known = [name for name, count in zip(*_support(contents), strict=True) if count]
        counts = Counter(self.labels)
        new = sorted(set(counts) - set(known))
        near = find_resembling(dict.fromkeys(new, ""), sorted(known)) if new else {}
        return {
            "labels": len(self.ids),
            "new_classes": new,
            "per_class": [{"class": name, "count": count} for name, count in counts.most_common()],
            "warnings": [f"the new class {name!r} differs from {other!r} {how}" for name, (other, how) in near.items()],
            "conflicts": self.conflicts[:_MOST],
        }


def _support(contents: Contents) -> tuple[tuple[str, ...], list[int]]:
    names = contents.graph.class_names
    return names, np.bincount(contents.graph.codes + 1, minlength=len(names) + 1)[1:].tolist()


def resolve(body: Answers, grouping: Grouping, contents: Contents) -> Meant:
    """Find the labels that answers mean; ``conflicts`` decides about vertices with another label.

    A group means its members without a label, so that labels that arrived meanwhile are kept. An id means the vertex,
    whatever its label is.
    """
    graph, wanted = contents.graph, dict[int, str]()
    for answer in body.answers:
        without = set(graph.find(answer.without).tolist()) if answer.without else set()
        rows = [row for number in dict.fromkeys(answer.groups) for row in grouping.left(number, contents).tolist()]
        rows += graph.find(answer.ids).tolist() if answer.ids else []
        for row in rows:
            if row in without:
                continue
            if wanted.setdefault(row, answer.label) != answer.label:
                raise InputError(
                    f"vertex {id_columns.at(graph.ids, row)!r} has two answers, {wanted[row]!r} and {answer.label!r}",
                    fix="keep one of the two",
                )
    conflicts = []
    for row, name in list(wanted.items()):
        label = None if graph.codes[row] < 0 else graph.class_names[graph.codes[row]]
        if label is not None and label != name:
            conflicts.append({"id": id_columns.at(graph.ids, row), "label": label, "answer": name})
            if body.conflicts == "keep":
                del wanted[row]
    ids = [id_columns.at(graph.ids, row) for row in wanted]
    keys = [grouping.keys[grouping.at(number)] for number in dict.fromkeys(body.dismiss)]
    return Meant(ids, list(wanted.values()), conflicts, keys)
