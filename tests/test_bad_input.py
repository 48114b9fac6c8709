"""What every public name of the canon says to an argument that is none, and what it takes though it looks odd.

Users run without the shape annotations' checks, so these tests do too. A complaint names the argument, what was
expected and what came instead.
"""

import ast
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.test_docstrings import canon, definitions, is_class, parsed
from transformer_lessons import (
    attention,
    checkpoint_folder,
    checkpoints,
    costs,
    distributed,
    evaluation,
    files,
    layers,
    norms,
    parallel,
    resuming,
    schedule,
    sharding,
    web_export,
)
from transformer_lessons.attention import by_hand, dot_product, inputs, linear, multi_head
from transformer_lessons.cache import KeyValueCache
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data import (
    batches,
    encoded,
    lengths,
    multi30k,
    number_words,
    packing,
    subwords,
    texts,
    vocabulary,
    wmt14,
)
from transformer_lessons.data.byte_pair import BytePairEncoding
from transformer_lessons.decoding import beam, evaluating, greedy
from transformer_lessons.decoding_steps import Steps, column_major, going_on
from transformer_lessons.embeddings import TokenEmbedding, TransformerEmbedding
from transformer_lessons.encodings import (
    LearnedEncoding,
    RotaryEncoding,
    SinusoidalEncoding,
    shift_matrix,
    sinusoidal,
)
from transformer_lessons.fast.dropout import Dropout
from transformer_lessons.feed_forward import FeedForward, SwiGLU
from transformer_lessons.losses import label_smoothed_loss, projected_loss
from transformer_lessons.masks import additive, boolean, causal_mask, combine, padding_mask, segment_mask
from transformer_lessons.model import Transformer, attention_maps
from transformer_lessons.tools.costs import sizes
from transformer_lessons.tools.costs.cards import CARDS
from transformer_lessons.trainer import Trainer
from transformer_lessons.trainer.config import TrainingConfig, chosen_precision
from transformer_lessons.trainer.loss import BatchLoss, batch_loss, split
from transformer_lessons.trainer.optimizer import adamw, clip_gradients
from transformer_lessons.trainer.prefetching import made_ahead

pytestmark = pytest.mark.usefixtures("no_shape_checks")

# ---- What the rows are made of

CONFIG = TransformerConfig(11, 13, 6, 3, 7, 1, 2, dropout=0.0, max_length=5)
PAIRS = [([3, 4], [5]), ([6], [7, 8])]
SHAPE, CARD = costs.BatchShape(2, 3, 5), CARDS["H100"]


def floats(*shape: int, **options) -> torch.Tensor:
    return torch.zeros(*shape, **options)


def ids(*shape: int, **options) -> torch.Tensor:
    return torch.full(shape, 3, **{"dtype": torch.long, **options})


def truths(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.bool)


def model(**changes) -> Transformer:
    return Transformer(TransformerConfig(**{**CONFIG.__dict__, **changes}))


def multi_head_attention(*given, **options):
    return attention.MultiHeadAttention(6, 3)(*given, **options)


def cache(batch: int = 2, length: int = 4, heads: int = 3, d_k: int = 2, **options) -> KeyValueCache:
    return KeyValueCache(batch, length, heads, d_k, **options)


def places(*shape: int, **options) -> packing.Places:
    return packing.Places(ids(*shape), ids(*shape, **options))


def layer_cache() -> layers.LayerCache:
    return layers.LayerCache(cache(), cache(length=0))


def decoder_layer(*given, **options):
    return layers.DecoderLayer(CONFIG)(*given, **options)


def trainer(*given, **changes) -> Trainer:
    made = {"model": model(), "batches": batches.Batches(PAIRS, 1, seed=0), "config": TrainingConfig()}
    return Trainer(**{**made, **changes})


def q_k_v(d_k: int = 5) -> tuple[torch.Tensor, ...]:
    return floats(2, 3, d_k), floats(2, 7, d_k), floats(2, 7, 11)


class LastTokenWrong(batches.Batches):
    """Its targets end with an id that is shown to no position; only the loss would meet it."""

    def __getitem__(self, step: int) -> batches.Batch:
        batch = super().__getitem__(step)
        return batch._replace(tgt_out=batch.tgt_out.new_tensor([[5, 13]]))


def each_attention(call, *more: str) -> list[tuple]:
    """What every function of query, key and value refuses; `more` are names of other bad arguments."""
    q, k, v = q_k_v()
    rows = [
        (lambda: call([[1.0]], k, v), "^query: expected a Tensor, got a list$"),
        (lambda: call(q, None, v), "^key: expected a Tensor, got None$"),
        (lambda: call(q, k, "v"), "^value: expected a Tensor, got 'v'$"),
        (lambda: call(q.long(), k, v), r"^query: expected floats of two axes or more, got torch.int64 \(2,"),
        (lambda: call(q[0, 0], k, v), r"^query: expected floats of two axes or more, got .* \(5,\)$"),
        (lambda: call(*q_k_v(0)), r"^query: expected a last axis of d_k = 1 or more, got \(2, 3, 0\)$"),
        (lambda: call(q, k[..., 1:], v), r"^key: expected shape \(2, '…', 5\), got \(2, 7, 4\)$"),
        (lambda: call(q, k[:1], v), r"^key: expected shape \(2, '…', 5\), got \(1, 7, 5\)$"),
        (lambda: call(q, k, v[:, 1:]), r"^value: expected shape \(2, 7, '…'\), .*, got \(2, 6, 11\)$"),
        (
            lambda: call(q, k.double(), v),
            "^key: expected torch.float32 on cpu, .*, got torch.float64 on cpu$",
        ),
        (lambda: call(q, k, v.to("meta")), "^value: expected torch.float32 on cpu, .*, got .* on meta$"),
    ]
    masks = [
        (lambda: call(q, k, v, [[True]]), "^mask: expected a Tensor, got a list$"),
        (lambda: call(q, k, v, torch.ones(3, 7)), "^mask: .* got torch.float32 with 1 in it$"),
        (lambda: call(q, k, v, ids(3, 7)), "^mask: expected booleans, .*, got torch.int64$"),
        (
            lambda: call(q, k, v, floats(7, 3) == 0),
            r"^mask: expected to broadcast to \(2, 3, 7\), got \(7, 3\)$",
        ),
        (lambda: call(q, k, v, floats(1, 1, 3, 7) == 0), r"^mask: expected to broadcast to \(2, 3, 7\), got"),
        (lambda: call(q, k, v, floats(3, 7, device="meta") == 0), "^mask: expected device cpu, .* got meta$"),
    ]
    causal = [(lambda: call(k, q, q, is_causal=True), r"^keys: expected at least as many .* \(7\), got 3$")]
    dropout = [
        (lambda p=p: call(q, k, v, dropout=p), f"^dropout: expected 0 or more and below 1, got {p!r}$")
        for p in (1, -0.1, math.nan, True, "0.1", None)
    ]
    chosen = {"mask": masks, "causal": causal, "dropout": dropout}
    return rows + [row for name in more for row in chosen[name]]


def each_size(call, *names: str, least: int = 1, **others) -> list[tuple]:
    """What is no size: a float, True, too small, None, a str."""
    return [
        (
            lambda name=name, bad=bad: call(**{**dict.fromkeys(names, 2), **others, name: bad}),
            f"^{name}: expected an integer, {least} or more, got {bad!r}$",
        )
        for name in names
        for bad in (2.0, True, least - 1, -3, None, "2", math.nan)
    ]


def each_vector(call, width: int = 6, name: str = "x", axes: int | None = None) -> list[tuple]:
    """What are no vectors of that width, for a module of float32 on the CPU."""
    rows = [
        (lambda: call([1.0] * width), f"^{name}: expected a Tensor, got a list$"),
        (lambda: call(None), f"^{name}: expected a Tensor, got None$"),
        (lambda: call(ids(*good)), rf"^{name}: expected floats.*, got torch.int64 \(2,"),
        (lambda: call(floats(*good) == 0), rf"^{name}: expected floats.*, got torch.bool \(2,"),
        (lambda: call(floats(*good[:-1], 1)), rf"^{name}: expected a last axis of \w+ = {width}, got \(2,"),
        (lambda: call(floats(*good, device="meta")), f"^{name}: expected device cpu, .*, got meta$"),
    ]
    good = (2, *range(3, 2 + (axes or 2) - 1), width)
    if axes:
        rows.append((lambda: call(floats(*good[1:])), rf"^{name}: expected floats of shape \(batch, .*, got"))
    return rows


def each_ids(call, name: str = "ids", high: str = "") -> list[tuple]:
    """What are no ids of 11 tokens."""
    no_ids = rf"^{name}: expected int64 or int32 of shape \(\w+, \w+\), got "
    rows = [
        (lambda: call([[3]]), f"^{name}: expected a Tensor, got a list$"),
        (lambda: call(None), f"^{name}: expected a Tensor, got None$"),
        (lambda: call(floats(2, 3)), no_ids + r"torch.float32 \(2, 3\)$"),
        (lambda: call(floats(2, 3) == 0), no_ids + r"torch.bool \(2, 3\)$"),
        (lambda: call(ids(2, 3, dtype=torch.int16)), no_ids + r"torch.int16 \(2, 3\)$"),
        (lambda: call(ids(3)), no_ids + r"torch.int64 \(3,\)$"),
    ]
    if high:
        rows += [
            (lambda: call(ids(2, 3) - 4), rf"^{high}: expected 0 to 10, got -1$"),
            (lambda: call(ids(2, 3) + 8), rf"^{high}: expected 0 to 10, got 11$"),
            (lambda: call(ids(2, 3, device="meta")), rf"^{name}: expected device cpu, .*, got meta$"),
        ]
    return rows


def each_shape(call) -> list[tuple]:
    """What every function of a config and a batch's shape refuses; CONFIG reads and writes 5 tokens at most."""
    rows = [
        (lambda: call(CONFIG, (2, 3, 5)), "^shape: expected a BatchShape, got a tuple$"),
        (lambda: call(CONFIG, None), "^shape: expected a BatchShape, got None$"),
        (lambda: call(CONFIG, costs.BatchShape(2, 7, 5)), "^source: expected at most max_length = 5, got 7$"),
        (lambda: call(CONFIG, costs.BatchShape(2, 5, 7)), "^target: expected at most max_length = 5, got 7$"),
    ]
    return rows + each_config(lambda config: call(config, SHAPE))


def each_precision(call) -> list[tuple]:
    names = "^precision: expected one of float32, bfloat16, float16, got "
    return [
        (lambda: call("int8"), names + "'int8'$"),
        (lambda: call(None), names + "None$"),
        (lambda: call(["float32"]), names + r"\['float32'\]$"),
    ]


def each_use(call) -> list[tuple]:
    """What every function of a card and its utilisation refuses."""
    number = "^utilisation: expected a number, 0 or more, got "
    return [
        (lambda: call("H100", 0.5), "^card: expected a Card, got 'H100'$"),
        (lambda: call(None, 0.5), "^card: expected a Card, got None$"),
        (lambda: call(CARD, 0), "^utilisation: expected a number above 0, got 0$"),
        (lambda: call(CARD, 1.25), "^utilisation: expected at most 1, got 1.25$"),
        (lambda: call(CARD, -0.5), number + "-0.5$"),
        (lambda: call(CARD, math.nan), number + "nan$"),
        (lambda: call(CARD, True), number + "True$"),
        (lambda: call(CARD, "0.5"), number + "'0.5'$"),
        (lambda: call(CARD, None), number + "None$"),
    ]


def new_card(**changes) -> costs.Card:
    values = {"name": "slate", "precision": "float32", "rate": 1.0, "bandwidth": 1.0, "memory": 1.0}
    return costs.Card(**{**values, "source": "https://example.org", **changes})


def each_path(call, name: str = "path") -> list[tuple]:
    return [
        (lambda: call(None), f"^{name}: expected a path, got None$"),
        (lambda: call(7), f"^{name}: expected a path, got 7$"),
        (lambda: call([]), f"^{name}: expected a path, got a list$"),
    ]


def each_config(call) -> list[tuple]:
    return [
        (lambda: call(None), "^config: expected a TransformerConfig, got None$"),
        (lambda: call(CONFIG.__dict__), "^config: expected a TransformerConfig, got a dict$"),
        (lambda: call(6), "^config: expected a TransformerConfig, got 6$"),
    ]


def each_model(call, kind: str = "Transformer") -> list[tuple]:
    return [
        (lambda: call(None), f"^model: expected a {kind}, got None$"),
        (lambda: call("base"), f"^model: expected a {kind}, got 'base'$"),
        (lambda: call(CONFIG), f"^model: expected a {kind}, got a TransformerConfig$"),
    ]


def each_kind(call, kind: str, name: str) -> list[tuple]:
    return [
        (lambda: call(None), f"^{name}: expected an? {kind}, got None$"),
        (lambda: call(7), f"^{name}: expected an? {kind}, got 7$"),
        (lambda: call("cpu"), f"^{name}: expected an? {kind}, got 'cpu'$"),
    ]


def each_state(call) -> list[tuple]:
    """What every function of a run's folder, its model and its optimiser refuses."""
    folder, net = Path("nowhere"), nn.Linear(2, 3)
    optimizer = torch.optim.AdamW(net.parameters())
    return [
        *each_path(lambda path: call(path, net, optimizer), "(directory|path)"),
        *each_kind(lambda x: call(folder, x, optimizer), "Module", "model"),
        *each_kind(lambda x: call(folder, net, x), "Optimizer", "optimizer"),
    ]


