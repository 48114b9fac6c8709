"""Drawings as SVG in the page: made of numbers alone, in the page's colours, for light, dark and paper.

Places along a line are percentages and heights are pixels, so that a drawing takes the width that there is and
its letters keep their size.
"""

from collections.abc import Sequence

from markupsafe import Markup

from exercises.autograder.report.counting import Bin

__all__ = ["distribution", "line", "parts"]

TOP, FLOOR, HEIGHT = 24, 184, 230  # pixels: of the highest column, of the axis, of all
GAP = 0.4  # percent on either side of a column

CHART = Markup(
    '<svg class="chart" width="100%" height="{height}" role="img" aria-labelledby="chart-title chart-text">\n'
    '<title id="chart-title">Distribution of the scores</title>\n<desc id="chart-text">{text}</desc>\n'
    "{columns}{marks}{axis}</svg>"
)
RECT = Markup('<rect class="{kind}" x="{x:.4g}%" y="{y:.4g}" width="{width:.4g}%" height="{height:.4g}"/>\n')
TEXT = Markup('<text class="{kind}" x="{x:.4g}%" y="{y}" text-anchor="{anchor}">{text}</text>\n')
AXIS = Markup('<line class="axis" x1="0" y1="{y}" x2="100%" y2="{y}"/>\n')
ARROW = Markup('<svg x="{x:.4g}%" y="{y}"><path class="{kind}" d="M0 0L6 9H-6Z"/></svg>\n')
STRIP = Markup('<svg class="strip" width="100%" height="10" aria-hidden="true">{rects}</svg>')


def distribution(bins: Sequence[Bin], mean: float | None, median: float | None, text: str) -> Markup:
    """A histogram: submissions that are marked below, those that wait above them; arrows to mean and median.

    Args:
        bins: of which each gets a column.
        mean, median: shares, or None.
        text: what there is to see, for who does not see it.
    """
    most = max((one.complete + one.waiting for one in bins), default=0) or 1
    columns = Markup("").join(_column(one, (FLOOR - TOP) / most) for one in bins)
    marks = Markup("").join(
        ARROW.format(kind=kind, x=100 * min(at, 1), y=y)
        for kind, at, y in (("mean", mean, FLOOR + 3), ("median", median, FLOOR + 14))
        if at is not None
    )
    return CHART.format(height=HEIGHT, text=text, columns=columns, marks=marks, axis=_axis(len(bins)))


def _column(one: Bin, unit: float) -> Markup:
    """What is in a bin; nothing if that is nothing."""
    x, width = 100 * one.start + GAP, 100 * (one.end - one.start) - 2 * GAP
    drawn, floor = Markup(""), FLOOR
    for kind, count in (("complete", one.complete), ("waiting", one.waiting)):
        if count:
            floor -= count * unit
            drawn += RECT.format(kind=kind, x=x, y=floor, width=width, height=count * unit)
    count = one.complete + one.waiting
    middle = x + width / 2
    label = TEXT.format(kind="count", x=middle, y=round(floor) - 6, anchor="middle", text=count)
    return drawn + label if count else drawn


def _axis(bins: int) -> Markup:
    """The line below, with a percentage at every other edge: all of them are too many for a phone."""
    drawn = AXIS.format(y=FLOOR)
    for n in range(0, bins + 1, 2):
        anchor = "start" if n == 0 else "end" if n == bins else "middle"
        text = f"{100 * n / bins:.0f}%"
        drawn += TEXT.format(kind="tick", x=100 * n / bins, y=HEIGHT - 4, anchor=anchor, text=text)
    return drawn


def parts(full: float, none: float) -> Markup:
    """A strip of three: shares with all points, with some and with none."""
    return _strip([("full", full), ("part", 1 - full - none), ("none", none)])


def line(share: float) -> Markup:
    """A strip filled up to a share."""
    return _strip([("value", share)])


def _strip(pieces: list[tuple[str, float]]) -> Markup:
    """One piece after the other, on a ground that shows how long the whole is."""
    drawn, at = RECT.format(kind="ground", x=0, y=0, width=100, height=10), 0.0
    for kind, share in pieces:
        width = 100 * min(max(share, 0.0), 1.0)
        if width > 0.005:
            drawn += RECT.format(kind=kind, x=at, y=0, width=width, height=10)
        at += width
    return STRIP.format(rects=drawn)
