"""Chromium without a window, driven by Playwright: the one that is installed, so that none is downloaded.

Every host name but this machine's is made unresolvable, so that a page which needs another server shows it.
"""

import shutil
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import ConsoleMessage, Request, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
SETTLED = """
(async () => {
  await window.typesetEquations?.();
  await document.fonts.ready;
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
})()
"""


def find() -> str | None:
    """The path of a Chromium, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page at a time: ``with Browser(width=375, dark=True) as browser: browser.open(path)``.

    `page` is Playwright's page.
    `problems` lists what the open page complained of: errors and warnings on the console, uncaught exceptions,
    requests that failed.
    `requests` lists the addresses it asked for.
    """

    def __init__(self, width: int = 1280, height: int = 800, dark: bool = False):
        self.width, self.height, self.dark = width, height, dark
        self.problems: list[str] = []
        self.requests: list[str] = []

    def __enter__(self):
        if (executable := find()) is None:
            raise FileNotFoundError("no Chromium on the PATH")
        with ExitStack() as stack:
            chromium = stack.enter_context(sync_playwright()).chromium
            browser = stack.enter_context(chromium.launch(executable_path=executable, args=FLAGS))
            self.page = browser.new_page(
                viewport={"width": self.width, "height": self.height},
                is_mobile=self.width < 600,
                color_scheme="dark" if self.dark else "light",
                reduced_motion="reduce",
            )
            self._close = stack.pop_all().close
        self._devtools = self.page.context.new_cdp_session(self.page)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", self._miss)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._listen)
        return self

    def __exit__(self, *_):
        self._close()

    def _miss(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # by the page itself
            self.problems.append(f"{request.failure}: {request.url}")

    def _listen(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self.problems.append(f"{said.text} {said.location['url']}")

    def command(self, method: str, **parameters) -> dict:
        """Send one command of the DevTools protocol and wait for its answer."""
        return self._devtools.send(method, parameters)

    def resize(self, width: int, height: int) -> None:
        """Give the page exactly this size in CSS pixels (a real window cannot be as narrow as a phone)."""
        self.page.set_viewport_size({"width": width, "height": height})

    def open(self, page: Path | str) -> None:
        """Open a file, or an address, and wait until its scripts, fonts and equations are there."""
        self.problems.clear()
        self.requests.clear()
        self.page.goto(page.resolve().as_uri() if isinstance(page, Path) else page)
        self.evaluate(SETTLED)

    def evaluate(self, script: str):
        """The value of JavaScript in the open page (of a promise, what it resolves to).

        Playwright's own `evaluate` is JavaScript's `eval`, which a page's policy may forbid.
        """
        answer = self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")
