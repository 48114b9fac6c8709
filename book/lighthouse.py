"""What Google's Lighthouse says of the built site: ``python -m book.lighthouse``, after ``make book``.

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
from pathlib import Path
from threading import Thread

from tqdm import tqdm

from book.browser import find
from book.built import HTML, site_path
from book.serve import Server

LIGHTHOUSE = "lighthouse@12.8.2"
PAGES = (
    "index",
    "chapters/05_scaled_dot_product_attention",
    "explorables/translator",
    "exercises",
    "reference",
)
TIMES = 3
OTHERS = {"accessibility": 100, "best-practices": 100, "seo": 100}
BOUNDS = {"phone": {"performance": 90, **OTHERS}, "laptop": {"performance": 98, **OTHERS}}
SHIFT, MOST_SHIFT = "cumulative-layout-shift", 0.05
FLAGS = "--headless=new --no-sandbox --disable-gpu"


def report(url: str, device: str) -> dict:
    """One run: scores from 0 to 100, and the layout shift.

    Raises:
        RuntimeError: if Lighthouse could not do it.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "report.json"
        command = ["npx", "--yes", LIGHTHOUSE, url, "--quiet", "--output=json", f"--output-path={output}"]
        command += [f"--chrome-flags={FLAGS}", *(["--preset=desktop"] if device == "laptop" else [])]
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


def main() -> int:
    """The command."""
    if find() is None or not (HTML / "index.html").is_file():
        print("This needs Chromium on the PATH and a built site (make book)", file=sys.stderr)
        return 2
    is_short = False
    with Server(HTML, prefix=site_path(), is_quiet=True) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with tqdm(total=len(BOUNDS) * len(PAGES) * TIMES, unit="run", disable=None) as bar:
            for device in BOUNDS:
                for page in PAGES:
                    reports = []
                    for _ in range(TIMES):
                        reports.append(report(f"{server.url}{page}.html", device))
                        bar.update()
                    found = medians(reports)
                    numbers = ", ".join(f"{name} {found[name]:.0f}" for name in BOUNDS[device])
                    tqdm.write(f"{page}, {device}: {numbers}, layout shift {found[SHIFT]:.3f}")
                    for one in shortcomings(found, device):
                        is_short = True
                        tqdm.write(f"  {one}")
        server.shutdown()
    return int(is_short)


if __name__ == "__main__":
    sys.exit(main())
