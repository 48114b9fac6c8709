"""What holds for all inputs: sizes, lengths, masks and configurations are drawn by Hypothesis.

The profile in `conftest` sets how many are drawn, and that they are the same in every run.
"""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_close, assert_same_function
from hypothesis import assume, given, register_random
from hypothesis import strategies as st

from tests.models import sentences
from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.config import TransformerConfig
from transformer_lessons.decoding import Steps
from transformer_lessons.encodings import shift_matrix, sinusoidal
from transformer_lessons.fast import accelerate
from transformer_lessons.fast.kernels import fused_attention
from transformer_lessons.masks import causal_mask, combine
from transformer_lessons.model import Transformer
from transformer_lessons.oracles.measure import leaves, perturb
from transformer_lessons.variants import (
    linear_attention,
    modern,
    recurrent_linear_attention,
    rotary_attention,
    rotate,
    tiled_attention,
)

F64 = torch.float64
VOCAB, MAX_LENGTH = 19, 13


class TorchRandom:
    """torch's generator for Hypothesis, which seeds it before each example and in `random_module`."""

    seed = staticmethod(torch.manual_seed)
    getstate, setstate = staticmethod(torch.get_rng_state), staticmethod(torch.set_rng_state)


TORCH = TorchRandom()  # has a name, as Hypothesis keeps only a weak reference
register_random(TORCH)

# --- What is drawn

sizes = st.integers(1, 7)
near_a_chunk = st.sampled_from([1, 2, 7, 63, 64, 65, 127, 128, 129, 131])  # linear attention has chunks of 64


def masks(rows: int, columns: int):
    """Any mask at all, often with rows without any key."""
    row = st.one_of(st.just([False] * columns), st.lists(st.booleans(), min_size=columns, max_size=columns))
    return st.lists(row, min_size=rows, max_size=rows).map(torch.tensor)


@st.composite
def attentions(draw):
    """Query, key and value in float64, and a mask."""
    draw(st.random_module())
    queries, keys, d_k, d_v = (draw(sizes) for _ in range(4))
    batch = draw(st.sampled_from([(), (1,), (2,), (2, 3)]))
    shapes = (queries, 2 * d_k), (keys, 2 * d_k), (keys, d_v)
    return *(torch.randn(*batch, *shape, dtype=F64) for shape in shapes), draw(masks(queries, keys))


@st.composite
def models(draw):
    """Small models with every choice that a config offers: plain, accelerated or modern."""
    draw(st.random_module())
    heads = draw(st.sampled_from([2, 6]))
    choices = {
        "d_ff": st.integers(2, 11),
        "num_encoder_layers": st.integers(1, 2),
        "num_decoder_layers": st.integers(1, 2),
        "norm_first": st.booleans(),
        "activation": st.sampled_from(["relu", "gelu"]),
        "position": st.sampled_from(["sinusoidal", "learned"]),
        "tie_embeddings": st.booleans(),
    }
    fixed = {"d_model": 4 * heads, "num_heads": heads, "dropout": 0.0, "max_length": MAX_LENGTH}
    config = TransformerConfig(17, VOCAB, **fixed, **{name: draw(choice) for name, choice in choices.items()})
    made = draw(st.sampled_from([lambda model: model, accelerate, lambda model: modern(model, 2)]))
    return perturb(made(Transformer(config))).double()


# --- The forms of attention, called alike: ``attend(query, key, value, mask)``


FORMS = {
    "step by step": lambda *given, **options: scaled_dot_product_attention(*given, **options)[0],
    "fused": lambda *given, **options: fused_attention(*given, **options)[0],
    "in tiles": lambda *given, **options: tiled_attention(*given, **options, tile=3),
    "rotary": lambda *given, **options: rotary_attention(*given, **options)[0],
}


def each(*names: str):
    return pytest.mark.parametrize("attend", [FORMS[name] for name in names], ids=names)


# --- Later tokens, padding and the rest of the batch have no influence


