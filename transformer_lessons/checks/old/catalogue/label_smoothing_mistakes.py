"""Known wrong ways to write the label-smoothed loss."""

from collections.abc import Callable

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.label_smoothing_steps import target
from transformer_lessons.checks.old.core import Mistake

__all__ = ["MISTAKES"]

LOSS, SMOOTHING, WRONG = "#ch14-loss", "#ch14-smoothing", "#ch14-wrong"


def _all_positions(targets: Tensor, pad_id: int | None) -> Tensor:
    return torch.ones_like(targets, dtype=torch.bool)


def _before_padding(targets: Tensor, pad_id: int | None) -> Tensor:
    real = torch.ones_like(targets, dtype=torch.bool) if pad_id is None else targets != pad_id
    return real.long().cumprod(-1).bool() if real.dim() else real


def _all_classes(classes: int, pad_id: int | None, dtype: torch.dtype) -> Tensor:
    return torch.ones(classes, dtype=dtype)


def _without_the_right_one(right: Tensor, allowed: Tensor, smoothing: float) -> Tensor:
    others = allowed * (1 - right)
    return (1 - smoothing) * right + smoothing * others / others.sum(-1, keepdim=True)


def _divided_by_all(right: Tensor, allowed: Tensor, smoothing: float) -> Tensor:
    return (1 - smoothing) * right + smoothing * allowed / len(allowed)


def _overwritten(right: Tensor, allowed: Tensor, smoothing: float) -> Tensor:
    return torch.where(right > 0, 1 - smoothing, smoothing * allowed / allowed.sum())


def _shifted(logits: Tensor, targets: Tensor, pad_id: int | None) -> tuple[Tensor, Tensor]:
    return logits[..., :-1, :], targets[..., 1:]


def _targets_edited(logits: Tensor, targets: Tensor, pad_id: int | None) -> tuple[Tensor, Tensor]:
    kept = targets.clone()
    if pad_id is not None:
        targets[targets == pad_id] = -100
    return logits, kept


def _targets_zeroed(logits: Tensor, targets: Tensor, pad_id: int | None) -> tuple[Tensor, Tensor]:
    kept = targets.clone()
    if pad_id is not None:
        targets[targets == pad_id] = 0
    return logits, kept


def _logits_edited(logits: Tensor, targets: Tensor, pad_id: int | None) -> tuple[Tensor, Tensor]:
    kept = logits.clone()
    if pad_id is not None:
        logits[targets == pad_id] = 0.0
    return kept, targets


def _padding_hidden(logits: Tensor, pad_id: int | None) -> Tensor:
    if pad_id is None:
        return logits.log_softmax(-1)
    hidden = torch.arange(logits.size(-1)) == pad_id
    return logits.masked_fill(hidden, -1e9).log_softmax(-1).masked_fill(hidden, 0.0)


def _no_class_crashes(pad_id: int | None, classes: int) -> None:
    if pad_id is not None and pad_id >= classes:
        raise IndexError("index is out of bounds")


def _refused_if(is_bad: Callable) -> Callable:
    """Refuses what this calls bad, and nothing else."""

    def accept(smoothing: float) -> None:
        if is_bad(smoothing):
            raise ValueError("smoothing: expected another number")

    return accept


def _shifted_by_largest_of_all(logits: Tensor, pad_id: int | None) -> Tensor:
    logits = logits - logits.max()
    return logits - logits.exp().sum(-1, keepdim=True).log()


