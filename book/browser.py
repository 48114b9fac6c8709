"""Headless Chromium, driven by Playwright: the installed one, so that none is downloaded.

Every host name but this machine's is made unresolvable, so that a page that needs another server shows it.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import ConsoleMessage, Page, Request, sync_playwright

FLAGS = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
PHONE, LAPTOP, TABLET = 375, 1280, 600
SETTLED = """(async () => {
  await window.typesetEquations?.();
  await document.fonts.ready;
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
})()"""


def find() -> str | None:
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """Playwright's `page`, and its problems and requests since it was opened.

    `problems` are errors and warnings on the console, uncaught exceptions and failed requests; `requests` are
    addresses.
    """

    def __init__(self, page: Page):
        self.page = page
        self._devtools = page.context.new_cdp_session(page)
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("requestfailed", self._on_request_failed)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._on_console)

    def _on_request_failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # aborted by the page itself
            self.problems.append(f"{request.failure}: {request.url}")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.text} {message.location['url']}")

    def open(self, page: Path | str) -> None:
        """Open a file or an address, and wait until its scripts, fonts and equations are loaded."""
        self.problems.clear()
        self.requests.clear()
        self.page.goto(page.resolve().as_uri() if isinstance(page, Path) else page)
        self.evaluate(SETTLED)

    def evaluate(self, script: str):
        """The value of JavaScript or of its promise, without `eval`, which a page's policy may forbid.

        Raises:
            RuntimeError: with the exception that JavaScript raises.
        """
        answer = self._devtools.send(
            "Runtime.evaluate", {"expression": script, "awaitPromise": True, "returnByValue": True}
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")


@contextmanager
def browser(width: int = LAPTOP, height: int = 800, dark: bool = False, **options) -> Iterator[Browser]:
    """A browser window of this size in CSS pixels; options are those of Playwright's `new_page`."""
    if (executable := find()) is None:
        raise FileNotFoundError("expected chromium or google-chrome on the PATH, got neither")
    look = {"color_scheme": "dark" if dark else "light", "reduced_motion": "reduce"}
    size = {"viewport": {"width": width, "height": height}, "is_mobile": width < TABLET}
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=executable, args=FLAGS) as chromium,
    ):
        yield Browser(chromium.new_page(**size, **look, **options))
