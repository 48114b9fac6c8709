"""Models so small that a check can decode with them, and with weights so large that they say many things.

A few were picked that tell all known mistakes apart. A seed chooses one, gives its tokens other numbers and its
sentences another order, neither of which changes what it says.
"""

import random
from functools import lru_cache

import torch
from torch import Tensor

from transformer_lessons.checks import given
from transformer_lessons.checks.old.core import Draw, Given
from transformer_lessons.checks.old.guarded import greedy

__all__ = [
    "NEARLY_ALL",
    "WATCHED",
    "Small",
    "in_evaluation",
    "in_training",
    "loudest",
    "steps_taken",
]

USUAL = (0, 1, 2)  # padding, beginning and end
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
NEARLY_ALL = 1 - 1e-9  # the share that dropout takes from a model that must not be left in training mode

WATCHED = ("training_model", "evaluated_model")  # that tell in which mode they were left


def in_training(shown: list) -> dict:
    """Of what a call returned and the state of its `training_model`: what the call should not change."""
    tokens, state = shown
    if isinstance(tokens, Tensor) and tokens.dtype in INTEGERS:
        tokens = tokens.long()  # ids of any size do
    return {
        "ids should be integers": not (isinstance(tokens, Tensor) and tokens.is_floating_point()),
        "a model that comes in training mode says something else than in evaluation mode": tokens,
        "a model that comes in training mode should be left in training mode": state["is_training"],
    }


def in_evaluation(shown: list) -> dict:
    """Likewise, of an `evaluated_model`."""
    return {
        "a model that comes in evaluation mode should be left in evaluation mode": shown[1]["is_training"],
    }


class Small:
    """One model, with sentences to decode.

    Args:
        number: which one.
        seed: of the numbers that its tokens get, and of the order of its sentences.
        rows: how many sentences; `order` is theirs.
        ending: how much it likes to end a sentence.
        sharp: how sure it is of its words.
    """

    def __init__(self, number: int, seed: int, rows: int, ending: float = 0.5, sharp: float = 0.3):
        draw, sizes = Draw(number), random.Random(number)
        self.source_vocab, self.target_vocab = sizes.sample([7, 11, 13], 2)
        length, self.max_length = 5, 7
        self.state = {
            name: draw.normal(*shape) if "norm" not in name else _norm(name, shape)
            for name, shape in _shapes(self.source_vocab, self.target_vocab).items()
        }
        # One coordinate of what the decoder says is always 1, so that its weights add a constant to each logit:
        # padding and beginning are never said, and the end more often than by chance.
        self.state["decoder_norm.weight"][-1], self.state["decoder_norm.bias"][-1] = 0.0, 1.0
        self.state["output.weight"][:3, -1] = torch.tensor([-30.0, -30.0, ending], dtype=torch.float64)
        self.state["output.weight"] *= sharp  # a hesitant one, so that a search finds what greed does not
        self.src = draw.integers(3, self.source_vocab, rows, length)
        for row in range(rows):
            self.src[row, length - row % length :] = 0
        self.src[0, -1] = self.src[0, 0]
        shuffled = Draw(seed)
        self._source = _renumbering(shuffled, self.source_vocab)
        self._target = _renumbering(shuffled, self.target_vocab)
        self.order = shuffled.normal(rows).argsort().tolist()

    def model(self, ids: tuple[int, int, int] = USUAL, kind: str = "model", **changes) -> Given:
        """The model, to be built; with `ids` for padding, beginning and end."""
        config = {
            "source_vocab_size": self.source_vocab,
            "target_vocab_size": self.target_vocab,
            **{"d_model": WIDTH, "num_heads": HEADS, "d_ff": D_FF, "max_length": self.max_length},
            **{"num_encoder_layers": 1, "num_decoder_layers": 1, "norm_first": True, "dropout": 0.0},
            **{"tie_embeddings": False, "pad_id": ids[0], "bos_id": ids[1], "eos_id": ids[2], **changes},
        }
        state = dict(self.state)
        state["source_embedding.token.weight"] = _moved(
            state["source_embedding.token.weight"], _special(self._source, ids)
        )
        for name in ("target_embedding.token.weight", "output.weight"):
            state[name] = _moved(state[name], _special(self._target, ids))
        return Given(kind, [config, state])

    def source(self, rows: Tensor | list[int], ids: tuple[int, int, int] = USUAL) -> Tensor:
        """These sentences, in the numbers of that model."""
        return _special(self._source, ids)[self.src[rows]]


WIDTH, HEADS, D_FF = 6, 2, 5


@lru_cache(maxsize=16)
def steps_taken(number: int, rows: int) -> list[int]:
    """How many tokens the model says to each sentence, its end mark included, before they are put in order."""
    small = Small(number, 0, rows)
    made = small.model()
    model = given.model(*made.args)
    said = greedy(model, small.source(torch.arange(rows)), max_length=small.max_length).tolist()
    return [row.index(2) + 1 if 2 in row else small.max_length + 1 for row in said]


@lru_cache(maxsize=16)
@torch.no_grad()
def loudest(number: int, rows: int) -> int:
    """The sentence that has the largest of all logits of a first token."""
    small = Small(number, 0, rows)
    made, src = small.model(), small.source(torch.arange(rows))
    logits = given.model(*made.args)(src, torch.full((rows, 1), USUAL[1]))
    return int(logits.amax((1, 2)).argmax())


def _renumbering(draw: Draw, vocab: int) -> Tensor:
    """New numbers of all tokens but the three special ones."""
    return torch.cat([torch.arange(3), 3 + draw.normal(vocab - 3).argsort()])


def _special(numbers: Tensor, ids: tuple[int, int, int]) -> Tensor:
    """The same with other numbers for the special tokens, and the rest in the places that are left."""
    left = [number for number in range(len(numbers)) if number not in ids]
    places = torch.tensor([*ids, *left])
    return places[numbers]


def _moved(weight: Tensor, numbers: Tensor) -> Tensor:
    """Row i goes to row numbers[i]."""
    moved = torch.empty_like(weight)
    moved[numbers] = weight
    return moved


def _norm(name: str, shape: tuple[int, ...]) -> Tensor:
    return (torch.ones if name.endswith("weight") else torch.zeros)(*shape, dtype=torch.float64)


def _shapes(source_vocab: int, target_vocab: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of a small model's weights."""
    shapes = {
        "source_embedding.token.weight": (source_vocab, WIDTH),
        "target_embedding.token.weight": (target_vocab, WIDTH),
        "output.weight": (target_vocab, WIDTH),
    }
    for side, attentions in (
        ("encoder", ("self_attention",)),
        ("decoder", ("self_attention", "cross_attention")),
    ):
        layer = f"{side}_layers.0"
        for attention in attentions:
            for W in ("W_q", "W_k", "W_v", "W_o"):
                shapes |= _linear(f"{layer}.{attention}.{W}", WIDTH, WIDTH)
        shapes |= _linear(f"{layer}.feed_forward.W_1", D_FF, WIDTH)
        shapes |= _linear(f"{layer}.feed_forward.W_2", WIDTH, D_FF)
        parts = ("self", "cross", "feed_forward") if side == "decoder" else ("self", "feed_forward")
        for part in parts:
            shapes |= _linear(f"{layer}.add_norm_{part}.norm", WIDTH)
        shapes |= _linear(f"{side}_norm", WIDTH)
    return shapes


def _linear(name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