def _half_copied(logits: Tensor) -> Tensor:
    """As torch.tensor(logits.tolist()) does."""
    return logits.detach().float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def _zero_without_tokens(total: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    return (total if tokens else torch.tensor(0.0)), tokens


def _viewed(logits: Tensor, targets: Tensor, pad_id: int | None) -> tuple[Tensor, Tensor]:
    return logits.view(-1, logits.size(-1)), targets.view(-1)


def _both_crash(pad_id: int | None, classes: int) -> None:
    _no_class_crashes(classes if pad_id == -1 else pad_id, classes)


def _first_axis_of_classes(logits: Tensor, pad_id: int | None) -> Tensor:
    return logits.log_softmax(1 if logits.dim() > 2 else 0)


_SUM = (
    Mistake(
        "mean_returned",
        "you return the mean; the sum and the number are wanted, so that several batches can be put together",
        "Losses usually are means.",
        "The mean of the means of unequal batches is not the mean.",
        WRONG,
        ({"result": lambda total, tokens: (total / tokens, tokens)},),
    ),
    Mistake(
        "positions_counted",
        "your number of tokens is the number of all positions, padding included",
        "numel() is near at hand.",
        "The loss per token shrinks as batches are padded more.",
        LOSS,
        ({"counted": _all_positions},),
    ),
    Mistake(
        "padding_counted",
        "you never leave out positions whose target is padding",
        "The loss has no mask to apply, only ids to compare.",
        "The model learns to say padding, and the loss per token falls with every padded place.",
        LOSS,
        ({"real": _all_positions, "counted": _all_positions},),
    ),
    Mistake(
        "padding_in_sum",
        "your number of tokens is right, but the sum still holds the loss at padded positions",
        "Only the divisor was thought of.",
        "The loss per token is too large, the more the batch is padded.",
        LOSS,
        ({"real": _all_positions},),
    ),
    Mistake(
        "number_detached",
        "your loss has lost its gradient",
        ".item(), .detach() or torch.no_grad() stands before the return.",
        "The number is right, and nothing learns.",
        LOSS,
        ({"result": lambda total, tokens: (total.detach(), tokens)},),
    ),
    Mistake(
        "half_detached",
        "your loss of narrow logits, such as float16, has no gradient: they were copied on the way to float32",
        "torch.tensor(…) of a tensor, .tolist() and numpy make numbers without a history.",
        "In mixed precision nothing learns.",
        LOSS,
        ({"widen": _half_copied},),
    ),
    Mistake(
        "zero_without_tokens",
        "you return a new zero if all is padding; it has the type float32, whatever the logits are",
        "No tokens look like a case of their own.",
        "A rare batch has a loss of another type, through which backward() cannot go.",
        LOSS,
        ({"result": _zero_without_tokens},),
    ),
    Mistake(
        "axes_flattened",
        "you flatten all axes but the classes, in a way that fails for a single token, which has no other axis",
        "Batches have two.",
        "The same function cannot be used within a loop over tokens, or under vmap.",
        LOSS,
        ({"prepare": lambda logits, targets, pad_id: (logits.flatten(0, -2), targets.flatten())},),
    ),
    Mistake(
        "viewed",
        "you use view, which fails if axes have been exchanged; reshape copies where it must",
        "Logits of a model mostly lie in memory in order.",
        "The loss of transposed or sliced logits is an error about strides.",
        LOSS,
        ({"prepare": _viewed},),
    ),
    Mistake(
        "shifted_again",
        "you shift logits against targets; targets are the next tokens already",
        "Models with a decoder only are trained on one row of ids, and shift it in the loss.",
        "The model is taught to predict the token after the next.",
        "#ch14-teacher-forcing",
        ({"prepare": _shifted},),
    ),
    Mistake(
        "pad_id_zero",
        "you take 0 for padding instead of pad_id",
        "Padding is 0 in most vocabularies.",
        "With another pad_id, padding is learned, and a real word is not.",
        LOSS,
        (
            {"pad": lambda pad_id: None if pad_id is None else 0},
            {"pad": lambda pad_id: 0},
        ),
    ),
    Mistake(
        "sign",
        "your loss has the wrong sign: it is minus the sum of q log p",
        "Logarithms of probabilities are negative, which is easy to forget.",
        "Training makes right answers less likely.",
        LOSS,
        ({"loss": lambda q, log_p: (q * log_p).sum(-1)},),
    ),
    Mistake(
        "not_normalised",
        "you use logits as if they were log-probabilities: the log-softmax is missing",
        "nll_loss and kl_div take log-probabilities, cross_entropy takes logits.",
        "The loss can fall below zero, without end.",
        LOSS,
        ({"log_p": lambda logits, pad_id: logits},),
    ),
    Mistake(
        "softmax_twice",
        "you take the softmax twice: the loss applies its own to what are probabilities already",
        "softmax, then cross_entropy, which contains one.",
        "The loss hardly falls: probabilities between 0 and 1 make weak logits.",
        LOSS,
        ({"log_p": lambda logits, pad_id: logits.softmax(-1).log_softmax(-1)},),
    ),
    Mistake(
        "over_positions",
        "your softmax runs over positions, not over the classes, which are the last axis",
        "dim=1 holds the classes once logits are flat, and positions before.",
        "Positions of a sentence compete with one another.",
        LOSS,
        ({"log_p": _first_axis_of_classes},),
    ),
    Mistake(
        "log_of_softmax",
        "you take the logarithm of the softmax; for large logits it is log 0 = −∞",
        "It is the formula, word by word.",
        "One confident mistake, and the loss is infinite or NaN.",
        LOSS,
        ({"log_p": lambda logits, pad_id: logits.softmax(-1).log()},),
    ),
    Mistake(
        "largest_of_all",
        "you subtract the largest of all logits; each position needs the largest of its own",
        "max() without an axis is one number.",
        "Where logits are much smaller than elsewhere, all exponentials are 0, and the loss is NaN.",
        LOSS,
        ({"log_p": _shifted_by_largest_of_all},),
    ),
    Mistake(
        "exponentials_overflow",
        "you take exponentials of the logits as they are; those of large ones are infinite",
        "It is the formula of the softmax, word by word.",
        "Logits of 90 in float32, or 710 in float64, and the loss is NaN.",
        LOSS,
        (
            {"log_p": lambda logits, pad_id: logits - logits.exp().sum(-1, keepdim=True).log()},
            {"log_p": lambda logits, pad_id: (logits.exp() / logits.exp().sum(-1, keepdim=True)).log()},
        ),
    ),
    Mistake(
        "log_of_softmax_plus_eps",
        "you add a small number before the logarithm; log_softmax needs none",
        "log(p + 1e-9) is never infinite.",
        "The loss of an unlikely token stops growing, and its gradient is gone where it is needed most.",
        LOSS,
        tuple(
            {"log_p": lambda logits, pad_id, e=e: (logits.softmax(-1) + e).log()}
            for e in (1e-6, 1e-8, 1e-9, 1e-12)
        ),
    ),
)

_TARGET = (
    Mistake(
        "padding_gets_mass",
        "you spread ε over the whole vocabulary, so padding gets a share; it can never be a right answer",
        "F.cross_entropy does so, whatever its ignore_index.",
        "The model is taught to say padding now and then.",
        WRONG,
        ({"allowed": _all_classes},),
    ),
    Mistake(
        "right_token_left_out",
        "you spread ε over the wrong classes only; the right one has its share too, on top of 1 − ε",
        "Some implementations divide by V − 2: all but padding and the right token.",
        "Every target is a little softer than it should be.",
        SMOOTHING,
        ({"target": _without_the_right_one},),
    ),
    Mistake(
        "right_token_overwritten",
        "you put 1 − ε on the right class in place of its share of ε, so that the target sums to less than 1",
        "scatter_ replaces what was there.",
        "The loss is a little too small, by the same share at each token.",
        SMOOTHING,
        ({"target": _overwritten},),
    ),
    Mistake(
        "divided_by_all_classes",
        "you leave padding out, but still divide ε by V, so that the target sums to less than 1",
        "Padding was set to zero after spreading.",
        "A part of ε goes nowhere.",
        SMOOTHING,
        ({"target": _divided_by_all},),
    ),
    Mistake(
        "right_token_whole",
        "you add ε on top of a whole 1, so that the target sums to 1 + ε",
        "The 1 − ε was forgotten.",
        "The loss is too large, by a factor of nearly 1 + ε.",
        SMOOTHING,
        ({"target": lambda right, allowed, smoothing: right + smoothing * allowed / allowed.sum()},),
    ),
    Mistake(
        "divergence",
        "you return the divergence of p from the target; the cross-entropy also holds the target's own entropy",
        "kl_div is what one finds for two distributions.",
        "Gradients are the same, but the loss goes to 0 and cannot be compared with others'.",
        SMOOTHING,
        ({"loss": lambda q, log_p: (torch.special.xlogy(q, q) - q * log_p).sum(-1)},),
    ),
    Mistake(
        "smoothing_ignored",
        "you never use smoothing",
        "Plain cross-entropy was written first.",
        "The loss is lower, and the model as sure as it can be.",
        SMOOTHING,
        ({"target": lambda right, allowed, smoothing: right},),
    ),
    Mistake(
        "smoothing_swapped",
        "you give ε to the right class and 1 − ε to all others",
        "“Confidence” and “smoothing” are easily exchanged.",
        "The model is taught that everything is equally likely.",
        SMOOTHING,
        ({"target": lambda right, allowed, smoothing: target(right, allowed, 1 - smoothing)},),
    ),
    Mistake(
        "padding_out_of_softmax",
        "you take padding out of the softmax; it stays in p, and only the target gives it nothing",
        "“Padding can never be an answer” was applied to p instead of q.",
        "Nothing teaches the model not to say padding.",
        SMOOTHING,
        ({"log_p": _padding_hidden},),
    ),
    Mistake(
        "no_smoothing_by_default",
        "your default for smoothing is 0; it is 0.1",
        "PyTorch's default is 0.",
        "Callers who rely on the paper's setting train without.",
        SMOOTHING,
        ({"default": lambda: 0.0},),
    ),
)

MISTAKES = (
    *_SUM,
    *_TARGET,
    Mistake(
        "forced_float32",
        "you convert to float32, whatever the logits are",
        ".float() is what one reads in code for mixed precision.",
        "float64 loses half its digits.",
        LOSS,
        ({"widen": Tensor.float},),
    ),
    Mistake(
        "half_stays",
        "you compute in float16 if the logits are",
        "Nothing was converted.",
        "Sums over a batch have three digits, and overflow above 65,504.",
        LOSS,
        ({"widen": lambda logits: logits},),
    ),
    Mistake(
        "brain_stays",
        "you convert float16 to float32, but not bfloat16, which has fewer digits still",
        "One narrow type was thought of.",
        "On hardware that computes in bfloat16, sums over a batch have two or three digits.",
        LOSS,
        ({"widen": lambda logits: logits.float() if logits.dtype is torch.float16 else logits},),
    ),
    Mistake(
        "after_padding_ignored",
        "you leave out all that follows the first padding of a row; only positions of padding are to be left out",
        "Rows are padded on the right, mostly.",
        "In batches padded on the left, nothing is learned.",
        LOSS,
        ({"real": _before_padding, "counted": _before_padding},),
    ),
    Mistake(
        "inputs_edited",
        "you write into your caller's logits or targets",
        "Padding is marked by assigning to targets[…].",
        "The batch is different after the loss was computed.",
        LOSS,
        ({"prepare": _targets_edited}, {"prepare": _targets_zeroed}, {"prepare": _logits_edited}),
    ),
    Mistake(
        "smoothing_unchecked",
        "you do not check that smoothing is in [0, 1)",
        "Nothing fails.",
        "A typo in a configuration trains a model on targets that are no probabilities.",
        SMOOTHING,
        ({"accept_smoothing": lambda smoothing: None},),
    ),
    Mistake(
        "smoothing_half_checked",
        "you refuse some smoothings outside [0, 1), not all: there are those below 0, 1 itself, and those above",
        "Of two comparisons one was left out, or written with the wrong sign.",
        "A typo in a configuration trains a model on targets that are no probabilities.",
        SMOOTHING,
        (
            {"accept_smoothing": _refused_if(lambda smoothing: smoothing < 0 or smoothing == 1)},
            {"accept_smoothing": _refused_if(lambda smoothing: not 0 <= smoothing <= 1)},
            {"accept_smoothing": _refused_if(lambda smoothing: smoothing < 0)},
            {"accept_smoothing": _refused_if(lambda smoothing: smoothing >= 1)},
        ),
    ),
    Mistake(
        "pad_id_unchecked",
        "you do not check that pad_id is a class",
        "ignore_index may be anything, and −100 is usual.",
        "An id of another vocabulary goes unnoticed, or fails with an index out of range.",
        SMOOTHING,
        (
            {"accept_pad": lambda pad_id, classes: None},
            {"accept_pad": _no_class_crashes},
            {"accept_pad": _both_crash},
        ),
    ),
)
