"""Is the built site accessible? ``make site-check`` runs this, and then Lighthouse; ten minutes.

In Chromium, axe must find no violation of WCAG 2.2, levels A and AA (https://github.com/dequelabs/axe-core,
from npm), on each page, light and dark, for a phone and for a laptop. The exit code is 1 if it finds any.

`lighthouse.cjs` limits what pages weigh and how long a slow phone is busy, and lets nothing move while they
load; `make test-full` checks that no page asks another server, has problems or is wider than a phone.
"""

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from tqdm import tqdm

from book.browser import LAPTOP, PHONE, browser
from book.build import pages

AXE = Path(sys.prefix) / "node_modules" / "axe-core" / "axe.min.js"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
RULES = {"runOnly": LEVELS, "resultTypes": ["violations"], "preload": False}


def violations() -> Iterator[str]:
    """The violations that axe finds: the page, the rule, how often, and the first place."""
    for width, dark in product((PHONE, LAPTOP), (False, True)):
        look = f"{width} px, {'dark' if dark else 'light'}"
        with browser(width=width, dark=dark) as view:
            for page in tqdm(pages(), look, disable=None):
                view.open(page)
                view.page.add_script_tag(path=AXE)
                for rule in view.page.evaluate("(rules) => axe.run(document, rules)", RULES)["violations"]:
                    found = f"{rule['id']}: {len(rule['nodes'])}, first {rule['nodes'][0]['html'][:100]}"
                    yield f"{page.stem}, {look}: {found}"


if __name__ == "__main__":
    problems = list(violations())
    print(*problems, f"{len(problems)} violations", sep="\n")
    sys.exit(bool(problems))
