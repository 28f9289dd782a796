"""The page as a real browser shows it: in both themes, on a desk and on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evergraph.report.page import page_of, write_page
from tests.report import contents
from tests.report.browser import Page, browser, why_not

pytestmark = pytest.mark.browser  # with CI=true they may not be skipped: see conftest.py

LOOK = Path(__file__).with_name("look.js").read_text(encoding="utf-8")
CHARTS = 9

Show = Callable[..., Page]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if reason := why_not():
        pytest.skip(reason)
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def show(chromium: Any, folder: Path) -> Iterator[Show]:
    """Show a report by its name in a page of its own, and wait until it is drawn."""
    opened: list[Page] = []

    def show(name: str, width: int, *, dark: bool = False, before: str = "", scripts: bool = True) -> Page:
        path = folder / f"{name}.html"
        if not path.exists():
            write_page(page_of(getattr(contents, name)()), path)
        page = Page(chromium, width, dark=dark, before=before, scripts=scripts)
        opened.append(page)
        page.open(path)
        if scripts:
            page.wait("document.documentElement.dataset.drawn")
        return page

    yield show
    for page in opened:
        page.close()


def look(page: Page) -> dict[str, Any]:
    """What is wrong with the page as it stands, with all its tables open."""
    page.run("for (const one of document.querySelectorAll('details')) one.open = true")
    found: dict[str, Any] = page.run(LOOK)
    return found


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["ordinary", "hostile", "empty", "single"])
def test_the_page_is_sound(show: Show, name: str, width: int) -> None:
    page = show(name, width)
    for theme in ("light", "dark"):  # the page follows when the reader's wish changes
        page.page.emulate_media(color_scheme=theme)
        page.wait(f"document.documentElement.dataset.drawn === '{theme} {'narrow' if width < 700 else 'wide'}'")
        found = look(page)
        assert page.complaints == []
        assert page.run("[document.scrollingElement.scrollWidth <= innerWidth, innerWidth]") == [True, width]
        assert found["texts"] > (30 if name == "empty" else 300)
        assert found["intersecting"] == []
        assert found["faint"] == []
        assert found["cut"] == []
        assert found["charts"] == found["drawn"] == {"empty": 0, "single": CHARTS - 2}.get(name, CHARTS)
    assert {url.partition(":")[0] for url in page.requests} <= {"file", "data", "blob"}
    assert page.dialogs == []


def test_a_page_that_is_opened_in_the_dark_is_dark(show: Show) -> None:
    page = show("single", 1280, dark=True)
    assert page.run("document.documentElement.dataset.drawn") == "dark wide"
    assert look(page)["faint"] == []
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"


def test_the_look_sees_what_is_wrong(show: Show) -> None:
    """Else the test above would say nothing."""
    page = show("single", 1280)
    page.run(
        """document.body.insertAdjacentHTML("beforeend", `
        <div style="position:relative"><p>one text</p><p style="position:absolute;top:16px">on another</p></div>
        <p style="color:#999;background:#bbb">hardly to be read</p>`);
        document.querySelector("#drift-chart .xtick text").setAttribute("transform", "translate(-900,0)")"""
    )
    found = look(page)
    assert any("on another" in " ".join(pair) for pair in found["intersecting"])
    assert any("hardly to be read" in text for text in found["faint"])
    assert found["cut"]


def test_names_stay_names(show: Show) -> None:
    page = show("hostile", 1280)
    assert page.run("document.querySelectorAll('img, main a, script[src]').length") == 0
    assert page.run("document.querySelector('h1').textContent") == contents.ATTACK
    ticks = page.run("[...document.querySelectorAll('#timeline-chart .ytick text')].map(one => one.textContent)")
    assert contents.ATTACK in ticks
    assert any(tick.startswith("<b>bold</b>") for tick in ticks)


def test_the_theme_can_be_changed(show: Show) -> None:
    page = show("ordinary", 1280)
    colours = """[document.body, document.querySelector('#accuracy-chart .xtick text'),
        document.querySelector('#accuracy-chart .scatterlayer .js-line')].map((one) => {
        const style = getComputedStyle(one); return one === document.body ? style.backgroundColor
        : one.matches('text') ? style.fill : style.stroke; })"""
    before = page.run(colours)
    page.page.click("#theme")
    page.wait("document.documentElement.dataset.drawn === 'dark wide'")
    after = page.run(colours)
    assert [old == new for old, new in zip(before, after, strict=True)] == [False] * 3
    assert page.run("document.getElementById('theme').textContent") == "Light"
    assert look(page)["faint"] == []


def test_a_chart_says_values_and_can_be_zoomed(show: Show) -> None:
    page = show("ordinary", 1280)
    x, y = page.middle("accuracy-chart")
    page.page.mouse.move(x, y)
    page.wait("document.querySelector('#accuracy-chart .hoverlayer')?.textContent.includes('%')")
    whole = page.run("document.getElementById('accuracy-chart').layout.xaxis.range")
    page.page.mouse.move(x - 150, y)
    page.page.mouse.down()
    page.page.mouse.move(x, y, steps=3)
    page.page.mouse.up()
    page.wait(f"document.getElementById('accuracy-chart').layout.xaxis.range[0] > {whole[0]}")
    zoomed = page.run("document.getElementById('accuracy-chart').layout.xaxis.range")
    assert zoomed[1] - zoomed[0] < (whole[1] - whole[0]) / 2
    assert page.complaints == []


def test_a_finger_on_a_chart_moves_the_page(show: Show) -> None:
    page = show("ordinary", 390)
    x, y = page.middle("accuracy-chart")
    before = page.run("scrollY")
    session = page.page.context.new_cdp_session(page.page)
    session.send("Input.synthesizeScrollGesture", {"x": x, "y": y, "yDistance": -250, "speed": 2000})
    page.wait(f"scrollY > {before} + 150")
    ranges = (
        "(({xaxis, yaxis}) => [xaxis.fixedrange, yaxis.fixedrange])(document.getElementById('accuracy-chart').layout)"
    )
    assert page.run(ranges) == [True, True]


def test_without_a_way_to_unpack_the_tables_are_there(show: Show) -> None:
    page = show("ordinary", 390, before="delete window.DecompressionStream")
    assert page.run("document.documentElement.dataset.drawn") == "nothing"
    assert page.run("document.getElementById('sorry').checkVisibility()")
    assert page.run("[...document.querySelectorAll('table')].every((one) => one.checkVisibility())")
    assert page.run("document.querySelectorAll('figure').length") == CHARTS
    assert not page.run("[...document.querySelectorAll('figure')].some((one) => one.checkVisibility())")


def test_without_scripts_the_tables_are_there(show: Show) -> None:
    page = show("single", 390, scripts=False).page
    assert page.locator("noscript").inner_text().strip()
    assert page.locator("#numbers table").is_visible()
    assert not page.locator("#theme").is_visible()
