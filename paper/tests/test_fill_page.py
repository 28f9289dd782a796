"""A part of a results table on a page: some columns, some groups, and the notes around it."""

import runpy
from pathlib import Path

import pytest

part_of = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "fill_page.py"))["part_of"]

TABLE = """**Title**

| detector | MCC  | AUROC |
| :------- | ---: | ----: |
| **acl**  |      |       |
| none     | 0.1  | 0.5   |
| **dblp** |      |       |
| none     | 0.2  | 0.6   |

A note."""


@pytest.mark.parametrize(
    ("selection", "rows"),
    [
        ("", TABLE.splitlines()[2:8]),
        ("columns: detector, AUROC | groups: dblp", ["| detector | AUROC |", "| :------- | ----: |", "| **dblp** |  |", "| none | 0.6 |"]),
        ("groups: acl", ["| detector | MCC | AUROC |", "| :------- | ---: | ----: |", "| **acl** |  |  |", "| none | 0.1 | 0.5 |"]),
    ],
)  # fmt: skip
def test_parts_of_a_table(selection, rows):
    lines = part_of(TABLE, selection).splitlines()
    assert [line for line in lines if line.startswith("|")] == rows
    assert [line for line in lines if line and not line.startswith("|")] == ["**Title**", "A note."]


def test_an_unknown_column_is_an_error():
    with pytest.raises(ValueError, match="accuracy"):
        part_of(TABLE, "columns: detector, accuracy")
