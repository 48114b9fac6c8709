"""What holds for all inputs: sizes, lengths, masks and configurations are drawn by Hypothesis.

How many are drawn, and that they are the same at every run, says the profile in `conftest`.
"""

import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from compare import DTYPES, assert_same_function, leaves, perturb
from conftest import assert_close
from hypothesis import assume, given
from hypothesis import strategies as st

from transformer_lessons.attention import (
    KeyValueCache,
    MultiHeadAttention,
    attention_backward,
    fused_attention,
    hard_attention,
    linear_attention,
    recurrent_linear_attention,
    scaled_dot_product_attention,
    tiled_attention,
)
from transformer_lessons.decoding import beam, greedy
from transformer_lessons.embeddings import TransformerEmbedding
from transformer_lessons.encodings import (
    LearnedEncoding,
    RotaryEncoding,
    SinusoidalEncoding,
    shift_matrix,
    sinusoidal,
)
from transformer_lessons.layers import EncoderLayer
from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.masks import additive, causal_mask, padding_mask, segment_mask
from transformer_lessons.model import Transformer, TransformerConfig

SRC_VOCAB, TGT_VOCAB, MAX_LENGTH = 17, 19, 13
ALL_DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
DTYPE = pytest.mark.parametrize("dtype", DTYPES)


def for_all(**drawn):
    """`given`, with torch's random numbers drawn too: a failure is shrunk and repeated with the same ones."""

    def decorate(test):
        def seeded(seed, **arguments):
            torch.manual_seed(seed)
            test(**arguments)

        seeded.__name__, seeded.__doc__ = test.__name__, test.__doc__
        seed = inspect.Parameter("seed", inspect.Parameter.KEYWORD_ONLY)
        others = [p.replace(kind=p.KEYWORD_ONLY) for p in inspect.signature(test).parameters.values()]
        seeded.__signature__ = inspect.Signature([*others, seed])
        return given(seed=st.integers(0, 999), **drawn)(seeded)

    return decorate


# --- What is drawn

sizes = st.integers(1, 7)
lengths = st.lists(sizes, min_size=1, max_size=3)


def masks(rows: int, columns: int):
    """Any mask at all: rows without any key are as likely as full ones."""
    row = st.one_of(st.just([False] * columns), st.lists(st.booleans(), min_size=columns, max_size=columns))
    return st.lists(row, min_size=rows, max_size=rows).map(lambda rows: torch.tensor(rows))


@st.composite
def attentions(draw, min_queries: int = 1, is_square: bool = False):
    """Query, key and value in float64, and a mask."""
    queries, d_k, d_v = draw(st.integers(min_queries, 7)), draw(sizes), draw(sizes)
    keys = queries if is_square else draw(sizes)
    batch = draw(st.sampled_from([(), (1,), (2,), (2, 3)]))
    q, k, v = (torch.randn(*batch, *size).double() for size in ((queries, d_k), (keys, d_k), (keys, d_v)))
    return q, k, v, draw(masks(queries, keys))


@st.composite
def heads(draw, is_rotary: bool = False):
    """The sizes of a `MultiHeadAttention`."""
    number = draw(st.sampled_from([1, 2, 3, 6]))
    groups = draw(st.sampled_from([None, *(n for n in (1, 2, 3, 6) if number % n == 0)]))
    d_k = draw(st.sampled_from([4, 6] if is_rotary else [4, 5, 7]))
    return {"d_model": number * d_k, "num_heads": number, "num_key_value_heads": groups}


@st.composite
def configs(draw, positions=("sinusoidal", "learned", "rotary")):
    """Every choice that a `TransformerConfig` offers, small."""
    position = draw(st.sampled_from(positions))
    choices = {
        "d_ff": st.integers(2, 11),
        "num_encoder_layers": st.integers(1, 2),
        "num_decoder_layers": st.integers(1, 2),
        "norm_first": st.booleans(),
        "norm": st.sampled_from(["layer", "rms"]),
        "activation": st.sampled_from(["relu", "gelu", "swiglu"]),
        "tie_embeddings": st.booleans(),
    }
    return TransformerConfig(
        **{"source_vocab_size": SRC_VOCAB, "target_vocab_size": TGT_VOCAB},
        **{"position": position, "dropout": 0.0, "max_length": MAX_LENGTH},
        **draw(heads(is_rotary=position == "rotary")),
        **{name: draw(choice) for name, choice in choices.items()},
    )


def new_model(config: TransformerConfig, dtype=torch.float64) -> Transformer:
    return perturb(Transformer(config)).to(dtype)


def sentences(vocab: int, lengths: list[int]) -> torch.Tensor:
    """Random ids, padded on the right with 0."""
    ids = torch.randint(3, vocab, (len(lengths), max(lengths)))
    return ids.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], 0)


