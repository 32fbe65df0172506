"""Drives a real Chromium over a pipe: no library, no download; whichever is installed will do.

``TENURE_BROWSER`` names another program than those that are looked for.
"""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import attrs

__all__ = ["Tab", "find_browser", "open_tab"]

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")


def find_browser() -> str | None:
    """The program to run; None when there is none."""
    named = os.environ.get("TENURE_BROWSER")
    return named or next(filter(None, map(shutil.which, PROGRAMS)), None)


@attrs.define(eq=False)
class Tab:
    """One open page, by the browser's own debugging protocol."""

    to: IO[bytes]
    answers: IO[bytes]
    session: str = ""
    complaints: list[str] = attrs.field(factory=list[str])
    """Errors and warnings that the page has written to the console, and requests it has made."""
    _numbers: "itertools.count[int]" = attrs.field(factory=itertools.count)
    _buffer: bytes = b""
    _seen: set[str] = attrs.field(factory=set[str])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask, and wait for the answer.

        Raises:
            RuntimeError: the browser refuses.
        """
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.to.write(json.dumps(message).encode() + b"\0")
        self.to.flush()
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def wait_for(self, event: str) -> None:
        """Wait until the browser has told of this."""
        while event not in self._seen:
            self._next()

    def open(self, page: Path) -> None:
        """Load a file, and wait until it has been loaded."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self._seen.clear()
        self.call("Page.navigate", url=page.as_uri())
        self.wait_for("Page.loadEventFired")

    def value(self, script: str) -> Any:
        """What a script comes to, within the page.

        Raises:
            RuntimeError: it throws.
        """
        done = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in done:
            raise RuntimeError(f"{script}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """Press a key and let it go."""
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **typed)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Move or press the mouse."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def resize(self, width: int, height: int, *, dark: bool) -> None:
        """Set the window's size and the user's preference."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        """Save what is seen as a PNG file."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self.answers.fileno(), 1 << 16)
            if not more:
                raise RuntimeError("the browser has ended")
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, params: dict[str, Any]) -> None:
        self._seen.add(event)
        match event:
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in {"error", "warning", "assert"}:
                self.complaints.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in {"error", "warning"}:
                self.complaints.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                url: str = params["request"]["url"]
                if not url.startswith(("file:", "data:")):
                    self.complaints.append(f"it asked for {url}")
            case _:
                pass


@contextmanager
def open_tab(program: str) -> Generator[Tab]:
    """Start a browser without a window, and open an empty tab."""
    read_to, write_to = os.pipe()
    read_from, write_from = os.pipe()

    def connect() -> None:
        # The protocol's pipes are the third and fourth file of the browser, by its own rule.
        first, second = os.dup(read_to), os.dup(write_from)
        os.dup2(first, 3)
        os.dup2(second, 4)

    with tempfile.TemporaryDirectory(prefix="tenure-browser-") as profile:
        flags = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        flags += ["--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--no-sandbox"]
        browser = subprocess.Popen(
            [program, *flags, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=connect,  # noqa: PLW1509  # there is one thread here
        )
        os.close(read_to)
        os.close(write_from)
        try:
            with os.fdopen(write_to, "wb") as to, os.fdopen(read_from, "rb") as answers:
                tab = Tab(to, answers)
                target = tab.call("Target.createTarget", url="about:blank")["targetId"]
                attached = tab.call("Target.attachToTarget", targetId=target, flatten=True)
                tab.session = attached["sessionId"]
                yield tab
        finally:
            browser.terminate()
            browser.wait(10)