def each_several(call, name: str) -> list[tuple]:
    return [
        (lambda: call("abc"), f"^{name}: expected several, such as a list, got 'abc'$"),
        (lambda: call(7), f"^{name}: expected several, such as a list, got 7$"),
        (lambda: call(None), f"^{name}: expected several, such as a list, got None$"),
    ]


def each_number(call, name: str, *, or_none: bool = False) -> list[tuple]:
    return [
        (lambda bad=bad: call(bad), f"^{name}: expected a number, 0 or more, got {bad!r}$")
        for bad in (-1e-3, math.nan, math.inf, True, "0", *([] if or_none else [None]))
    ]


def each_word_number(call) -> list[tuple]:
    return [
        (lambda bad=bad: call(bad), f"^number: expected 0 to 999,999, got {shown}$")
        for bad, shown in ((-1, "-1"), (10**6, "1,000,000"), (7.0, "7.0"), (True, "True"), (None, "None"))
    ]


Q, K, V = q_k_v()
TRANSFORMER_SIZES = {"source_vocab_size": 11, "target_vocab_size": 13}
SIZE_NAMES = (
    "source_vocab_size target_vocab_size d_model num_heads d_ff num_encoder_layers max_length".split()
)
OPTIMIZER = torch.optim.AdamW(nn.Linear(2, 3).parameters())
STATE = {"query": K, "key": K, "value": V}

# ---- One table: a public name, how it is called, what it says

