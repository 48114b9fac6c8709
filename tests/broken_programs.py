"""Programs to debug: their cells, the check's task, their names before and after, and how they are run."""

import torch

from transformer_lessons.config import TransformerConfig
from transformer_lessons.model import Transformer


def three_inputs(attention):
    return attention(*(torch.randn(2, 3, n, 5) for n in (7, 11, 11)))[0]


def a_decoder_layer(layer):
    config = TransformerConfig(7, 7, d_model=15, num_heads=3, d_ff=7, dropout=0.0)
    return layer(config)(torch.ones(2, 11, 15), torch.ones(2, 7, 15))


def an_epoch(train):
    batches = [[torch.randn(3, 5, 7), torch.randint(11, (3, 5))] for _ in range(5)]
    return train(torch.nn.Linear(7, 11), batches, 2, rate=0.1, pad_id=3)


def a_few_sentences(search):
    sizes = {"d_model": 6, "num_heads": 2, "d_ff": 5, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(TransformerConfig(7, 5, **sizes, max_length=7))
    return search(model, torch.ones(2, 3).long() * 4, beam_size=2, length_penalty=0.6, max_length=1)


def two_tensors(step):
    weights = [torch.randn(3, 5), torch.randn(7)]
    moved, scale, clean = step(weights, [w.half() for w in weights], 8.0, 1, 0.1, 0.5, 4)
    assert (scale, clean) == (8.0, 2)
    return moved[0]


FUNCTION, CLASS = ("broken", "repaired"), ("Broken", "Repaired")
BROKEN = [
    ("ps03-3", "shift_matrix", FUNCTION, lambda shift: shift(3, 14)),
    (
        "ps02-3",
        "masked_self_attention",
        FUNCTION,
        lambda attend: attend(torch.randn(1, 3, 7, 5), torch.ones(1, 7).long(), 0),
    ),
    ("ps01-4", "scaled_dot_product_attention", FUNCTION, three_inputs),
    ("ps04-4", "multi_head", CLASS, lambda module: module(15, 3)(torch.randn(2, 7, 15))),
    ("ps05-3", "batch_norm", CLASS, lambda norm: norm(5)(torch.randn(2, 3, 5))),
    ("ps06-3", "decoder_layer", CLASS, a_decoder_layer),
    ("ps07-3", "accumulated_gradients", FUNCTION, an_epoch),
    ("ps08-3", "beam", FUNCTION, a_few_sentences),
    ("ps09-4", "scaled_step", FUNCTION, two_tensors),
]
