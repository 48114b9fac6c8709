"""The book's drawings: a few shapes, one palette, one type size; light and dark pages use the same drawing.

A panel is laid out by matplotlib in units of one phone pixel, `WIDTH` across, and becomes SVG whose colours
are CSS variables. A `Drawing` puts panels side by side (stacked on a phone) with a number, a caption and an
alternative text. Symbols are written `d_k`, `10^5` or `x_{ij}` and typeset as formulas everywhere.
"""

import io
import math
from collections import defaultdict
from html import escape
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.colors import get_named_colors_mapping
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.textpath import TextToPath
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from transformer_lessons.tools.svg import PALETTE, STYLE, compact, in_html, plain, tick

WIDTH, TEXT, SMALL, LINE, TINT, HEAD = 340, 11.5, 10, 1.3, 0.14, "-|>,head_length=5.5,head_width=2.8"
SERIES = ("query", "key", "value", "decoder", "encoder", "residual")  # of a plot's lines, unless given a role
get_named_colors_mapping().update({role: light for role, (light, _) in PALETTE.items()})  # color="query"
_LOOK = ("axes", "figure", "font", "grid", "patch", "path", "savefig", "svg", "text", "xtick", "ytick")
_OURS = {key: value for key, value in mpl.rcParamsDefault.items() if key.startswith(_LOOK)}
ours = mpl.rc_context(_OURS | {"svg.fonttype": "none", "svg.hashsalt": ""})  # whatever a notebook has set


class Shape(NamedTuple):
    """The rectangle in which something was drawn. Arrows start and end at the middles of its sides."""

    x: float
    y: float
    width: float
    height: float

    left = property(lambda self: (self.x, self.y + self.height / 2))
    right = property(lambda self: (self.x + self.width, self.y + self.height / 2))
    top = property(lambda self: (self.x + self.width / 2, self.y))
    bottom = property(lambda self: (self.x + self.width / 2, self.y + self.height))


def number(value, digits=2):
    """A number as the text of a cell, with a true minus sign and without minus zero."""
    return f"{round(float(value), digits) + 0.0:.{digits}f}".replace("-", "−")


def text_width(words, size=TEXT):
    """The width of a text in DejaVu Sans, which is wider than the fonts of pages, so it fits there too."""
    font = mpl.font_manager.FontProperties(family="DejaVu Sans", size=size)
    return TextToPath().get_text_width_height_descent(plain(words), font, False)[0]


def _polyline(points, radius):
    vertices, codes = [points[0]], [Path.MOVETO]
    for i, (x, y) in enumerate(points[1:-1], start=1):
        bend = []
        for j, most in ((i - 1, 1 if i == 1 else 0.5), (i + 1, 1 if i == len(points) - 2 else 0.5)):
            dx, dy = points[j][0] - x, points[j][1] - y
            part = min(radius / math.hypot(dx, dy), most)
            bend += [(x + part * dx, y + part * dy), (x + 0.448 * part * dx, y + 0.448 * part * dy)]
        vertices += [bend[0], bend[1], bend[3], bend[2]]
        codes += [Path.LINETO, *3 * [Path.CURVE4]]
    return Path([*vertices, points[-1]], [*codes, Path.LINETO])


def cells(middles, width, height):
    """Rectangles of one size, centred at `middles`, as one path."""
    corners = [(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5)]
    vertices = [(x + dx * width, y + dy * height) for x, y in middles for dx, dy in corners]
    return Path(vertices, [Path.MOVETO, *3 * [Path.LINETO], Path.CLOSEPOLY] * len(middles))


