"""Known wrong ways to return what multi-head attention found: the output, and the weights if asked for."""

from torch import Tensor

from transformer_lessons.checks.old.core import Mistake

__all__ = ["RESULTS"]

CLASS = "#ch07-class"


def _noting_a_mask(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Weights that know whether there was a mask."""
    cleared = weights if mask is None else weights.masked_fill(~mask, 0.0)
    cleared.is_masked = mask is not None
    return cleared


RESULTS = (
    Mistake(
        "weights_averaged",
        "you return the mean of the heads' weights; those of each head are wanted",
        "nn.MultiheadAttention does so unless told otherwise.",
        "What the heads look at can no longer be told apart.",
        CLASS,
        ({"shown": lambda weights: weights.mean(1)},),
    ),
    Mistake(
        "weights_folded",
        "you return the weights with heads and batch in one axis; they should be two",
        "nn.MultiheadAttention and bmm work so inside.",
        "Callers do not know which head of which sentence they see.",
        CLASS,
        ({"shown": lambda weights: weights.flatten(0, 1)},),
    ),
    Mistake(
        "always_weights",
        "you always return the weights; they are returned with need_weights=True only",
        "Attention itself returns a pair.",
        "The layer around it cannot add a tuple to its input.",
        CLASS,
        ({"result": lambda output, weights, need_weights: (output, weights)},),
    ),
    Mistake(
        "never_weights",
        "you never return the weights, whatever need_weights is",
        "The output is what everything else needs.",
        "Nobody can see what the heads look at.",
        CLASS,
        ({"result": lambda output, weights, need_weights: output},),
    ),
    Mistake(
        "results_swapped",
        "you return (weights, output); it is (output, weights)",
        "Some libraries return the weights first.",
        "Callers unpack the one for the other.",
        CLASS,
        ({"result": lambda output, weights, need_weights: (weights, output) if need_weights else output},),
    ),
    Mistake(
        "masked_weights_only",
        "without a mask you return None for the weights, whatever need_weights is",
        "The fused kernel, taken where there is no mask, gives no weights.",
        "Pictures of the encoder's attention fail as soon as no sentence is padded.",
        CLASS,
        ({"clear": _noting_a_mask, "shown": lambda weights: weights if weights.is_masked else None},),
    ),
    Mistake(
        "squeezed",
        "you squeeze axes of size one away; they belong to the shape, as any other size",
        "squeeze() removes an axis that was added on the way, and whatever else has size one.",
        "A batch of one sentence comes back without its first axis.",
        CLASS,
        (
            {"output": lambda output, query: output.squeeze()},
            {"output": lambda output, query: output.squeeze(0)},
            {"output": lambda output, query: output.squeeze(), "shown": Tensor.squeeze},
            {"output": lambda output, query: output.squeeze(0), "shown": lambda weights: weights.squeeze(0)},
            {"shown": Tensor.squeeze},
            {"shown": lambda weights: weights.squeeze(0)},
        ),
    ),
)