@given(
    model=models(), pairs=st.lists(st.tuples(sizes, sizes), min_size=1, max_size=3), more=st.integers(0, 5)
)
def test_padding_batch_mates_and_later_tokens_change_nothing(model, pairs, more):
    sources, targets = zip(*pairs, strict=True)
    src, tgt = sentences(sources), sentences(targets, VOCAB)
    together = model(F.pad(src, (0, more)), F.pad(tgt, (0, more)))
    for number, (source, target) in enumerate(pairs):
        alone = model(src[number : number + 1, :source], tgt[number : number + 1, :target])
        assert_close(together[number, :target], alone[0])
    changed = tgt.clone()
    changed[:, -1] = (tgt[:, -1] + 1) % VOCAB
    assert torch.equal(model(src, changed)[:, :-1], model(src, tgt)[:, :-1])


@given(model=models(), source=sizes, rows=st.integers(1, 3), steps=sizes)
def test_logits_are_the_same_with_and_without_a_cache(model, source, rows, steps):
    src, tgt = sentences([source]).expand(rows, -1), torch.randint(3, VOCAB, (rows, steps))
    cached, kept = Steps(model, src), torch.randint(rows, (rows,))
    for t in range(steps):
        assert_close(cached.next_logits(tgt[:, t : t + 1]), model(src, tgt[:, : t + 1])[:, -1])
        cached.keep(kept)  # as beam search keeps some hypotheses
        tgt = tgt[kept]


# --- Order is visible through positions alone


@given(t=st.integers(0, 50), s=st.integers(0, 50), d_k=sizes.map(lambda n: 2 * n))
def test_sinusoids_and_rotations_see_the_distance(t, s, d_k):
    table = sinusoidal(101, d_k, dtype=F64)
    assert_close(table[t + s], shift_matrix(s, d_k, dtype=F64) @ table[t])
    # (R_t q)ᵀ (R_s k) = qᵀ R_{s−t} k, and R_t is the shift by −t.
    q, k = torch.randn(2, 1, d_k, dtype=F64)
    score = rotate(q, torch.tensor([t])) @ rotate(k, torch.tensor([s])).mT
    assert_close(score, q @ shift_matrix(t - s, d_k, dtype=F64) @ k.mT)


# --- Forms that are equal


def torchs(q, k, v, mask):
    """PyTorch's kernel on the rows that see a key; zeros for the others."""
    blind = ~mask.any(-1, keepdim=True)
    return F.scaled_dot_product_attention(q, k, v, mask | blind).masked_fill(blind, 0.0)


@each("step by step", "fused", "in tiles")
@given(inputs=attentions(), kind=st.sampled_from(["a mask", "causal", "both"]))
def test_every_form_equals_torchs_under_any_mask(attend, inputs, kind):
    *qkv, mask = inputs
    is_causal = kind != "a mask" and len(mask) <= mask.size(1)
    given = None if kind == "causal" else mask
    visible = combine(given, causal_mask(*mask.shape)[0, 0] if is_causal else torch.ones_like(mask))
    ours = partial(attend, mask=given, is_causal=is_causal)
    assert_same_function(ours, partial(torchs, mask=visible), *qkv)


@given(length=near_a_chunk, hidden=st.sampled_from([0.0, 0.5, 1.0]), data=st.data())
def test_linear_attention_is_its_recurrence_cut_anywhere(length, hidden, data):
    cut = data.draw(st.integers(0, length), label="cut")
    q, k, v = torch.randn(3, 2, length, 5, dtype=F64)
    mask = torch.rand(2, length) >= hidden
    options = {"feature_map": torch.exp}
    whole = linear_attention(q, k, v, is_causal=True, key_mask=mask, **options)
    outputs, state = [], None
    for part in (slice(cut), slice(cut, None)):
        inputs = (x[:, part] for x in (q, k, v))
        output, state = recurrent_linear_attention(*inputs, key_mask=mask[:, part], state=state, **options)
        outputs.append(output)
    assert_close(torch.cat(outputs, dim=1), whole)


@each(*FORMS)
@given(inputs=attentions(), dtype=st.sampled_from([F64, torch.float32, torch.float16, torch.bfloat16]))
def test_a_query_without_any_key_gives_zeros_and_finite_gradients(attend, inputs, dtype):
    *qkv, mask = inputs
    mask[-1] = False
    qkv = leaves(*(x.to(dtype) for x in qkv))
    assume(attend is not FORMS["rotary"] or len(mask) <= mask.size(1))
    output = attend(*qkv, mask)
    output.backward(torch.randn_like(output))
    assert (output[..., ~mask.any(-1), :] == 0).all()
    assert all(x.isfinite().all() for x in (output, *(x.grad for x in qkv)))
