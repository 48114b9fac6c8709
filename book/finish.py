"""What becomes of pages when Sphinx has written them: they wait for less, weigh less, and are easier to use.

The theme brings rules for everything that it could show (of 65 kB, compressed, pages use 19), in nine files
that a browser waits for before it shows a word, and so it does for fifteen scripts, the search's index among
them. It brings 2,000 icons to every page, too.
"""

import logging
import posixpath
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from urllib.parse import urljoin

import tinycss2
from fontTools import subset
from fontTools.ttLib import TTFont

BUNDLE = "_static/styles/site.css"
OWN = ("_static/explorables/", "_static/live/")  # styles of single pages
SHEET = re.compile(r'\s*<link\b(?=[^>]*rel="stylesheet")[^>]*href="([^"?]+\.css)[^"]*"[^>]*>')
NAME = re.compile(r"[.#]((?:[\w-]|\\.)+)")
BRACKETS = re.compile(r"\([^()]*(?:\([^()]*\)[^()]*)*\)")
ADDRESS = re.compile(r"url\((?!data:)([\"']?)([^)\"']+)\1\)")
IMPORT = re.compile(r'@import\s*"([^"]+)";')
CHARSET = re.compile(r"@charset[^;]*;")  # must be the first of all
SEARCH = re.compile(r'\s*<script src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>')
SCRIPT = re.compile(r'<script(?![^>]*\b(?:defer|async)\b)((?: data-[\w-]+="[^"]*")*) src=')
THEME = 'localStorage.getItem("theme") || "auto"'
WHAT_THE_SYSTEM_SHOWS = '(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")'
NESTED = {"media", "supports", "layer"}
ICONS = re.compile(r"[\ue000-\uf8ff]|\\([ef][0-9a-f]{3})\b")  # characters for private use, or their numbers

# What Sphinx, the theme and its parts write, and what becomes of it.
MENDS = {
    # A list's entries are its items (docutils' own role for them is deprecated).
    r'role="doc-biblioentry"': 'role="listitem"',
    # A name that the eye does not see is one that the voice cannot say (WCAG 2.5.3).
    r'(<button class="[^"]*search-button-field[^>]*?) aria-label="Search"': r"\1",
    r'(<summary) aria-label="Toggle hidden content">': r"\1>",
    # The parameters of a long signature are no list of terms and what they mean (WCAG 1.3.1).
    r"<dl>\n((?:<dd>(?:(?!</?d[dl]>).)*</dd>\n?)+)</dl>": r'<div class="sig-params">\n\1</div>',
    r"(?<=\n)<dd>(<em class=\"sig-param\">(?:(?!</?d[dl]>).)*)</dd>": r"<div>\1</div>",
    # What unfolds the pages below a page has a name.
    r'(<a class="[^"]*" href="[^"]*">([^<]*)</a><details[^>]*>)<summary><span class="toctree-toggle"': (
        r'\1<summary aria-label="Pages below “\2”"><span class="toctree-toggle"'
    ),
    # Names and punctuation have the colour of their surroundings: of a page's elements, these were a quarter.
    r'<span class="(?:n|nn|p|w)">([^<]*)</span>': r"\1",
}


def finish(app, error):
    """Sphinx calls this when all is written."""
    if error or app.builder.name != "html":
        return
    html = Path(app.outdir)
    lighten(html)
    keep_used_icons(html)
    # sphinx-sitemap lists only what this build has written: after an edit, one page.
    addresses = [urljoin(app.config.html_baseurl, f"{name}.html") for name in sorted(app.env.found_docs)]
    entries = "".join(f"<url><loc>{escape(address)}</loc></url>\n" for address in addresses)
    text = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{entries}</urlset>\n'
    (html / "sitemap.xml").write_text(f'<?xml version="1.0" encoding="utf-8"?>\n{text}', encoding="utf-8")


def lighten(html: Path) -> None:
    """Mend those pages of a built site that are not yet, and make them wait for less."""
    paths = [path for path in sorted(html.rglob("*.html")) if "_static" not in path.relative_to(html).parts]
    pages = {path: path.read_text(encoding="utf-8") for path in paths}
    new = {path: mend(text) for path, text in pages.items() if BUNDLE not in text}
    if not new:
        return
    scripts = [path for path in html.rglob("*.js") if path.name != "fontawesome.js"]  # all icons, as drawings
    texts = [*(path.read_text(encoding="utf-8") for path in scripts), *(pages | new).values()]
    names = {word for text in texts for word in re.findall(r"[\w-]+", text)}
    first, text = next(iter(new.items()))
    sheets = [sheet for sheet in _sheets(text, first.relative_to(html)) if not sheet.startswith(OWN)]
    (html / BUNDLE).write_text("\n".join(_bundled(html, sheet, names) for sheet in sheets), encoding="utf-8")
    for path, text in new.items():
        path.write_text(_waiting_less(text, path.relative_to(html), sheets), encoding="utf-8")


def mend(page: str) -> str:
    """Change what makes a page harder to use without eyes or hands."""
    for pattern, better in MENDS.items():
        page = re.sub(pattern, better, page, flags=re.DOTALL)
    return page


def used_rules(style: str, names: set[str]) -> str:
    """A style sheet without the rules whose classes and ids occur nowhere.

    Args:
        style: its text.
        names: all words of pages and scripts; what a script puts together from parts would be missed.
    """
    return "".join(_used(tinycss2.parse_stylesheet(style, skip_comments=True, skip_whitespace=True), names))


def _used(rules: list, names: set[str]) -> Iterator[str]:
    for rule in rules:
        if rule.type == "at-rule" and rule.lower_at_keyword in NESTED and rule.content is not None:
            within = tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
            if kept := "".join(_used(within, names)):
                yield f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{kept}}}"
        elif rule.type != "qualified-rule" or _can_match(tinycss2.serialize(rule.prelude), names):
            yield rule.serialize()


def _can_match(selectors: str, names: set[str]) -> bool:
    # In brackets one of several may match, or none may: only what stands outside must be there.
    outside = BRACKETS.sub("", selectors).split(",")
    return any(all(name.replace("\\", "") in names for name in NAME.findall(one)) for one in outside)


def _bundled(html: Path, sheet: str, names: set[str]) -> str:
    """A sheet and what it imports, with addresses as seen from where the bundle lies."""
    folder = posixpath.dirname(sheet)

    def from_bundle(found: re.Match) -> str:
        return f"url({posixpath.relpath(posixpath.join(folder, found[2]), posixpath.dirname(BUNDLE))})"

    style = CHARSET.sub("", (html / sheet).read_text(encoding="utf-8"))
    imported = [_bundled(html, posixpath.join(folder, name), names) for name in IMPORT.findall(style)]
    return "\n".join([*imported, ADDRESS.sub(from_bundle, used_rules(IMPORT.sub("", style), names))])


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


def keep_used_icons(html: Path) -> None:
    """Leave in each font of icons those that the bundled styles name."""
    style = (html / BUNDLE).read_text(encoding="utf-8")
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells each step
    wanted = {int(found[1], 16) if found[1] else ord(found[0]) for found in ICONS.finditer(style)}
    for path in (html / "_static").rglob("fa-*.woff2"):
        font = TTFont(path)
        options = subset.Options(flavor="woff2", notdef_outline=True)
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=wanted & font.getBestCmap().keys())
        cutter.subset(font)
        subset.save_font(font, path, options)
