"""A headless Chromium by Playwright: the one that is installed, for Playwright's own is not fetched."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


def find_browser() -> str | None:
    """The path of a browser of the kind; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def why_not() -> str | None:
    """Why there can be no browser here; None if there can."""
    if importlib.util.find_spec("playwright") is None:
        return "the package playwright is not installed (pip install 'evergraph[dev]')"
    if find_browser() is None:
        return f"none of {', '.join(NAMES)} is installed (Debian: apt-get install chromium)"
    return None


@contextmanager
def browser() -> Iterator[Any]:
    """A browser of its own that leaves nothing behind."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=find_browser(), args=list(FLAGS))
        try:
            yield found
        finally:
            found.close()


class Page:
    """A page in a window of its own; a narrow one is a phone's, with touch. It notes what happens."""

    def __init__(
        self,
        chromium: Any,
        width: int,
        height: int = 900,
        *,
        dark: bool = False,
        before: str = "",
        scripts: bool = True,
    ) -> None:
        phone = width < 700
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        self.page: Any = chromium.new_page(
            viewport={"width": width, "height": height},
            is_mobile=phone,
            has_touch=phone,
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
        )
        if before:
            self.page.add_init_script(before)
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            self.complaints.append(message.text)

    def open(self, path: Path) -> None:
        """Open a file."""
        self.page.goto(path.resolve().as_uri())

    def run(self, script: str) -> Any:
        """The value of an expression, of a statement's last one, or of a function that is called."""
        return self.page.evaluate(script)

    def wait(self, condition: str) -> None:
        """Wait until an expression is true. The page allows no eval, so it is asked again and again."""
        for _ in range(600):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(50)
        raise TimeoutError(condition)

    def middle(self, name: str) -> tuple[float, float]:
        """Scroll to an element, and return its centre."""
        self.run(f"document.getElementById('{name}').scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = self.page.locator(f"#{name}").bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def close(self) -> None:
        """Close it."""
        self.page.close()
