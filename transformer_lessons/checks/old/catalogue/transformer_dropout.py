"""What dropout does in the whole model, seen from outside."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.old.catalogue.layer_parts import BOUND_TO, RATE
from transformer_lessons.checks.old.catalogue.transformer_mistakes import Steps, assemble
from transformer_lessons.checks.old.core import Build, Draw, Probe
from transformer_lessons.checks.old.guarded import sinusoidal

__all__ = ["training"]

D, ROWS = 6, 512
EMBEDDED = "in training, of the embedded source a share p should be dropped, once"
ENCODER, DECODER = (
    f"in training, the {side}'s layers should drop a share p of what their sub-layers give, once"
    for side in ("encoder", "decoder")
)


def training(draw: Draw) -> dict[str, Probe]:
    """What happens to embedded tokens, through layers that add nothing, and to what a layer adds."""
    settings = {"vocab_size": 11, "d_model": D, "num_heads": 2, "d_ff": 2, "num_layers": 1}
    settings |= {"dropout": RATE, "norm_first": True, "pad_id": 0}
    silent = {n: t * ("norm" in n) for n, t in assemble(Steps())(settings).state_dict().items()}
    weight = draw.normal(11, D)
    weight[1] = -sinusoidal(1, D)[0] / D**0.5  # in the first place, it is nothing but zeros
    speaking = {f"decoder_layers.0.cross_attention.{name}.weight": torch.eye(D) for name in ("W_v", "W_o")}
    added = draw.normal(D)
    encoding = {"encoder_layers.0.feed_forward.W_2.bias": added}
    src, tgt = torch.full((ROWS, 1), 2), draw.integers(2, 11, 64, 3)
    seen = _Seen(weight, tgt)

    def build(**changes: Tensor) -> Build:
        state = silent | {"embedding.weight": weight} | changes
        return Build([settings], dtype="float64", state=state, training=True)

    start = torch.ones(ROWS, 2, dtype=torch.long)
    return {
        "training": Probe([src[: len(tgt)], tgt], build=build(), view=seen.target),
        "training_source": Probe(
            [src, start], build=build(**speaking), view=seen.twice(seen.embedded(src)[0, 0], EMBEDDED)
        ),
        "training_encoder": Probe(
            [start[:, :1], start], build=build(**speaking, **encoding), view=seen.twice(added, ENCODER)
        ),
    }


class _Seen:
    """Views of the logits of a model that says, normed, what dropout has left of its embedded tokens."""

    def __init__(self, weight: Tensor, tgt: Tensor):
        self.weight, self.tgt = weight, tgt
        self.back = torch.linalg.pinv(weight).T
        each = [torch.tensor([1.0, 0.0], dtype=torch.float64)] * D
        self.masks = torch.cartesian_prod(*each)  # the first keeps all

    def target(self, logits: Tensor) -> dict[str, bool]:
        """Dropped number by number, with the positions added."""
        found = _among(logits @ self.back, _normed(self._dropped(self.embedded(self.tgt[:, :-1]))))
        picked = self.masks[found.int().argmax(-1)]
        share = 1 - picked.mean().item()
        return {
            "in training, dropout should change the embedded target": not found[..., 0].all(),
            "in training, each number of an embedded token with its position should be either dropped or "
            "divided by 1 − p, and nothing else changed": bool(found.any(-1).all()),
            "in training, of the embedded target a share p should be dropped": abs(share - RATE) < BOUND_TO,
            "in training, each number should be dropped by itself, not whole tokens": bool(
                (picked.any(-1) & ~picked.all(-1)).double().mean() > 0.4
            ),
            "in training, what the decoder gives should not be dropped": not self._holes(logits, found),
        }

    def _holes(self, logits: Tensor, found: Tensor) -> bool:
        """Whether single numbers of what was projected are zero, where they are not so by what was embedded:
        with two numbers that are opposite, a normed zero is zero.
        """
        gone = (logits @ self.back).abs() < 1e-6
        return bool((gone.any(-1) & ~gone.all(-1) & ~found.any(-1)).any())

    def twice(self, x: Tensor, sentence: str) -> Callable[[Tensor], dict[str, str]]:
        """How often all of x is kept: where it is dropped first, and by the decoder's layers."""

        def view(logits: Tensor) -> dict[str, str]:
            hidden = (logits @ self.back)[:, 0]
            ways = self._dropped(_normed(x)), _normed(_normed(self._dropped(x)))
            shares = [_among(hidden, _normed(options)).any(-1).double().mean().item() for options in ways]
            return {sentence: _amount(shares[0]), DECODER: _amount(shares[1])}

        return view

    def embedded(self, ids: Tensor) -> Tensor:
        return self.weight[ids] * D**0.5 + sinusoidal(ids.size(1), D).to(self.weight)

    def _dropped(self, x: Tensor) -> Tensor:
        """In all ways there are."""
        return self.masks * x[..., None, :] / (1 - RATE)


def _amount(whole: float) -> str:
    """How much is dropped, from the share of vectors that are whole; the bounds are five deviations wide."""
    gap = whole - (1 - RATE) ** D
    return "none" if whole > 0.9 else "right" if abs(gap) < 0.09 else "less" if gap > 0 else "more"


def _normed(x: Tensor) -> Tensor:
    return F.layer_norm(x, (D,))


def _among(rows: Tensor, options: Tensor) -> Tensor:
    """Which options each row is, but for what the norms' ε makes of another scale."""
    return (rows[..., None, :] - options).abs().amax(-1) < 1e-4
