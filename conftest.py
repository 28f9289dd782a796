"""What the tests of the package and of the paper share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from evergraph.cli import main

# The same examples every time: a test that fails here fails everywhere. `make test-all` chooses "thorough".
settings.register_profile("fast", derandomize=True, deadline=None, database=None, max_examples=20)
settings.register_profile("thorough", settings.get_profile("fast"), max_examples=50)
settings.load_profile("fast")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Fail browser tests that would be skipped where CI=true: there, a missing browser must not go unnoticed."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.skipped and os.environ.get("CI") == "true" and item.get_closest_marker("browser"):
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr[2]}: with CI=true a browser test may not be skipped"


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For models so small that they are faster without company."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Folder of a real data set by its name; a test that needs one that is not there is skipped."""
    beside = Path(__file__).parents[1] / "shared" / "data"
    root = Path(os.environ.get("EVERGRAPH_DATA") or beside)

    def folder(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"{root / name} is not there: set EVERGRAPH_DATA to the folder that holds {name}")
        return root / name

    return folder


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command ``evergraph`` in this process; returns exit code, standard output and standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["evergraph", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        out, err = capsys.readouterr()
        return int(leaving.value.code or 0), out, err

    return run
