"""The whole model against nn.Transformer, and what must hold whatever its weights are."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from compare import DTYPES, perturb
from conftest import assert_close

from transformer_lessons.fast import accelerate, plain
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.tools.attention_maps import attention_maps

SRC_VOCAB, TGT_VOCAB = 17, 19
# Three sentence pairs, padded on the right with 0.
SOURCE_LENGTHS, TARGET_LENGTHS = (7, 3, 5), (4, 11, 1)

DTYPE = pytest.mark.parametrize("dtype", DTYPES)
NORM_FIRST = pytest.mark.parametrize("norm_first", [False, True])


def config(**changes) -> TransformerConfig:
    small = {
        "source_vocab_size": SRC_VOCAB,
        "target_vocab_size": TGT_VOCAB,
        "d_model": 15,
        "num_heads": 3,
        "d_ff": 23,
        "num_encoder_layers": 2,
        "num_decoder_layers": 3,
        "dropout": 0.0,
        "max_length": 13,
    }
    return TransformerConfig(**{**small, **changes})


def new_model(dtype=torch.float64, **changes) -> Transformer:
    return perturb(Transformer(config(**changes))).to(dtype)


def sentences(vocab: int, lengths) -> torch.Tensor:
    ids = torch.randint(3, vocab, (len(lengths), max(lengths)))
    return ids.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], 0)


@pytest.fixture
def src():
    return sentences(SRC_VOCAB, SOURCE_LENGTHS)


@pytest.fixture
def tgt():
    return sentences(TGT_VOCAB, TARGET_LENGTHS)


# --- Parameters


def parameters_by_formula(c: TransformerConfig) -> int:
    d, f = c.d_model, c.d_ff
    attention = 4 * (d * d + d)  # W_q, W_k, W_v, W_o with biases; heads only divide them
    feed_forward = (d * f + f) + (f * d + d)
    norm = 2 * d
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    embeddings = c.target_vocab_size * d
    if not c.shared_vocabulary:
        embeddings += c.source_vocab_size * d
    if not c.tie_embeddings:
        embeddings += c.target_vocab_size * d
    final_norms = 2 * norm if c.norm_first else 0
    return embeddings + c.num_encoder_layers * encoder + c.num_decoder_layers * decoder + final_norms


def number_of_parameters(sizes: TransformerConfig) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(sizes).parameters())


@pytest.mark.parametrize(
    ("sizes", "count"),
    [(TransformerConfig.base(), 63_082_496), (TransformerConfig.big(), 214_245_376)],
    ids=["base", "big"],
)
def test_the_papers_models(sizes, count):
    # The paper prints 65M and 213M.
    assert number_of_parameters(sizes) == parameters_by_formula(sizes) == count


@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": False}, {"norm_first": True}])
def test_number_of_parameters(changes):
    sizes = config(**changes)
    assert number_of_parameters(sizes) == parameters_by_formula(sizes)


def test_tied_matrices_are_one():
    model = Transformer(config(source_vocab_size=TGT_VOCAB, shared_vocabulary=True))
    assert model.output.weight is model.target_embedding.token.weight is model.source_embedding.token.weight
    tied, untied = Transformer(config()), Transformer(config(tie_embeddings=False))
    assert tied.output.weight.data_ptr() == tied.target_embedding.token.weight.data_ptr()
    assert tied.source_embedding.token.weight.data_ptr() != tied.target_embedding.token.weight.data_ptr()
    assert untied.output.weight.data_ptr() != untied.target_embedding.token.weight.data_ptr()


def copied_by_state_dict(model):
    other = Transformer(model.config).to(model.output.weight.dtype)
    other.load_state_dict(model.state_dict())
    return other


@pytest.mark.parametrize(
    "copied",
    [copied_by_state_dict, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["state_dict", "deepcopy", "pickle"],
)
def test_round_trips(copied, src, tgt):
    model = new_model(position="learned")
    other = copied(model)
    assert torch.equal(other(src, tgt), model(src, tgt))
    assert other.output.weight is other.target_embedding.token.weight
    with torch.no_grad():
        other.output.weight += 1
    assert not torch.equal(other(src, tgt), model(src, tgt))


@pytest.mark.parametrize("changes", [{"position": "learned"}, {"norm_first": True, "activation": "gelu"}])
def test_every_parameter_of_every_choice_learns(changes, src, tgt):
    model = new_model(**changes)
    logits = model(src, tgt)
    logits.backward(torch.randn_like(logits))
    for name, parameter in model.named_parameters():
        # A bias on the keys moves all scores of a query alike, which the softmax does not notice.
        is_idle = name.endswith("W_k.bias")
        assert (parameter.grad.abs().amax() > 1e-6) != is_idle, name


# --- Properties


@DTYPE
@NORM_FIRST
@pytest.mark.parametrize("kept", [1, 5, 10])
def test_later_tokens_never_change_earlier_logits(kept, norm_first, dtype, src):
    model = new_model(dtype, norm_first=norm_first)
    tgt = sentences(TGT_VOCAB, (11, 11, 11))
    changed = tgt.clone()
    changed[:, kept:] = torch.randint(3, TGT_VOCAB, (3, 11 - kept))
    before, after = model(src, tgt), model(src, changed)
    assert torch.equal(before[:, :kept], after[:, :kept])  # bit for bit
    assert not torch.equal(before, after)


def alone(tensor, lengths, number):
    return tensor[number : number + 1, : lengths[number]]


@DTYPE
@NORM_FIRST
def test_padding_and_batch_mates_change_nothing(norm_first, dtype, src, tgt):
    model = new_model(dtype, norm_first=norm_first)
    more_padding = F.pad(src, (0, 6)), F.pad(tgt, (0, 2))
    together, padded = model(src, tgt), model(*more_padding)
    for number, length in enumerate(TARGET_LENGTHS):
        single = model(alone(src, SOURCE_LENGTHS, number), alone(tgt, TARGET_LENGTHS, number))[0]
        for logits in (together, padded):
            assert_close(logits[number, :length], single, tolerance=1e-12 if dtype == torch.float64 else 1e-5)


def test_the_source_matters_to_its_own_sentence_only(src, tgt):
    model, changed = new_model(), src.clone()
    changed[1, 0] = 3 if src[1, 0] != 3 else 4
    difference = (model(changed, tgt) - model(src, tgt)).abs().amax((1, 2))
    assert difference[1] > 1e-6
    assert (difference[[0, 2]] < 1e-12).all()


@NORM_FIRST
def test_a_source_of_nothing_but_padding(norm_first, src, tgt):
    src[1] = 0
    model = new_model(norm_first=norm_first)
    logits = model(src, tgt)
    logits.backward(torch.randn_like(logits))
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_dropout_only_in_training(src, tgt):
    model = new_model(dropout=0.3)
    assert not torch.equal(model.train()(src, tgt), model(src, tgt))
    plain = new_model()
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(src, tgt), plain(src, tgt))


def test_dropout_on_both_embeddings(src, tgt):
    model = new_model(dropout=0.3)
    for embedding, ids in ((model.source_embedding, src), (model.target_embedding, tgt)):
        assert (embedding.train()(ids) == 0).any()
        assert not (embedding.eval()(ids) == 0).any()


# --- attention_maps


def test_attention_maps(src, tgt):
    model = new_model()
    maps = attention_maps(model, src, tgt)
    encoder = [f"encoder_layers.{number}.self_attention" for number in range(2)]
    decoder = [f"decoder_layers.{n}.{kind}_attention" for n in range(3) for kind in ("self", "cross")]
    assert list(maps) == encoder + decoder
    for name, weights in maps.items():
        queries = 7 if name in encoder else 11
        assert weights.shape == (3, 3, queries, 11 if name.startswith("d") and "self" in name else 7)
        assert_close(weights.sum(-1), torch.ones(3, 3, queries, dtype=torch.float64))
        if "decoder" in name and "self" in name:
            assert torch.equal(weights, weights.tril())
        else:
            assert (weights.masked_select((src == 0)[:, None, None]) == 0).all()


def test_attention_maps_do_not_change_the_output(src, tgt):
    model, outputs = new_model(), []
    expected = model(src, tgt)
    model.register_forward_hook(lambda module, args, output: outputs.append(output))
    attention_maps(model, src, tgt)
    assert_close(outputs[0], expected.detach())


def test_attention_maps_leave_the_model_as_it_was(src, tgt):
    model = accelerate(new_model())
    before = model(src, tgt)
    maps = attention_maps(model, src, tgt)
    assert torch.equal(model(src, tgt), before)
    assert not any("attention" in vars(module) for module in model.modules())
    for name, weights in attention_maps(plain(model), src, tgt).items():
        assert_close(maps[name], weights)
    with pytest.raises(IndexError):
        attention_maps(model, src, tgt + 100)
    assert not any("attention" in vars(module) for module in model.modules())


@pytest.mark.parametrize("changes", [{}, {"position": "learned", "norm_first": True}])
def test_nothing_is_left_on_another_device(changes):
    """`meta` holds no numbers but is a device: a tensor made on the CPU on the way would meet one that is not."""
    model = Transformer(config(**changes)).to("meta")
    src, tgt = (torch.ones(2, length, dtype=torch.int64, device="meta") for length in (7, 11))
    logits = model(src, tgt)
    logits.sum().backward()
    assert (logits.device.type, logits.shape) == ("meta", (2, 11, TGT_VOCAB))
    assert {parameter.grad.device.type for parameter in model.parameters()} == {"meta"}


def test_longer_than_max_length(src):
    with pytest.raises(ValueError, match="x: expected at most 13 positions"):
        new_model()(src, torch.ones(3, 14).long())
