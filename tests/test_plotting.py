"""Attention maps show the numbers they are given."""

import matplotlib as mpl
import torch

mpl.use("Agg")

from transformer_lessons.tools import plotting


def test_attention_map_shows_the_weights():
    weights = torch.tensor([[1.0, 0.0, -torch.inf], [0.25, 0.75, 0.0]])
    ax = plotting.attention_map(weights, ["a", "b"], ["x", "y", "z"], digits=2, title="looks at")
    assert ax.get_title(loc="left") == "looks at" or ax.get_title() == "looks at"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["x", "y", "z"]
    assert [text.get_text() for text in ax.texts] == ["1.00", "0.00", "−∞", "0.25", "0.75", "0.00"]
    assert torch.equal(torch.tensor(ax.images[0].get_array().data), weights)
    plotting.plt.close("all")
