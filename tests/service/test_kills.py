"""A service that is killed at any moment loses, doubles and damages nothing. ``scripts/kill_service.py`` kills more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evergraph.service.auth import create_token
from evergraph.workspace import Workspace
from tests.scripts import script

kill_service = script("kill_service")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


def test_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    found = kill_service.campaign(tmp_path, 5, seed=1)
    assert found["wrong"] == []
    assert found["kills"] == 5
    assert found["versions"] > 5


def test_the_judge_sees_what_is_lost_doubled_or_left(tmp_path: Path) -> None:
    folder = tmp_path / "ws"
    ids = kill_service.make_workspace(folder)
    create_token(folder, kill_service.WHO, "admin")
    before = Workspace(folder).state.version

    def judged(*sent: Any) -> str:
        clients = kill_service.Clients(None, "", ids, 0)
        clients.sent = list(sent)
        return "; ".join(kill_service.judge(folder, clients, before))

    assert judged() == ""
    lost = kill_service.Sent("k", "labels", "labels", b"", facts=(ids[:1], "mine"), status=200)
    lost.answer = {"version": before, "command": "label"}
    assert "stored answer differs" in judged(lost)
    assert "not 'mine'" in judged(lost)
    added = kill_service.Sent("k", "slices", "slices", b"", facts=1_000_001, status=200, answer=lost.answer)
    assert "is there 0 times" in judged(added)
    assert "two answers name one version" in judged(lost, added)
    (folder / "objects" / "left").write_text("x")
    assert "left behind: left" in judged()
    (folder / "objects" / "left").unlink()
    Workspace(folder).label(ids[:1], ["other"])
    assert "versions without an answer" in judged()