BAD = {
    # masks
    "masks.padding_mask": [
        *each_ids(lambda x: padding_mask(x, 0)),
        (lambda: padding_mask(ids(2, 3), 0.0), r"^pad_id: expected an integer, got 0.0$"),
        (lambda: padding_mask(ids(2, 3), None), r"^pad_id: expected an integer, got None$"),
        (lambda: padding_mask(ids(2, 3), False), r"^pad_id: expected an integer, got False$"),
    ],
    "masks.causal_mask": [
        *each_size(lambda queries: causal_mask(queries, 7), "queries", least=0),
        *each_size(lambda keys: causal_mask(0, keys), "keys", least=0)[:3],
        (lambda: causal_mask(5, 3), r"^keys: expected at least as many as queries \(5\), got 3$"),
    ],
    "masks.segment_mask": [
        *each_ids(lambda x: segment_mask(x, ids(2, 3)), "query_segments"),
        *each_ids(lambda x: segment_mask(ids(2, 3), x), "key_segments"),
        (lambda: segment_mask(ids(2, 3), ids(1, 3)), "^key_segments: expected batch size 2, got 1$"),
        (
            lambda: segment_mask(ids(2, 3), ids(2, 3, device="meta")),
            "^key_segments: expected device cpu, .*meta$",
        ),
    ],
    "masks.boolean": [
        (lambda: boolean([True]), "^mask: expected a Tensor, got a list$"),
        (lambda: boolean(None), "^mask: expected a Tensor, got None$"),
        (lambda: boolean(ids(3)), "^mask: expected booleans, .*, got torch.int64$"),
        (lambda: boolean(torch.ones(3)), "^mask: expected booleans, .*, got torch.float32 with 1 in it$"),
        (lambda: boolean(torch.tensor([0.0, math.nan])), "^mask: .* got torch.float32 with nan in it$"),
    ],
    "masks.additive": [
        (lambda: additive([True]), "^mask: expected a Tensor, got a list$"),
        (lambda: additive(floats(3)), "^mask: expected booleans, True = may attend, got torch.float32$"),
        (
            lambda: additive(floats(3) == 0, torch.int64),
            "^dtype: expected one of floats, .*, got torch.int64$",
        ),
        (lambda: additive(floats(3) == 0, "float32"), "^dtype: expected a dtype, got 'float32'$"),
    ],
    "masks.combine": [
        (lambda: combine(None, [True]), r"^masks\[1\]: expected a Tensor, got a list$"),
        (lambda: combine(floats(3) == 0, "causal"), r"^masks\[1\]: expected a Tensor, got 'causal'$"),
        (lambda: combine(torch.ones(3)), r"^masks\[0\]: .* got torch.float32 with 1 in it$"),
        (
            lambda: combine(floats(2, 3) == 0, floats(5) == 0),
            r"^masks\[1\]: expected to broadcast with \(2, 3\), got \(5,\)$",
        ),
        (
            lambda: combine(floats(3) == 0, floats(3, device="meta") == 0),
            r"^masks\[1\]: expected device cpu, as those before, got meta$",
        ),
    ],
    # encodings
    "encodings.sinusoidal": [
        *each_size(lambda length: sinusoidal(length, 6), "length", least=0),
        *each_size(lambda d_model: sinusoidal(5, d_model), "d_model"),
        *[
            (lambda bad=bad: sinusoidal(5, 6, base=bad), f"^base: expected a number above 1, got {bad!r}$")
            for bad in (1, 0.0, math.nan, math.inf, True, None, "10000")
        ],
    ],
    "encodings.shift_matrix": [
        (lambda: shift_matrix(1.0, 6), "^k: expected an integer, got 1.0$"),
        (lambda: shift_matrix(None, 6), "^k: expected an integer, got None$"),
        (lambda: shift_matrix(1, 5), "^d_model: expected an even number, 2 or more, got 5$"),
        (lambda: shift_matrix(1, 6.0), "^d_model: expected an even number, 2 or more, got 6.0$"),
        (lambda: shift_matrix(1, 0), "^d_model: expected an even number, 2 or more, got 0$"),
    ],
    "encodings.PositionTable.forward": [
        *each_vector(SinusoidalEncoding(6, 5), axes=3),
        *each_vector(LearnedEncoding(6, 5), axes=3),
        (lambda: LearnedEncoding(6, 5)(floats(2, 6, 6)), "^x: expected at most max_length = 5 .*, got 6$"),
        (lambda: LearnedEncoding(6, 5)(floats(2, 3, 6), 3), "^x: expected at most max_length = 5 .*, got 6$"),
        (
            lambda: LearnedEncoding(6, 5)(floats(2, 3, 6), torch.tensor(3)),
            "^x: expected at most max_length = 5 positions, got 6$",
        ),
        *each_size(lambda offset: LearnedEncoding(6, 5)(floats(2, 3, 6), offset), "offset", least=0),
        (lambda: LearnedEncoding(6, 5)(floats(2, 3, 6), torch.tensor(-1)), "^offset: expected .*, got -1$"),
        (
            lambda: LearnedEncoding(6, 5)(floats(2, 3, 6), torch.tensor(1.0)),
            r"^offset: expected an integer, or a tensor of one without axes, got torch.float32 \(\)$",
        ),
        (lambda: LearnedEncoding(6, 5)(floats(2, 3, 6), ids(2)), r"^offset: .*, got torch.int64 \(2,\)$"),
        (
            lambda: LearnedEncoding(6, 5)(floats(2, 3, 6), positions=ids(3)),
            r"^positions: expected int64 or int32 of shape \(batch, length\), got torch.int64 \(3,\)$",
        ),
        (
            lambda: LearnedEncoding(6, 5)(floats(2, 3, 6), positions=ids(1, 3)),
            r"^positions: expected shape \(2, 3\), as x, got \(1, 3\)$",
        ),
        (
            lambda: LearnedEncoding(6, 5)(floats(2, 3, 6), 2, positions=ids(2, 3)),
            "^positions: expected 0 to 2, below max_length, got 3$",
        ),
        (
            lambda: LearnedEncoding(6, 5)(floats(2, 3, 6), positions=ids(2, 3, device="meta")),
            "^positions: expected device cpu, as the weights, got meta$",
        ),
    ],
    "encodings.SinusoidalEncoding": each_size(SinusoidalEncoding, "d_model", "max_length"),
    "encodings.LearnedEncoding": each_size(LearnedEncoding, "d_model", "max_length"),
    "encodings.RotaryEncoding": [
        *each_size(RotaryEncoding, "d_k", "max_length"),
        (lambda: RotaryEncoding(3, 5), "^d_k: expected an even number, got 3$"),
        (lambda: RotaryEncoding(6, 5, base="10000"), "^base: expected a number above 1, got '10000'$"),
    ],
    "encodings.RotaryEncoding.forward": [
        *each_vector(lambda x: RotaryEncoding(6, 5)(x, torch.arange(3)), name="heads", axes=4),
        (
            lambda: RotaryEncoding(6, 5)(floats(2, 3, 6), torch.arange(3)),
            r"^heads: expected floats of shape \(batch, heads, length, d_k\), got torch.float32 \(2, 3, 6\)$",
        ),
        (
            lambda: RotaryEncoding(6, 5)(floats(2, 2, 3, 6), torch.arange(1)),
            r"^positions: expected shape \(3,\), as heads, got \(1,\)$",
        ),
        (
            lambda: RotaryEncoding(6, 5)(floats(2, 2, 3, 6), ids(1, 3)),
            r"^positions: expected shape \(2, 3\), as heads, got \(1, 3\)$",
        ),
        (
            lambda: RotaryEncoding(6, 5)(floats(2, 2, 3, 6), [0, 1, 2]),
            "^positions: expected a Tensor, got a list$",
        ),
        (
            lambda: RotaryEncoding(6, 5)(floats(2, 2, 3, 6), floats(3)),
            "^positions: expected int64 or int32 .*, got",
        ),
        (
            lambda: RotaryEncoding(6, 5)(floats(2, 2, 3, 6), ids(3) + 2),
            "^positions: expected 0 to 4, .*, got 5$",
        ),
        (
            lambda: RotaryEncoding(6, 5)(floats(2, 2, 3, 6), ids(3, device="meta")),
            "^positions: expected device cpu, as the weights, got meta$",
        ),
    ],
    # embeddings
    "embeddings.TokenEmbedding": each_size(TokenEmbedding, "vocab_size", "d_model"),
    "embeddings.TokenEmbedding.forward": each_ids(TokenEmbedding(11, 6), high="ids"),
    "embeddings.TransformerEmbedding": [
        *each_size(TransformerEmbedding, "vocab_size", "d_model"),
        (
            lambda: TransformerEmbedding(11, 6, position="learned"),
            "^position: expected a function or module, got 'learned'$",
        ),
        (
            lambda: TransformerEmbedding(11, 6, position=floats(5, 6)),
            "^position: expected a function or module, got a Tensor$",
        ),
        (
            lambda: TransformerEmbedding(11, 6, dropout=1.0),
            "^dropout: expected 0 or more and below 1, got 1.0$",
        ),
        (lambda: TransformerEmbedding(11, 6, dropout=None), "^dropout: expected 0 or more and .*, got None$"),
    ],
    "embeddings.TransformerEmbedding.forward": [
        *each_ids(TransformerEmbedding(11, 6), high="ids"),
        *each_size(lambda offset: TransformerEmbedding(11, 6)(ids(2, 3), offset), "offset", least=0),
        (lambda: TransformerEmbedding(11, 6)(ids(2, 3), floats(1)), "^offset: expected an integer, .*, got"),
        (
            lambda: TransformerEmbedding(11, 6, position=LearnedEncoding(6, 5))(ids(2, 3), positions=ids(3)),
            "^positions: expected int64 or int32 of shape",
        ),
        (
            lambda: TransformerEmbedding(11, 6, position=LearnedEncoding(6, 2))(ids(2, 3)),
            "^x: expected at most max_length = 2 positions, got 3$",
        ),
    ],
    # attention
    "attention.dot_product.scaled_dot_product_attention": each_attention(
        dot_product.scaled_dot_product_attention, "mask", "causal", "dropout"
    ),
    "attention.dot_product.fused_attention": each_attention(
        dot_product.fused_attention, "mask", "causal", "dropout"
    ),
    "attention.dot_product.hard_attention": each_attention(dot_product.hard_attention, "mask"),
    "attention.inputs.check_inputs": each_attention(inputs.check_inputs),
    "attention.inputs.check_mask": [
        (lambda: inputs.check_mask([True], Q, K), "^mask: expected a Tensor, got a list$"),
        (lambda: inputs.check_mask(floats(7, 3) == 0, Q, K), "^mask: expected to broadcast to"),
    ],
    "attention.by_hand.tiled_attention": [
        *each_attention(by_hand.tiled_attention, "mask", "causal"),
        *each_size(lambda tile: by_hand.tiled_attention(Q, K, V, tile=tile), "tile"),
    ],
    "attention.by_hand.attention_backward": [
        *each_attention(
            lambda q, k, v, mask=None, **options: by_hand.attention_backward(
                q,
                k,
                v,
                floats(*getattr(q, "shape", (1,))[:-1], getattr(v, "shape", (1,))[-1]),
                mask,
                **options,
            ),
            "mask",
            "causal",
        ),
        (lambda: by_hand.attention_backward(Q, K, V, None), "^cotangent: expected a Tensor, got None$"),
        (
            lambda: by_hand.attention_backward(Q, K, V, V),
            r"^cotangent: .* \(2, 3, 11\), .*, got \(2, 7, 11\)$",
        ),
        (
            lambda: by_hand.attention_backward(Q, K, V, ids(2, 3, 11)),
            "^cotangent: expected floats, got torch.int64",
        ),
        (
            lambda: by_hand.attention_backward(Q, K, V, floats(2, 3, 11, device="meta")),
            "^cotangent: expected device cpu, as query, got meta$",
        ),
    ],
    "attention.linear.elu_plus_one": [
        (lambda: linear.elu_plus_one([1.0]), "^x: expected a Tensor, got a list$"),
        (lambda: linear.elu_plus_one(ids(3)), r"^x: expected floats, got torch.int64 \(3,\)$"),
    ],
    "attention.linear.linear_attention": [
        *each_attention(linear.linear_attention, "causal"),
        (
            lambda: linear.linear_attention(Q, K, V, feature_map=lambda x: None),
            "^feature_map: .* Tensor, got None$",
        ),
        (
            lambda: linear.linear_attention(Q, K, V, feature_map=torch.isnan),
            "^feature_map: expected floats, .*bool",
        ),
        (lambda: linear.linear_attention(Q, K, V, feature_map="elu"), "^feature_map: .*, got 'elu'$"),
        (
            lambda: linear.linear_attention(Q, K, V, feature_map=lambda x: x.mean(-2)),
            r"^feature_map: expected shape \(2, 3, '…'\) of it, got \(2, 5\)$",
        ),
        (lambda: linear.linear_attention(Q, K, V, feature_map=torch.sum), r"^feature_map: .*, got \(\)$"),
        (
            lambda: linear.linear_attention(Q, K, V, key_mask=[True]),
            "^key_mask: expected a Tensor, got a list$",
        ),
        (
            lambda: linear.linear_attention(Q, K, V, key_mask=floats(7)),
            "^key_mask: expected booleans, .*float32$",
        ),
        (
            lambda: linear.linear_attention(Q, K, V, key_mask=floats(3) == 0),
            r"^key_mask: .*\(2, 7\), got \(3,\)$",
        ),
        (
            lambda: linear.linear_attention(Q, K, V, key_mask=floats(7, device="meta") == 0),
            "^key_mask: expected device cpu, as key, got meta$",
        ),
    ],
    "attention.linear.recurrent_linear_attention": [
        *each_attention(linear.recurrent_linear_attention),
        (lambda: linear.recurrent_linear_attention(Q, K, V), "^key: expected as many .* query, 3, got 7$"),
        (
            lambda: linear.recurrent_linear_attention(**STATE, state=[0.0]),
            "^state: expected a Tensor, got a list$",
        ),
        (
            lambda: linear.recurrent_linear_attention(**STATE, state=floats(5, 11)),
            r"^state: expected shape \(2, 5, 12\), got \(5, 11\)$",
        ),
        (
            lambda: linear.recurrent_linear_attention(**STATE, state=floats(2, 5, 12, device="meta")),
            "^state: expected device cpu, as query, got meta$",
        ),
    ],
    "attention.multi_head.is_plain": each_kind(multi_head.is_plain, "Module", "projection"),
    "attention.multi_head.MultiHeadAttention": [
        *each_size(multi_head.MultiHeadAttention, "d_model", "num_heads"),
        *[
            (
                lambda name=name, bad=bad: multi_head.MultiHeadAttention(6, 3, **{name: bad}),
                f"^{name}: expected an integer, 1 or more, got {bad!r}$",
            )
            for name in ("num_key_value_heads", "d_k", "d_v", "key_width", "value_width")
            for bad in (0, 1.0, True, "2")
        ],
        (
            lambda: multi_head.MultiHeadAttention(7, 3),
            "^num_heads: expected a divisor of d_model = 7, got 3$",
        ),
        (
            lambda: multi_head.MultiHeadAttention(6, 3, num_key_value_heads=2),
            "^num_key_value_heads: expected a divisor of num_heads = 3, got 2$",
        ),
        (lambda: multi_head.MultiHeadAttention(6, 3, dropout=1.0), "^dropout: expected 0 or .*, got 1.0$"),
    ],
    "attention.multi_head.MultiHeadAttention.keys_and_values": [
        *each_vector(lambda x: attention.MultiHeadAttention(6, 3).keys_and_values(x), name="memory", axes=3),
        (
            lambda: attention.MultiHeadAttention(6, 3, value_width=5).keys_and_values(floats(2, 3, 6)),
            "^memory: expected a last axis of value_width = 5, got",
        ),
    ],
    "attention.multi_head.MultiHeadAttention.forward": [
        *each_vector(multi_head_attention, name="query", axes=3),
        *each_vector(lambda key: multi_head_attention(floats(2, 4, 6), key), name="key", axes=3)[2:],
        *each_vector(
            lambda x: multi_head_attention(floats(2, 4, 6), floats(2, 3, 6), x), name="value", axes=3
        )[2:],
        (
            lambda: multi_head_attention(floats(2, 3, 6).double()),
            "^query: expected torch.float32, as the weights, got torch.float64$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), None, floats(2, 3, 6)),
            "^key: expected the keys of these values, got None$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), floats(1, 3, 6)),
            "^key: expected batch size 2, as query, got 1$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), floats(2, 4, 6), floats(2, 3, 6)),
            r"^value: expected shape \(2, 4, '…'\), as key, got \(2, 3, 6\)$",
        ),
        (lambda: multi_head_attention(floats(2, 3, 6), mask=torch.ones(3, 3)), "^mask: .* with 1 in it$"),
        (
            lambda: multi_head_attention(floats(2, 3, 6), mask=floats(2, 3) == 0),
            r"^mask: expected to broadcast to \(2, 3, 3, 3\), got \(2, 3\)$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), mask=floats(3, 3) == 0, cache=cache()),
            r"^mask: expected to broadcast to \(2, 3, 3, 4\), got \(3, 3\)$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), segment_ids=ids(2, 4)),
            r"^segment_ids: expected shape \(2, 3\) for the queries, got \(2, 4\)$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), floats(2, 4, 6), segment_ids=ids(2, 3)),
            r"^segment_ids: expected shape \(2, 4\) for the keys, got \(2, 3\)$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), segment_ids=[ids(2, 3), ids(2, 3)]),
            "^segment_ids: expected a Tensor, got a list$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), segment_ids=(ids(2, 3),)),
            "^segment_ids: expected a Tensor, got a tuple$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), segment_ids=floats(2, 3)),
            r"^segment_ids: expected int64 or int32 of shape \(batch, queries\), got torch.float32",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), mask=floats(2, 3) == 0, segment_ids=ids(2, 3)),
            r"^mask: expected to broadcast to",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), segment_ids=ids(2, 3, device="meta")),
            "^segment_ids: expected device cpu, as query, got meta$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), cache=layer_cache()),
            "^cache: expected a KeyValueCache, got a LayerCache$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), cache=cache(batch=1)),
            r"^cache: expected keys of \(1, 3, 3, 2\) torch.float32 on cpu, got \(2, 3, 3, 2\) torch.float32",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), cache=cache(heads=1)),
            r"^cache: expected keys of \(2, 1,",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), cache=cache(dtype=torch.float64)),
            "^cache: expected keys of .* torch.float64 on cpu, got .* torch.float32 on cpu$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), cache=cache(device="meta")),
            "^cache: expected keys of .* on meta, got .* on cpu$",
        ),
        (
            lambda: multi_head_attention(floats(2, 5, 6), cache=cache()),
            "^cache: expected at most max_length = 4 positions, got 5$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), floats(2, 5, 6), cache=cache(batch=5)),
            r"^cache: expected keys of \(5, 3, 5, 2\)",
        ),
        (lambda: filled_for_another_batch(), "^cache: expected batch size 1, as query, got 2$"),
        (
            lambda: multi_head_attention(floats(2, 3, 6), rotate="rotary"),
            "^rotate: expected a function or module, got 'rotary'$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), rotate=RotaryEncoding(6, 5)),
            r"^heads: expected a last axis of d_k = 6, got \(2, 3, 3, 2\)$",
        ),
        (
            lambda: multi_head_attention(floats(2, 3, 6), rotate=RotaryEncoding(2, 2)),
            "^positions: expected 0 to 1, below max_length, got 2$",
        ),
    ],
    # cache
    "cache.KeyValueCache": [
        *each_size(
            lambda **sizes: KeyValueCache(**{"num_heads": 3, "d_k": 2, **sizes}),
            "batch",
            "max_length",
            least=0,
        ),
        *each_size(
            lambda **sizes: KeyValueCache(**{"batch": 2, "max_length": 4, **sizes}), "num_heads", "d_k"
        ),
        *each_size(lambda d_v: KeyValueCache(2, 4, 3, 2, d_v), "d_v")[:4],
    ],
    "cache.KeyValueCache.append": [
        (lambda: cache().append([1.0], floats(2, 3, 1, 2)), "^keys: expected a Tensor, got a list$"),
        (lambda: cache().append(floats(2, 3, 1, 2), ids(2, 3, 1, 2)), "^values: expected floats of shape"),
        (
            lambda: cache().append(floats(3, 1, 2), floats(3, 1, 2)),
            r"^keys: expected floats of shape \(batch, heads,",
        ),
        (
            lambda: cache().append(floats(2, 3, 1, 5), floats(2, 3, 1, 2)),
            r"^cache: expected keys of \(2, 3, 1, 2\) .*, got \(2, 3, 1, 5\)",
        ),
        (
            lambda: cache().append(floats(2, 3, 2, 2), floats(2, 3, 1, 2)),
            r"^cache: expected values of \(2, 3, 2, 2\) .*, got \(2, 3, 1, 2\)",
        ),
        (
            lambda: cache().append(floats(2, 3, 5, 2), floats(2, 3, 5, 2)),
            "^cache: expected at most max_length = 4 positions, got 5$",
        ),
    ],
    "cache.KeyValueCache.visible": each_size(lambda queries: cache().visible(queries), "queries", least=0),
    "cache.KeyValueCache.fill_once": [
        (lambda: cache().fill_once(None), "^keys_and_values: expected a function or module, got None$"),
        (
            lambda: cache().fill_once(lambda: (floats(1, 3, 7, 2), floats(1, 3, 7, 2))),
            r"^cache: expected keys of \(2, 3, 7, 2\) .*, got \(1, 3, 7, 2\)",
        ),
    ],
    "cache.KeyValueCache.reorder": [
        (lambda: cache().reorder([0, 1]), "^indices: expected a Tensor, got a list$"),
        (
            lambda: cache().reorder(floats(2)),
            r"^indices: expected int64 or int32 of shape \(batch\), got .*float32",
        ),
        (lambda: cache().reorder(floats(2) == 0), r"^indices: expected int64 or int32 .*, got torch.bool"),
        (lambda: cache().reorder(ids(2)), "^indices: expected 0 to 1, got 3$"),
        (lambda: cache().reorder(ids(2) - 4), "^indices: expected 0 to 1, got -1$"),
        (lambda: cache().reorder(ids(2, device="meta")), "^indices: expected device cpu, .*, got meta$"),
    ],
    # dropout, feed_forward and norms
    "dropout.Dropout": [
        (lambda p=p: Dropout(p), "^p: expected 0 or more and below 1, got ")
        for p in (1, -0.1, math.nan, "0.1", None)
    ],
    "dropout.Dropout.forward": [
        (lambda: Dropout(0.5)(ids(2)), "^x: expected floats, got torch.int64 .*$"),
        (lambda: Dropout(0.5)([0.5]), "^x: expected "),
    ],
    "feed_forward.FeedForward": [
        *each_size(FeedForward, "d_model", "d_ff"),
        *[
            (
                lambda bad=bad: FeedForward(6, 7, activation=bad),
                "^activation: expected one of relu, gelu, got ",
            )
            for bad in ("swish", None, ["relu"], torch.relu)
        ],
        (lambda: FeedForward(6, 7, dropout=1.0), "^dropout: expected 0 or more and below 1, got 1.0$"),
    ],
    "feed_forward.FeedForward.forward": [
        *each_vector(FeedForward(6, 7)),
        (
            lambda: FeedForward(6, 7)(floats(2, 6).double()),
            "^x: expected torch.float32, .*, got torch.float64$",
        ),
    ],
    "feed_forward.SwiGLU": [
        *each_size(SwiGLU, "d_model", "d_ff"),
        (lambda: SwiGLU(6, 7, dropout=-0.1), "^dropout: expected 0 or more and below 1, got -0.1$"),
    ],
    "feed_forward.SwiGLU.forward": [
        *each_vector(SwiGLU(6, 7)),
        (lambda: SwiGLU(6, 7)(floats(2, 6).double()), "^x: expected torch.float32, .*, got torch.float64$"),
    ],
    "norms.LayerNorm": [
        *each_size(norms.LayerNorm, "d_model"),
        *each_number(lambda eps: norms.LayerNorm(6, eps), "eps"),
    ],
    "norms.LayerNorm.forward": each_vector(norms.LayerNorm(6)),
    "norms.LayerNorm.step_by_step": each_vector(norms.LayerNorm(6).step_by_step),
    "norms.RMSNorm": [
        *each_size(norms.RMSNorm, "d_model"),
        *each_number(lambda eps: norms.RMSNorm(6, eps), "eps"),
    ],
    "norms.RMSNorm.forward": each_vector(norms.RMSNorm(6)),
    "norms.BatchNorm": [
        *each_size(norms.BatchNorm, "d_model"),
        *each_number(lambda eps: norms.BatchNorm(6, eps), "eps"),
        *each_number(lambda momentum: norms.BatchNorm(6, momentum=momentum), "momentum"),
        (lambda: norms.BatchNorm(6, momentum=1.5), "^momentum: expected 0 to 1, got 1.5$"),
    ],
    "norms.BatchNorm.forward": [
        *each_vector(norms.BatchNorm(6)),
        (lambda: norms.BatchNorm(6)(floats(1, 6)), "^x: expected two vectors or more .*, got 1$"),
    ],
    # losses and schedule
    "losses.label_smoothed_loss": [
        *[
            (lambda bad=bad: label_smoothed_loss(bad, ids(2), pad_id=0), f"^logits: expected {said}$")
            for bad, said in (
                ([1.0], "a Tensor, got a list"),
                (ids(2, 5), r"floats, got torch.int64 \(2, 5\)"),
                (floats(()), r"a last axis of one class or more, got \(\)"),
                (floats(2, 0), r"a last axis of one class or more, got \(2, 0\)"),
            )
        ],
        *[
            (lambda bad=bad: label_smoothed_loss(floats(2, 5), bad, pad_id=0), f"^targets: expected {said}$")
            for bad, said in (
                ([3, 3], "a Tensor, got a list"),
                (floats(2), "int64 or int32, got torch.float32"),
                (floats(2) == 0, "int64 or int32, got torch.bool"),
                (ids(1), r"shape \(2,\), got \(1,\)"),
                (ids(2, 1), r"shape \(2,\), got \(2, 1\)"),
                (ids(2) + 2, "0 to 4, got 5"),
                (ids(2) - 103, "0 to 4, got -100"),
                (ids(2, device="meta"), "device cpu, as logits, got meta"),
            )
        ],
        *[
            (
                lambda bad=bad: label_smoothed_loss(floats(2, 5), ids(2), pad_id=bad),
                f"^pad_id: expected an integer, 0 to 4, or None, got {bad!r}$",
            )
            for bad in (5, -1, -100, 0.0, False, "0")
        ],
        *[
            (
                lambda bad=bad: label_smoothed_loss(floats(2, 5), ids(2), pad_id=0, smoothing=bad),
                f"^smoothing: expected 0 or more and below 1, got {bad!r}$",
            )
            for bad in (1, -0.1, math.nan, True, None, "0.1")
        ],
    ],
    "losses.projected_loss": [
        *[
            (lambda bad=bad: projected_loss(*bad, pad_id=0), f"^{said}")
            for bad, said in (
                (([1.0], floats(5, 6), ids(2)), "hidden: expected a Tensor, got a list$"),
                (
                    (ids(2, 6), floats(5, 6), ids(2)),
                    r"hidden: expected floats of .*, got torch.int64 \(2, 6\)$",
                ),
                ((floats(6), floats(5, 6), ids(2)), r"hidden: expected floats of shape \(tokens, d_model\)"),
                ((floats(2, 6), [1.0], ids(2)), "weight: expected a Tensor, got a list$"),
                ((floats(2, 6), floats(6), ids(2)), r"weight: expected floats of shape \(vocab, d_model\)"),
                ((floats(2, 6), floats(0, 6), ids(2)), "weight: expected a first axis of one class or more"),
                ((floats(2, 6), floats(6, 5), ids(2)), "hidden: expected a last axis of d_model = 5, got"),
                (
                    (floats(2, 6), floats(5, 6).double(), ids(2)),
                    "hidden: expected torch.float64, as the weights, got torch.float32$",
                ),
                (
                    (floats(2, 6).half(), floats(5, 6).half(), ids(2)),
                    "hidden: expected products in float32, float64 or bfloat16, got torch.float16$",
                ),
                ((floats(2, 6), floats(5, 6, device="meta"), ids(2)), "hidden: expected device meta"),
                ((floats(2, 6), floats(5, 6), [3, 3]), "targets: expected a Tensor, got a list$"),
                ((floats(2, 6), floats(5, 6), ids(3)), r"targets: expected shape \(2,\), got \(3,\)$"),
                ((floats(2, 6), floats(5, 6), ids(2) + 2), "targets: expected 0 to 4, got 5$"),
                (
                    (floats(2, 6), floats(5, 6), ids(2, device="meta")),
                    "targets: expected device cpu, as hidden, got meta$",
                ),
            )
        ],
        (
            lambda: projected_loss(floats(2, 6), floats(5, 6), ids(2), pad_id=5),
            "^pad_id: expected an integer, 0 to 4, or None, got 5$",
        ),
        (
            lambda: projected_loss(floats(2, 6), floats(5, 6), ids(2), pad_id=0, smoothing=1),
            "^smoothing: expected 0 or more and below 1, got 1$",
        ),
    ],
    "schedule.warmup_inverse_sqrt": [
        *each_size(lambda step: schedule.warmup_inverse_sqrt(step, 6, 7), "step", least=0),
        *each_size(lambda **sizes: schedule.warmup_inverse_sqrt(1, **sizes), "d_model", "warmup_steps"),
    ],
    "schedule.warmup_cosine": [
        *each_size(lambda step: schedule.warmup_cosine(step, 0.1, 3, 7), "step", least=0),
        *each_size(
            lambda warmup_steps: schedule.warmup_cosine(1, 0.1, warmup_steps, 7), "warmup_steps", least=0
        ),
        *each_size(lambda total_steps: schedule.warmup_cosine(1, 0.1, 0, total_steps), "total_steps"),
        *each_number(lambda peak: schedule.warmup_cosine(1, peak, 3, 7), "peak"),
        (
            lambda: schedule.warmup_cosine(1, 0.1, 7, 7),
            "^warmup_steps: expected 0 to 6, below total_steps, got 7$",
        ),
    ],
    # layers
    "layers.AddAndNorm": each_config(layers.AddAndNorm),
    "layers.AddAndNorm.forward": each_vector(lambda x: layers.AddAndNorm(CONFIG)(x, nn.Identity()), axes=3),
    "layers.EncoderLayer": each_config(layers.EncoderLayer),
    "layers.EncoderLayer.forward": [
        *each_vector(layers.EncoderLayer(CONFIG), axes=3),
        (
            lambda: layers.EncoderLayer(CONFIG)(floats(2, 3, 6).double()),
            "^x: expected torch.float32, .*float64$",
        ),
        (lambda: layers.EncoderLayer(CONFIG)(floats(2, 3, 6), torch.ones(3, 3)), "^mask: .* with 1 in it$"),
        (
            lambda: layers.EncoderLayer(CONFIG)(floats(2, 3, 6), floats(2, 3) == 0),
            "^mask: expected to broadcast",
        ),
    ],
    "layers.DecoderLayer": each_config(layers.DecoderLayer),
    "layers.DecoderLayer.forward": [
        *each_vector(lambda x: decoder_layer(x, floats(2, 5, 6)), axes=3),
        *each_vector(lambda memory: decoder_layer(floats(2, 3, 6), memory), name="memory", axes=3),
        (
            lambda: decoder_layer(floats(2, 3, 6), floats(1, 5, 6)),
            "^memory: expected batch size 2, as x, got 1$",
        ),
        (
            lambda: decoder_layer(floats(2, 3, 6), floats(2, 5, 6), floats(2, 5) == 0),
            r"^src_mask: expected to broadcast to \(2, 3, 3, 5\), got \(2, 5\)$",
        ),
        (
            lambda: decoder_layer(floats(2, 3, 6), floats(2, 5, 6), None, floats(2, 3) == 0),
            r"^tgt_mask: expected to broadcast to \(2, 3, 3, 3\), got \(2, 3\)$",
        ),
        (
            lambda: decoder_layer(floats(2, 3, 6), floats(2, 5, 6), torch.ones(5)),
            "^src_mask: .* with 1 in it$",
        ),
        (
            lambda: decoder_layer(floats(2, 3, 6), floats(2, 5, 6), cache=cache()),
            "^cache: expected a LayerCache, got a KeyValueCache$",
        ),
        (
            lambda: decoder_layer(floats(5, 3, 6), floats(5, 7, 6), cache=layer_cache()),
            r"^cache: expected keys of \(2, 3, 3, 2\) .*, got \(5, 3, 3, 2\)",
        ),
    ],
    # model
    "model.Transformer": each_config(Transformer),
    "model.Transformer.encode": [
        *each_ids(lambda x: model().encode(x), "src", high="ids"),
        (lambda: model().encode(ids(2, 6)), "^src: expected at most max_length = 5 tokens, got 6$"),
        (
            lambda: model(position="rotary").encode(ids(2, 6)),
            "^src: expected at most max_length = 5 .*, got 6$",
        ),
        (lambda: model().encode(ids(2, 3), ids(2, 3)), "^places: expected a Places, got a Tensor$"),
        (
            lambda: model().encode(ids(2, 3), places(1, 3)),
            r"^segments: expected shape \(2, 3\), as src, got \(1, 3\)$",
        ),
        (
            lambda: model(position="rotary").encode(ids(2, 3), packing.Places(ids(2, 3), ids(2, 3) + 2)),
            "^positions: expected 0 to 4, below max_length, got 5$",
        ),
    ],
    "model.Transformer.decode": [
        *each_ids(lambda x: model().decode(x, floats(2, 3, 6), None), "tgt_in"),
        (
            lambda: model().decode(ids(2, 6), floats(2, 3, 6), None),
            "^tgt_in: expected at most max_length = 5 tokens, got 6$",
        ),
        (
            lambda: model().decode(ids(2, 3), floats(2, 3, 7), None),
            "^memory: expected a last axis .* = 6, got",
        ),
        (
            lambda: model().decode(ids(2, 3), floats(1, 3, 6), None),
            "^memory: expected batch size 2, as x, got 1$",
        ),
        (lambda: model().decode(ids(2, 3), None, None), "^memory: expected a Tensor, got None$"),
        (
            lambda: model().decode(ids(2, 3), floats(2, 3, 6), floats(2, 3) == 0),
            "^src_mask: expected to broadcast to",
        ),
        (
            lambda: model().decode(ids(2, 3), floats(2, 3, 6), None, model().new_caches(2, 5), places(2, 3)),
            "^caches: expected none for packed rows, got 2$",
        ),
        (
            lambda: model().decode(ids(2, 3), floats(2, 3, 6), None, None, places(2, 2)),
            r"^segments: expected shape \(2, 3\), as tgt_in, got \(2, 2\)$",
        ),
        (
            lambda: model().decode(ids(2, 3), floats(2, 3, 6), None, model().new_caches(2, 5)[:1]),
            "^caches: expected 2, one a layer, got 1$",
        ),
        (
            lambda: model().decode(ids(2, 3), floats(2, 3, 6), None, [cache(), cache()]),
            "^caches: expected a LayerCache, got a KeyValueCache$",
        ),
        (
            lambda: model().decode(ids(2, 3), floats(2, 3, 6), None, model().new_caches(1, 5)),
            r"^cache: expected keys of \(1, 3, 3, 2\) .*, got \(2, 3, 3, 2\)",
        ),
    ],
    "model.Transformer.hidden": [
        *each_ids(lambda x: model().hidden(x, ids(2, 3)), "src", high="ids"),
        *each_ids(lambda x: model().hidden(ids(2, 3), x), "tgt_in"),
        (lambda: model().hidden(ids(2, 3), ids(1, 3)), "^tgt_in: expected batch size 2, as src, got 1$"),
        (
            lambda: model().hidden(ids(2, 3), ids(2, 3), places(2, 3)),
            "^tgt_places: expected Places, as src_places, got None$",
        ),
    ],
    "model.Transformer.forward": [
        *each_ids(lambda x: model()(x, ids(2, 3)), "src", high="ids"),
        *each_ids(lambda x: model()(ids(2, 3), x), "tgt_in"),
        (lambda: model()(ids(2, 3), ids(2, 3) + 10), "^ids: expected 0 to 12, got 13$"),
        (
            lambda: model()(ids(2, 3), ids(2, 3), None, places(2, 3)),
            "^src_places: expected Places, as tgt_places, got None$",
        ),
    ],
    "model.Transformer.project": [
        *each_vector(lambda x: model().project(x), name="hidden"),
        (
            lambda: model().project(floats(2, 6).double()),
            "^hidden: expected torch.float32, .*, got torch.float64$",
        ),
    ],
    "model.Transformer.new_caches": each_size(
        lambda **sizes: model().new_caches(**sizes), "batch", "max_length", least=0
    ),
    "model.attention_maps": [
        *each_model(lambda x: attention_maps(x, ids(2, 3)), "Module"),
        (lambda: attention_maps(model(), floats(2, 3), ids(2, 3)), "^src: expected int64 or int32"),
    ],
    # decoding
    "decoding.greedy": [
        *each_model(lambda x: greedy(x, ids(2, 3), max_length=5)),
        *each_ids(lambda x: greedy(model(), x, max_length=5), "src", high="ids"),
        *[
            (
                lambda bad=bad: greedy(model(), ids(2, 3), max_length=bad),
                f"^max_length: expected 1 to 5, the model's, got {bad!r}$",
            )
            for bad in (0, -1, 6, 2.0, True, None, "2")
        ],
    ],
    "decoding.beam": [
        *each_model(lambda x: beam(x, ids(2, 3), max_length=5)),
        *each_ids(lambda x: beam(model(), x, max_length=5), "src", high="ids"),
        (lambda: beam(model(), ids(2, 3), max_length=6), "^max_length: expected 1 to 5, .*, got 6$"),
        *each_size(
            lambda beam_size: beam(model(), ids(2, 3), beam_size=beam_size, max_length=5), "beam_size"
        ),
        *each_number(
            lambda alpha: beam(model(), ids(2, 3), length_penalty=alpha, max_length=5), "length_penalty"
        ),
    ],
    "decoding_steps.Steps": [
        *each_model(lambda x: Steps(x, ids(2, 3), 5)),
        *each_ids(lambda x: Steps(model(), x, 5), "src", high="ids"),
        *each_size(lambda max_length: Steps(model(), ids(2, 3), max_length), "max_length"),
        *each_size(lambda copies: Steps(model(), ids(2, 3), 5, copies=copies), "copies"),
        (
            lambda: Steps(model(), ids(2, 3), 5, use_cache=False, compiled=True),
            "^compiled: expected False without a cache, got True$",
        ),
    ],
    "decoding_steps.Steps.next_logits": [
        *each_ids(lambda x: Steps(model(), ids(2, 3), 5).next_logits(x), "tokens"),
        (lambda: Steps(model(), ids(2, 3), 5).next_logits(ids(2, 3) + 10), "^ids: expected 0 to 12, got 13$"),
    ],
    "decoding_steps.Steps.likeliest": [
        *each_ids(lambda x: Steps(model(), ids(2, 3), 5).likeliest(x, 1, truths(2)), "tokens"),
        *each_size(
            lambda length: Steps(model(), ids(2, 3), 5).likeliest(ids(2, 5), length, truths(2)), "length"
        ),
        (
            lambda: Steps(model(), ids(2, 3), 5).likeliest(ids(2, 5), 5, truths(2)),
            "^length: expected less than the room of 5 tokens, got 5$",
        ),
        (
            lambda: Steps(model(), ids(2, 3), 5).likeliest(ids(2, 5), 1, ids(2)),
            "^is_done: expected truth values of one axis, got torch.int64",
        ),
        (
            lambda: Steps(model(), ids(2, 3), 5).likeliest(ids(2, 5), 1, truths(3)),
            "^is_done: expected 2 rows, as tokens, got 3$",
        ),
    ],
    "decoding_steps.Steps.reorder": [
        (lambda: Steps(model(), ids(2, 3), 5).reorder([0, 1]), "^indices: expected a Tensor, got a list$"),
        (lambda: Steps(model(), ids(2, 3), 5).reorder(ids(2)), "^indices: expected 0 to 1, got 3$"),
    ],
    "decoding_steps.Steps.keep": [
        (lambda: Steps(model(), ids(2, 3), 5).keep([0]), "^sentences: expected a Tensor, got a list$"),
        (lambda: Steps(model(), ids(2, 3), 5).keep(ids(2)), "^sentences: expected 0 to 1, got 3$"),
        (
            lambda: Steps(model(), ids(2, 3), 5, use_cache=False).keep(ids(2, device="meta")),
            "^sentences: expected device cpu, .*, got meta$",
        ),
    ],
    "decoding_steps.going_on": [
        (lambda: going_on([True]), "^is_done: expected a Tensor, got a list$"),
        (lambda: going_on(ids(2)), r"^is_done: expected truth values of one axis, got torch.int64 \(2,\)$"),
        (lambda: going_on(ids(2, 3) == 0), r"^is_done: .*, got torch.bool \(2, 3\)$"),
    ],
    "decoding_steps.column_major": each_model(column_major),
    "decoding.evaluating": each_model(lambda x: evaluating(x).__enter__(), "Module"),
    # config
    "config.TransformerConfig": [
        *each_size(lambda **sizes: TransformerConfig(**{**CONFIG.__dict__, **sizes}), *SIZE_NAMES, d_model=6),
        *[
            (
                lambda name=name, bad=bad: TransformerConfig(11, 13, **{name: bad}),
                f"^{name}: expected {said}$",
            )
            for name, bad, said in (
                ("num_heads", 7, "a divisor of d_model = 512, got 7"),
                ("num_key_value_heads", 3, "a divisor of num_heads = 8, got 3"),
                ("num_key_value_heads", 2.0, "a divisor of num_heads = 8, got 2.0"),
                ("dropout", 1, "0 or more and below 1, got 1"),
                ("dropout", math.nan, "0 or more and below 1, got nan"),
                ("norm_first", 1, "True or False, got 1"),
                ("norm", "batch", "one of layer, rms, got 'batch'"),
                ("activation", ["relu"], r"one of relu, gelu, swiglu, got \['relu'\]"),
                ("position", None, "one of sinusoidal, learned, rotary, got None"),
                ("pad_id", 11, "an integer, 0 to 10, got 11"),
                ("pad_id", 0.0, "an integer, 0 to 10, got 0.0"),
                ("eos_id", True, "an integer, 0 to 10, got True"),
                ("shared_vocabulary", True, "vocabularies of one size, got 11 and 13"),
            )
        ],
        (
            lambda: TransformerConfig(11, 13, 9, 3, position="rotary"),
            "^num_heads: expected d_model / num_heads even, for rotary positions, got 9 / 3$",
        ),
        (
            lambda: TransformerConfig(11, 13, pad_id=1),
            "^pad_id, bos_id, eos_id: expected three different ids, got",
        ),
    ],
    "config.TransformerConfig.base": [
        (lambda: TransformerConfig.base(0), "^source_vocab_size: expected an integer, 1 or more, got 0$"),
    ],
    "config.TransformerConfig.big": [
        (
            lambda: TransformerConfig.big("37000"),
            "^source_vocab_size: expected an integer, 1 or .*, got '37000'$",
        ),
    ],
    # data
    "data.batches.separate": [
        *each_several(batches.separate, "pairs"),
        (lambda: batches.separate([[3, 4]]), r"^pairs\[0\]: expected two lists of ids, got \[3, 4\]$"),
    ],
    "data.batches.make_batch": [
        *each_several(batches.make_batch, "pairs"),
        (lambda: batches.make_batch([]), "^pairs: expected one pair or more, got none$"),
        (lambda: batches.make_batch([*PAIRS, [3]]), r"^pairs\[2\]: expected two lists of ids, got \[3\]$"),
        (
            lambda: batches.make_batch([([3.7], [5])]),
            "^sequences: expected lists of integers, got torch.float32",
        ),
        (lambda: batches.make_batch([(["a"], [5])]), "^sequences: expected ids, got what is no number$"),
        (lambda: batches.make_batch([([-3], [5])]), "^pairs: expected ids, 0 or more, got -3$"),
    ],
    "data.batches.refuse_negative": [
        (lambda: batches.refuse_negative([ids(2), ids(3) - 5]), "^pairs: expected ids, 0 or more, got -2$")
    ],
    "data.packing.check_places": [
        (lambda: packing.check_places(None, "src", ids(2, 3)), "^places: expected a Places, got None$"),
        (
            lambda: packing.check_places(packing.Places(ids(2, 3), floats(2, 3)), "src", ids(2, 3)),
            r"^positions: expected int64 or int32 of shape \(batch, length\), got torch.float32",
        ),
        (
            lambda: packing.check_places(places(2, 3, device="meta"), "src", ids(2, 3)),
            "^positions: expected device cpu, as src, got meta$",
        ),
        (
            lambda: packing.check_places(packing.Places(ids(2, 3), ids(2, 1)), "src", ids(2, 3)),
            r"^positions: expected shape \(2, 3\), as src, got \(2, 1\)$",
        ),
    ],
    "data.packing.fill_rows": [
        *each_size(lambda length: packing.fill_rows([(1, 1)], length), "length"),
        *each_several(lambda sizes: packing.fill_rows(sizes, 5), "sizes"),
        (lambda: packing.fill_rows([(1, 1), 3], 5), r"^sizes\[1\]: expected several, such as a list, got 3$"),
        (lambda: packing.fill_rows([(1, 1, 1)], 5), r"^sizes\[0\]: expected a source's and .*, got 3$"),
        (lambda: packing.fill_rows([(1, -1)], 5), r"^sizes\[0\]: expected an integer, 0 or more, got -1$"),
        (lambda: packing.fill_rows([(1, 1), (2, 6)], 5), r"^pairs\[1\]: .* at most 5 tokens a side, got 6$"),
        (lambda: packing.fill_rows([(6, 2)], 5), r"^pairs\[0\]: expected at most 5 tokens a side, got 6$"),
    ],
    "data.packing.make_packed_batch": [
        *each_several(lambda pairs: packing.make_packed_batch(pairs, 5), "pairs"),
        *each_size(lambda length: packing.make_packed_batch(PAIRS, length), "length"),
        (lambda: packing.make_packed_batch([], 5), "^pairs: expected one pair or more, got none$"),
        (lambda: packing.make_packed_batch([[3]], 5), r"^pairs\[0\]: expected two lists of ids, got \[3\]$"),
        (lambda: packing.make_packed_batch([([3.7], [5])], 5), "^sequences: expected lists of integers, got"),
        (lambda: packing.make_packed_batch([([3], [-5])], 5), "^pairs: expected ids, 0 or more, got -5$"),
        (
            lambda: packing.make_packed_batch([([3], [5]), ([3], [4] * 5)], 5),
            r"^pairs\[1\]: expected at most 5 tokens a side, got 6$",
        ),
    ],
    "data.packing.PackedBatches": [
        *each_several(lambda pairs: packing.PackedBatches(pairs, 1, 5, seed=0), "pairs"),
        *each_size(lambda length: packing.PackedBatches(PAIRS, 1, length, seed=0), "length"),
        (lambda: packing.PackedBatches(PAIRS, 0, 5, seed=0), "^tokens: expected 1 to 8, .*, got 0$"),
        (lambda: packing.PackedBatches(PAIRS, 1.0, 5, seed=0), "^tokens: expected an integer, got 1.0$"),
        (lambda: packing.PackedBatches(PAIRS, 1, 5, seed=0.5), "^seed: expected an integer, got 0.5$"),
        (lambda: packing.PackedBatches(PAIRS, 1, 2, seed=0), r"^pairs\[1\]: expected at most 2 .*, got 3$"),
        (
            lambda: packing.PackedBatches([([3], [])], 1, 5, seed=0),
            r"^pairs\[0\]: expected tokens in its target, got none$",
        ),
        *each_size(lambda step: packing.PackedBatches(PAIRS, 1, 5, seed=0)[step], "step", least=0),
    ],
    "data.batches.Batches": [
        *each_several(lambda pairs: batches.Batches(pairs, 1, seed=0), "pairs"),
        *[
            (lambda bad=bad: batches.Batches(PAIRS, bad, seed=0), "^batch_size: expected 1 to 2, .*, got")
            for bad in (0, -1, 3)
        ],
        (lambda: batches.Batches(PAIRS, 1.0, seed=0), "^batch_size: expected an integer, got 1.0$"),
        (lambda: batches.Batches(PAIRS, True, seed=0), "^batch_size: expected an integer, got True$"),
        (lambda: batches.Batches([], 1, seed=0), "^batch_size: expected 1 to 0, .*, got 1$"),
        (lambda: batches.Batches(PAIRS, 1, seed=0.5), "^seed: expected an integer, got 0.5$"),
        (lambda: batches.Batches(PAIRS, 1, seed=None), "^seed: expected an integer, got None$"),
        (
            lambda: batches.Batches([*PAIRS, ([], [5])], 1, seed=0),
            r"^pairs\[2\]: .* in its source, got none$",
        ),
        (
            lambda: batches.Batches([([3], [])], 1, seed=0),
            r"^pairs\[0\]: expected tokens in its target, got none$",
        ),
        *each_size(lambda step: batches.Batches(PAIRS, 1, seed=0)[step], "step", least=0),
    ],
    "data.batches.TokenBatches": [
        *each_several(lambda pairs: batches.TokenBatches(pairs, 1, seed=0), "pairs"),
        *[
            (
                lambda bad=bad: batches.TokenBatches([([3], [4])], bad, seed=0),
                "^tokens: expected 1 to 3, .*, got",
            )
            for bad in (0, -1, 4)
        ],
        (lambda: batches.TokenBatches(PAIRS, 1.0, seed=0), "^tokens: expected an integer, got 1.0$"),
        (lambda: batches.TokenBatches([], 1, seed=0), "^tokens: expected 1 to 0, .*, got 1$"),
        (lambda: batches.TokenBatches(PAIRS, 1, seed=0.5), "^seed: expected an integer, got 0.5$"),
        (
            lambda: batches.TokenBatches([([3], [])], 1, seed=0),
            r"^pairs\[0\]: expected tokens in its target, got none$",
        ),
        *each_size(lambda step: batches.TokenBatches(PAIRS, 1, seed=0)[step], "step", least=0),
    ],
    "data.batches.sizes_of": [
        *each_several(batches.sizes_of, "pairs"),
        (lambda: batches.sizes_of([([3], [])]), r"^pairs\[0\]: expected tokens in its target, got none$"),
        (lambda: batches.sizes_of([3]), r"^pairs\[0\]: expected two lists of ids, got 3$"),
    ],
    "data.encoded.EncodedPairs": [
        (lambda: encoded.EncodedPairs(None), "^folder: expected a path, got None$"),
    ],
    "data.encoded.write_pairs": [
        (lambda: encoded.write_pairs(None, PAIRS, 9), "^folder: expected a path, got None$"),
        *each_several(lambda pairs: encoded.write_pairs("nowhere", pairs, 9), "pairs"),
        *each_size(lambda vocab_size: encoded.write_pairs("nowhere", PAIRS, vocab_size), "vocab_size"),
        (
            lambda: encoded.write_pairs(Path(__file__).parent, PAIRS, 9),
            "^folder: expected a new one, got .*, which exists$",
        ),
    ],
    "data.wmt14.sentences": [
        (lambda: wmt14.sentences("dev"), "^split: expected one of train, validation, test, got 'dev'$"),
        (lambda: wmt14.sentences(["test"]), r"^split: expected one of train, .*, got \['test'\]$"),
    ],
    "data.wmt14.find": [
        (lambda: wmt14.find("test.fr"), r"^name: expected one of train\.en, .*, got 'test\.fr'$"),
    ],
    "data.wmt14.joint_encoding": [
        (lambda: wmt14.joint_encoding(258), "^vocab_size: expected 259 or more, .*, got 258$"),
    ],
    "data.wmt14.encoded": [
        (lambda: wmt14.encoded("tokenizer.json"), "^joint: expected a Subwords, got 'tokenizer.json'$"),
    ],
    "data.multi30k.sentences": [
        (lambda: multi30k.sentences("dev"), "^split: expected one of train, validation, test, got 'dev'$"),
        (lambda: multi30k.sentences(None), "^split: expected a str, got None$"),
    ],
    "data.multi30k.find": [
        (
            lambda: multi30k.find("train.fr.gz"),
            r"^name: expected one of train\.en\.gz, .*, got 'train\.fr\.gz'$",
        ),
    ],
    "data.lengths.limit_lengths": [
        *each_several(lambda x: lengths.limit_lengths(x, 3), "sentences"),
        (lambda: lengths.limit_lengths([3, 4], 3), "^sentences: expected several, such as a list, got 3$"),
        (lambda: lengths.limit_lengths(["three"], 3), "^sentences: expected several, .*, got 'three'$"),
        *each_size(lambda max_length: lengths.limit_lengths([[3]], max_length), "max_length"),
        (
            lambda: lengths.limit_lengths([[3]], 3, too_long="cut"),
            "^too_long: expected 'refuse' or .*, got 'cut'$",
        ),
        (
            lambda: lengths.limit_lengths([[3] * 4], 3),
            "^sentences: expected at most 3 tokens each, got 1 longer",
        ),
    ],
    "data.lengths.limit_pairs": [
        *each_several(lambda x: lengths.limit_pairs(x, 3), "pairs"),
        (lambda: lengths.limit_pairs([[3]], 3), r"^pairs\[0\]: expected two lists of ids, got \[3\]$"),
        *each_size(lambda max_length: lengths.limit_pairs(PAIRS, max_length), "max_length"),
        (lambda: lengths.limit_pairs(PAIRS, 1), "^max_length: expected 2 or more, .*, got 1$"),
        (
            lambda: lengths.limit_pairs(PAIRS, 3, too_long=None),
            "^too_long: expected 'refuse' or .*, got None$",
        ),
    ],
    "data.number_words.english": each_word_number(number_words.english),
    "data.number_words.german": each_word_number(number_words.german),
    "data.number_words.german_tokens": each_word_number(number_words.german_tokens),
    "data.number_words.english_tokens": [
        (lambda: number_words.english_tokens(7), "^text: expected a str, got int$"),
        (lambda: number_words.english_tokens(["one"]), "^text: expected a str, got list$"),
    ],
    "data.number_words.parse": [
        (lambda: number_words.parse(7), "^text: expected a str, got int$"),
        (lambda: number_words.parse(None), "^text: expected a str, got NoneType$"),
        (lambda: number_words.parse(""), "^number: expected digits or English number words, got nothing$"),
        (lambda: number_words.parse("-1"), "^number: expected 0 to 999,999, got -1$"),
        (lambda: number_words.parse("two million"), "^number: expected 0 to 999,999, got 'two million'$"),
        (
            lambda: number_words.parse("one two"),
            "^number: expected a number's words in their .*, got 'one two'$",
        ),
        (lambda: number_words.parse("1.5"), "^number: expected digits or English number words, got '1.5'$"),
    ],
    "data.number_words.held_out": [
        *each_size(lambda count: number_words.held_out(count), "count", least=0),
        (lambda: number_words.held_out(10**6 + 1), "^count: expected at most 1,000,000 .*, got 1,000,001$"),
    ],
    "data.number_words.training_numbers": [
        *each_size(lambda count: number_words.training_numbers(count, 0), "count", least=0),
        (lambda: number_words.training_numbers(3, 0.5), "^seed: expected an integer, got 0.5$"),
        (lambda: number_words.training_numbers(3, None), "^seed: expected an integer, got None$"),
    ],
    "data.number_words.pairs": [
        *each_several(number_words.pairs, "numbers"),
        (lambda: number_words.pairs([7, -1]), "^number: expected 0 to 999,999, got -1$"),
    ],
    "data.texts.check_vocab_size": [
        (lambda bad=bad: texts.check_vocab_size(bad), f"^vocab_size: expected 259 or more, .*, got {bad!r}$")
        for bad in (258, -1, 300.0, True, None, "300")
    ],
    "data.texts.check_text": [
        (lambda: texts.check_text(7), "^text: expected a str, got int$"),
        (lambda: texts.check_text("\ud800"), "^text: expected what UTF-8 can express, got half a surrogate"),
    ],
    "data.texts.checked_texts": [
        (
            lambda: list(texts.checked_texts("one")),
            "^texts: expected several texts, such as a list, got one str$",
        ),
        (lambda: list(texts.checked_texts(None)), "^texts: expected several texts, .*, got one NoneType$"),
        (lambda: list(texts.checked_texts(["one", 2])), r"^texts\[1\]: expected a str, got int$"),
    ],
    "data.vocabulary.ids_to_show": [
        *each_several(lambda x: vocabulary.ids_to_show(x, 11), "ids"),
        *[
            (lambda bad=bad: vocabulary.ids_to_show([bad], 11), f"^ids: expected 0 to 10, got {bad!r}$")
            for bad in (-1, 11, 3.0, None, "3")
        ],
    ],
    "data.vocabulary.Vocabulary": [
        *each_several(vocabulary.Vocabulary, "tokens"),
        (lambda: vocabulary.Vocabulary(["one", 2]), "^tokens: expected a str, got 2$"),
        (lambda: vocabulary.Vocabulary(["one", "one"]), "^tokens: expected each once, got 'one' twice$"),
    ],
    "data.vocabulary.Vocabulary.encode": [
        *each_several(vocabulary.Vocabulary(["a", "b", "c"]).encode, "tokens"),
        (lambda: vocabulary.Vocabulary(["a"]).encode(["b"]), "^tokens: expected tokens of the .*, got 'b'$"),
        (
            lambda: vocabulary.Vocabulary(["a"]).encode([["a"]]),
            r"^tokens: .* of the vocabulary, got \['a'\]$",
        ),
    ],
    "data.vocabulary.Vocabulary.decode": [
        *each_several(vocabulary.Vocabulary(["a"]).decode, "ids"),
        *[
            (
                lambda bad=bad: vocabulary.Vocabulary(["a"]).decode([bad]),
                f"^ids: expected 0 to 3, got {bad!r}$",
            )
            for bad in (-1, 4, 3.0, None, "a")
        ],
    ],
    "data.vocabulary.pad": [
        *each_several(lambda x: vocabulary.pad(x, 0), "sequences"),
        (lambda: vocabulary.pad([3, 4], 0), "^sequences: expected several, such as a list, got 3$"),
        (lambda: vocabulary.pad(["ab"], 0), "^sequences: expected several, such as a list, got 'ab'$"),
        (
            lambda: vocabulary.pad([[3, 4.7]], 0),
            r"^sequences: expected lists of integers, .*float32 \(1, 2\)$",
        ),
        (lambda: vocabulary.pad([[True]], 0), "^sequences: expected lists of integers, got torch.bool"),
        (lambda: vocabulary.pad([[None]], 0), "^sequences: expected ids, got what is no number$"),
        (lambda: vocabulary.pad([[[3]]], 0), r"^sequences: .* got torch.int64 \(1, 1, 1\)$"),
        (lambda: vocabulary.pad([[3]], None), "^pad_id: expected an integer, got None$"),
        (lambda: vocabulary.pad([[3]], 0.0), "^pad_id: expected an integer, got 0.0$"),
    ],
    "data.byte_pair.BytePairEncoding": [
        (lambda: BytePairEncoding(7), "^merges: expected pairs of ids, got 7$"),
        (lambda: BytePairEncoding([(3,)]), r"^merges\[0\]: expected two ids from 3 to 258, got \(3,\)$"),
    ],
    "data.byte_pair.BytePairEncoding.train": [
        (lambda: BytePairEncoding.train("one", 300), "^texts: expected several texts, .*, got one str$"),
        (lambda: BytePairEncoding.train(["one"], 258), "^vocab_size: expected 259 or more, .*, got 258$"),
    ],
    "data.byte_pair.BytePairEncoding.encode": [
        (lambda: BytePairEncoding().encode(7), "^text: expected a str, got int$"),
    ],
    "data.byte_pair.BytePairEncoding.decode": [
        (lambda: BytePairEncoding().decode([259]), "^ids: expected 0 to 258, got 259$"),
        (lambda: BytePairEncoding().decode([3.0]), "^ids: expected 0 to 258, got 3.0$"),
    ],
    "data.subwords.Subwords.train": [
        (lambda: subwords.Subwords.train("one", 300), "^texts: expected several texts, .*, got one str$"),
        (lambda: subwords.Subwords.train(["one"], 258), "^vocab_size: expected 259 or more, .*, got 258$"),
    ],
    # files and checkpoints
    "files.replacing": each_path(lambda path: files.replacing(path).__enter__()),
    "files.write_json": [
        *each_path(lambda path: files.write_json(path, {})),
        (lambda: files.write_json(Path("nowhere"), [1]), "^content: expected a dict, got a list$"),
        (
            lambda: files.write_json(Path("nowhere"), {"a": {1}}),
            "^content: expected what JSON can express, got .*set",
        ),
    ],
    "files.read_json": each_path(files.read_json),
    "checkpoints.save_model": [
        *each_path(lambda path: checkpoints.save_model(path, model(), None, None), "directory"),
        *each_model(lambda x: checkpoints.save_model(Path("nowhere"), x, None, None)),
        (
            lambda: checkpoints.save_model(Path("nowhere"), model(), [], None),
            "^source: expected a Vocabulary or Subwords, got a",
        ),
        (
            lambda: checkpoints.save_model(Path("nowhere"), model(), number_words.vocabularies()[0], None),
            "^target: expected a Vocabulary or Subwords, got None$",
        ),
        (
            lambda: checkpoints.save_model(Path("nowhere"), column_major(model()), None, None),
            "^model: expected weights stored by rows, got a copy that stores them by columns$",
        ),
    ],
    "checkpoints.load_model": [
        (lambda: checkpoints.load_model(7), "^directory: expected a path, got 7$"),
        (
            lambda: checkpoints.load_model("nowhere"),
            "^model: expected a folder with config.json, got nowhere$",
        ),
    ],
    "checkpoints.load_tokenisers": each_path(checkpoints.load_tokenisers, "directory"),
    "checkpoints.snapshots": each_path(checkpoints.snapshots, "directory"),
    "checkpoints.save_snapshot": [
        *each_path(lambda path: checkpoints.save_snapshot(path, 1, {}, keep=1), "directory"),
        *each_size(lambda step: checkpoints.save_snapshot(Path("no"), step, {}, keep=1), "step", least=0),
        *each_kind(lambda x: checkpoints.save_snapshot(Path("no"), 1, x, keep=1), "dict", "weights"),
        *each_size(lambda keep: checkpoints.save_snapshot(Path("no"), 1, {}, keep=keep), "keep"),
    ],
    "resuming.found": each_path(resuming.found, "directory"),
    "resuming.discard": [
        *each_path(resuming.discard, "directory"),
        (
            lambda: resuming.discard(Path("nowhere"), but="checkpoint.pt"),
            "^but: expected .*, got 'checkpoint",
        ),
    ],
    "resuming.save_checkpoint": [
        *each_state(lambda *given: resuming.save_checkpoint(*given, {})),
        *each_kind(lambda x: resuming.save_checkpoint(Path("no"), model(), OPTIMIZER, x), "dict", "progress"),
    ],
    "resuming.load_checkpoint": [
        *each_state(resuming.load_checkpoint),
        (
            lambda: resuming.load_checkpoint(Path("nowhere"), model(), OPTIMIZER),
            r"^resume: expected a checkpoint, found no nowhere/checkpoint\.pt$",
        ),
    ],
    "checkpoint_folder.set_aside": each_path(checkpoint_folder.set_aside, "directory"),
    "checkpoint_folder.write_folder": [
        *each_state(lambda *given: checkpoint_folder.write_folder(*given, {})),
        *each_kind(
            lambda x: checkpoint_folder.write_folder(Path("no"), model(), OPTIMIZER, x), "dict", "progress"
        ),
    ],
    "checkpoint_folder.read_folder": each_state(checkpoint_folder.read_folder),
    "checkpoint_folder.shapes": each_kind(checkpoint_folder.shapes, "dict", "tensors"),
    "checkpoint_folder.refuse_another": [
        (
            lambda: checkpoint_folder.refuse_another(Path("here"), {"b": (3,), "c": (5,)}, {"a": (2,)}),
            r"^resume: expected a checkpoint of this model, here is of another: a: expected \(2,\), got nothing$",
        ),
    ],
    "checkpoints.average_checkpoints": [
        *each_several(checkpoints.average_checkpoints, "paths"),
        (
            lambda: checkpoints.average_checkpoints(Path("one.pt")),
            "^paths: expected several, .*, got a PosixPath$",
        ),
        (lambda: checkpoints.average_checkpoints([7]), "^paths: expected a path, got 7$"),
        (lambda: checkpoints.average_checkpoints([]), "^paths: expected one checkpoint or more, got none$"),
        (lambda: checkpoints.average_checkpoints(["nowhere"]), "^paths: expected a checkpoint, got nowhere$"),
    ],
    "web_export.quantise": [
        (lambda: web_export.quantise([[1.0]]), "^weight: expected a Tensor, got a list$"),
        (lambda: web_export.quantise(ids(2, 3)), "^weight: expected "),
        (lambda: web_export.quantise(floats(3)), "^weight: expected "),
        (
            lambda: web_export.quantise(floats(2, 3) / 0),
            "^weight: expected finite numbers, got NaN or infinity$",
        ),
    ],
    "web_export.export": [
        *each_model(lambda x: web_export.export(x, *number_words.vocabularies())),
        (
            lambda: web_export.export(model(), None, number_words.vocabularies()[1]),
            "^source: expected a Vocabulary, got None$",
        ),
        (
            lambda: web_export.export(model(), *number_words.vocabularies(), "int4"),
            "^dtype: expected one of int8, float32, got 'int4'$",
        ),
        (
            lambda: web_export.export(model(norm="rms"), *number_words.vocabularies()),
            "^norm: expected 'layer', which the page has code for, got 'rms'$",
        ),
    ],
    "web_export.write": [
        *each_path(lambda path: web_export.write(path, "model", {})),
        (lambda: web_export.write(Path("nowhere"), 7, {}), "^name: expected a str, got 7$"),
        (lambda: web_export.write(Path("nowhere"), "model", []), "^content: expected a dict, got a list$"),
    ],
    # training
    "distributed.process_group": [
        (lambda: distributed.process_group("cpu").__enter__(), "^device: expected a device, got 'cpu'$"),
    ],
    "distributed.summed": [(lambda: distributed.summed([1]), "^tensor: expected a Tensor, got a list$")],
    "distributed.any_of": [
        (lambda: distributed.any_of(True, "cpu"), "^device: expected a device, got 'cpu'$"),
    ],
    "sharding.shard": [
        *each_kind(lambda x: sharding.shard(x, [], torch.device("cpu")), "Module", "root"),
        *each_several(lambda x: sharding.shard(model(), x, torch.device("cpu")), "layers"),
        *each_kind(lambda x: sharding.shard(model(), [], x), "device", "device"),
        (
            lambda: sharding.shard(model(), [], torch.device("cpu")),
            "^shard: expected two processes or more, got 1$",
        ),
    ],
    "sharding.is_sharded": each_kind(sharding.is_sharded, "Module", "model"),
    "sharding.whole": each_kind(sharding.whole, "Tensor", "tensor"),
    "sharding.whole_weights": each_kind(sharding.whole_weights, "Module", "model"),
    "sharding.whole_model": each_model(sharding.whole_model),
    "parallel.share": each_kind(parallel.share, "Batch or PackedBatch", "batch"),
    "parallel.divided": [
        *each_kind(lambda x: parallel.divided(x, torch.device("cpu"), in_shares=False), "BatchLoss", "loss"),
        *each_kind(
            lambda x: parallel.divided(BatchLoss(model(), 0.1), x, in_shares=True), "device", "device"
        ),
    ],
    "parallel.synchronised": each_kind(lambda x: parallel.synchronised(x, True), "Module", "loss"),
    "optimizer.adamw": [
        *each_kind(lambda x: adamw(x, 0.1), "Module", "model"),
        *each_number(lambda x: adamw(model(), x), "weight_decay"),
        (lambda: adamw(nn.Tanh(), 0.1), "^model: expected one with parameters, got Tanh without$"),
    ],
    "optimizer.clip_gradients": [
        *each_kind(lambda x: clip_gradients(x, 1.0), "Module", "model"),
        *each_number(lambda x: clip_gradients(model(), x), "largest_norm", or_none=True),
    ],
    "prefetching.made_ahead": [
        (lambda: made_ahead([3], 5).__enter__(), "^make: expected a function or module, got a list$"),
        *each_size(lambda end: made_ahead(len, end).__enter__(), "end", least=0),
    ],
    "training_config.TrainingConfig": [
        *each_size(TrainingConfig, "steps", "batch_size", "training_pairs", "checkpoint_every", "accumulate"),
        *each_size(TrainingConfig, "snapshots", "warmup_steps", "seed", least=0),
        *[
            row
            for name in ("peak_learning_rate", "weight_decay")
            for row in each_number(lambda bad, name=name: TrainingConfig(**{name: bad}), name)
        ],
        *each_number(lambda bad: TrainingConfig(clip_norm=bad), "clip_norm", or_none=True),
        (lambda: TrainingConfig(smoothing=1), "^smoothing: expected 0 or more and below 1, got 1$"),
        (
            lambda: TrainingConfig(batch_size=3, accumulate=5),
            "^accumulate: expected at most batch_size = 3, got 5$",
        ),
        *[
            (
                lambda bad=bad: TrainingConfig(tokens=bad),
                f"^tokens: expected an integer, 1 or more, got {bad!r}$",
            )
            for bad in (0, -1, 2.0, True, "2")
        ],
        (
            lambda: TrainingConfig(precision="half"),
            "^precision: expected one of auto, float32, bfloat16, float16, got 'half'$",
        ),
        (lambda: TrainingConfig(compile=1), "^compile: expected True or False, got 1$"),
        (
            lambda: TrainingConfig(schedule="linear"),
            "^schedule: expected one of cosine, inverse_sqrt, got 'linear'$",
        ),
        (
            lambda: TrainingConfig(schedule="inverse_sqrt", warmup_steps=0),
            "^warmup_steps: expected an integer, 1 or more, got 0$",
        ),
        *[
            (
                lambda bad=bad: TrainingConfig(tokens=99, packed_length=bad),
                f"^packed_length: expected an integer, 1 or more, got {bad!r}$",
            )
            for bad in (0, 2.0, True, "7")
        ],
        (lambda: TrainingConfig(packed_length=7), "^packed_length: expected None without tokens, got 7$"),
        (lambda: TrainingConfig(recompute=None), "^recompute: expected True or False, got None$"),
    ],
    "training_config.TrainingConfig.learning_rate": each_size(
        TrainingConfig().learning_rate, "step", least=0
    ),
    "training_config.chosen_precision": [
        (
            lambda: chosen_precision("half", torch.device("cpu")),
            "^name: expected one of auto, float32, bfloat16, float16, got 'half'$",
        ),
        (lambda: chosen_precision("auto", "cpu"), "^device: expected a device, got 'cpu'$"),
    ],
    "training_loss.batch_loss": [
        *each_model(lambda x: batch_loss(x, batches.make_batch(PAIRS), 0.1)),
        (lambda: batch_loss(model(), PAIRS, 0.1), "^batch: expected a Batch or PackedBatch, got a list$"),
        (
            lambda: batch_loss(model(), batches.make_batch(PAIRS), 1.0),
            "^smoothing: expected 0 or .*, got 1.0$",
        ),
        (
            lambda: batch_loss(model(), batches.Batch(ids(2, 3), ids(2, 3), ids(2, 4)), 0.1),
            r"^batch: expected tgt_out of shape \(2, 3\), as tgt_in, got \(2, 4\)$",
        ),
    ],
    "training_loss.BatchLoss": each_model(lambda x: BatchLoss(x, 0.1)),
    "training_loss.split": [
        (lambda: split(PAIRS, 2), "^batch: expected a Batch or PackedBatch, got a list$"),
        *each_size(lambda parts: split(batches.make_batch(PAIRS), parts), "parts"),
    ],
    "training.Trainer": [
        *each_model(lambda x: trainer(model=x)),
        (lambda: trainer(batches=PAIRS), "^batches: expected a Batches or TokenBatches, got a list$"),
        (lambda: trainer(config={"steps": 3}), "^config: expected a TrainingConfig, got a dict$"),
        (lambda: trainer(config=CONFIG), "^config: expected a TrainingConfig, got a TransformerConfig$"),
        (lambda: trainer(directory=7), "^directory: expected a path, got 7$"),
        (lambda: trainer(device="cpu"), "^device: expected .*, got 'cpu'$"),
    ],
    "training.Trainer.train_step": [
        (
            lambda: trainer(batches=batches.Batches([([11], [3])], 1, seed=0)).train_step(),
            "^src: expected 0 to 10, got 11$",
        ),
        (
            lambda: trainer(batches=batches.Batches([([3], [13])], 1, seed=0)).train_step(),
            "^tgt_in: expected 0 to 12, got 13$",
        ),
        (
            lambda: trainer(batches=LastTokenWrong([([3], [5])], 1, seed=0)).train_step(),
            "^tgt_out: expected 0 to 12, got 13$",
        ),
        (
            lambda: trainer(batches=packing.PackedBatches([([3] * 6, [5])], 1, 7, seed=0)).train_step(),
            "^positions: expected 0 to 4, below the model's max_length, got 5$",
        ),
    ],
    # evaluation
    "evaluation.in_chunks": [
        *each_several(lambda items: list(evaluation.in_chunks(items, 2)), "items"),
        *each_size(lambda size: list(evaluation.in_chunks([1], size)), "size"),
    ],
    "evaluation.translate": [
        *each_model(lambda x: evaluation.translate(x, *number_words.vocabularies(), [])),
        (
            lambda: evaluation.translate(model(), [], [], []),
            "^source: expected a Vocabulary or Subwords, got a list$",
        ),
        (
            lambda: evaluation.translate(model(), number_words.vocabularies()[0], [], []),
            "^target: expected a Vocabulary or Subwords, got a list$",
        ),
        *[
            row
            for row in each_several(
                lambda x: evaluation.translate(model(), *number_words.vocabularies(), x), "sentences"
            )
        ],
        (
            lambda: evaluation.translate(model(), *number_words.vocabularies(), ["one"]),
            "^tokens: expected several, such as a list, got 'one'$",
        ),
        *each_size(
            lambda beam_size: evaluation.translate(
                model(), *number_words.vocabularies(), [["one"]], beam_size=beam_size
            ),
            "beam_size",
        ),
    ],
    "evaluation.evaluate_number_words": [
        *each_several(
            lambda x: evaluation.evaluate_number_words(model(), *number_words.vocabularies(), x), "numbers"
        ),
        (
            lambda: evaluation.evaluate_number_words(model(), *number_words.vocabularies(), []),
            "^numbers: expected one or more, got none$",
        ),
        (
            lambda: evaluation.evaluate_number_words(model(), *number_words.vocabularies(), [-1]),
            "^number: expected 0 to 999,999, got -1$",
        ),
    ],
    "evaluation.evaluate_bleu": [
        *each_model(lambda x: evaluation.evaluate_bleu(x, *number_words.vocabularies(), [("a", "b")])),
        *each_several(lambda x: evaluation.evaluate_bleu(model(), *number_words.vocabularies(), x), "pairs"),
        (
            lambda: evaluation.evaluate_bleu(model(), None, None, [("a", "b")]),
            "^source: expected a Vocabulary or Subwords, got None$",
        ),
        (
            lambda: evaluation.evaluate_bleu(model(), *number_words.vocabularies(), [("a", "b"), ("c",)]),
            r"^pairs\[1\]: expected two texts, got \('c',\)$",
        ),
        (
            lambda: evaluation.evaluate_bleu(model(), *number_words.vocabularies(), [7]),
            r"^pairs\[0\]: expected two texts, got 7$",
        ),
        *each_size(
            lambda **sizes: evaluation.evaluate_bleu(
                model(), *number_words.vocabularies(), [("a", "b")], **sizes
            ),
            "beam_size",
            "batch_size",
        ),
    ],
    # costs
    "costs.sizes.BatchShape": [
        *each_size(costs.BatchShape, "sentences", "source", "target"),
        *each_size(lambda projected: costs.BatchShape(2, 3, 5, projected), "projected", least=0)[:4],
        (
            lambda: costs.BatchShape(2, 3, 5, 11),
            "^projected: expected at most sentences · target = 10, got 11$",
        ),
    ],
    "costs.sizes.check": each_shape(sizes.check),
    "costs.sizes.number_width": each_precision(sizes.number_width),
    "costs.counts.parameters": each_config(costs.parameters),
    "costs.counts.forward_operations": each_shape(costs.forward_operations),
    "costs.counts.training_operations": each_shape(costs.training_operations),
    "costs.counts.decoding_operations": each_shape(costs.decoding_operations),
    **{
        f"{call.__module__.partition('.')[2]}.{call.__name__}": [
            *each_shape(call),
            *each_precision(lambda precision, call=call: call(CONFIG, SHAPE, precision)),
        ]
        for call in (
            costs.training_memory,
            costs.encoder_layer_bytes,
            costs.decoder_layer_bytes,
            costs.cache_bytes,
            costs.decoding_bytes,
        )
    },
    "costs.cards.Card": [
        *each_precision(lambda precision: new_card(precision=precision)),
        *each_number(lambda rate: new_card(rate=rate), "rate"),
        *each_number(lambda bandwidth: new_card(bandwidth=bandwidth), "bandwidth"),
        *each_number(lambda memory: new_card(memory=memory), "memory"),
        *each_number(lambda price: new_card(price=price), "price")[:2],
        (lambda: new_card(rate=0), "^rate: expected a number above 0, got 0$"),
        (lambda: new_card(memory=0.0), "^memory: expected a number above 0, got 0.0$"),
        (lambda: new_card(name=7), "^name: expected a str, got 7$"),
        (lambda: new_card(source=None), "^source: expected a str, got None$"),
    ],
    **{
        f"costs.cards.{call.__name__}": [
            *each_shape(lambda config, shape, call=call: call(config, shape, CARD, utilisation=0.5)),
            *each_use(lambda card, share, call=call: call(CONFIG, SHAPE, card, utilisation=share)),
        ]
        for call in (costs.training_seconds, costs.decoding_seconds)
    },
    "costs.cards.dollars": [
        *each_number(lambda seconds: costs.dollars(seconds, new_card(price=1)), "seconds"),
        *each_size(lambda cards: costs.dollars(1.0, new_card(price=1), cards=cards), "cards"),
        (lambda: costs.dollars(1.0, "H100"), "^card: expected a Card, got 'H100'$"),
        (lambda: costs.dollars(1.0, CARD), "^card: expected one with a price an hour, got H100 without$"),
    ],
    "evaluation.error_kind": [
        *each_several(lambda x: evaluation.error_kind(x, ["ein"]), "got"),
        *each_several(lambda x: evaluation.error_kind(["ein"], x), "expected"),
    ],
}

