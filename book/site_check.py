"""Is the built site fit for everybody? ``python -m book.site_check [PAGE …]``, after ``make book``; ten minutes.

In Chromium, without network, served as by a static host, each page light and dark, for a phone and for a laptop:

- axe finds no violation of WCAG 2.2, levels A and AA (https://github.com/dequelabs/axe-core, from npm);
- nothing is wider than a screen of 320 pixels;
- the console stays empty, no other server is asked for anything;
- a first visit loads at most 700 kB (the trained model not counted), and what is there stays where it is;
- the live translator has translated within a second of being loaded, at a fourth of this processor's speed.

Says what it found and where; the exit code is 1 if there was anything.
"""

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tqdm import tqdm

from book.browser import Browser
from book.built import arguments, chosen_pages, site_path
from book.serve import serving
from book.site import TRAINED

ROOT = Path(__file__).resolve().parents[1]
AXE, AXE_SHA256 = "4.14.1", "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
WIDTHS, NARROWEST = (375, 1280), 320
MOST_BYTES = 700_000  # of a first visit
MOST_SHIFT = 0.05  # cumulative layout shift, as https://web.dev/articles/cls defines it
SLOWER, MOST_MILLISECONDS = 4, 1000  # of the first translation


def axe() -> str:
    """The program of axe-core, from npm once; kept beside the environment.

    Raises:
        ValueError: if it is not the one that is expected.
    """
    path = ROOT / ".venv" / f"axe-{AXE}.min.js"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                ["npm", "pack", "--silent", f"axe-core@{AXE}"],
                cwd=folder,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            with tarfile.open(next(Path(folder).glob("*.tgz"))) as packed:
                data = packed.extractfile("package/axe.min.js").read()
        path.write_bytes(data)
    if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != AXE_SHA256:
        path.unlink()
        raise ValueError(f"axe-core {AXE}: expected SHA-256 {AXE_SHA256}, got {found}")
    return path.read_text(encoding="utf-8")


def violations(browser: Browser, program: str) -> list[str]:
    """What axe complains of on the open page: the rule, how often, and the first place."""
    browser.evaluate(f"{program}; 0")
    options = json.dumps({"runOnly": LEVELS, "resultTypes": ["violations"], "preload": False})
    found = browser.evaluate(f"axe.run(document, {options}).then((done) => done.violations)")
    return [f"{one['id']}: {len(one['nodes'])}, first {one['nodes'][0]['html'][:100]}" for one in found]


def weight(browser: Browser) -> int:
    """Bytes of all that the open page loaded, as they were sent."""
    return browser.evaluate(
        "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        f".filter((one) => !one.name.includes({json.dumps(f'/{TRAINED}.js')}))"
        ".reduce((sum, one) => sum + one.encodedBodySize, 0)"
    )


def shift(browser: Browser) -> tuple[float, str]:
    """How much of the screen has moved by how much while the page loaded, and what moved most."""
    shifts = browser.evaluate("""new Promise((done) => {
      const observer = new PerformanceObserver((list) => done(list.getEntries()));
      observer.observe({ type: "layout-shift", buffered: true });
      setTimeout(() => done([]), 200);
    }).then((entries) => entries.map(({ value, sources }) => [value, sources[0]?.node?.outerHTML ?? ""]))""")
    return sum(value for value, _ in shifts), max(shifts, default=[0, ""])[1][:100]


def look(browser: Browser, url: str, program: str) -> Iterator[str]:
    """Everything that is wrong with a page, in this browser's size and colours."""
    browser.open(url)
    yield from browser.problems
    here = ("data", urlsplit(url).netloc)
    elsewhere = [
        one for one in browser.requests if not {urlsplit(one).scheme, urlsplit(one).netloc} & {*here}
    ]
    yield from (f"asked another server: {one}" for one in elsewhere)
    if (size := weight(browser)) > MOST_BYTES:
        yield f"loads {size / 1000:.0f} kB"
    amount, what = shift(browser)
    if amount >= MOST_SHIFT:
        yield f"moves while it loads ({amount:.2f}), most of all {what}"
    yield from violations(browser, program)


def too_wide(browser: Browser, url: str) -> Iterator[str]:
    """Whether a page scrolls sideways."""
    browser.open(url)
    if (width := browser.evaluate("document.documentElement.scrollWidth")) > browser.width:
        yield f"{width} pixels wide on a screen of {browser.width}"


def translation(url: str) -> Iterator[str]:
    """Whether the first translation takes too long; the best of three, as other work can only slow it down."""
    passed = []
    for _ in range(3):
        with Browser(width=WIDTHS[0]) as browser:
            browser.command("Emulation.setCPUThrottlingRate", rate=SLOWER)
            browser.open(url)
            about = "performance.getEntriesByType('navigation')[0]"
            said = "performance.getEntriesByName('translated')[0].startTime"
            passed.append(browser.evaluate(f"[{said} - {about}.loadEventEnd, {said} - {about}.responseEnd]"))
    after_load, after_page = min(passed)
    print(
        f"first translation on a processor {SLOWER} times slower: {after_page:.0f} ms after the page's text, "
        f"{after_load:+.0f} ms from when it was loaded",
        flush=True,
    )
    if after_load > MOST_MILLISECONDS:
        yield f"the first translation comes {after_load:.0f} ms after the page was loaded"


def check(urls: list[str]) -> Iterator[tuple[str, str]]:
    """Each page with what is wrong with it."""
    program = axe()
    kinds = [(width, dark) for width in WIDTHS for dark in (False, True)]
    with tqdm(total=len(urls) * (len(kinds) + 1), unit="view", disable=None) as bar:
        for width, dark in kinds:
            with Browser(width=width, dark=dark) as browser:
                browser.command("Network.setCacheDisabled", cacheDisabled=True)  # each visit is the first
                for url in urls:
                    where = f"{width} px, {'dark' if dark else 'light'}"
                    yield from ((url, f"{where}: {one}") for one in look(browser, url, program))
                    bar.update()
        with Browser(width=NARROWEST) as browser:
            for url in urls:
                yield from ((url, one) for one in too_wide(browser, url))
                bar.update()
    for url in urls:
        if url.endswith("/translator.html"):
            yield from ((url, one) for one in translation(url))


def main(given: list[str] | None = None) -> int:
    """The command."""
    options = arguments("site_check", __doc__.splitlines()[0]).parse_args(given)
    try:
        pages = chosen_pages(options)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    number = 0
    with serving(options.html, site_path()) as root:
        urls = [root + page.relative_to(options.html).as_posix() for page in pages]
        for url, wrong in check(urls):
            number += 1
            print(f"{url.removeprefix(root)}: {wrong}", flush=True)
    print(f"{len(pages)} pages, {number} things to mend")
    return int(number > 0)


if __name__ == "__main__":
    sys.exit(main())
