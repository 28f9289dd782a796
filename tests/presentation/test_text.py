"""Texts for terminals and spreadsheets: nothing harmful is left, and the original can be restored."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.presentation.text import spreadsheet_original, spreadsheet_safe, visible, visible_json

HARMFUL = [
    "\x1b[2J",
    "\x9b31m",
    "\u202egnp.exe",
    "a\rb",
    "\x00",
    "\x7f",
    "\u2066x\u2069",
    "\ud800",
    "\u200b",
    "\U000e0041",
]
texts = st.text(st.characters() | st.sampled_from("'=+-@\t\r\n1\x1b\u202e"), max_size=20)


@pytest.mark.parametrize("name", HARMFUL)
def test_harmful_characters_are_shown_escaped(name):
    assert visible(name).isprintable()
    assert visible(name) == repr(name)[1:-1]
    dumped = visible_json(json.dumps({"a": name}, ensure_ascii=False, indent=2))
    assert dumped.replace("\n", "").isprintable()
    assert json.loads(dumped) == {"a": name}


def test_ordinary_text_is_shown_as_it_is():
    for name in ("KDD", "Größe", "数据", "می\u200cخواهم", "👩\u200d💻", "a\u00a0b", "C:\\x1b"):
        assert visible(name) == name
        assert visible_json(name) == name
    assert visible("a\nb") == "a\\nb"
    assert visible("a\nb\t", lines=True) == "a\nb\\t"


@pytest.mark.parametrize("start", [*"=+-@\t\r\n＝＋－＠", " =", "\u00a0 +", "\u3000＝"])
def test_formulas_get_an_apostrophe(start):
    assert spreadsheet_safe(f"{start}cmd()") == f"'{start}cmd()"


def test_numbers_stay_numbers():
    for cell in (-1.5, -1, "-1.5", "-3e-05", "-7", None, True):
        assert spreadsheet_safe(cell) is cell
    for cell in ("-1+cmd()", "+1", "-", "-1\n"):
        assert spreadsheet_safe(cell) == f"'{cell}"


@given(texts)
def test_the_original_of_a_safe_cell_is_restored(cell):
    safe = spreadsheet_safe(cell)
    assert spreadsheet_original(safe) == cell
    assert safe == cell or safe.startswith("'")
