"""The faults of ``make mutations`` can be applied to the code."""

import pytest

from tests.scripts import script

mutate = script("mutate")
FAULTS = mutate.read_faults()


def test_there_are_42_faults_over_all_packages():
    assert len({fault["id"] for fault in FAULTS}) == len({fault["meaning"] for fault in FAULTS}) == len(FAULTS) == 42
    packages = {path.name for path in (mutate.ROOT / "src" / "evergraph").iterdir() if (path / "__init__.py").exists()}
    assert packages - {"presentation"} <= {fault["package"] for fault in FAULTS}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["id"])
def test_each_fault_can_be_applied(fault):
    assert mutate.problems_of(fault, "after", mutate.ROOT) == []
    assert fault["after"]["old"] != fault["after"]["new"]


def test_a_missing_file_is_reported(tmp_path):
    assert "does not exist" in mutate.problems_of(FAULTS[0] | {"after": FAULTS[0]["before"]}, "after", tmp_path)[0]
