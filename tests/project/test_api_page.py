"""Each entry of the reference page exists, and everything with a name on the command line is on it."""

import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from evergraph import names

ENTRIES = re.findall(
    r"^::: (\S+)$", Path(__file__).parents[2].joinpath("docs/reference/api.md").read_text(), re.MULTILINE
)


def resolve(path):
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(path)


@pytest.mark.parametrize("path", ENTRIES)
def test_an_entry_of_the_reference_can_be_imported(path):
    assert resolve(path) is not None


@pytest.mark.parametrize("kind", ["model", "detector", "score", "threshold"])
def test_everything_with_a_name_is_in_the_reference(kind):
    there = [resolve(path) for path in ENTRIES if path.startswith(("evergraph.nn", "evergraph.detect"))]
    assert [name for name in getattr(names, f"{kind.upper()}S") if names.load(kind, name) not in there] == []


@pytest.mark.parametrize("kind", ["model", "detector", "score", "threshold"])
def test_the_configuration_page_lists_every_name_with_its_settings(kind):
    page = Path(__file__).parents[2].joinpath("docs/reference/configuration.md").read_text(encoding="utf-8")
    for name in getattr(names, f"{kind.upper()}S"):
        built = names.build(kind, name)
        (row,) = re.findall(rf"^\| `{name}`.* `{type(built).__name__}` .*$", page, re.MULTILINE)
        for setting in fields(built):
            value = getattr(built, setting.name)
            if setting.name != "base":  # the model that another one wraps
                assert f"{setting.name} {'none' if value is None else str(value).removesuffix('.0')}" in row
