"""Markdown as HTML without any of its own: no tags, no attributes, no addresses but of the web, nothing loaded.

The parser is known to escape; the renderer here adds that each element is one of `TAGS` and has no attribute but
those written here. Formulas stay as they were written. In the course's own texts, hints unfold.
"""

import re
from typing import Any
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markupsafe import Markup, escape
from mdit_py_plugins.dollarmath import dollarmath_plugin

from exercises.autograder.feedback.text import clean, code, short

__all__ = ["HTTP", "TAGS", "markdown", "without_pictures"]

LINK = 2_000  # characters of an address
NESTING = 12  # and the time that brackets and quotations take grows with it
HTTP = r"""https?://[^\s/?#\\"'<>`][^\s\\"'<>`]*"""
TAGS = (
    *"p em strong s code pre blockquote hr br ul ol li a span".split(),
    *"table thead tbody tr th td h1 h2 h3 h4 h5 h6".split(),
)
FOLDS = re.compile("&lt;(/?(?:details|summary))&gt;")
INLINED = re.compile("data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/=]+)")


def markdown(text: str, cell: Any, attachments: dict[str, Any], *, ours: bool = False) -> Markup:
    """The HTML of a text; as it stands if no parser is up to it.

    Args:
        text: cleaned.
        cell: what writes the page: it has the `level` of the last heading, whether there were `formulas`, and
            `image(bundle, description)`.
        attachments: pictures, by the name by which the text calls them: MIME bundles.
        ours: whether the text is the course's own.
    """
    env = {"cell": cell, "attachments": attachments}
    parser = OURS if ours else THEIRS
    try:
        tokens = parser.parse(text, env)
        if all(token.level < NESTING - 1 for token in tokens):  # from there on, the parser drops text
            # Cleaned again, as an entity may stand for any character.
            return Markup(clean(parser.renderer.render(tokens, parser.options, env)))
    except Exception:  # what no parser should do, one does
        pass
    return Markup('<pre class="text">{}</pre>').format(text)


def without_pictures(text: str, attachments: Any) -> tuple[str, dict[str, Any]]:
    """The text with its pictures, which are long, turned into attachments; and all attachments."""
    found = dict(attachments) if isinstance(attachments, dict) else {}

    def attach(match: re.Match) -> str:
        name = f"picture-{len(found)}"
        found[name] = {match[1]: match[2]}
        return f"attachment:{name}"

    return INLINED.sub(attach, text), found


def _html(template: str, *values: Any) -> str:
    """The template with the values escaped; a plain string, which the renderer may join to others."""
    return str(Markup(template).format(*values))


class _Renderer(RendererHTML):
    """Each token's HTML; the methods' names are the tokens'."""

    def renderToken(self, tokens, idx, options, env):
        """A tag without attributes, but for the alignment of a table's cells and the first number of a list."""
        token = tokens[idx]
        if token.tag not in TAGS:
            raise ValueError(f"Markdown: no such element is expected: {token.tag}")
        aligned = re.search("center|right", str(token.attrs.get("style", "")))
        start = token.attrs.get("start")
        token.attrs = {"class": aligned[0]} if aligned else {} if start is None else {"start": int(start)}
        return super().renderToken(tokens, idx, options, env)

    def heading_open(self, tokens, idx, options, env):
        """Below the page's own headings, and at most one step below the one before it."""
        env["cell"].level = min(int(tokens[idx].tag[1]) + 2, env["cell"].level + 1, 6)
        return f"<h{env['cell'].level}>"

    def heading_close(self, tokens, idx, options, env):
        """What `heading_open` opened."""
        return f"</h{env['cell'].level}>\n"

    def table_open(self, tokens, idx, options, env):
        """In a box of its own, which scrolls where the screen is narrow."""
        return '<div class="scroll" role="group" aria-label="Table" tabindex="0"><table>\n'

    def table_close(self, tokens, idx, options, env):
        """The end of table and box."""
        return "</table></div>\n"

    def link_open(self, tokens, idx, options, env):
        """A link to the web, or, to an attachment, none."""
        address = str(tokens[idx].attrs.get("href", ""))
        env["link"] = "a" if re.fullmatch(HTTP, address, re.IGNORECASE) else "span"
        if env["link"] == "span":
            return "<span>"
        return _html('<a href="{}" rel="noopener noreferrer nofollow">', address)

    def link_close(self, tokens, idx, options, env):
        """What `link_open` opened."""
        return f"</{env['link']}>"

    def image(self, tokens, idx, options, env):
        """A picture that came with the cell; of one elsewhere, its description and its address as text."""
        address = str(tokens[idx].attrs.get("src", ""))
        description = short(self.renderInlineAsText(tokens[idx].children or [], options, env))
        if address.startswith("attachment:"):
            bundle = env["attachments"].get(unquote(address.removeprefix("attachment:")))
            return str(env["cell"].image(bundle, description))
        note = '<span class="note">{} (a picture elsewhere, which is not loaded: {})</span>'
        return _html(note, description, address)

    def fence(self, tokens, idx, options, env):
        """A block of code."""
        source, language = tokens[idx].content, tokens[idx].info.split()[:1]
        return _html("<pre>{}</pre>\n", code(source) if language in (["python"], ["py"]) else source)

    code_block = fence

    def math_inline(self, tokens, idx, options, env):
        """A formula, as it was written."""
        env["cell"].formulas = True
        return _html('<code class="tex">{}</code>', tokens[idx].content.strip())

    math_inline_double = math_inline

    def math_block(self, tokens, idx, options, env):
        """A formula on lines of its own."""
        env["cell"].formulas = True
        return _html('<pre class="tex">{}</pre>\n', tokens[idx].content.strip())

    def html_block(self, tokens, idx, options, env):
        """In the course's own texts only: what unfolds; all else as text."""
        return FOLDS.sub(r"<\1>", str(escape(tokens[idx].content)))

    html_inline = html_block


def _may_link(address: str) -> bool:
    known = address.startswith("attachment:") or re.fullmatch(HTTP, address[: LINK + 1], re.IGNORECASE)
    return len(address) <= LINK and bool(known)


def _parser(ours: bool) -> MarkdownIt:
    options = {"html": ours, "maxNesting": NESTING, "xhtmlOut": False}
    parser = MarkdownIt("commonmark", options, renderer_cls=_Renderer)
    parser.enable(["table", "strikethrough"]).disable("reference")  # which take the square of their number
    dollars = {"allow_labels": False, "allow_space": False, "allow_digits": False, "double_inline": True}
    dollarmath_plugin(parser, **dollars)
    for name in ("math_inline", "math_inline_double", "math_block"):  # for which the plugin has set its own
        parser.renderer.rules[name] = getattr(parser.renderer, name)
    parser.validateLink = _may_link
    return parser


OURS, THEIRS = _parser(ours=True), _parser(ours=False)