# What can be given nothing bad, and why.
EXEMPT = {
    "encodings.PositionTable": "is built by its two kinds, which check their sizes",
    "layers.LayerCache": "a record; DecoderLayer looks at what is in it",
    "data.batches.Batch": "a record; the model looks at what is in it",
    "data.batches.Batch.to": "devices are torch's own business",
    "data.packing.Places": "a record; `check_places` looks at what is in it",
    "data.packing.PackedBatch": "a record; the model looks at what is in it",
    "data.packing.PackedBatch.to": "devices are torch's own business",
    "data.byte_pair.split_words": "called with a text that `encode` or `train` has checked",
    "data.byte_pair.merge": "called with ids and merges that BytePairEncoding has checked",
    "data.subwords.Subwords": "takes what `train` and `load` make; a foreign one: tests/test_subwords.py",
    "data.subwords.Subwords.load": "no path, no file: tests/test_subwords.py",
    "data.subwords.Subwords.save": "writes where `load` reads",
    "data.subwords.Subwords.encode": "needs a tokeniser: tests/test_subwords.py",
    "data.subwords.Subwords.decode": "needs a tokeniser: tests/test_subwords.py",
    "data.subwords.Subwords.encode_all": "needs a tokeniser: tests/test_subwords.py",
    "data.encoded.EncodedPairs.within": "needs a folder: tests/test_encoded.py",
    "data.number_words.vocabularies": "takes nothing",
    **dict.fromkeys(
        (
            *("costs.sizes.key_width", "costs.sizes.attention_matrices", "costs.sizes.feed_forward_matrices"),
            *("costs.sizes.matrices", "costs.sizes.decoding_matrices"),
        ),
        "called with a config that `check` has looked at",
    ),
    "costs.counts.Parameters": "a record of what `parameters` counts",
    "costs.counts.Operations": "a record of what `forward_operations` counts",
    "costs.memory.TrainingMemory": "a record of what `training_memory` predicts",
    "interruption.stop_signal": "takes nothing",
    "distributed.rank": "takes nothing",
    "distributed.wait": "takes nothing",
    "distributed.world_size": "takes nothing",
    "training_loss.BatchLoss.forward": "calls `batch_loss`, which has its rows",
    "training.Trainer.run": "takes a switch only",
    "training.Trainer.save": "takes nothing",
    "training.Trainer.restore": "takes nothing; what it reads: tests/test_training.py",
}