class Canvas:
    """A panel of `WIDTH` × `height` units, with y downwards. Later shapes cover earlier ones."""

    @ours
    def __init__(self, height):
        self.height = height
        self.figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72)
        self.sheet = self.figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(height, 0), zorder=2)
        self.sheet.set_axis_off()

    def _add(self, kind, *args, **style):
        self.sheet.add_patch(kind(*args, **style)).set_clip_on(False)

    def text(self, x, y, words, role="ink", size=TEXT, align="center", bold=False, turn=0):
        """Write words with y at the middle of their capitals, so that words in a row share a baseline."""
        dx, dy = (0.36 * size, 0) if turn else (0, 0.36 * size)
        style = {"ha": align, "va": "baseline", "rotation": turn, "rotation_mode": "anchor", "size": size}
        weight = "bold" if bold else "normal"
        self.sheet.text(x + dx, y + dy, words, color=role, weight=weight, parse_math=False, **style)

    def box(self, x, y, width, height, words="", role="ink", radius=5, tint=TINT, size=TEXT, bold=False):
        """Draw a box for something that computes, with lines of `words` in its middle."""
        start, right, bottom = (x + width / 2, y), x + width, y + height
        outline = _polyline([start, (right, y), (right, bottom), (x, bottom), (x, y), start], radius)
        lines = words.split("\n") if words else ()
        self._add(PathPatch, outline, fc="paper", ec="none")
        self._add(PathPatch, outline, fc=(role, tint), ec=(role, 1.0), lw=LINE)
        for i, line in enumerate(lines):
            middle = y + height / 2 + (i - (len(lines) - 1) / 2) * size * 1.3
            self.text(x + width / 2, middle, line, "ink", size, bold=bold)
        return Shape(x, y, width, height)

    def token(self, x, y, word, role="ink", width=None, size=TEXT, height=22):
        """Draw a word as a pill; x is its left end, y its middle."""
        width = width or text_width(word, size) + size
        return self.box(x, y - height / 2, width, height, word, role, height / 2, 0.06, size)

    def tokens(self, x, y, words, role="ink", gap=6, size=TEXT):
        """Draw a sentence as a row of pills."""
        shapes = []
        for word in words:
            shapes.append(self.token(x, y, word, role, size=size))
            x += shapes[-1].width + gap
        return shapes

    def matrix(
        self, x, y, values, role="ink", *, cell=(28, 22), digits=None, weights=False, mask=None, tint=TINT
    ):
        """Draw a grid of cells; with `weights`, opacity shows the value. Cells that `mask` hides get a cross.

        For empty cells, `values` may be a size (rows, columns). If `digits` is None, no numbers are written.
        """
        empty = isinstance(values, tuple)
        rows, columns = values if empty else (len(values), len(values[0]))
        (w, h), fills, above = cell, defaultdict(list), []
        for i, j in ((i, j) for i in range(rows) for j in range(columns)):
            cx, cy = x + (j + 0.5) * w, y + (i + 0.5) * h
            if mask is not None and not mask[i][j]:
                fills["mask", 0.12].append((cx, cy))
                above += [(self.line, (cx - 4, cy + d), (cx + 4, cy - d), {"role": "mask"}) for d in (-4, 4)]
                continue
            alpha = round(min(max(float(values[i][j]), 0), 1), 2) if weights else tint
            fills["weight" if weights else role, alpha].append((cx, cy))
            if digits is not None and not empty:
                above.append((self.text, cx, cy, {"words": number(values[i][j], digits), "size": SMALL}))
        for fill, middles in fills.items():
            self._add(PathPatch, cells(middles, w, h), fc=fill, ec="rule", lw=0.8)
        for draw, *places, options in above:
            draw(*places, **options)
        self._add(Rectangle, (x, y), w * columns, h * rows, fc="none", ec=role, lw=LINE)
        return Shape(x, y, w * columns, h * rows)

    def vector(self, x, y, values, role="ink", *, cell=(23, 22), **options):
        """Draw a row of cells; y is its middle."""
        return self.matrix(x, y - cell[1] / 2, [list(values)], role, cell=cell, **options)

    def label(self, shape, rows, columns, roles=("ink", "ink"), names=("queries", "keys")):
        """Label the axes of a grid: a pill for each row and column, the names of the axes and their sizes."""
        w, h = shape.width / len(columns), shape.height / len(rows)
        role_of = {"PAD": "mask"}.get
        for i, word in enumerate(rows):
            self.token(shape.x - 60, shape.y + (i + 0.5) * h, word, role_of(word, roles[0]), 55, SMALL, 20)
        for j, word in enumerate(columns):
            x = shape.x + j * w + 0.5
            self.token(x, shape.y - 16, word, role_of(word, roles[1]), w - 1, SMALL, 20)
        self.text(shape.x - 72, shape.left[1], f"{names[0]} · {len(rows)}", "soft", SMALL, turn=90)
        self.text(shape.top[0], shape.y - 38, f"{names[1]} · {len(columns)}", "soft", SMALL)

    def frame(self, x, y, width, height, role="ink"):
        """Draw an outline around cells that a reader should look at."""
        self._add(Rectangle, (x, y), width, height, fc="none", ec=role, lw=2.2)

    def bar(self, x, y, width, height, role="weight"):
        """Draw a weight as a bar; x is its left end, y its middle."""
        self._add(Rectangle, (x, y - height / 2), width, height, fc=role, ec="none")

    def circle(self, x, y, radius, role="ink", fill="paper"):
        """Draw a disc with an outline."""
        self._add(Circle, (x, y), radius, fc=fill, ec=role, lw=LINE)

    def arrow(self, *points, role="ink", width=LINE, head=HEAD, dashed=False, alpha=1.0, curve=False):
        """Draw an arrow along points, with round corners; `curve` joins two points, vertical at both ends."""
        path = _polyline(points, radius=7)
        if curve:
            (x0, y0), (x1, y1) = points
            middle = (y0 + y1) / 2
            path = Path([(x0, y0), (x0, middle), (x1, middle), (x1, y1)], [Path.MOVETO, *3 * [Path.CURVE4]])
        style = {"ls": (0, (3, 2.5)) if dashed else "-", "joinstyle": "miter", "capstyle": "butt"}
        style |= {"lw": width, "arrowstyle": head, "mutation_scale": 1, "shrinkA": 0, "shrinkB": 0}
        self._add(FancyArrowPatch, path=path, color=(role, alpha), **style)

    def line(self, *points, **options):
        """Draw an arrow without a head."""
        self.arrow(*points, head="-", **options)

    def stream(self, *points):
        """Draw the residual stream as a broad band, which sub-layers read and add to."""
        self.line(*points, role="residual", width=8, alpha=0.3)

    def plus(self, x, y):
        """Draw a plus sign where something is added to the stream."""
        self.circle(x, y, 7, "residual")
        self.line((x - 3.5, y), (x + 3.5, y), role="residual")
        self.line((x, y - 3.5), (x, y + 3.5), role="residual")

    @ours
    def svg(self, name="panel"):
        """The viewBox and the SVG content, in which every id begins with `name`."""
        buffer = io.StringIO()
        self.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        return f"0 0 {WIDTH} {self.height:g}", compact(buffer.getvalue(), name)


