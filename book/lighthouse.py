"""What Google's Lighthouse says of the built site, after ``make book``: ``python -m book.lighthouse [PAGE …]``.

Five kinds of pages, served as a static host does, each three times as on a phone and as on a laptop; the
median counts. Lighthouse comes from npm. The exit code is 1 if a score is below its bound; performance is a
matter of the machine as well, so let nothing else run.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

from tqdm import tqdm

from book.browser import find, unsandboxed
from book.built import arguments, chosen_pages, site_path
from book.serve import serving

LIGHTHOUSE = "lighthouse@12.8.2"
PAGES = (
    "index",
    "chapters/03_scaled_dot_product_attention",
    "explorables/translator",
    "exercises",
    "reference",
)
TIMES = 3
OTHERS = {"accessibility": 100, "best-practices": 100, "seo": 100}
BOUNDS = {"phone": {"performance": 90, **OTHERS}, "laptop": {"performance": 98, **OTHERS}}
SHIFT, MOST_SHIFT = "cumulative-layout-shift", 0.05
PRESETS = {"phone": [], "laptop": ["--preset=desktop"]}
FLAGS = ("--headless=new", "--disable-gpu")


def report(url: str, device: str) -> dict:
    """One run: scores from 0 to 100, and the layout shift.

    Raises:
        RuntimeError: if Lighthouse could not do it.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "report.json"
        flags = " ".join((*FLAGS, *unsandboxed()))
        command = ["npx", "--yes", LIGHTHOUSE, url, "--quiet", "--output=json", f"--output-path={output}"]
        command += [f"--chrome-flags={flags}", *PRESETS[device]]
        environment = {**os.environ, "CHROME_PATH": find()}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode or not output.exists():
            raise RuntimeError(f"Lighthouse, {url}: {done.stderr.strip()[-500:]}")
        found = json.loads(output.read_text(encoding="utf-8"))
    scores = {name: round(100 * found["categories"][name]["score"]) for name in BOUNDS[device]}
    return {**scores, SHIFT: found["audits"][SHIFT]["numericValue"]}


def medians(reports: list[dict]) -> dict:
    """Of each number, the middle one."""
    return {name: statistics.median(one[name] for one in reports) for name in reports[0]}


def shortcomings(found: dict, device: str) -> list[str]:
    """What is below its bound, in words."""
    low = [
        f"{name} {found[name]}, expected at least {bound}"
        for name, bound in BOUNDS[device].items()
        if found[name] < bound
    ]
    shift = found[SHIFT]
    return [*low, f"layout shift {shift:.3f}, expected below {MOST_SHIFT}"] if shift >= MOST_SHIFT else low


def measured(url: str, device: str, bar: tqdm) -> dict:
    """A page's scores: the medians of some runs."""
    reports = []
    for _ in range(TIMES):
        reports.append(report(url, device))
        bar.update()
    return medians(reports)


def main(given: list[str] | None = None) -> int:
    """The command."""
    options = arguments("lighthouse", __doc__.splitlines()[0], "five kinds").parse_args(given)
    options.pages = options.pages or PAGES
    try:
        pages = [page.relative_to(options.html).as_posix() for page in chosen_pages(options)]
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    is_short = False
    bar = tqdm(total=len(BOUNDS) * len(pages) * TIMES, unit="run", disable=None)
    with serving(options.html, site_path()) as root, bar:
        for device, page in product(BOUNDS, pages):
            found = measured(root + page, device, bar)
            numbers = ", ".join(f"{name} {found[name]:.0f}" for name in BOUNDS[device])
            tqdm.write(f"{page}, {device}: {numbers}, layout shift {found[SHIFT]:.3f}")
            for one in shortcomings(found, device):
                is_short = True
                tqdm.write(f"  {one}")
    return int(is_short)


if __name__ == "__main__":
    sys.exit(main())
