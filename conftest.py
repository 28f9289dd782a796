"""Fixtures that the tests of all packages share."""

from __future__ import annotations

import gc
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from evergraph.cli import main

# The same examples on every machine. `make test-all` uses the profile "thorough".
settings.register_profile("fast", derandomize=True, deadline=None, database=None, max_examples=20)
settings.register_profile("thorough", settings.get_profile("fast"), max_examples=50)
settings.load_profile("fast")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Fail browser tests that would be skipped if CI=true: there, a missing browser is an error."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.skipped and os.environ.get("CI") == "true" and item.get_closest_marker("browser"):
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr[2]}: with CI=true a browser test may not be skipped"


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Use one thread, which is faster for very small models."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Start a Ray cluster with two cores on this machine; only one at a time, although tests run in two processes."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: install evergraph[ray]")
    from evergraph.ray_connection import import_ray
    from evergraph.storage.files import only_one

    with only_one(Path(tempfile.gettempdir(), "evergraph-test-ray.lock")):
        ray = import_ray()
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield ray
        with warnings.catch_warnings():  # Ray does not wait for the processes that it ends
            warnings.simplefilter("ignore", ResourceWarning)
            ray.shutdown()
            gc.collect()


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Return a function from the name of a real data set to its folder; it skips the test if there is none."""
    beside = Path(__file__).parents[1] / "shared" / "data"
    root = Path(os.environ.get("EVERGRAPH_DATA") or beside)

    def folder(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"{root / name} does not exist: set EVERGRAPH_DATA to the folder that contains {name}")
        return root / name

    return folder


@pytest.fixture(autouse=True)
def _log_of_a_library() -> None:
    """Undo how commands of earlier tests have set up the log."""
    log = logging.getLogger("evergraph")
    log.setLevel(logging.NOTSET)
    log.handlers, log.propagate = [], True


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs ``evergraph`` in this process and returns exit code, output and error output."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["evergraph", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            main()
        out, err = capsys.readouterr()
        return int(leaving.value.code or 0), out, err

    return run