ROWS = [(name, call, complaint) for name, rows in BAD.items() for call, complaint in rows]


def filled_for_another_batch():
    kept = cache(length=0)
    multi_head_attention(floats(2, 3, 6), floats(2, 5, 6), cache=kept)
    multi_head_attention(floats(1, 3, 6), floats(1, 5, 6), cache=kept)


@pytest.mark.parametrize(("name", "call", "complaint"), ROWS, ids=[f"{n}-{c}" for n, _, c in ROWS])
def test_bad_input_is_named(name, call, complaint):
    with pytest.raises(ValueError, match=complaint) as refused:
        call()
    assert "\n" not in str(refused.value)
    assert ": expected " in str(refused.value)


def public_names() -> set[str]:
    """Functions, classes and public methods (and `forward`) of the canon."""
    names = set()
    for name, path in canon().items():
        node = parsed(path)[name.rpartition(".")[2]]
        names.add(name)
        if is_class(node):
            methods = {
                own: method for own, method in definitions(node.body).items() if not own.startswith("_")
            }
            properties = {own for own, method in methods.items() if is_property(method)}
            names |= {f"{name}.{own}" for own in methods.keys() - properties}
    return names


def is_property(node: ast.AST) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "property" for mark in node.decorator_list)


def test_every_public_name_has_a_row_or_a_reason():
    with_rows = {name for name, _, _ in ROWS}
    assert public_names() - with_rows - EXEMPT.keys() == set()
    assert with_rows - public_names() == set()
    assert EXEMPT.keys() - public_names() == set()
    assert with_rows & EXEMPT.keys() == set()


