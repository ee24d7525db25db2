"""A headless Chromium, spoken to through a pair of pipes: no port, no driver, no further package."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

BOUND_S: Final = 90.0
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def executable() -> str | None:
    """Where Chromium is, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One page of one browser."""

    def __init__(self, process: "subprocess.Popen[bytes]", into: int, out: int) -> None:
        self._process, self._into, self._out = process, into, out
        self._last, self._received = 0, b""
        self.problems: list[str] = []
        """What the console said that is an error or a warning, and what was thrown."""
        self.requests: list[str] = []
        """What was asked of a network or a disk."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    _session: str | None = None

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask for something, and wait for the answer."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._into, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def open(self, page: Path, width: int, height: int = 800, *, dark: bool = False, phone: bool = False) -> None:
        """Show a page from the disk, and wait until it is drawn."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.requests.clear()
        self.call("Page.navigate", url=page.as_uri())
        ready = "document.readyState === 'complete' && document.getElementById('timeline')?.dataset.spans !== undefined"
        end = time.monotonic() + BOUND_S
        while not self.run(ready):
            assert time.monotonic() < end and not self.problems, self.problems
        self.settle()

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def key(self, key: str, modifiers: int = 0) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers)
        self.settle()

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """What the mouse does: mousePressed, mouseMoved, mouseReleased, mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """What fingers do: touchStart, touchMove, touchEnd."""
        fingers = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=fingers)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + BOUND_S
        while b"\0" not in self._received:
            assert time.monotonic() < end, "the browser does not answer"
            if select.select([self._out], [], [], 1)[0]:
                data = os.read(self._out, 1 << 20)
                assert data, "the browser has ended"
                self._received += data
        first, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, told: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(told["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.problems.append(str(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.problems.append(str(told["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])


@contextlib.contextmanager
def browser(program: str, profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, for the block; it and all that it started is gone afterwards."""
    their_in, into = os.pipe()
    out, their_out = os.pipe()

    def pipes() -> None:
        # It reads from 3 and writes to 4; either may be one of ours, so both go out of the way first.
        first, second = os.dup(their_in), os.dup(their_out)
        high = [os.dup(one) for one in (first, second)]
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=False,
        preexec_fn=pipes,
        env={**os.environ, "HOME": str(profile)},
        start_new_session=True,
    )
    os.close(their_in)
    os.close(their_out)
    try:
        made = Browser(process, into, out)
        yield made
        made._session = None
        with contextlib.suppress(AssertionError):
            made.call("Browser.close")
    finally:
        os.close(into)
        os.close(out)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
