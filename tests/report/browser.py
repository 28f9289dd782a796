"""A headless Chromium, driven over a pipe: no port, no driver, no further package."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)

# Puts the pipes where the browser looks for them, whatever is there, and becomes the browser.
LAUNCH = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(number), fcntl.F_DUPFD_CLOEXEC, 10) for number in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """The path of a browser of the kind; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one page.

    Commands and events are those of the Chrome DevTools Protocol: JSON objects that end in a zero byte, sent to the
    browser's file descriptor 3 and read from its 4.
    """

    def __init__(self, process: subprocess.Popen[bytes], send: int, receive: int) -> None:
        self.process, self._send, self._receive = process, send, receive
        self._rest, self._last = b"", 0
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, timeout: float = 60, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come meanwhile are kept."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._send, data) :]
        until = time.monotonic() + timeout
        while True:
            found = self._read(until)
            if found.get("id") == self._last:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                result: dict[str, Any] = found["result"]
                return result

    def _read(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._receive], [], [], max(0, until - time.monotonic()))
            data = os.read(self._receive, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("the browser does not answer" if not ready else "the browser has gone")
            self._rest += data
        line, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(line)
        if "method" in found:
            self.events.append(found)
        return found

    def view(self, width: int, height: int = 900, *, dark: bool = False, scale: float = 1) -> None:
        """Choose the size of the screen and the theme; a narrow one is a phone's, with touch."""
        phone = width < 700
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])

    def open(self, path: Path) -> None:
        """Open a file, and forget what happened before."""
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())

    def run(self, script: str) -> Any:
        """The value of an expression, also of one that is waited for."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            told = found["exceptionDetails"]
            raise RuntimeError(told.get("exception", {}).get("description", told["text"]))
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 30) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > until:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def complaints(self) -> list[str]:
        """What the page said in its console, and what it threw."""
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(" ".join(str(part.get("value", part.get("description"))) for part in params["args"]))
            elif event["method"] == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """All addresses that the page asked for."""
        return [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]

    def screenshot(self, path: Path, *, whole: bool = False, clip: dict[str, float] | None = None) -> None:
        """Write what is seen as PNG: the screen, the whole page, or a part of it (x, y, width, height)."""
        options: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole or clip is not None}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"]}
        if clip is not None:
            options["clip"] = {**clip, "scale": 1}
        data = self.call("Page.captureScreenshot", **options)["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser of its own that leaves nothing behind."""
    path = find_browser()
    if path is None:
        raise RuntimeError(f"there is none of {', '.join(NAMES)}")
    to_read, send = os.pipe()
    receive, to_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(to_read), str(to_write), *command],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        try:
            yield Browser(process, send, receive)
        finally:
            os.close(send)  # upon which it leaves
            os.close(receive)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