# ---- What looks odd, and works


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and torch.allclose(one, other)


ATTENTIONS = {
    "scaled_dot_product": lambda *given: dot_product.scaled_dot_product_attention(*given)[0],
    "fused": dot_product.fused_attention,
    "hard": lambda *given: dot_product.hard_attention(*given)[0],
    "tiled": by_hand.tiled_attention,
    "linear": lambda q, k, v, mask=None: linear.linear_attention(q, k, v),
}
MODULES = {
    "LayerNorm": norms.LayerNorm(6),
    "RMSNorm": norms.RMSNorm(6),
    "BatchNorm": norms.BatchNorm(6).eval(),
    "FeedForward": FeedForward(6, 7),
    "SwiGLU": SwiGLU(6, 7),
    "SinusoidalEncoding": SinusoidalEncoding(6, 5),
    "LearnedEncoding": LearnedEncoding(6, 5),
    "RotaryEncoding": lambda x: RotaryEncoding(6, 5)(x[:, None], torch.arange(x.size(1)))[:, 0],
    "MultiHeadAttention": attention.MultiHeadAttention(6, 3),
    "AddAndNorm": layers.AddAndNorm(CONFIG),
    "EncoderLayer": layers.EncoderLayer(CONFIG),
    "DecoderLayer": layers.DecoderLayer(CONFIG),
}


