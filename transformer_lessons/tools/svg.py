"""Drawings as HTML: colours as CSS variables, true subscripts, and matplotlib's SVG made compact."""

import re
from html import escape
from xml.etree import ElementTree

PALETTE = {  # role: (on a light page, on a dark page)
    "ink": ("#1f2328", "#e6e8ea"),  # words, numbers, plain arrows
    "soft": ("#59626b", "#a9b2bb"),  # annotations, names of axes, shapes
    "rule": ("#c8ced4", "#454d56"),  # borders of cells, axes of plots
    "paper": ("#ffffff", "#14181e"),  # the page
    "query": ("#17429a", "#9cc4ff"),
    "key": ("#a04000", "#e8813a"),
    "value": ("#118575", "#62efb6"),
    "weight": ("#6490e8", "#3062b4"),  # attention weights: cells whose opacity shows them, and bars
    "mask": ("#757575", "#8d8d8d"),  # always with a cross
    "encoder": ("#b88e00", "#f7dc52"),
    "decoder": ("#e055b8", "#c850c8"),
    "residual": ("#2b3036", "#808b96"),
    "wrong": ("#b3001b", "#ff8a80"),  # what a mistake does; always with a word
}
_ROLES = {light: role for role, (light, _) in PALETTE.items()} | {"#000000": "ink"}  # matplotlib's default
_COLOURS = "".join(f"--{role}:light-dark({light},{dark});" for role, (light, dark) in PALETTE.items())
_DARK = '[data-theme="dark"],[theme="dark"],[data-jp-theme-light="false"],.vscode-dark'  # site, Colab, …
STYLE = f"""<style>.drawing{{{_COLOURS}display:flex;flex-wrap:wrap;gap:1.5rem 1rem;justify-content:center;
margin:1.75rem 0;background:var(--paper);color:var(--ink);font-family:system-ui,sans-serif}}
:is({_DARK}) .drawing{{color-scheme:dark}}@media print{{.drawing{{color-scheme:light!important}}}}
.drawing>svg{{flex:1 1 300px;min-width:0;height:auto;overflow:visible;fill:var(--ink);stroke-linejoin:round}}
.drawing>figcaption{{flex:1 0 100%;box-sizing:border-box;padding:0 max(0px,50% - 19rem);margin-top:-.5rem;
font-size:.92rem;line-height:1.5}}</style>"""

# `d_k`, `W_q`, `d_model`: a single letter before the mark, or braces after it. Names such as `causal_mask` stay.
_LETTER = r"(?<![A-Za-z_][^\W_])([_^])([^\W_]{1,5})(?!\w)"
SCRIPT = re.compile(r"(?<=[^\W_]|[})])(?:([_^])\{([^{}]*)\}|" + _LETTER + ")")
# Consecutive lines of one kind, such as the crosses of a mask: one path is drawn much faster than hundreds.
_ALIKE = re.compile(r'<path d="[^"]*"( style="fill:none;(?:(?!opacity)[^"])*")/>(?:<path d="[^"]*"\1/>)+')
_D = re.compile(r'<path d="([^"]*)"')
RISE = {"_": -0.24, "^": 0.4}  # relative to the size of the letters around


def plain(words: str) -> str:
    """The words for screen readers and for measuring, in which `d_k` is "d k"."""
    return SCRIPT.sub(r" \2\4", words)


def in_svg(words: str) -> str:
    """The content of a `<text>`, with true subscripts and superscripts."""
    done, at, risen = [], 0, 0.0
    for found in [*SCRIPT.finditer(words), None]:
        rest = escape(words[at : found and found.start()])
        done.append(f'<tspan dy="{risen:.2f}em">{rest}</tspan>' if risen and rest else rest)
        if found:
            mark, script, at = found[1] or found[3], found[2] or found[4], found.end()
            fall = (0 if rest else risen) - RISE[mark]
            done.append(f'<tspan dy="{fall / 0.8:.2f}em" font-size="80%">{escape(script)}</tspan>')
            risen = RISE[mark]
    return "".join(done)


def in_html(words: str) -> str:
    """A caption as HTML: true subscripts, `*emphasis*`, code in backticks."""

    def set_script(found: re.Match) -> str:
        tag = "sub" if (found[1] or found[3]) == "_" else "sup"
        return f"<{tag}>{found[2] or found[4]}</{tag}>"

    parts = re.split("`([^`]*)`", escape(words))
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"\*(\S[^*]*?)\*", r"<em>\1</em>", SCRIPT.sub(set_script, parts[i]))
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def tick(value: float, _=None) -> str:
    """The text of a tick on an axis: 0.01, 1,000, then 10^5."""
    words = f"{value:,.6g}"
    if value and not 1e-3 <= abs(value) < 1e5:
        digits, exponent = f"{value:.0e}".split("e")
        words = f"{digits} × 10^{{{int(exponent)}}}".replace("1 × ", "")
    return words.replace("-", "−")


def compact(svg: str, name: str) -> str:
    """The content of matplotlib's `<svg>`, without anything that a page does not need.

    Ids that are referred to begin with `name`; other ids are removed. ValueError for a colour that is not in the
    palette, or for a raster image.
    """
    used = dict.fromkeys(re.findall(r'(?:url\(|href=")#(\w+)', svg))
    names = {old: f"{name}-{i}" for i, old in enumerate(used)}
    content = "".join(_element(part, names) for part in ElementTree.fromstring(svg))
    return _ALIKE.sub(lambda found: f'<path d="{"".join(_D.findall(found[0]))}"{found[1]}/>', content)


def _element(node: ElementTree.Element, names: dict[str, str]) -> str:
    tag, style = node.tag.rpartition("}")[2], node.get("style", "")
    if tag == "image":
        raise ValueError("image: expected shapes, got pixels, which have no dark mode")
    unseen = tag == "path" and not node.get("id") and "stroke: " not in style and "fill: none" in style
    if tag in ("metadata", "style") or unseen:
        return ""
    content = "".join(_element(part, names) for part in node)
    if tag == "text":
        content = in_svg(node.text or "")
    if not content and tag in ("defs", "g", "text"):
        return ""
    attributes = []
    for key, value in node.attrib.items():
        key = key.rpartition("}")[2]
        if key == "id":
            value = names.get(value, "")
        elif key == "style":
            value = _style(value)
        elif key in ("href", "clip-path"):
            value = re.sub(r"#(\w+)", lambda found: "#" + names[found[1]], value)
        elif key == "d":
            value = re.sub(r"\s*([A-Za-z])\s*", r"\1", _rounded(value)).replace("\n", "")
        else:
            value = "" if value.startswith("rotate(-0 ") else _rounded(value)
        attributes += [f' {key}="{escape(value)}"'] if value else []
    if tag == "g" and not attributes:
        return content
    return f"<{tag}{''.join(attributes)}" + (f">{content}</{tag}>" if content else "/>")


def _style(style: str) -> str:
    kept = []
    for key, value in (part.split(": ", 1) for part in style.split("; ")):
        if key in ("fill", "stroke") and value != "none":
            if value not in _ROLES:
                raise ValueError(f"color: expected a role of the palette, got {value}")
            value = f"var(--{_ROLES[value]})"
        elif key == "font-weight":
            value = "600"
        if key != "font-family":
            kept.append(f"{key}:{_rounded(value)}")
    return ";".join(sorted(kept))


def _rounded(value: str) -> str:
    """A text with its numbers rounded to two decimals, finer than a screen shows."""
    return re.sub(r"-?\d+\.\d+", lambda found: f"{round(float(found[0]), 2) + 0.0:g}", value)