def new_attention(sizes: dict, dtype=torch.float64, **options) -> MultiHeadAttention:
    return perturb(MultiHeadAttention(**sizes, **options)).to(dtype)


# --- The forms of attention, called alike: ``attend(query, key, value, mask)``

FORMS = {
    "step by step": lambda *args, **options: scaled_dot_product_attention(*args, **options)[0],
    "fused": fused_attention,
    "in tiles": lambda *args, **options: tiled_attention(*args, **options, tile=3),
    "hard": lambda *args, **options: hard_attention(*args, **options)[0],
}
SOFT = {name: form for name, form in FORMS.items() if name != "hard"}


def of_keys(attend):
    """Linear attention hides keys from all queries alike."""
    return lambda q, k, v, visible: attend(q, k, v, key_mask=visible)


LINEAR = {
    "linear": of_keys(linear_attention),
    "linear, causal": of_keys(lambda *args, **options: linear_attention(*args, **options, is_causal=True)),
    "recurrent": of_keys(lambda *args, **options: recurrent_linear_attention(*args, **options)[0]),
}
CAUSAL = {
    **{name: lambda q, k, v, form=form: form(q, k, v, is_causal=True) for name, form in SOFT.items()},
    "hard": lambda q, k, v: hard_attention(q, k, v, causal_mask(q.size(-2), k.size(-2))[0, 0])[0],
    "linear": lambda q, k, v: linear_attention(q, k, v, is_causal=True),
    "recurrent": lambda q, k, v: recurrent_linear_attention(q, k, v)[0],
}


def each(forms: dict):
    return pytest.mark.parametrize("attend", forms.values(), ids=forms.keys())


# --- Later tokens never change earlier outputs, bit for bit

near_a_chunk = st.sampled_from([1, 2, 7, 63, 64, 65, 127, 128, 129, 131])  # linear attention has chunks of 64


@DTYPE
@each(CAUSAL)
@for_all(queries=near_a_chunk, past=st.sampled_from([0, 0, 1, 64]), data=st.data())
def test_later_keys_and_values_never_change_earlier_outputs(attend, dtype, queries, past, data):
    past = 0 if attend is CAUSAL["recurrent"] else past
    kept = data.draw(st.integers(0, queries), label="kept")
    q, k, v = (torch.randn(2, length, 5, dtype=dtype) for length in (queries, past + queries, past + queries))
    before = attend(q, k, v)
    for x, first in ((q, kept), (k, past + kept), (v, past + kept)):
        x[:, first:] = 100 * torch.randn_like(x[:, first:])
    after = attend(q, k, v)
    assert torch.equal(before[:, :kept], after[:, :kept])
    assert kept == queries or not torch.equal(before, after)


@DTYPE
@for_all(config=configs(), sources=lengths, length=st.integers(2, MAX_LENGTH), data=st.data())
def test_later_tokens_never_change_earlier_logits(dtype, config, sources, length, data):
    model, kept = new_model(config, dtype), data.draw(st.integers(1, length - 1), label="kept")
    src, tgt = sentences(SRC_VOCAB, sources), sentences(TGT_VOCAB, [length] * len(sources))
    changed = tgt.clone()
    changed[:, kept:] = (tgt[:, kept:] + 1) % TGT_VOCAB
    before, after = model(src, tgt), model(src, changed)
    assert torch.equal(before[:, :kept], after[:, :kept])
    assert not torch.equal(before, after)


# --- Padding and batch-mates change nothing


def as_alone(dtype) -> float:
    return {torch.float64: 1e-12, torch.float32: 1e-5}[dtype]


@DTYPE
@for_all(
    config=configs(), pairs=st.lists(st.tuples(sizes, sizes), min_size=1, max_size=3), more=st.integers(0, 5)
)
def test_padding_and_batch_mates_change_nothing(dtype, config, pairs, more):
    model = new_model(config, dtype)
    src, tgt = (sentences(*of) for of in zip((SRC_VOCAB, TGT_VOCAB), zip(*pairs, strict=True), strict=True))
    together = model(F.pad(src, (0, more)), F.pad(tgt, (0, more)))
    for number, (source, target) in enumerate(pairs):
        alone = model(src[number : number + 1, :source], tgt[number : number + 1, :target])
        assert_close(together[number, :target], alone[0], tolerance=as_alone(dtype))


