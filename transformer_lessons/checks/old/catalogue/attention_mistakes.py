"""Known wrong ways to write scaled dot-product attention, each with what a learner should hear.

Each is the right answer with one or two of its steps (`attention_steps`) replaced.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.old.catalogue.attention_steps import triangle
from transformer_lessons.checks.old.core import Mistake

__all__ = ["CORE"]

SCALING, SOFTMAX, MASKING = "#ch05-scale", "#ch05-vectorised", "#ch05-masks"
SHAPES, GRADIENTS, SEEN = "#ch05-vectorised", "#ch05-proof", "#ch05-wrong"
EMPTY = "#ch05-masks"


def _raw(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(-2, -1)


def _same(weights: Tensor, mask: Tensor | None) -> Tensor:
    return weights


def _scaled_by(size):
    return {"scores": lambda query, key: _raw(query, key) / math.sqrt(size(query, key))}


def _fill(number: float):
    return lambda scores, mask: scores if mask is None else scores.masked_fill(~mask, number)


def _add(number: float):
    def hide(scores: Tensor, mask: Tensor | None) -> Tensor:
        return scores if mask is None else scores + torch.zeros(mask.shape).masked_fill(~mask, number)

    return hide


def _softmax_over(dim: int):
    return {"softmax": lambda scores: scores.softmax(dim)}


def _everything_at_once(scores: Tensor) -> Tensor:
    return scores.flatten(-2).softmax(-1).view_as(scores)


def _naive(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum(-1, keepdim=True)


def _naive_guarded(scores: Tensor) -> Tensor:
    total = scores.exp().sum(-1, keepdim=True)
    return scores.exp() / total.masked_fill(total == 0, 1.0)


def _masked_then_normalised(weights: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return weights
    shown = weights * mask
    return shown / shown.sum(-1, keepdim=True)


def _zeros_for_nan(weights: Tensor, mask: Tensor | None) -> Tensor:
    return weights.nan_to_num(0.0)


def _as_triangle(mask: Tensor | None, scores: Tensor) -> Tensor | None:
    return None if mask is None else triangle(scores, 0)


def _transposed(mask: Tensor | None, scores: Tensor) -> Tensor | None:
    return mask if mask is None or mask.dim() < 2 else mask.transpose(-2, -1)


def _edited_query(query: Tensor, key: Tensor, value: Tensor) -> tuple:
    return query.div_(math.sqrt(query.size(-1))), key, value


def _edited_mask(mask: Tensor | None, scores: Tensor) -> Tensor | None:
    return None if mask is None else mask.logical_not_().logical_not()


def _in_float32(query: Tensor, key: Tensor, value: Tensor) -> tuple:
    return query.float(), key.float(), value.float()


def _without_gradient(query: Tensor, key: Tensor, value: Tensor) -> tuple:
    return query.detach(), key.detach(), value.detach()


# These hold for any attention that returns its weights.
CORE = (
    Mistake(
        "no_scaling",
        "you left out the division by √d_k",
        "The formula without its denominator looks complete, and its output has the right shape.",
        "Scores grow with d_k, so the softmax is too peaked.",
        SCALING,
        ({"scores": _raw},),
    ),
    Mistake(
        "scaled_by_d_k",
        "you divided by d_k, not √d_k",
        "The square root is easily lost; or the scaling is done twice, on the query and on the scores.",
        "All weights are too close to each other.",
        SEEN,
        ({"scores": lambda query, key: _raw(query, key) / query.size(-1)},),
    ),
    Mistake(
        "multiplied_by_sqrt_d_k",
        "you multiplied by √d_k instead of dividing by it",
        "d_k ** 0.5 and d_k ** −0.5 differ by one character; embeddings are multiplied by √d_model.",
        "The softmax is almost one-hot.",
        SCALING,
        ({"scores": lambda query, key: _raw(query, key) * math.sqrt(query.size(-1))},),
    ),
    Mistake(
        "scaled_by_length",
        "you divided by the root of a length or of another axis, not of d_k (the last axis of the query)",
        "`size(1)` or `size(-2)` is d_k in one layout and a length in another.",
        "The weights change with the number of positions.",
        SCALING,
        (
            _scaled_by(lambda query, key: query.size(-2)),
            _scaled_by(lambda query, key: key.size(-2)),
            _scaled_by(lambda query, key: query.size(1)),
        ),
    ),
    Mistake(
        "softmax_over_queries",
        "your softmax runs over the queries; it must run over the keys, the last axis",
        "dim=-2 and dim=-1 give the same shape.",
        "Columns of the weights sum to one instead of rows.",
        SEEN,
        (_softmax_over(-2),),
    ),
    Mistake(
        "softmax_dim_1",
        "your softmax has dim=1, which is the heads axis as soon as there are heads; the keys are dim=-1",
        "dim=1 was right for a single matrix of scores.",
        "For each query and key the weights sum to one over the heads.",
        SOFTMAX,
        (_softmax_over(1),),
    ),
    Mistake(
        "softmax_dim_0",
        "your softmax runs over the first axis, the batch; it must run over the keys, dim=-1",
        "dim=0 is the first thing to try.",
        "What one sentence attends to depends on its batch-mates.",
        SOFTMAX,
        (_softmax_over(0),),
    ),
    Mistake(
        "softmax_without_dim",
        "you gave the softmax no dim, and the axis PyTorch picks then depends on the number of axes",
        "nn.Softmax() accepts it, with a warning only.",
        "It picks the heads axis here; the keys are dim=-1.",
        SOFTMAX,
        ({"softmax": lambda scores: scores.softmax(0 if scores.dim() in (0, 1, 3) else 1)},),
    ),
    Mistake(
        "softmax_over_all",
        "your softmax runs over queries and keys together; each query needs weights that sum to one",
        "The scores were flattened first.",
        "All weights of a head sum to one.",
        SOFTMAX,
        ({"softmax": _everything_at_once},),
    ),
    Mistake(
        "softmax_twice",
        "you applied the softmax twice",
        "Once in a helper function and once more outside.",
        "Weights are far too even, between 1/n and e/n.",
        SOFTMAX,
        ({"softmax": lambda scores: scores.softmax(-1).softmax(-1)},),
    ),
    Mistake(
        "log_softmax",
        "you used log_softmax; the weights are the softmax itself",
        "Losses use it, so it is at hand.",
        "Weights are negative.",
        SOFTMAX,
        ({"softmax": lambda scores: scores.log_softmax(-1)},),
    ),
    Mistake(
        "no_softmax",
        "you averaged with the scores themselves, without a softmax",
        "The softmax was forgotten.",
        "Weights are negative and do not sum to one.",
        SOFTMAX,
        ({"softmax": lambda scores: scores},),
    ),
    Mistake(
        "sigmoid",
        "you used a sigmoid instead of a softmax",
        "Both give numbers between 0 and 1.",
        "Rows of weights do not sum to one.",
        SOFTMAX,
        ({"softmax": torch.sigmoid},),
    ),
    Mistake(
        "divided_by_sum",
        "you divided the scores by their sum, without exponentiating them",
        "It makes rows sum to one too.",
        "Weights can be negative, and explode where a sum is near zero.",
        SOFTMAX,
        ({"softmax": lambda scores: scores / scores.sum(-1, keepdim=True)},),
    ),
    Mistake(
        "hard_maximum",
        "you gave all weight to the largest score; attention is the softmax",
        "“The best match” suggests argmax.",
        "Weights are 0 or 1, and no gradient reaches query and key.",
        SOFTMAX,
        ({"softmax": lambda scores: F.one_hot(scores.argmax(-1), scores.size(-1)).to(scores.dtype)},),
    ),
    Mistake(
        "naive_exp",
        "your softmax overflows: exp(score) is infinite from 710 on (89 in float32)",
        "exp(x) / exp(x).sum() is the textbook formula.",
        "Large scores give NaN. Subtract the row's maximum first, or use torch.softmax.",
        "#ch05-saturation",
        ({"softmax": _naive}, {"softmax": _naive_guarded}),
    ),
    Mistake(
        "mask_filled_near_zero",
        "you filled hidden scores with (almost) zero; zero is a score like any other",
        "“Hidden” suggests 0, and 1e-9 or −1e-12 look like −1e9.",
        "Hidden keys keep their weight. They need a very large negative score.",
        SEEN,
        tuple({"hide": _fill(x), "clear": _same} for x in (0.0, -1e-9, 1e-9, 1e-8)),
    ),
    Mistake(
        "mask_filled_too_small",
        "you filled hidden scores with a number that real scores can reach",
        "−100 or −1e4 hides well as long as scores are small.",
        "When all visible scores are lower still, hidden keys get all the weight.",
        MASKING,
        tuple({"hide": _fill(x), **rest} for x in (-1e2, -1e3, -1e4) for rest in ({"clear": _same}, {})),
    ),
    Mistake(
        "empty_rows_uniform",
        "a query that may attend to nothing gets a plain average of what is hidden",
        "With the same fill everywhere (−1e9, say), the softmax sees a row of equal scores.",
        "Its weights are 1/keys instead of zero. Zero the hidden weights after the softmax too.",
        EMPTY,
        (
            {"clear": _same},
            {"hide": _fill(-1e9), "clear": _same},
            {"hide": _add(-1e9), "clear": _same},
        ),
    ),
    Mistake(
        "empty_rows_nan",
        "a query that may attend to nothing gets NaN",
        "With −inf everywhere, the softmax computes 0/0. It is right for all other rows.",
        "One padded sentence turns the loss into NaN. Zero the weights of such rows.",
        EMPTY,
        (
            {"hide": _fill(-math.inf), "clear": _same},
            {"hide": _add(-math.inf), "clear": _same},
        ),
    ),
    Mistake(
        "empty_rows_nan_gradient",
        "a query that may attend to nothing gets NaN gradients, although its weights are zero",
        "nan_to_num repairs the result, but the gradient still runs through the 0/0.",
        "The loss looks fine and the parameters become NaN. Avoid the NaN instead of replacing it.",
        EMPTY,
        ({"hide": _add(-math.inf), "clear": _zeros_for_nan},),
    ),
    Mistake(
        "mask_inverted",
        "you read the mask the wrong way round: True means “may attend”",
        "nn.MultiheadAttention has the opposite convention.",
        "Exactly the hidden keys are seen.",
        MASKING,
        ({"read": lambda mask, scores: None if mask is None else ~mask},),
    ),
    Mistake(
        "mask_ignored",
        "you never use the mask",
        "It is accepted, and without padding in the batch nothing goes wrong.",
        "Hidden keys keep their weight.",
        MASKING,
        ({"read": lambda mask, scores: None},),
    ),
    Mistake(
        "mask_replaced_by_causal",
        "you replace the mask you are given by a causal one",
        "`if mask is not None:` was read as “if this is the decoder”.",
        "Padding is seen, and later positions are hidden without being asked.",
        MASKING,
        ({"read": _as_triangle},),
    ),
    Mistake(
        "mask_after_softmax",
        "you zeroed hidden weights after the softmax without normalising again",
        "Zero weight is what is wanted, and here it is simply set.",
        "The visible weights sum to less than one. Mask the scores, before the softmax.",
        MASKING,
        ({"hide": _same},),
    ),
    Mistake(
        "mask_after_softmax_renormalised",
        "you masked after the softmax and normalised again",
        "It repairs the sums, for scores that are not too far apart.",
        "When hidden scores are much larger than the visible ones, and in rows without any key, it is 0/0.",
        MASKING,
        ({"hide": _same, "clear": _masked_then_normalised},),
    ),
    Mistake(
        "mask_unsqueezed",
        "you add an axis to the mask, which already broadcasts to (batch, heads, queries, keys)",
        "A (batch, keys) mask needs it; this one comes with its axes.",
        "The result has one axis too many, or the mask meets the wrong axis.",
        MASKING,
        ({"read": lambda mask, scores: None if mask is None else mask.unsqueeze(1)},),
    ),
    Mistake(
        "mask_transposed",
        "you swap the mask's last two axes: its last axis is the keys",
        "The mask was made for queries that are padded.",
        "It does not fit, or hides queries instead of keys.",
        MASKING,
        ({"read": _transposed},),
    ),
    Mistake(
        "key_reshaped",
        "you “transposed” the key with view or reshape, which regroups the numbers instead of swapping axes",
        "The shape comes out right, and nothing complains.",
        "Scores mix positions with features. Use key.transpose(-2, -1).",
        SEEN,
        (
            {
                "scores": lambda q, k: (
                    q @ k.reshape(*k.shape[:-2], k.size(-1), k.size(-2)) / math.sqrt(q.size(-1))
                )
            },
        ),
    ),
    Mistake(
        "key_not_transposed",
        "you multiplied query and key without transposing the key",
        "The formula's ᵀ is easily overlooked.",
        "The shapes do not fit, unless there are as many keys as features.",
        SHAPES,
        (
            {"scores": lambda query, key: query @ key / math.sqrt(query.size(-1))},
            {"scores": lambda query, key: torch.matmul(query, key) / query.size(-1)},
        ),
    ),
    Mistake(
        "key_as_value",
        "you averaged the keys; the values are what is averaged",
        "In self-attention they are often the same tensor.",
        "The output has the keys' width and ignores the values.",
        SHAPES,
        ({"inputs": lambda query, key, value: (query, key, key)},),
    ),
    Mistake(
        "values_averaged",
        "your output is the plain mean of the values, whatever the weights are",
        "A placeholder that stayed.",
        "Every query gets the same output.",
        SOFTMAX,
        ({"average": lambda w, v: v.mean(-2, keepdim=True).expand(*w.shape[:-1], v.size(-1))},),
    ),
    Mistake(
        "returns_scores",
        "you returned the scores where the weights are expected",
        "Both have the same shape, and a heat map of either looks plausible.",
        "The second result is not between 0 and 1, and its rows do not sum to one.",
        SOFTMAX,
        (
            {"result": lambda output, weights, scores, masked, dropped: (output, scores)},
            {"result": lambda output, weights, scores, masked, dropped: (output, masked)},
        ),
    ),
    Mistake(
        "returns_unmasked_weights",
        "the weights you return are computed without the mask; the output is right",
        "The map for plotting was computed separately.",
        "Pictures show attention to padding and to the future that never took place.",
        MASKING,
        ({"result": lambda output, weights, scores, masked, dropped: (output, scores.softmax(-1))},),
    ),
    Mistake(
        "results_swapped",
        "you return (weights, output); it is (output, weights)",
        "The weights are computed first.",
        "The caller's shapes do not fit.",
        SHAPES,
        ({"result": lambda output, weights, scores, masked, dropped: (weights, output)},),
    ),
    Mistake(
        "returns_output_only",
        "you return the output alone; the weights are wanted too",
        "PyTorch's own function returns the output only.",
        "`output, weights = …` takes the batch apart.",
        SHAPES,
        ({"result": lambda output, weights, scores, masked, dropped: output},),
    ),
    Mistake(
        "weights_mean_over_heads",
        "you averaged the weights over the heads; each head's are wanted",
        "nn.MultiheadAttention does so by default.",
        "The heads axis is missing.",
        SHAPES,
        ({"result": lambda output, weights, scores, masked, dropped: (output, weights.mean(1))},),
    ),
    Mistake(
        "squeezed",
        "you squeeze axes of size one away; they belong to the shape, as any other size",
        "squeeze() removes an axis that was added on the way, and whatever else has size one.",
        "A batch of one sentence, or a single query, comes back with too few axes.",
        SHAPES,
        (
            {"result": lambda output, weights, *_: (output.squeeze(), weights.squeeze())},
            {"result": lambda output, weights, *_: (output.squeeze(0), weights.squeeze(0))},
            {"result": lambda output, weights, *_: (output.squeeze(), weights)},
        ),
    ),
    Mistake(
        "weights_detached",
        "you detached the weights you return, so no gradient flows back through them",
        "detach() was added for plotting; that belongs to the caller.",
        "Losses on the weights have no effect.",
        GRADIENTS,
        ({"result": lambda output, weights, scores, masked, dropped: (output, weights.detach())},),
    ),
    Mistake(
        "average_detached",
        "you detached the weights before averaging, so the output teaches the values only",
        "detach(), .data or no_grad around the softmax saves memory.",
        "No gradient of the output reaches query and key.",
        GRADIENTS,
        ({"average": lambda weights, value: weights.detach() @ value},),
    ),
    Mistake(
        "no_gradient",
        "no gradient flows through your function at all",
        "no_grad, detach(), .data or numpy is somewhere on the way.",
        "Training leaves everything before this layer as it was.",
        GRADIENTS,
        ({"inputs": _without_gradient},),
    ),
    Mistake(
        "query_edited",
        "you scale the caller's query in place",
        "`query /= …` changes the tensor itself, not a copy.",
        "The second call on the same tensors gives another result.",
        SHAPES,
        ({"inputs": _edited_query, "scores": _raw},),
    ),
    Mistake(
        "mask_edited",
        "you invert the caller's mask in place",
        "logical_not_() was used for ~mask.",
        "The next layer gets the opposite mask.",
        SHAPES,
        ({"read": _edited_mask},),
    ),
    Mistake(
        "forced_float32",
        "you convert to float32, whatever the inputs are",
        ".float() repairs an error about dtypes.",
        "float64 loses half its digits, and the result no longer fits its inputs.",
        SHAPES,
        ({"inputs": _in_float32},),
    ),
)
