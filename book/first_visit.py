"""A first visit loads less, and shows text sooner: one style sheet of what is used, scripts that wait, one look.

The theme brings rules for everything that it could show (of 65 kB, compressed, pages use 19), in nine files
that a browser waits for before it shows a word, and so it does for fifteen scripts, the search's index among
them.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

import tinycss2

from book.icons import NOT_LOADED

__all__ = ["lighten", "used_rules"]

BUNDLE = "_static/styles/site.css"
OWN = ("_static/explorables/", "_static/live/")  # styles of single pages
SHEET = re.compile(r'\s*<link\b(?=[^>]*rel="stylesheet")[^>]*href="([^"?]+\.css)[^"]*"[^>]*>')
NAME = re.compile(r"[.#]((?:[\w-]|\\.)+)")
ADDRESS = re.compile(r"url\((?!data:)([\"']?)([^)\"']+)\1\)")
IMPORT = re.compile(r'@import\s*"([^"]+)";')
SEARCH = re.compile(r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>')
SCRIPT = re.compile(r'<script(?![^>]*\b(?:defer|async)\b)((?: data-[\w-]+="[^"]*")*) src=')
THEME = 'localStorage.getItem("theme") || "auto"'
WHAT_THE_SYSTEM_SHOWS = '(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")'
NESTED = {"media", "supports", "layer"}


def used_rules(style: str, names: set[str]) -> str:
    """A style sheet without the rules whose classes and ids occur nowhere.

    Args:
        style: its text.
        names: all words of pages and scripts; what a script puts together from parts would be missed.
    """
    return "".join(_used(tinycss2.parse_stylesheet(style, skip_comments=True, skip_whitespace=True), names))


def _used(rules: list, names: set[str]) -> Iterator[str]:
    for rule in rules:
        if rule.type == "at-rule" and rule.lower_at_keyword == "charset":
            continue  # it must be the first of all
        if rule.type == "at-rule" and rule.lower_at_keyword in NESTED and rule.content is not None:
            within = tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
            if kept := "".join(_used(within, names)):
                yield f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{kept}}}"
        elif rule.type != "qualified-rule" or any(_can_match(one, names) for one in _selectors(rule.prelude)):
            yield rule.serialize()


def _selectors(prelude: list) -> Iterator[str]:
    """A rule's selectors: between commas, but those inside of :is(…) and the like."""
    one = []
    for token in prelude:
        if token.type == "literal" and token.value == ",":
            yield tinycss2.serialize(one)
            one = []
        else:
            one.append(token)
    yield tinycss2.serialize(one)


def _can_match(selector: str, names: set[str]) -> bool:
    # In brackets one of several may match, or none may: only what stands outside must be there.
    outside = re.sub(r"\([^()]*(?:\([^()]*\)[^()]*)*\)", "", selector)
    return all(re.sub(r"\\(.)", r"\1", name) in names for name in NAME.findall(outside))


def _words(html: Path) -> set[str]:
    files = [path for path in html.rglob("*") if path.suffix in (".html", ".js") and path.name != NOT_LOADED]
    return {word for path in files for word in re.findall(r"[\w-]+", path.read_text(encoding="utf-8"))}


def _bundled(html: Path, sheets: list[str], names: set[str]) -> str:
    """All sheets and what they import as one, in their order, with addresses as seen from where that one lies."""
    here = posixpath.dirname(BUNDLE)

    def text(sheet: str) -> str:
        def from_here(found: re.Match) -> str:
            target = posixpath.join(posixpath.dirname(sheet), found[2])
            return f"url({posixpath.relpath(target, here)})"

        style = (html / sheet).read_text(encoding="utf-8")
        imported = (posixpath.join(posixpath.dirname(sheet), name) for name in IMPORT.findall(style))
        rules = used_rules(IMPORT.sub("", style), names)
        return "\n".join([*map(text, imported), ADDRESS.sub(from_here, rules)])

    return "\n".join(map(text, sheets))


def lighten(html: Path) -> None:
    """Make those pages of a built site wait for less that do not yet: a build writes what has changed."""
    pages = {
        path: path.read_text(encoding="utf-8") for path in sorted(html.rglob("*.html")) if _is_ours(path)
    }
    new = {path: text for path, text in pages.items() if BUNDLE not in text}
    if not new:
        return
    first, text = next(iter(new.items()))
    sheets = [sheet for sheet in _sheets(text, first.relative_to(html)) if not sheet.startswith(OWN)]
    (html / BUNDLE).write_text(_bundled(html, sheets, _words(html)), encoding="utf-8")
    for path, text in new.items():
        path.write_text(_waiting_less(text, path.relative_to(html), sheets), encoding="utf-8")


def _is_ours(path: Path) -> bool:
    return "_static" not in path.parts


def _sheets(page: str, name: Path) -> list[str]:
    """The style sheets that a page names, as seen from the site's root."""
    return [posixpath.normpath((name.parent / sheet).as_posix()) for sheet in SHEET.findall(page)]


def _waiting_less(page: str, name: Path, sheets: list[str]) -> str:
    root = posixpath.relpath(".", name.parent.as_posix())
    others = [sheet for sheet in _sheets(page, name) if sheet not in sheets]
    links = "".join(f'\n    <link rel="stylesheet" href="{root}/{sheet}" />' for sheet in (BUNDLE, *others))
    page = SHEET.sub("", page).replace("</title>", f"</title>{links}", 1)
    if name.as_posix() != "search.html":  # on others, the search box opens that page
        page = SEARCH.sub("", page)
    # The theme's script would set it later, and every element would be styled twice, the first time in light.
    page = page.replace(THEME, THEME.replace('"auto"', WHAT_THE_SYSTEM_SHOWS))
    page = SCRIPT.sub(r"<script defer\1 src=", page)
    # What needs a script that waits must wait too, as a module does.
    return page.replace("<script>DOCUMENTATION_OPTIONS.", '<script type="module">DOCUMENTATION_OPTIONS.')
