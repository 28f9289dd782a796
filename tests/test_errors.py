from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from evergraph import errors
from evergraph.errors import DownloadError, EvergraphError, InputError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EvergraphError)]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_reach_other_processes_as_they_are(kind: type[EvergraphError]) -> None:
    error = kind("it broke", fix="mend it")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.args, vars(copy)) == (kind, str(error), error.args, vars(error))


def test_an_error_that_was_pickled_has_its_place() -> None:
    error = InputError("x" * 999, fix="mend it", file=Path("p.csv"), column="time", row=7, line=8)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.file, copy.row, copy.fix) == (str(error), Path("p.csv"), 7, "mend it")


def test_a_download_error_needs_no_fix() -> None:
    assert str(DownloadError("it broke")) == "it broke."
