"""Fonts of icons with those icons alone that the site shows: the theme brings 2,000 of them to every page."""

import re
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

__all__ = ["fonts", "keep_used", "used"]

STYLE = Path("_static") / "styles" / "pydata-sphinx-theme.css"
# .fa-bars:before,.fa-navicon:before{content:"\f0c9"}
NAMED = re.compile(r'((?:\.fa-[\w-]+:before,?)+)\{content:"\\([0-9a-f]+)(?:\s*)"\}?')
NOT_LOADED = "fontawesome.js"  # the same icons once more, as drawings


def fonts(html: Path) -> list[Path]:
    """The fonts of icons in a built site."""
    return sorted((html / "_static").rglob("fa-*.woff2"))


def used(html: Path) -> set[int]:
    """The characters of all icons that a page, a script or a style of a built site names."""
    style = (html / STYLE).read_text(encoding="utf-8")
    codes = {
        name: int(code, 16)
        for names, code in NAMED.findall(style)
        for name in re.findall(r"fa-([\w-]+)", names)
    }
    files = [path for path in html.rglob("*") if path.suffix in (".html", ".js") and path.name != NOT_LOADED]
    names = {
        name for path in files for name in re.findall(r"\bfa-([\w-]+)", path.read_text(encoding="utf-8"))
    }
    # What a rule shows by itself, such as the sign of a note: a character for private use, or its number.
    styles = NAMED.sub("", "".join(path.read_text(encoding="utf-8") for path in html.rglob("*.css")))
    direct = [
        *re.findall("[\ue000-\uf8ff]", styles),
        *(chr(int(n, 16)) for n in re.findall(r"\\([ef][0-9a-f]{3})\b", styles)),
    ]
    return {codes[name] for name in names & codes.keys()} | set(map(ord, direct))


def keep_used(html: Path) -> None:
    """Leave in each font what is used, under the same name."""
    wanted = used(html)
    for path in fonts(html):
        font = TTFont(path)
        options = subset.Options(flavor="woff2", notdef_outline=True)
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=wanted & font.getBestCmap().keys())
        cutter.subset(font)
        subset.save_font(font, path, options)
