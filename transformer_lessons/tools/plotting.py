"""Plots in matplotlib's own way, in the colours of `drawing`. Nothing in the package imports it."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from transformer_lessons.tools.svg import PALETTE

# Query, key, value, decoder and soft: told apart with every common kind of colour blindness, and in print.
BLUE, ORANGE, GREEN, PURPLE, GREY = (
    PALETTE[role][0] for role in ("query", "key", "value", "decoder", "soft")
)


def use_style() -> None:
    """Vector figures on white, few lines; in a notebook, SVG whose bytes depend on their content alone."""
    plt.rcParams.update(
        {
            "figure.figsize": (6.4, 3.4),
            "figure.facecolor": "white",
            "figure.constrained_layout.use": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": plt.cycler(color=[BLUE, ORANGE, GREEN, PURPLE, GREY]),
            "axes.titlesize": 11,
            "axes.titlelocation": "left",
            "font.size": 10,
            "legend.frameon": False,
            "lines.linewidth": 1.8,
            "image.cmap": "Blues",
            "svg.hashsalt": "transformer-lessons",
        }
    )
    try:
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:
        return  # not in a notebook
    set_matplotlib_formats("svg", metadata={"Date": None})


def attention_map(
    weights: Tensor, queries: Sequence[str], keys: Sequence[str], *, ax=None, title: str = "", digits=None
) -> Axes:
    """A row for each query, a column for each key, darker for more weight, on `ax`, with `digits` written in."""
    ax = plt.subplots()[1] if ax is None else ax
    values = weights.detach().cpu().numpy()
    finite = values[values > float("-inf")]
    low, high = min(0.0, finite.min(initial=0.0)), finite.max(initial=0.0)
    ax.imshow(values, vmin=low, vmax=high, aspect="equal")
    ax.set_xticks(range(len(keys)), keys, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(queries)), queries)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(title)
    for (row, column), value in () if digits is None else np.ndenumerate(values):
        color = "white" if value - low > 0.6 * (high - low) else "black"
        text = "−∞" if value == float("-inf") else f"{value:.{digits}f}"
        ax.text(column, row, text, ha="center", va="center", color=color, fontsize=9)
    return ax
