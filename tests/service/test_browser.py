"""The pages in a real browser: against canned answers, then against the service itself."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from evergraph import EvolvingGraph
from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables
from evergraph.detect import DOC
from evergraph.nn import MLP
from evergraph.presentation.text import visible
from evergraph.service.auth import create_token
from evergraph.workspace import Workspace
from tests.report.browser import Page, browser, why_not
from tests.service import serving as real
from tests.service.fake_api import Fake, build, serving

pytestmark = pytest.mark.browser  # with CI=true they may not be skipped: see conftest.py

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "{{ 7 * 7 }}",
    '=HYPERLINK("https://evil.example","x")',
    "\u202egnirts\u202c",
    "a\x00b\x1b[2J\x9b",
    "&lt;b&gt; &amp;amp;",
    "W" * 400,
)
PAGES = ("/", "/review", "/vertex?id=g1v0", "/label", "/label#suspects", "/activity")

Show = Callable[..., Page]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if reason := why_not():
        pytest.skip(reason)
    with browser() as found:
        yield found


@pytest.fixture
def show(chromium: Any) -> Iterator[Show]:
    """Open a page in a window of its own, and wait until its data is there."""
    opened: list[Page] = []

    def show(url: str, width: int = 1400, *, dark: bool = False, before: str = "") -> Page:
        page = Page(chromium, width, dark=dark, before=before)
        page.page.set_default_timeout(10_000)
        opened.append(page)
        page.page.goto(url)
        ready(page)
        return page

    yield show
    for page in opened:
        page.page.context.close()


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def url(fake: Fake) -> Iterator[str]:
    with serving(build(fake)) as found:
        yield found


def ready(page: Page) -> None:
    page.wait("document.documentElement.dataset.ready === 'yes'")


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.page.keyboard.press(key)


def current(page: Page) -> str:
    """The title of the card that has the focus."""
    title: str = page.run("document.activeElement.closest('article')?.querySelector('h2').textContent ?? ''")
    return title


def text(page: Page, selector: str) -> str:
    return " ".join(page.page.locator(selector).first.inner_text().split())


def choose(page: Page, name: str) -> None:
    """Type a name into the list of classes, and take what it offers first."""
    page.page.wait_for_selector("[role=combobox]:focus")
    page.page.keyboard.type(name)
    press(page, "Enter")
    page.wait("!document.querySelector('dialog')")


def answer_two(page: Page) -> None:
    """Make the first group a class, and give the second one to a known class, by keyboard alone."""
    press(page, "j", "n")
    choose(page, "Geometry")
    assert current(page) == "Group 2"
    press(page, "b")
    choose(page, "order")
    assert current(page) == "Group 3"


# --- look ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("path", PAGES)
def test_pages_are_accessible_and_fit(show: Show, url: str, path: str, width: int) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    page = show(url + path, width)
    for theme in ("light", "dark"):
        page.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        page.run(axe)
        found = page.run("axe.run({resultTypes: ['violations']})")["violations"]
        bad = [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")]
        assert bad == []
    assert page.run("[document.scrollingElement.scrollWidth <= innerWidth, innerWidth]") == [True, width]
    assert page.complaints == page.dialogs == []
    assert all(request.startswith(url) for request in page.requests)


@pytest.mark.parametrize("key", ["n", "p", "v", "?"])
def test_dialogs_are_accessible_and_fit_a_phone(show: Show, url: str, key: str) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    page = show(f"{url}/review", 390)
    press(page, "j", "x", key)
    page.page.wait_for_selector("dialog .buttons")
    page.run(axe)
    found = page.run("axe.run({resultTypes: ['violations']})")["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    assert page.run(
        "document.scrollingElement.scrollWidth <= innerWidth && document.querySelector('dialog').scrollWidth <= 390"
    )
    press(page, "Escape")
    page.wait("!document.querySelector('dialog')")
    assert current(page) == "Group 2"


def test_a_viewer_sees_no_actions(show: Show) -> None:
    with serving(build(Fake(role="viewer"))) as url:
        for path in PAGES:
            page = show(url + path)
            shown = set(page.page.locator("main button").all_inner_texts())
            shown = {re.sub(r"\s+", " ", one) for one in shown}
            assert shown <= {
                "Members Enter",
                "Explain the decision e",
                "+",
                "−",
                "Reset",
                "Queue",
                "Suspected label errors",
                "Render a report",
            }
            press(page, "j", "n", "x", "b", "a")
            assert page.run("document.querySelector('dialog')") is None
            assert page.run("document.getElementById('tray').hidden")


def test_nothing_flagged(show: Show) -> None:
    with serving(build(Fake(groups=0))) as url:
        assert text(show(f"{url}/review"), "#summary").startswith("No vertex is flagged.")
        assert text(show(f"{url}/label"), "#summary").startswith("Nothing to label.")
        assert text(show(f"{url}/label#suspects"), "#summary").startswith("No label looks wrong.")
        assert text(show(url), "#next h2") == "Everything is up to date"


def test_fifty_thousand_flagged_vertices_are_paged(show: Show) -> None:
    with serving(build(Fake(groups=2_500, size=20))) as url:
        page = show(f"{url}/review")
        assert "50,000 vertices are flagged" in text(page, "#summary")
        assert page.page.locator("article").count() == 20
        assert page.run("document.querySelectorAll('*').length") < 2_000
        drawn = [one for one in page.requests if one.endswith("graph") or "/graph?" in one]
        assert len(drawn) < 8  # only what is near the window is drawn
        page.page.get_by_role("button", name="Show more groups (2,480 left)").click()
        page.wait("document.querySelectorAll('article').length === 40")


# --- answers ---------------------------------------------------------------------------------------------------------


def test_groups_are_answered_by_keyboard(show: Show, url: str, fake: Fake) -> None:
    page = show(f"{url}/review")
    answer_two(page)
    press(page, "x")
    assert current(page) == "Group 4"
    press(page, "l")
    assert current(page) == "Group 5"
    assert page.page.locator("article h2").all_inner_texts()[-1] == "Group 4"
    press(page, "k", "k", "j")
    assert current(page) == "Group 4"  # the last one now
    assert text(page, "#tray p") == "3 pending answers · 24 vertices, 2 classes"
    page.page.reload()  # they are kept
    ready(page)
    assert text(page, "#tray p") == "3 pending answers · 24 vertices, 2 classes"
    press(page, "v")
    page.page.wait_for_selector("dialog table")
    assert text(page, "dialog table tbody") == "Geometry new class 12 Order theory 12"
    press(page, "Enter")  # the focus is on the button that saves
    page.page.wait_for_selector("text=Saved as version 8.")
    assert set(fake.labels.values()) == {"Geometry", "Order theory"}
    assert len(fake.labels) == 24
    assert fake.dismissed == {3}
    assert page.run("document.getElementById('tray').hidden")
    page.page.locator(".toast").get_by_role("button", name="Undo").click()
    page.page.wait_for_selector("text=Your answers are pending again")
    assert fake.labels == {}
    assert text(page, "#tray p").startswith("3 pending answers")
    assert page.complaints == []


def test_undo_takes_back_the_last_answer(show: Show, url: str) -> None:
    page = show(f"{url}/review")
    answer_two(page)
    press(page, "u")
    assert text(page, "#tray p") == "1 pending answer · 12 vertices, 1 class"
    press(page, "u", "u")
    assert page.run("document.getElementById('tray').hidden")
    assert page.page.locator("article.slim").count() == 0


def test_a_group_is_split_and_groups_are_merged(show: Show, url: str, fake: Fake) -> None:
    page = show(f"{url}/review")
    press(page, "j", "s")
    page.wait("document.activeElement.closest('article')?.dataset.key === 'g1/1'")
    press(page, "n")
    choose(page, "Small part")
    assert current(page) == "Group 1, part 2"
    press(page, "j", "Space", "j", "Space", "m")
    page.wait("document.activeElement.closest('article')?.dataset.key === 'g2+g3'")
    assert current(page) == "Groups 2 + 3"
    press(page, "b")
    choose(page, "matr")
    fake.grouping += 1  # parts are stored by their ids, so they hold
    fake.commit("predict", "decided again")
    press(page, "v")
    page.page.wait_for_selector("dialog .notice")
    assert "1 pending answer refers to earlier groups" in text(page, "dialog .notice")
    page.page.get_by_role("button", name="Find these groups again").last.click()
    page.page.get_by_role("button", name="Save as one version").click()
    page.page.wait_for_selector("text=Saved as version 9.")
    assert [list(fake.labels.values()).count(name) for name in ("Small part", "Matrices")] == [4, 24]


def test_a_part_that_was_saved_is_done(show: Show, url: str, fake: Fake) -> None:
    page = show(f"{url}/review")
    press(page, "j", "s")
    page.wait("document.activeElement.closest('article')?.dataset.key === 'g1/1'")
    press(page, "n")
    choose(page, "Small part")
    press(page, "v")
    page.page.get_by_role("button", name="Save as one version").click()
    page.page.wait_for_selector("text=Saved as version 8.")
    assert text(page, "article[data-key='g1/1']") == "Group 1, part 1 all 4 vertices have a label"
    assert "8 vertices" in text(page, "article[data-key='g1/2']")
    page.page.locator(".toast").get_by_role("button", name="Undo").click()
    page.page.wait_for_selector("text=Your answers are pending again")
    assert text(page, "article[data-key='g1/1']") == "Group 1, part 1 → Small part · 4 vertices Undo"


def test_members_can_be_left_out(show: Show, url: str, fake: Fake) -> None:
    page = show(f"{url}/review")
    press(page, "j", "Enter")
    page.page.wait_for_selector(".members li")
    page.page.locator(".members input").nth(2).uncheck()
    page.page.locator("article").first.focus()
    press(page, "n")
    choose(page, "Geometry")
    press(page, "v")
    page.page.get_by_role("button", name="Save as one version").click()
    page.page.wait_for_selector("text=Saved as version 8.")
    assert len(fake.labels) == 11
    assert "g1v2" not in fake.labels


def test_an_answer_on_a_vertex_comes_before_that_on_its_group(show: Show, url: str, fake: Fake) -> None:
    page = show(f"{url}/review")
    press(page, "j", "n")
    choose(page, "Geometry")
    page.page.goto(f"{url}/vertex?id=g1v5")
    ready(page)
    for name in ("Groups", "Matrices"):
        press(page, "b")
        choose(page, name)
    press(page, "v")
    page.page.get_by_role("button", name="Save as one version").click()
    page.page.wait_for_selector("text=Saved as version 8.")
    assert fake.labels["g1v5"] == "Matrices"
    assert list(fake.labels.values()).count("Geometry") == 11


def test_a_sample_estimates_the_purity(show: Show, url: str, fake: Fake) -> None:
    page = show(f"{url}/review")
    press(page, "j", "p")
    page.page.wait_for_selector("dialog .shown")
    press(page, *"yyyyyyynyn")
    assert "8 of 10 belong: the purity is about 80 %, and between 49 % and 94 %" in text(page, ".estimate").replace(
        "\u00a0", " "
    )
    press(page, "Enter")
    page.wait("!document.querySelector('dialog')")
    assert "sample 8 of 10" in text(page, "article .facts")
    press(page, "n")
    choose(page, "Geometry")
    assert text(page, "#tray p").startswith("1 pending answer · 10 vertices")


def test_a_repeated_save_saves_once(show: Show, url: str, fake: Fake) -> None:
    page = show(f"{url}/review")
    answer_two(page)
    page.page.route("**/api/v1/answers", lambda route: (route.fetch(), route.abort()))  # the answer is lost
    press(page, "v")
    page.page.get_by_role("button", name="Save as one version").click()
    page.page.wait_for_selector("text=Your pending answers are kept in this browser")
    assert fake.saves == 1
    page.page.unroute("**/api/v1/answers")
    page.page.get_by_role("button", name="Save as one version").click()
    page.page.wait_for_selector("text=Saved as version 8.")
    assert fake.saves == 1


@pytest.mark.parametrize(
    ("choice", "label"), [("Keep their labels", "Matrices"), ("Overwrite their labels", "Geometry")]
)
def test_conflicts_are_shown(show: Show, url: str, fake: Fake, choice: str, label: str) -> None:
    page = show(f"{url}/review")
    press(page, "j", "n")
    choose(page, "Geometry")
    press(page, "v")
    page.page.wait_for_selector("dialog table")
    fake.others["g1v3"] = "Matrices"  # between preview and save
    press(page, "Enter")
    page.page.wait_for_selector("dialog fieldset")
    assert text(page, "fieldset tbody") == "g1v3 Matrices Geometry"
    page.page.get_by_text(choice).click()
    page.page.get_by_role("button", name="Save as one version").click()
    page.page.wait_for_selector("text=Saved as version 8.")
    assert (fake.labels | fake.others)["g1v3"] == label
    assert fake.labels["g1v4"] == "Geometry"


def test_errors_are_shown_in_the_words_of_the_service(show: Show, url: str, fake: Fake) -> None:
    page = show(f"{url}/review")
    answer_two(page)
    fake.broken = True
    press(page, "v")
    page.page.wait_for_selector("text=the disk is full")
    assert text(page, "#tray p").startswith("2 pending answers")


def test_new_versions_are_noticed_without_losing_the_place(show: Show, url: str, fake: Fake) -> None:
    page = show(f"{url}/review")
    press(page, "j", "j", "j", "Enter")
    page.page.wait_for_selector(".members li")
    top = page.run("document.activeElement.getBoundingClientRect().top")
    fake.labels |= dict.fromkeys(fake.ids(1)[:5], "Groups")
    fake.commit("label", "5 labels by another")
    page.run("dispatchEvent(new Event('focus'))")
    page.page.wait_for_selector("text=5 labelled since")
    assert current(page) == "Group 3"
    assert abs(page.run("document.activeElement.getBoundingClientRect().top") - top) < 2
    assert page.page.locator(".members li").count() == 12
    assert text(page, "#version") == "version 8"


# --- other pages -----------------------------------------------------------------------------------------------------


def test_an_update_runs_with_progress_and_can_be_cancelled(show: Show, url: str, fake: Fake) -> None:
    fake.labels = dict.fromkeys(fake.ids(1), "Groups")
    fake.wait_at = 2
    page = show(url)
    page.page.get_by_role("button", name="Update the model").click()
    page.page.wait_for_selector("text=step 2 of 6")
    fake.wait_at = 3
    page.page.wait_for_selector("text=step 3 of 6")
    fake.wait_at = None
    page.page.wait_for_selector("text=Done: updating the model. model 3")
    page.wait("document.getElementById('job').hidden && document.getElementById('version').textContent === 'version 8'")
    fake.wait_at = 1
    page.page.get_by_role("button", name="Render a report").click()
    page.page.locator("#job").get_by_role("button", name="Cancel").click()
    page.page.wait_for_selector("text=Cancelled: rendering the report")
    assert fake.jobs[0]["state"] == "cancelled"


def test_charts_have_tables(show: Show, url: str) -> None:
    page = show(url)
    assert page.page.locator(".chart svg[role=img]").count() == 3
    assert page.page.locator(".chart tbody tr").count() == 24
    assert "Accuracy from 2012 to 2019" in page.page.locator(".chart svg[role=img]").first.get_attribute("aria-label")


def test_a_vertex_is_explored_and_labelled(show: Show, url: str, fake: Fake) -> None:
    page = show(f"{url}/vertex?id=g2v3")
    assert text(page, "h1") == "g2v3"
    page.page.locator(".explore a").first.focus()
    press(page, "ArrowRight")
    assert page.run("document.activeElement.tagName") == "a"
    assert text(page, ".explore .said") != ""
    box = page.page.locator(".explore svg[role=group]")
    before = box.get_attribute("viewBox")
    press(page, "+")
    assert box.get_attribute("viewBox") != before
    press(page, "0")
    assert box.get_attribute("viewBox") == before
    press(page, "e")
    page.page.wait_for_selector("text=distance to the nearest known class")
    press(page, "b")
    choose(page, "Order theory")
    assert "Your pending answer: Order theory" in text(page, "#answer")
    press(page, "v")
    page.page.get_by_role("button", name="Save as one version").click()
    page.page.wait_for_selector("text=Saved as version 8.")
    assert fake.labels == {"g2v3": "Order theory"}
    page.wait("document.querySelector('.panel').textContent.includes('Label: Order theory')")
    gone = show(f"{url}/vertex?id=none")
    assert text(gone, ".empty") == "there is no vertex 'none' in the workspace"


def test_vertices_are_labelled_by_key_and_errors_corrected(show: Show, url: str, fake: Fake) -> None:
    page = show(f"{url}/label")
    assert "biases the calibration" in text(page, "#summary")
    press(page, "j", "a", "l", "b")
    choose(page, "brand new")
    assert text(page, "#tray p") == "2 pending answers · 2 vertices, 2 classes"
    page.page.get_by_role("tab", name="Suspected label errors").click()
    page.page.wait_for_selector("text=looks like")
    press(page, "j", "a")
    press(page, "v")
    page.page.wait_for_selector("dialog table")
    assert page.page.locator("fieldset").count() == 0  # to correct a label is no conflict
    page.page.get_by_role("button", name="Save as one version").click()
    page.page.wait_for_selector("text=Saved as version 8.")
    assert fake.labels["s0"] == "Matrices"
    assert sorted(fake.labels.values()) == ["Matrices", "Matrices", "brand new"]


# --- hostile names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [390, 1400])
def test_hostile_names_are_text(show: Show, width: int) -> None:
    fake = Fake(groups=3, size=10, names=HOSTILE)
    with serving(build(fake)) as url:
        for path in ("/", "/review", f"/vertex?id={quote(fake.ids(1)[1])}", "/label", "/label#suspects", "/activity"):
            page = show(url + path, width)
            assert page.complaints == page.dialogs == []
            assert all(request.startswith(url) for request in page.requests)
            assert page.run("document.scrollingElement.scrollWidth <= innerWidth")
            assert page.run("document.querySelectorAll('main img, main script, svg[onload]').length") == 0
        page = show(f"{url}/review", width)
        for _ in range(3):
            press(page, "j", "Enter")
        page.page.wait_for_selector("article:last-child .members li")
        page.wait("document.querySelectorAll('.members li').length === 30")
        press(page, "b")
        page.page.wait_for_selector("[role=option]")
        words = page.run("document.body.textContent")
        for name in HOSTILE:
            assert visible(name) in words
        assert page.run("[...document.querySelectorAll('[role=option] bdi')].map((one) => one.textContent)")[-1] != ""
        assert page.complaints == page.dialogs == []


# --- the service itself ----------------------------------------------------------------------------------------------

GRAPH = synthetic(vertices=900, times=8, classes=4, new_classes=2, words=150, words_per_vertex=8, seed=2)
NEW = 6  # period in which the class 05 appears
NOTE_PROGRESS = """() => {
  window.progress = [];
  new MutationObserver(() => {
    const bar = document.querySelector("#job progress");
    if (bar?.hasAttribute("value")) window.progress.push(bar.value);
  }).observe(document.getElementById("job"), {subtree: true, attributes: true, childList: true});
}"""


def slice_body(time: int) -> dict[str, Any]:
    vertices, edges = to_tables(GRAPH, time, time, labels=False)
    return {"vertices": vertices.to_pylist(), "edges": edges.to_pylist()}


def test_from_a_slice_to_a_class_that_the_next_slice_is_decided_with(show: Show, tmp_path: Path) -> None:
    folder = tmp_path / "ws"
    old = EvolvingGraph.build(*to_tables(GRAPH, last=NEW - 1))
    how = {"model": MLP(hidden=256), "detector": DOC(0.5), "steps": 600, "lr": 0.005, "history": 2}
    Workspace.create(folder, old, **how)
    admin = create_token(folder, "pipeline", "admin")
    with real.serving(folder) as served:

        def send(method: str, path: str, body: Any = None) -> Any:
            status, _, answer = served.call(method, f"/api/v1/{path}", body, token=admin)
            assert status < 300, answer
            return json.loads(answer)

        page = show(served.signin)  # the one-time link
        page.page.set_default_timeout(120_000)
        assert text(page, "#next h2") != "New vertices have no decision yet"
        send("POST", "slices", slice_body(NEW))
        page.run("dispatchEvent(new Event('focus'))")
        page.page.get_by_role("button", name="Decide 113 vertices").click()
        page.page.get_by_role("button", name=re.compile("Review .* vertices")).click()
        page.page.wait_for_url("**/review")
        page.page.wait_for_selector("article")

        press(page, *["j", "Space"] * 4, "m")
        page.wait("document.activeElement.closest('article')?.dataset.key === 'g1+g2+g3+g4'")
        press(page, "n")
        choose(page, "Topic five")
        assert current(page) == "Group 5"
        press(page, "b")
        choose(page, "class 03")
        press(page, "v")
        page.page.wait_for_selector("dialog table")
        assert "Topic five new class" in text(page, "dialog table")
        press(page, "Enter")
        page.page.wait_for_selector("text=Saved as version")
        assert [row["who"] is not None for row in send("GET", "versions")["versions"][:2]] == [True, True]

        page.page.get_by_role("link", name="Overview").click()
        ready(page)
        page.run(NOTE_PROGRESS)
        page.page.get_by_role("button", name=re.compile("Update the model")).click()
        page.page.wait_for_selector("text=Done: updating the model")
        assert len(set(page.run("window.progress"))) > 1
        send("POST", "slices", slice_body(NEW + 1))
        page.run("dispatchEvent(new Event('focus'))")
        page.page.get_by_role("button", name=re.compile("Decide .* vertices")).click()
        page.page.wait_for_selector("text=Done: deciding new vertices")
        decided = send("GET", f"decisions?slice={NEW + 1}&class=Topic%20five")["decisions"]
        truth = dict(zip(GRAPH.ids.tolist(), (GRAPH.class_names[code] for code in GRAPH.codes), strict=True))
        right = [truth[int(row["id"])] == "class 05" for row in decided]
        assert len(right) > 5
        assert sum(right) / len(right) > 0.7
        page.page.goto(f"{served.url.rstrip('/')}/activity")
        ready(page)
        assert "Topic five" in text(page, "#versions")
        assert page.complaints == page.dialogs == []
        assert all(request.startswith(served.url) for request in page.requests)


def test_hostile_strings_are_text(show: Show, tmp_path: Path) -> None:
    """Ten strings as ids, texts and names of classes, and ids that look like parts of an address."""
    ids = [*HOSTILE, "a/../b", "?x=1#y", "%2e%2e%2f"]
    old = {"id": [], "time": [], "label": [], "text": []}
    for place in range(8 * len(HOSTILE)):
        of = place % len(HOSTILE)
        row = {"id": f"old{place}", "time": place % 4, "label": HOSTILE[of], "text": f"word{of} common {HOSTILE[of]}"}
        for name, cell in row.items():
            old[name].append(cell)
    new = {"id": ids, "time": [4] * len(ids), "text": [f"fresh topic {name}" for name in ids]}
    edges = [{"source": ids[i], "target": f"old{i}"} for i in range(len(ids))]
    folder = tmp_path / "ws"
    how = {"model": MLP(hidden=8), "detector": DOC(0.9999), "steps": 5, "lr": 0.01}
    workspace = Workspace.create(folder, EvolvingGraph.build(old), **how)
    workspace.add(new, {name: [edge[name] for edge in edges] for name in ("source", "target")})
    workspace.predict()
    with real.serving(folder, "--no-auth") as served:
        url = served.url.rstrip("/")

        def look(path: str, *more: str) -> Page:
            page = show(url + path)
            page.page.set_default_timeout(60_000)
            words = page.run("document.body.textContent")
            assert [name for name in more if visible(name) not in words] == []
            return page

        opened = [look("/"), look("/activity"), look("/label", *ids), look("/label#suspects")]
        for place, id in enumerate(ids):
            opened.append(look(f"/vertex?id={quote(id, safe='')}", id, f"fresh topic {id}", HOSTILE[place % 10]))
            assert opened[-1].page.title() == f"{visible(id)} – Evergraph"
        page = look("/review")
        opened.append(page)
        press(page, "j", "Enter")
        page.page.wait_for_selector(".members li")
        press(page, "b")
        page.page.wait_for_selector("[role=option]")
        offered = page.run("[...document.querySelectorAll('[role=option] bdi')].map((one) => one.textContent)")
        assert sorted(offered) == sorted(map(visible, HOSTILE))
        page.page.keyboard.type(HOSTILE[0])
        press(page, "Enter")
        page.page.wait_for_selector(".slim")
        press(page, "v")
        page.page.get_by_role("button", name="Save as one version").click()
        page.page.wait_for_selector("text=Saved as version")
        for page in opened:
            assert page.complaints == page.dialogs == []
            assert all(request.startswith(url) for request in page.requests)
            assert page.run("document.querySelectorAll('main img, main script, [onerror], [onload]').length") == 0
    assert sorted(Workspace(folder).graph.class_names) == sorted(HOSTILE)