class Plot(Canvas):
    """A panel for data: draw on its matplotlib `axes`, with roles as colours (`color="query"`).

    The methods of Canvas draw on top, in units of the panel. `left` is the room for the vertical axis' labels.
    """

    @ours
    def __init__(self, height=220, *, xlabel="", ylabel="", title="", left=None):
        super().__init__(height)
        self._left, self._above, self._below = left, 12, 42 if xlabel else 24
        for words, style in ((title, {"bold": True}), (ylabel, {"role": "soft", "size": SMALL})):
            self._above += 17 * bool(words)
            self.text(0, self._above - 18, words, align="left", **style)
        cycle = mpl.cycler(color=SERIES, linewidth=[1.8] * len(SERIES))
        self.axes = self.figure.add_axes((0.1, 0.1, 0.8, 0.8), facecolor="none", prop_cycle=cycle)
        self.axes.spines[["top", "right", "left"]].set_visible(False)
        self.axes.spines["bottom"].set(color="rule", linewidth=0.8)
        self.axes.grid(axis="y", color="rule", linewidth=0.8)
        self.axes.set_axisbelow(True)
        self.axes.set_xlabel(xlabel, color="soft", size=SMALL)
        self.axes.tick_params(which="both", length=0, pad=5, labelsize=SMALL, labelcolor="soft")

    def at(self, x, y):
        """The place of a data point in units of the panel; call this after plotting, as axes grow."""
        self._fit()
        x, y = self.axes.transData.transform((x, y))
        return float(x), float(self.height - y)

    @ours
    def _fit(self):
        for axis in (self.axes.xaxis, self.axes.yaxis):
            log, words = axis.get_scale() == "log", axis.have_units()
            if axis.isDefault_majloc and not words:
                axis.set_major_locator(LogLocator(numticks=6) if log else MaxNLocator(4, steps=[1, 2, 5, 10]))
                axis.set_minor_locator(NullLocator())
            if axis.isDefault_majfmt and not words:
                axis.set_major_formatter(FuncFormatter(tick))
        labels = (label.get_text() for label in self.axes.get_yticklabels())
        left = self._left or max((text_width(label, SMALL) for label in labels), default=0) + 8
        width, height = WIDTH - left - 14, self.height - self._above - self._below
        place = (left / WIDTH, self._below / self.height, width / WIDTH, height / self.height)
        self.axes.set_position(place)

    def svg(self, name="panel"):
        """The viewBox and the SVG content, as of a Canvas."""
        self._fit()
        for words in self.figure.findobj(Text):
            words.set_parse_math(False)  # a dollar sign starts no formula
        return super().svg(name)


class Drawing:
    """Panels with a number, a caption and an alternative text, as shown by a notebook.

    The link to number "5.2" is `#fig-5-2`. Captions may have `*emphasis*` and code in backticks. On a wide
    page, a panel grows to `zoom` times its size on a phone.
    """

    def __init__(self, panels, *, number, caption, alt, zoom=None):
        self.panels = [panels] if isinstance(panels, Canvas) else list(panels)
        self.number, self.caption, self.alt = number, caption, alt
        self.zoom = zoom or (1.4 if len(self.panels) == 1 else 1.2)

    def _repr_html_(self):
        name, parts = f"fig-{self.number.replace('.', '-')}", []
        wide = f"max-width:{WIDTH * self.zoom:g}px"
        for i, panel in enumerate(self.panels):
            view, content = panel.svg(f"{name}-{i}")
            about = 'aria-hidden="true"' if i else f'role="img" aria-label="{escape(plain(self.alt))}"'
            parts.append(f'<svg viewBox="{view}" {about} style="{wide}">{content}</svg>')
        caption = in_html(self.caption)
        parts.append(f"<figcaption><strong>Figure {self.number}.</strong> {caption}</figcaption>")
        return f'{STYLE}<figure class="drawing" id="{name}">{"".join(parts)}</figure>'

    def __repr__(self):
        return f"Figure {self.number}. {self.caption} ({self.alt})"