def applied(name: str, x: torch.Tensor) -> torch.Tensor:
    more = {"AddAndNorm": (nn.Identity(),), "DecoderLayer": (torch.ones(len(x), 3, 6),)}
    return MODULES[name](x, *more.get(name, ()))


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("shape", [(0, 3, 6), (2, 0, 6), (2, 1, 6), (1, 1, 6), (0, 0, 6)])
def test_modules_take_empty_and_single(name, shape):
    assert applied(name, torch.randn(shape)).shape == shape


@pytest.mark.parametrize("name", MODULES)
def test_modules_do_not_mind_strides(name):
    x, expanded = torch.randn(6, 3, 2).permute(2, 1, 0), torch.randn(1, 1, 6).expand(2, 3, 6)
    assert not x.is_contiguous()
    assert equal(applied(name, x), applied(name, x.contiguous()))
    assert equal(applied(name, expanded), applied(name, expanded.contiguous()))


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("batch", [(), (2,), (0,), (2, 0)])
@pytest.mark.parametrize(("queries", "keys"), [(3, 7), (0, 7), (3, 0), (1, 1)])
def test_attentions_take_empty_and_single(name, batch, queries, keys):
    q, k, v = torch.randn(*batch, queries, 1), torch.randn(*batch, keys, 1), torch.randn(*batch, keys, 5)
    output = ATTENTIONS[name](q, k, v)
    assert output.shape == (*batch, queries, 5)
    assert keys or not output.any()


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attentions_do_not_mind_strides(name):
    q, k, v = (torch.randn(5, length, 2).permute(2, 1, 0) for length in (3, 7, 7))
    mask = (torch.arange(7) > 2).expand(2, 3, 7)
    assert (q.is_contiguous(), mask.stride()) == (False, (0, 0, 1))
    plain = [x.contiguous() for x in (q, k, v, mask)]
    assert equal(ATTENTIONS[name](q, k, v, mask), ATTENTIONS[name](*plain))


