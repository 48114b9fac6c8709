"""Post-processing of the pages that Sphinx has written: they load faster, weigh less, and are easier to use.

Sphinx and the theme have rules for everything that they could show (85 kB compressed, of which pages can use
28), in seven files that a browser waits for before it shows a word, and it waits for a dozen scripts, including
the search index. So ``_templates/layout.html`` names one file instead. The theme also brings 2,000 icons.
"""

import re
from pathlib import Path

import tinycss2
from fontTools import subset

from book.build import pages

BUNDLE = "_static/site.css"
OWN = ("_static/explorables/", "_static/live/")  # styles of single pages
THEME = ["_static/basic.css", "_static/styles/pydata-sphinx-theme.css"]  # named in its templates
NAME = re.compile(r"[.#]((?:[\w-]|\\.)+)")
BRACKETS = re.compile(r"\([^()]*(?:\([^()]*\)[^()]*)*\)")
NESTED = {"media", "supports", "layer"}
ICONS = re.compile(r"[\ue000-\uf8ff]|\\([ef][0-9a-f]{3})\b")  # characters for private use, or their numbers

# Patterns in what Sphinx, the theme and its parts write, and their replacements.
REPLACEMENTS = {
    # A list's entries are its items (docutils' own role for them is deprecated).
    r'role="doc-biblioentry"': 'role="listitem"',
    # An invisible name cannot be spoken by users of voice control (WCAG 2.5.3).
    r'(<button class="[^"]*search-button-field[^>]*?) aria-label="Search"': r"\1",
    r'(<summary) aria-label="Toggle hidden content">': r"\1>",
    # The parameters of a long signature are not a list of terms and definitions (WCAG 1.3.1).
    r"<dl>\n((?:<dd>(?:(?!</?d[dl]>).)*</dd>\n?)+)</dl>": r'<div class="sig-params">\n\1</div>',
    r"(?<=\n)<dd>(<em class=\"sig-param\">(?:(?!</?d[dl]>).)*)</dd>": r"<div>\1</div>",
    # The toggle that unfolds the pages below a page needs a name.
    r'(<a class="[^"]*" href="[^"]*">([^<]*)</a><details[^>]*>)<summary><span class="toctree-toggle"': (
        r'\1<summary aria-label="Pages below “\2”"><span class="toctree-toggle"'
    ),
    # Names and punctuation have the colour of their surroundings; they were a quarter of a page's elements.
    r'<span class="(?:n|nn|p|w)">([^<]*)</span>': r"\1",
}


def defer_scripts(app, pagename, templatename, context, doctree):
    """Defer a page's scripts until it is loaded; inline code that needs them becomes a module to wait too."""
    if app.builder.name != "html":
        return
    for script in context["script_files"]:
        if script.filename:
            script.attributes.setdefault("defer", "defer")
        elif script.attributes["body"].startswith("DOCUMENTATION_OPTIONS."):
            script.attributes["type"] = "module"
    named = [sheet.filename for sheet in sorted(context["css_files"], key=lambda sheet: sheet.priority)]
    app.builder.sheets = THEME + [sheet for sheet in named if not sheet.startswith(OWN)]
    context["of_single_pages"] = OWN


def finish(app, error):
    """Post-process the pages; Sphinx calls this when all are written."""
    if error or app.builder.name != "html":
        return
    html = Path(app.outdir)
    lighten(html, app.builder.sheets)
    keep_used_icons(html)
    # sphinx-sitemap lists only what this build has written, which may be one edited page.
    addresses = [f"{app.config.html_baseurl}{name}.html" for name in sorted(app.env.found_docs)]
    entries = "".join(f"<url><loc>{address}</loc></url>\n" for address in addresses)
    text = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{entries}</urlset>\n'
    (html / "sitemap.xml").write_text(f'<?xml version="1.0" encoding="utf-8"?>\n{text}', encoding="utf-8")


def lighten(html: Path, sheets: list[str]) -> None:
    """Mend the pages of a built site, and make one style sheet of the rules that they can use."""
    texts = []
    for path in pages(html):
        page = path.read_text(encoding="utf-8")
        for pattern, better in REPLACEMENTS.items():
            page = re.sub(pattern, better, page, flags=re.DOTALL)
        path.write_text(page, encoding="utf-8")
        texts.append(page)
    scripts = [path for path in html.rglob("*.js") if path.name != "fontawesome.js"]  # all icons, as drawings
    texts += [path.read_text(encoding="utf-8") for path in scripts]
    names = {word for text in texts for word in re.findall(r"[\w-]+", text)}
    style = "".join(used_rules((html / sheet).read_text(encoding="utf-8"), names) for sheet in sheets)
    # The bundle is where most sheets are; the theme's, which name their character set, are one folder below.
    style = style.replace('@charset "UTF-8";', "").replace("url(../", "url(")
    (html / BUNDLE).write_text(style, encoding="utf-8")


def used_rules(style: str, names: set[str]) -> str:
    """A style sheet without the rules whose classes and ids occur nowhere.

    Args:
        style: the text of the style sheet.
        names: all words of pages and scripts; names that a script assembles from parts would be missed.
    """
    kept = []
    for rule in tinycss2.parse_stylesheet(style, skip_comments=True, skip_whitespace=True):
        if rule.type == "at-rule" and rule.lower_at_keyword in NESTED and rule.content is not None:
            if within := used_rules(tinycss2.serialize(rule.content), names):
                kept.append(f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{within}}}")
        elif rule.type != "qualified-rule" or _can_match(tinycss2.serialize(rule.prelude), names):
            kept.append(rule.serialize())
    return "".join(kept)


def _can_match(selectors: str, names: set[str]) -> bool:
    # In brackets, one of several may match, or none may: only names outside must occur.
    outside = BRACKETS.sub("", selectors).split(",")
    return any(all(name.replace("\\", "") in names for name in NAME.findall(one)) for one in outside)


def keep_used_icons(html: Path) -> None:
    """Keep in each icon font only the icons that the bundled styles name."""
    style = (html / BUNDLE).read_text(encoding="utf-8")
    icons = ",".join(found[1] or f"{ord(found[0]):x}" for found in ICONS.finditer(style))
    options = [f"--unicodes={icons}", "--flavor=woff2", "--notdef-outline"]
    for path in map(str, (html / "_static").rglob("fa-*.woff2")):
        subset.main([path, f"--output-file={path}", *options])
