"""Is the built site fit for everybody? ``make site-check`` runs this, and Lighthouse after it; ten minutes.

In Chromium, each page light and dark, for a phone and for a laptop:

- axe finds no violation of WCAG 2.2, levels A and AA (https://github.com/dequelabs/axe-core, from npm);
- a first visit loads at most 700 kB (the trained model not counted), and what is there stays where it is;
- the live translator has translated within a second of being loaded, at a fourth of this processor's speed.

Says what it found and where; the exit code is 1 if there was anything. That no page asks another server, has
problems or is wider than a phone, `make test-full` says.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tqdm import tqdm

from book.browser import Browser
from book.built import arguments, chosen_pages
from book.site import TRAINED

AXE = Path(sys.prefix) / "node_modules" / "axe-core" / "axe.min.js"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
WIDTHS = (375, 1280)
COMPRESSED = (".css", ".html", ".js", ".json", ".svg")  # by a static host
MOST_BYTES = 700_000  # of a first visit
MOST_SHIFT = 0.05  # cumulative layout shift, as https://web.dev/articles/cls defines it
SLOWER, MOST_MILLISECONDS = 4, 1000  # of the first translation
SHIFTS = """new Promise((done) => {
  const observer = new PerformanceObserver((list) => done(list.getEntries()));
  observer.observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done([]), 200);
}).then((entries) => entries.map(({ value, sources }) => [value, sources[0]?.node?.outerHTML ?? ""]))"""
AFTER_LOAD = """performance.getEntriesByName("translated")[0].startTime
  - performance.getEntriesByType("navigation")[0].loadEventEnd"""


def violations(browser: Browser) -> Iterator[str]:
    """What axe complains of on the open page: the rule, how often, and the first place."""
    browser.evaluate(f"{AXE.read_text(encoding='utf-8')}; 0")
    options = json.dumps({"runOnly": LEVELS, "resultTypes": ["violations"], "preload": False})
    for rule in browser.evaluate(f"axe.run(document, {options}).then((done) => done.violations)"):
        yield f"{rule['id']}: {len(rule['nodes'])}, first {rule['nodes'][0]['html'][:100]}"


def weight(browser: Browser) -> int:
    """Bytes of all that the open page loaded, as a static host sends them."""
    files = {Path(unquote(urlsplit(url).path)) for url in browser.requests if url.startswith("file:")}
    contents = {path: path.read_bytes() for path in files if path.name != f"{TRAINED}.js"}
    return sum(
        len(gzip.compress(content) if path.suffix in COMPRESSED else content)
        for path, content in contents.items()
    )


def look(browser: Browser, page: Path) -> Iterator[str]:
    """Everything that is wrong with a page, in this browser's size and colours."""
    browser.open(page)
    if (size := weight(browser)) > MOST_BYTES:
        yield f"loads {size / 1000:.0f} kB"
    shifts = browser.evaluate(SHIFTS)
    if (shift := sum(value for value, _ in shifts)) >= MOST_SHIFT:
        yield f"moves while it loads ({shift:.2f}), most of all {max(shifts)[1][:100]}"
    yield from violations(browser)


def first_translation(page: Path) -> float:
    """Milliseconds from when the page was loaded, on a slow processor."""
    with Browser(width=WIDTHS[0]) as browser:
        browser.command("Emulation.setCPUThrottlingRate", rate=SLOWER)
        browser.open(page)
        return browser.evaluate(AFTER_LOAD)


def check(pages: list[Path]) -> Iterator[str]:
    """What is wrong, page by page."""
    with tqdm(total=4 * len(pages), unit="view", disable=None) as bar:
        for width in WIDTHS:
            for dark in (False, True):
                with Browser(width=width, dark=dark) as browser:
                    for page in pages:
                        where = f"{page.stem}, {width} px, {'dark' if dark else 'light'}"
                        yield from (f"{where}: {problem}" for problem in look(browser, page))
                        bar.update()
    for page in [page for page in pages if page.stem == "translator"]:
        passed = min(first_translation(page) for _ in range(3))  # as other work can only slow it down
        if passed > MOST_MILLISECONDS:
            yield f"the first translation comes {passed:.0f} ms after the page was loaded"


def main(given: list[str] | None = None) -> int:
    """The command."""
    pages = chosen_pages(arguments("site_check", __doc__.splitlines()[0]).parse_args(given))
    count = 0
    for problem in check(pages):
        tqdm.write(problem)
        count += 1
    print(f"{len(pages)} pages, {count} things to mend")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