@DTYPE
@each({**FORMS, **LINEAR})
@for_all(real=sizes, padding=st.integers(0, 70))
def test_hidden_keys_change_nothing_whatever_they_hold(attend, dtype, real, padding):
    q, k, v = (torch.randn(2, length, 5, dtype=dtype) for length in (real, real + padding, real + padding))
    k[:, real:], v[:, real:] = 1000.0, 1000.0
    q = F.pad(q, (0, 0, 0, padding))  # as many queries as keys, for the recurrent form
    visible = torch.arange(real + padding) < real
    alone = attend(q[:, :real], k[:, :real], v[:, :real], visible[:real])
    assert_close(attend(q, k, v, visible)[:, :real], alone, tolerance=as_alone(dtype))


# --- Order is visible through positions alone


def shuffled(length: int):
    """An order of `length` things that is not the given one."""
    return st.permutations(range(length)).filter(lambda order: order != sorted(order))


@for_all(sizes=heads(), order=st.integers(2, 7).flatmap(shuffled))
def test_self_attention_follows_a_permutation(sizes, order):
    attention, x = new_attention(sizes), torch.randn(2, len(order), sizes["d_model"]).double()
    mask = torch.rand(2, 1, 1, len(order)) < 0.7
    assert_close(attention(x[:, order], mask=mask[..., order]), attention(x, mask=mask)[:, order])


@for_all(sizes=heads(), queries=sizes, order=st.integers(2, 7).flatmap(shuffled))
def test_cross_attention_does_not_see_the_order_of_the_keys(sizes, queries, order):
    attention = new_attention(sizes)
    x, memory = (torch.randn(2, length, sizes["d_model"]).double() for length in (queries, len(order)))
    mask = torch.rand(2, 1, 1, len(order)) < 0.7
    assert_close(attention(x, memory[:, order], mask=mask[..., order]), attention(x, memory, mask=mask))


@for_all(config=configs(positions=("sinusoidal", "learned")), order=st.integers(2, 7).flatmap(shuffled))
def test_an_encoder_layer_follows_a_permutation_unless_positions_are_added(config, order):
    layer = perturb(EncoderLayer(config)).double()
    ids, mask = torch.randint(0, 17, (2, len(order))), torch.rand(2, 1, 1, len(order)) < 0.7
    assume((ids[:, order] != ids).any())
    positions = {"sinusoidal": SinusoidalEncoding, "learned": LearnedEncoding}[config.position]
    for position in (None, positions(config.d_model, MAX_LENGTH)):
        embed = perturb(TransformerEmbedding(17, config.d_model, position=position)).double()
        moved = layer(embed(ids[:, order]), mask[..., order])
        follows = torch.allclose(moved, layer(embed(ids), mask)[:, order], rtol=0, atol=1e-10)
        assert follows == (position is None)


@for_all(config=configs(positions=("rotary",)), order=st.integers(2, 7).flatmap(shuffled))
def test_rotary_positions_end_the_symmetry_too(config, order):
    layer = perturb(EncoderLayer(config)).double()
    x = torch.randn(2, len(order), config.d_model).double()
    distances = [b - a for a in order for b in order]
    assume(distances != [b - a for a in range(len(order)) for b in range(len(order))])
    difference = (layer(x[:, order]) - layer(x)[:, order]).abs().max()
    assert difference > 1e-9
    layer.rotate = None
    assert_close(layer(x[:, order]), layer(x)[:, order])


# --- Linear attention: one function in three forms


def feature_maps():
    """Positive; the last makes another number of features than d_k."""
    return st.sampled_from(
        [lambda x: F.elu(x) + 1, F.softplus, lambda x: torch.cat([x.exp(), (-x).exp()], -1)]
    )


def quadratic(q, k, v, feature_map, visible):
    """The definition: similarities of all pairs, each row divided by its sum."""
    similarities = (feature_map(q) @ feature_map(k).mT) * visible
    total = similarities.sum(-1, keepdim=True)
    return similarities @ v / torch.where(total == 0, 1.0, total)