def test_masks_of_nothing_and_of_int32():
    assert padding_mask(ids(0, 3), 0).shape == (0, 1, 1, 3)
    assert padding_mask(ids(2, 0), 0).shape == (2, 1, 1, 0)
    assert not padding_mask(ids(2, 3, dtype=torch.int32), 3).any()
    assert padding_mask(ids(2, 3), -100).all()
    assert padding_mask(ids(1, 1).expand(2, 3), 3).shape == (2, 1, 1, 3)
    assert causal_mask(0).shape == (1, 1, 0, 0)
    assert causal_mask(0, 3).shape == (1, 1, 0, 3)
    assert causal_mask(1, 1).all()
    assert segment_mask(ids(0, 3), ids(0, 5, dtype=torch.int32)).shape == (0, 1, 3, 5)
    assert combine() is None
    assert combine(causal_mask(0), padding_mask(ids(2, 0), 0)).shape == (2, 1, 0, 0)
    assert boolean(floats(0)).shape == (0,)
    assert additive(causal_mask(2).expand(3, 1, 2, 2), torch.float16).shape == (3, 1, 2, 2)


def test_smallest_sizes():
    assert sinusoidal(0, 1).shape == (0, 1)
    assert sinusoidal(3, 1).shape == (3, 1)
    assert shift_matrix(0, 2).equal(torch.eye(2))
    assert attention.MultiHeadAttention(1, 1)(floats(1, 1, 1)).shape == (1, 1, 1)
    assert FeedForward(1, 1)(floats(1)).shape == (1,)
    assert norms.LayerNorm(1)(floats(1)).shape == (1,)
    assert schedule.warmup_inverse_sqrt(0, 1, 1) == 1.0
    smallest = model(d_model=1, num_heads=1, d_ff=1, num_decoder_layers=1, max_length=1)
    assert smallest(ids(1, 1), ids(1, 1)).shape == (1, 1, 13)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0), (2, 1), (2, 5)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("position", ["sinusoidal", "rotary"])
def test_a_model_takes_empty_single_longest_and_int32(shape, dtype, position):
    one_head, src = model(position=position, num_heads=1), ids(*shape, dtype=dtype)
    assert one_head(src, ids(shape[0], 1, dtype=dtype)).shape == (shape[0], 1, 13)
    assert equal(one_head(src, src), one_head(src.long(), src.long()))
    assert len(greedy(one_head, src, max_length=2)) == shape[0]
    assert len(beam(one_head, src, max_length=2, beam_size=1)) == shape[0]


def test_a_model_does_not_mind_strides():
    own, src = model(), torch.arange(3, 9).reshape(3, 2).T
    assert equal(own(src, src), own(src.contiguous(), src.contiguous()))
    assert equal(own(src[:1].expand(2, 3), src), own(src[:1].repeat(2, 1), src))


def test_under_autocast_another_dtype_may_come():
    own, src = model(), ids(2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert own(src, src).dtype == torch.bfloat16


def test_the_loss_takes_nothing_padding_and_int32():
    for shape in [(0,), (2, 0), (0, 3)]:
        assert label_smoothed_loss(floats(*shape, 5), ids(*shape), pad_id=0) == (0, 0)
    logits, targets = torch.randn(2, 5, 3).mT, torch.tensor([[1, 2, 0], [4, 0, 0]])
    plain = label_smoothed_loss(logits.contiguous(), targets, pad_id=0)
    assert label_smoothed_loss(logits, targets.int(), pad_id=0) == plain
    assert label_smoothed_loss(logits, targets * 0, pad_id=0) == (0, 0)
    assert label_smoothed_loss(floats(5), torch.tensor(3), pad_id=None)[1] == 1
    # A single prediction without a batch, padding in the middle and at either end.
    for pad_id in (0, 2, 4):
        one, single = label_smoothed_loss(logits[0, 0], torch.tensor(3), pad_id=pad_id)
        assert (one, single) == label_smoothed_loss(logits[0, :1], torch.tensor([3]), pad_id=pad_id)


def test_an_offset_that_cannot_be_looked_at_is_taken_to_fit():
    """As on a GPU, where looking would make the CPU wait."""
    with torch.device("meta"):
        assert LearnedEncoding(6, 5)(floats(2, 5, 6), torch.tensor(0)).shape == (2, 5, 6)


def test_a_cache_takes_nothing_and_int32():
    empty = cache(batch=0)
    assert empty.append(floats(0, 3, 1, 2), floats(0, 3, 1, 2))[0].shape == (0, 3, 1, 2)
    assert cache().append(floats(2, 3, 0, 2), floats(2, 3, 0, 2))[0].shape == (2, 3, 0, 2)
    kept = cache()
    keys = kept.append(torch.randn(2, 1, 3, 2).transpose(1, 2), floats(2, 3, 1, 2))[0]
    kept.reorder(torch.tensor([1, 1], dtype=torch.int32))
    assert kept.keys[0, :, :1].equal(keys[1])


def test_data_takes_nothing_and_single():
    assert vocabulary.pad([], 0).shape == (0, 0)
    assert vocabulary.pad([[], []], 0).shape == (2, 0)
    assert vocabulary.pad([[], [3]], 0).tolist() == [[0], [3]]
    assert vocabulary.pad(ids(2, 1), 0).tolist() == [[3], [3]]
    assert vocabulary.Vocabulary([]).decode([]) == vocabulary.Vocabulary([]).encode([]) == []
    assert vocabulary.Vocabulary(["a"]).decode(torch.tensor([3, 2, 3])) == ["a"]
    assert batches.make_batch([([3], [])]).tgt_out.tolist() == [[2]]
    assert lengths.limit_lengths([], 1) == ([], [])
    assert lengths.limit_pairs([], 2) == ([], [])
    assert number_words.training_numbers(0, 0) == number_words.pairs([]) == []
    assert list(evaluation.in_chunks([], 1)) == []
    assert evaluation.translate(model(), *number_words.vocabularies(), []) == []
    assert split(batches.make_batch(PAIRS), 5)[1].src.tolist() == [[6, 0]]


def test_nothing_is_a_number_too():
    config = TrainingConfig(weight_decay=0, peak_learning_rate=0.0, clip_norm=0, smoothing=0)
    assert (config.weight_decay, config.learning_rate(1)) == (0, 0)
