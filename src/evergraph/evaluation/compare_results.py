"""Results of comparisons on disk: a line for each graph, detector and seed, added to by each command."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evergraph.errors import EvergraphError
from evergraph.evaluation.judgement import Judgement
from evergraph.storage.files import only_one, write_atomic

__all__ = ["keep"]

log = logging.getLogger(__name__)

RESULTS = "results.jsonl"

_IDENTITY = ("graph", "fingerprint", "detector", "settings", "seed", "configuration", "numerics_version")


def keep(out: Path, judged: Sequence[Judgement]) -> None:
    """Add lines to those of earlier commands, in place of those of the same detectors on the same trainings.

    Parameters
    ----------
    out
        The folder of the comparison.
    judged
        What to add.
    """
    path = out / RESULTS
    try:
        with only_one(out / f".{RESULTS}.lock"):  # for another command may be adding its own
            lines = _read(path)
            lines |= {
                _key(line): json.dumps(line, ensure_ascii=False, allow_nan=False).encode()
                for line in (one.as_dict() for one in judged)
            }
            write_atomic(path, b"".join(line + b"\n" for line in lines.values()))
    except OSError as error:
        raise EvergraphError(
            f"{path}: the results could not be kept ({error.strerror or error}). The recordings are not lost: make "
            "room, or change permissions, and run the same command again."
        ) from error


def _read(path: Path) -> dict[str, bytes]:
    """The lines of a file by what they are of; such as are no results are kept as they are."""
    found = {}
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else [], start=1):
        try:
            key = _key(json.loads(line))
        except (ValueError, LookupError, TypeError):
            log.warning("%s, line %d: this is no result of a comparison; it is left alone.", path, number)
            key = f"line {number}"
        found[key] = line
    return found


def _key(line: Mapping[str, Any]) -> str:
    return json.dumps([line[name] for name in _IDENTITY], sort_keys=True)