@DTYPE
@for_all(
    queries=near_a_chunk,
    past=st.integers(0, 70),
    is_causal=st.booleans(),
    feature_map=feature_maps(),
    hidden=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_linear_attention_equals_its_quadratic_form(dtype, queries, past, is_causal, feature_map, hidden):
    q, k, v = (torch.randn(2, n, 5, dtype=dtype) for n in (queries, past + queries, past + queries))
    key_mask = torch.rand(2, past + queries) >= hidden
    visible = key_mask[:, None]
    if is_causal:
        visible = visible & causal_mask(queries, past + queries)[0]
    assert_same_function(
        lambda q, k, v: linear_attention(
            q, k, v, feature_map=feature_map, is_causal=is_causal, key_mask=key_mask
        ),
        lambda q, k, v: quadratic(q, k, v, feature_map, visible),
        *(q, k, v),
    )


@DTYPE
@for_all(length=near_a_chunk, feature_map=feature_maps(), data=st.data())
def test_the_recurrence_equals_the_sum_at_any_split(dtype, length, feature_map, data):
    borders = sorted(data.draw(st.lists(st.integers(0, length), max_size=3), label="borders"))
    pieces = [b - a for a, b in zip([0, *borders], [*borders, length], strict=True)]
    key_mask = torch.rand(2, length) < 0.7

    def recurrent(*inputs):
        outputs, state = [], None
        for q, k, v, mask in zip(*(x.split(pieces, dim=1) for x in (*inputs, key_mask)), strict=True):
            options = {"feature_map": feature_map, "key_mask": mask, "state": state}
            output, state = recurrent_linear_attention(q, k, v, **options)
            outputs.append(output)
        return torch.cat(outputs, dim=1)

    assert_same_function(
        recurrent,
        lambda *inputs: linear_attention(*inputs, feature_map=feature_map, is_causal=True, key_mask=key_mask),
        *(torch.randn(2, length, 5, dtype=dtype) for _ in range(3)),
    )


# --- Packed equals separate


def outputs_and_gradients(attention, output, *inputs):
    """The output, and the gradients of its cosine (any function would do) by inputs and parameters."""
    by = [*inputs, *attention.parameters()]
    return [output, *torch.autograd.grad(output.cos().sum(), by)]


def assert_all_close(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        assert_close(a, b)


@for_all(
    sizes=heads(is_rotary=True),
    parts=st.lists(sizes, min_size=1, max_size=4),
    is_causal=st.booleans(),
    is_rotary=st.booleans(),
)
def test_packed_sentences_equal_separate_ones(sizes, parts, is_causal, is_rotary):
    attention = new_attention(sizes)
    rotate = RotaryEncoding(attention.d_k, sum(parts)).double() if is_rotary else None
    options = {"is_causal": is_causal, "rotate": rotate}
    (x,) = leaves(torch.randn(2, sum(parts), sizes["d_model"]).double())
    # Names of the segments: any numbers, in any order.
    segments = (torch.randperm(99)[: len(parts)]).repeat_interleave(torch.tensor(parts)).expand(2, -1)
    packed = attention(x, segment_ids=segments, **options)
    separate = torch.cat([attention(part, **options) for part in x.split(parts, dim=1)], dim=1)
    assert_all_close(
        outputs_and_gradients(attention, packed, x), outputs_and_gradients(attention, separate, x)
    )


@for_all(sizes=heads(), parts=st.lists(st.tuples(sizes, sizes), min_size=1, max_size=4))
def test_packed_pairs_of_sentences_equal_separate_ones(sizes, parts):
    attention = new_attention(sizes)
    of_queries, of_keys = (list(lengths) for lengths in zip(*parts, strict=True))
    x, memory = leaves(*(torch.randn(2, sum(n), sizes["d_model"]).double() for n in (of_queries, of_keys)))
    segments = tuple(
        torch.arange(len(parts)).repeat_interleave(torch.tensor(n)).expand(2, -1)
        for n in (of_queries, of_keys)
    )
    packed = attention(x, memory, segment_ids=segments)
    pairs = zip(x.split(of_queries, dim=1), memory.split(of_keys, dim=1), strict=True)
    separate = torch.cat([attention(query, key) for query, key in pairs], dim=1)
    assert_all_close(
        outputs_and_gradients(attention, packed, x, memory),
        outputs_and_gradients(attention, separate, x, memory),
    )


@for_all(parts=st.lists(sizes, min_size=1, max_size=4), others=st.lists(sizes, min_size=1, max_size=4))
def test_a_segment_mask_is_a_block_for_each_segment(parts, others):
    number = min(len(parts), len(others))
    rows, columns = (
        torch.arange(number).repeat_interleave(torch.tensor(n[:number]))[None] for n in (parts, others)
    )
    blocks = torch.block_diag(*(torch.ones(sizes) for sizes in zip(parts, others, strict=False)))
    assert torch.equal(segment_mask(rows, columns)[0, 0], blocks == 1)


# --- Cached equals uncached


@for_all(
    sizes=heads(is_rotary=True),
    parts=st.lists(sizes, min_size=1, max_size=4),
    room=st.integers(0, 3),
    is_rotary=st.booleans(),
)
def test_attention_in_pieces_with_a_cache_equals_the_whole(sizes, parts, room, is_rotary):
    attention = new_attention(sizes).requires_grad_(False)
    rotate = RotaryEncoding(attention.d_k, sum(parts)).double() if is_rotary else None
    x = torch.randn(2, sum(parts), sizes["d_model"]).double()
    groups = attention.num_key_value_heads
    cache = KeyValueCache(2, sum(parts) + room, groups, attention.d_k, dtype=torch.float64)
    pieces = [attention(part, cache=cache, rotate=rotate) for part in x.split(parts, dim=1)]
    assert_close(torch.cat(pieces, dim=1), attention(x, is_causal=True, rotate=rotate))


@for_all(config=configs(), sources=lengths, parts=st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_decoding_in_pieces_equals_the_whole(config, sources, parts):
    model, src = new_model(config).requires_grad_(False), sentences(SRC_VOCAB, sources)
    tgt = sentences(TGT_VOCAB, [sum(parts)] * len(sources))
    memory, mask, caches = model.encode(src), padding_mask(src, 0), model.new_caches(len(src), MAX_LENGTH)
    pieces = [model.decode(piece, memory, mask, caches) for piece in tgt.split(parts, dim=1)]
    assert_close(torch.cat(pieces, dim=1), model.hidden(src, tgt))


@for_all(config=configs(), sources=lengths, max_length=st.integers(1, MAX_LENGTH))
def test_greedy_with_and_without_a_cache_say_the_same(config, sources, max_length):
    model, src = new_model(config), sentences(SRC_VOCAB, sources)
    cached, plain = (greedy(model, src, max_length=max_length, use_cache=use) for use in (True, False))
    assert torch.equal(cached, plain)


@for_all(
    config=configs(),
    sources=lengths,
    max_length=st.integers(1, MAX_LENGTH),
    beams=st.integers(1, 5),
    penalty=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_beam_with_and_without_a_cache_say_the_same(config, sources, max_length, beams, penalty):
    model, src = new_model(config), sentences(SRC_VOCAB, sources)
    options = {"beam_size": beams, "length_penalty": penalty, "max_length": max_length}
    cached, plain = (beam(model, src, **options, use_cache=use) for use in (True, False))
    assert torch.equal(cached, plain)
    assert beams > 1 or torch.equal(cached, greedy(model, src, max_length=max_length))


# --- Positions

shifts = st.one_of(st.integers(-20, 20), st.integers(-(10**6), 10**6))
even_widths = st.integers(1, 16).map(lambda pairs: 2 * pairs)


def encoding(t: int, d_model: int) -> torch.Tensor:
    """PE(t) by the formula of §3.5, for negative t too."""
    angles = [t / 10_000 ** (2 * k / d_model) for k in range(d_model // 2)]
    return torch.tensor([f(angle) for angle in angles for f in (math.sin, math.cos)], dtype=torch.float64)


def shift(k: int, d_model: int) -> torch.Tensor:
    return shift_matrix(k, d_model, dtype=torch.float64)


def of_angles(*positions: int) -> float:
    """An angle of a million radians has lost six digits."""
    return 1e-12 + 1e-15 * sum(map(abs, positions))


@for_all(t=shifts, k=shifts, d_model=even_widths)
def test_a_shift_is_one_matrix_for_all_positions(t, k, d_model):
    moved = shift(k, d_model) @ encoding(t, d_model)
    assert_close(moved, encoding(t + k, d_model), tolerance=of_angles(t, k))


@for_all(length=st.integers(1, 40), k=st.integers(-40, 40), d_model=even_widths)
def test_the_table_shifted_is_the_table(length, k, d_model):
    table = sinusoidal(length, d_model, dtype=torch.float64)
    rows = [t for t in range(length) if 0 <= t + k < length]
    assert_close((table @ shift(k, d_model).T)[rows], table[[t + k for t in rows]])


@for_all(j=shifts, k=shifts, d_model=even_widths)
def test_shifts_are_a_group_of_rotations(j, k, d_model):
    one = torch.eye(d_model, dtype=torch.float64)
    assert_close(shift(j, d_model) @ shift(k, d_model), shift(j + k, d_model), tolerance=of_angles(j, k))
    assert_close(shift(k, d_model) @ shift(k, d_model).T, one)
    assert torch.equal(shift(-k, d_model), shift(k, d_model).T)
    assert torch.equal(shift(0, d_model), one)
    assert torch.linalg.det(shift(k, d_model)).item() == pytest.approx(1)  # a rotation, no reflection


@for_all(k=shifts, d_model=even_widths.map(lambda width: width - 1))
def test_an_odd_width_has_no_shift(k, d_model):
    with pytest.raises(ValueError, match=f"d_model: expected an even number, 2 or more, got {d_model}"):
        shift_matrix(k, d_model)


@DTYPE
@for_all(i=st.integers(0, 50), j=st.integers(0, 50), s=st.integers(0, 999), d_k=even_widths)
def test_rotary_scores_depend_on_the_distance_only(dtype, i, j, s, d_k):
    rotate = RotaryEncoding(d_k, 1050).to(dtype)
    q, k = torch.randn(2, 1, 3, 1, d_k, dtype=dtype)

    def score(i, j):
        return (rotate(q, torch.tensor([i])) * rotate(k, torch.tensor([j]))).sum(-1)

    assert_close(score(i + s, j + s), score(i, j))
    assert_close(rotate(q, torch.tensor([i])).norm(dim=-1), q.norm(dim=-1))
    assert_close(rotate(q, torch.tensor([0])), q)


@for_all(t=st.integers(0, 50), s=st.integers(0, 50), d_k=even_widths)
def test_a_rotary_score_is_that_of_the_shift_matrix(t, s, d_k):
    # (R_t q)ᵀ (R_s k) = qᵀ R_{s−t} k. The shift turns (sine, cosine), which is (entry 2i + 1, entry 2i) here.
    rotate = RotaryEncoding(d_k, 51).double()
    q, k = torch.randn(2, d_k).double()
    turned_q, turned_k = (
        rotate(x.expand(1, 1, 1, d_k), torch.tensor([at])).flatten() for x, at in ((q, t), (k, s))
    )
    assert_close(turned_q @ turned_k, q @ shift(t - s, d_k) @ k)


# --- Parameters


@for_all(config=configs())
def test_number_of_parameters(config):
    d, f, h = config.d_model, config.d_ff, config.num_heads
    shared = d // h * (config.num_key_value_heads or h)  # width of all keys together
    attention = 2 * (d * d + d) + 2 * (d * shared + shared)  # W_q and W_o, W_k and W_v
    feed_forward = 3 * d * f if config.activation == "swiglu" else 2 * d * f + f + d
    norm = d if config.norm == "rms" else 2 * d
    layers = config.num_encoder_layers * (attention + feed_forward + 2 * norm)
    layers += config.num_decoder_layers * (2 * attention + feed_forward + 3 * norm)
    layers += 2 * norm * config.norm_first
    tables = (SRC_VOCAB + TGT_VOCAB * (1 if config.tie_embeddings else 2)) * d
    tables += 2 * MAX_LENGTH * d * (config.position == "learned")
    assert sum(parameter.numel() for parameter in Transformer(config).parameters()) == layers + tables


# --- Forms of attention that are equal


def torchs(q, k, v, mask):
    """PyTorch's kernel on the rows that see a key; zeros for the others."""
    blind = ~mask.any(-1, keepdim=True)
    return F.scaled_dot_product_attention(q, k, v, mask | blind).masked_fill(blind, 0.0)


@DTYPE
@for_all(inputs=attentions(), tile=st.integers(1, 9))
def test_tiles_of_any_size_equal_the_whole(dtype, inputs, tile):
    *qkv, mask = inputs
    qkv = [x.to(dtype) for x in qkv]
    assert_same_function(
        lambda *qkv: tiled_attention(*qkv, mask, tile=tile),
        lambda *qkv: scaled_dot_product_attention(*qkv, mask)[0],
        *qkv,
    )


@each(SOFT)
@for_all(inputs=attentions(is_square=True), is_causal=st.booleans())
def test_every_soft_form_equals_torchs_under_any_mask(attend, inputs, is_causal):
    *qkv, mask = inputs
    visible = mask & causal_mask(*mask.shape)[0, 0] if is_causal else mask
    assert_same_function(
        lambda *qkv: attend(*qkv, mask, is_causal=is_causal), lambda *qkv: torchs(*qkv, visible), *qkv
    )


@DTYPE
@for_all(inputs=attentions(is_square=True), is_causal=st.booleans(), is_masked=st.booleans())
def test_the_backward_pass_by_hand_equals_autograd(dtype, inputs, is_causal, is_masked):
    *qkv, mask = inputs
    qkv, options = leaves(*(x.to(dtype) for x in qkv)), {"is_causal": is_causal}
    options["mask"] = mask if is_masked else None
    output = scaled_dot_product_attention(*qkv, **options)[0]
    cotangent = torch.randn_like(output)
    expected = torch.autograd.grad(output, qkv, cotangent)
    assert_all_close(attention_backward(*qkv, cotangent, **options), expected)


@each(FORMS)
@for_all(inputs=attentions(), hidden=st.sampled_from([-torch.inf, -1e9, -1e4]))
def test_an_additive_mask_equals_the_boolean_one(attend, inputs, hidden):
    *qkv, mask = inputs
    numbers = additive(mask, torch.float64).clamp(min=hidden)
    assert torch.equal(attend(*qkv, numbers), attend(*qkv, mask))


@each(FORMS)
@for_all(inputs=attentions(), shape=st.sampled_from(["queries", "keys", "all"]))
def test_a_mask_of_fewer_axes_means_the_same_for_all_others(attend, inputs, shape):
    *qkv, mask = inputs
    mask = {"queries": mask[:, :1], "keys": mask[0], "all": mask[0, 0]}[shape]
    full = mask.expand(*qkv[0].shape[:-1], qkv[1].size(-2))
    assert torch.equal(attend(*qkv, mask), attend(*qkv, full))


@for_all(inputs=attentions(), scale=st.floats(1e-3, 1e3))
def test_hard_attention_does_not_see_the_length_of_a_query(inputs, scale):
    query, key, value, mask = inputs
    assert_all_close(hard_attention(scale * query, key, value, mask), hard_attention(*inputs))


@for_all(inputs=attentions())
def test_hard_attention_is_a_look_up(inputs):
    query, key, value, mask = inputs
    scores = (query @ key.mT).masked_fill(~mask, -torch.inf)
    best = scores.argmax(-1, keepdim=True)
    expected = value.gather(-2, best.expand(*best.shape[:-1], value.size(-1)))
    output, weights = hard_attention(*inputs)
    sees = mask.any(-1, keepdim=True)
    assert torch.equal(output, expected.masked_fill(~sees, 0.0))
    assert torch.equal(weights.argmax(-1, keepdim=True)[sees.expand_as(best)], best[sees.expand_as(best)])
    assert torch.equal(weights.sum(-1, keepdim=True), sees.expand_as(best).double())


@for_all(inputs=attentions(), sharpness=st.just(1e6))
def test_hard_attention_is_the_limit_of_the_soft_one(inputs, sharpness):
    query, key, value, mask = inputs
    scores = (query @ key.mT).masked_fill(~mask, -torch.inf)
    best, *others = scores.sort(-1, descending=True)[0].unbind(-1)
    assume(not others or (best - others[0]).nan_to_num(1.0).min() > 1e-4)
    soft = scaled_dot_product_attention(sharpness * query, key, value, mask)[0]
    assert_close(soft, hard_attention(*inputs)[0])


@each(SOFT)
@for_all(inputs=attentions(), size=st.floats(-100, 100))
def test_a_shift_of_all_keys_changes_nothing(attend, inputs, size):
    # It moves all scores of a query alike, which the softmax does not notice.
    query, key, value, mask = inputs
    moved = key + size * torch.randn(key.size(-1)).double()
    assert_close(attend(query, moved, value, mask), attend(*inputs))


@each(SOFT)
@for_all(inputs=attentions())
def test_outputs_lie_between_the_values(attend, inputs):
    query, key, value, _ = inputs
    output = attend(query, key, value)
    low, high = value.amin(-2, keepdim=True), value.amax(-2, keepdim=True)
    assert (output >= low - 1e-12).all()
    assert (output <= high + 1e-12).all()


# --- A query without any key: zeros, and finite gradients, everywhere


def assert_finite(*tensors):
    assert all(tensor is None or tensor.isfinite().all() for tensor in tensors)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@each(FORMS)
@for_all(inputs=attentions())
def test_a_query_without_any_key_gives_zeros_and_finite_gradients(attend, dtype, inputs):
    *qkv, mask = inputs
    mask[-1] = False
    qkv = leaves(*(x.to(dtype) for x in qkv))
    output = attend(*qkv, mask)
    output.backward(torch.randn_like(output))
    blind = ~mask.any(-1)
    assert (output[..., blind, :] == 0).all()
    assert_finite(output, *(x.grad for x in qkv))
    assert qkv[0].grad is None or (qkv[0].grad[..., blind, :] == 0).all()


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@each(LINEAR)
@for_all(length=near_a_chunk)
def test_linear_attention_without_any_key_gives_zeros_and_finite_gradients(attend, dtype, length):
    qkv = leaves(*(torch.randn(2, length, 5, dtype=dtype) for _ in range(3)))
    visible = torch.arange(length) >= torch.tensor([[length], [length // 2]])  # none, and only late ones
    output = attend(*qkv, visible)
    output.backward(torch.randn_like(output))
    assert (output[0] == 0).all()
    assert_finite(output, *(x.grad for x in qkv))
    if attend is not LINEAR["linear"]:
        assert (output[1, : length // 2] == 0).all()


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("need_weights", [False, True])
@for_all(sizes=heads(), mask=st.tuples(sizes, sizes).flatmap(lambda shape: masks(*shape)))
def test_multi_head_attention_without_any_key_gives_its_last_bias(dtype, need_weights, sizes, mask):
    attention, (queries, keys) = new_attention(sizes, dtype), mask.shape
    mask[-1] = False
    x, memory = leaves(*(torch.randn(2, length, sizes["d_model"], dtype=dtype) for length in (queries, keys)))
    output = attention(x, memory, mask=mask, need_weights=need_weights)
    output, weights = output if need_weights else (output, None)
    output.backward(torch.randn_like(output))
    blind = ~mask.any(-1)
    assert torch.equal(output[:, blind], attention.W_o.bias.expand(2, int(blind.sum()), -1))
    assert weights is None or (weights[..., blind, :] == 0).all()
    assert_finite(output, x.grad, memory.grad, *(parameter.grad for parameter in attention.parameters()))


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@for_all(config=configs(), lengths=st.lists(st.integers(0, 7), min_size=1, max_size=3), length=sizes)
def test_sources_of_nothing_but_padding(dtype, config, lengths, length):
    model, lengths = new_model(config, dtype), [0, *lengths]
    src = F.pad(sentences(SRC_VOCAB, lengths), (0, 1))  # at least one column
    logits = model(src, sentences(TGT_VOCAB, [length] * len(lengths)))
    logits.backward(torch.randn_like(logits))
    assert_finite(logits, *(parameter.grad for parameter in model.parameters()))


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@for_all(config=configs(), mask=sizes.flatmap(lambda length: masks(length, length)))
def test_an_encoder_layer_under_any_mask(dtype, config, mask):
    layer = perturb(EncoderLayer(config)).to(dtype)
    (x,) = leaves(torch.randn(2, len(mask), config.d_model, dtype=dtype))
    output = layer(x, mask)
    output.backward(torch.randn_like(output))
    assert_finite(output, x.grad, *(parameter.grad for parameter in layer.parameters()))


# --- Label smoothing


def smoothed(targets: torch.Tensor, vocab: int, pad_id: int | None, smoothing: float) -> torch.Tensor:
    """The distributions q of §5.4, one for each target."""
    classes = [c for c in range(vocab) if c != pad_id]
    q = torch.zeros(*targets.shape, vocab, dtype=torch.float64)
    q[..., classes] = smoothing / len(classes)
    right = torch.full((*targets.shape, 1), 1 - smoothing, dtype=torch.float64)
    return q.scatter_add(-1, targets[..., None], right)


@st.composite
def targets(draw):
    """A vocabulary, ids of it without padding, the id of padding, and a smoothing above 0."""
    vocab = draw(st.integers(3, 11))
    pad_id = draw(st.one_of(st.none(), st.integers(0, vocab - 1)))
    classes = [c for c in range(vocab) if c != pad_id]
    ids = draw(st.lists(st.sampled_from(classes), min_size=1, max_size=5))
    return vocab, torch.tensor(ids), pad_id, draw(st.floats(0.01, 0.9))


@for_all(case=targets())
def test_the_smoothed_distribution_is_the_minimum(case):
    vocab, ids, pad_id, smoothing = case
    q = smoothed(ids, vocab, pad_id, smoothing)
    (logits,) = leaves(q.log())  # −inf for padding
    loss, _ = label_smoothed_loss(logits, ids, pad_id=pad_id, smoothing=smoothing)
    (gradient,) = torch.autograd.grad(loss, logits)
    entropy = -torch.xlogy(q, q).sum()
    assert_close(loss.detach(), entropy)
    assert_close(gradient, torch.zeros_like(gradient))
    elsewhere, _ = label_smoothed_loss(torch.randn_like(logits), ids, pad_id=pad_id, smoothing=smoothing)
    assert elsewhere > entropy


@for_all(case=targets())
def test_padding_gets_no_mass(case):
    vocab, ids, pad_id, smoothing = case
    (logits,) = leaves(torch.randn(len(ids), vocab).double())
    loss, _ = label_smoothed_loss(logits, ids, pad_id=pad_id, smoothing=smoothing)
    (gradient,) = torch.autograd.grad(loss, logits)
    # The gradient is p − q.
    assert_close(logits.detach().softmax(-1) - gradient, smoothed(ids, vocab, pad_id, smoothing))


@for_all(case=targets(), cut=st.integers(0, 5), hidden=st.lists(st.booleans(), min_size=5, max_size=5))
def test_parts_add_up_to_the_whole_in_which_padding_counts_for_nothing(case, cut, hidden):
    vocab, ids, pad_id, smoothing = case
    if pad_id is not None:
        ids = ids.masked_fill(torch.tensor(hidden[: len(ids)]), pad_id)
    (logits,) = leaves(torch.randn(len(ids), vocab).double())
    options = {"pad_id": pad_id, "smoothing": smoothing}
    real = torch.ones_like(ids).bool() if pad_id is None else ids != pad_id
    whole, count = label_smoothed_loss(logits, ids, **options)
    halves = slice(cut), slice(cut, None)
    parts = [label_smoothed_loss(logits[at], ids[at], **options) for at in halves]
    total = sum(loss for loss, _ in parts)
    assert_close(total, whole)
    assert sum(number for _, number in parts) == count == real.sum()
    assert_close(*(torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (total, whole)))
    of_real, _ = label_smoothed_loss(logits[real], ids[real], **options)
    assert_close(of_real, whole)
