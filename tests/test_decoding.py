"""Beam search against exhaustive search, and by hand; `test_oracles` has `generate`'s tokens."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models import sentences, talkative
from transformer_lessons import decoding
from transformer_lessons.decoding import beam, greedy, likeliest, lp, sample
from transformer_lessons.model import Transformer

PAD, BOS, EOS = 0, 1, 2


def sources() -> Tensor:
    return sentences([11, 7, 5, 3, 2, 1, 11])


@torch.no_grad()
def exhaustive(model: Transformer, row: Tensor, alpha: float, max_length: int) -> Tensor:
    """The best of all possible sentences: those that end with EOS, and those that max_length cuts off."""
    said = torch.cartesian_prod(*[torch.arange(model.config.target_vocab_size)] * max_length)
    src = row[None, row != PAD].expand(len(said), -1)
    log_p = model.eval()(src, F.pad(said[:, :-1], (1, 0), value=BOS)).log_softmax(-1)
    ends = said == EOS
    is_in = ends.cumsum(1) - ends.long() == 0  # up to the first end
    scores = (log_p.gather(-1, said[..., None])[..., 0] * is_in).sum(1) / ((5 + is_in.sum(1)) / 6) ** alpha
    return (said * is_in)[scores.argmax()]  # with padding after its end


@pytest.mark.parametrize("decode", [greedy, beam])
def test_cached_keys_are_computed_once(decode):
    """The keys of the source are computed once, those of the target for one token a step."""
    model, src, seen = talkative(1), sources()[:1], {"self_attention": [], "cross_attention": []}
    for name, lengths in seen.items():
        attention = getattr(model.decoder_layers[1], name)
        attention.W_k.register_forward_hook(lambda module, x, y, seen=lengths: seen.append(y.size(1)))
    steps = decode(model, src, max_length=13).size(1)
    assert seen["self_attention"] == [1] * len(seen["self_attention"])
    assert len(seen["self_attention"]) == steps or decode is beam
    assert seen["cross_attention"] == [11]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_beam_wide_enough_for_all_sentences_finds_the_best(alpha):
    """Five tokens: 1 + 4 + 16 sentences end within three, 64 are cut off there: 85 in total."""
    sizes = {"d_model": 6, "d_ff": 7, "num_encoder_layers": 1, "num_decoder_layers": 2}
    model = talkative(1, source_vocab_size=7, target_vocab_size=5, **sizes)
    src = torch.tensor([[3, 4, 5, 6, 3], [6, 5, 3, 0, 0], [4, 0, 0, 0, 0]])
    found = beam(model, src, beam_size=85, length_penalty=alpha, max_length=3)
    expected = torch.stack([exhaustive(model, row, alpha, 3) for row in src])
    assert torch.equal(F.pad(found, (0, 3 - found.size(1))), expected)


@pytest.mark.parametrize("decode", [greedy, beam])
def test_the_mode_is_restored_and_no_graph_is_kept(decode):
    model, src = talkative(2, dropout=0.5), sources()[:2]
    grad_modes = []
    model.encoder_layers[0].register_forward_hook(lambda *_: grad_modes.append(torch.is_grad_enabled()))
    for training in (True, False):
        model.train(training)
        assert torch.equal(decode(model, src, max_length=5), decode(model, src, max_length=5))
        assert model.training == training
    assert not any(grad_modes)
    with pytest.raises(IndexError):
        decode(model.train(), src + 100, max_length=5)
    assert model.training


# --- Hand-made models


class Scripted(Transformer):
    """Stands in for `Steps` and its model: it knows the probabilities of the next token after any prefix."""

    def __init__(self, follows):
        nn.Module.__init__(self)
        self.follows, self.asked = follows, 0
        self.config = SimpleNamespace(pad_id=PAD, bos_id=BOS, eos_id=EOS)

    def __call__(self, model, src):
        self.said, self.asked = [(row,) for row in src[:, 0].tolist()], 0
        return self

    def next_logits(self, tokens):
        self.asked += 1
        self.said = [(*y, token) for y, token in zip(self.said, tokens[:, 0].tolist(), strict=True)]
        p = [[self.follows(y[0], y[2:]).get(token, 0.0) for token in range(5)] for y in self.said]
        return torch.tensor(p).double().log() + 3.0  # logits may be shifted by any constant

    def keep(self, rows):
        self.said = [self.said[row] for row in rows.tolist()]


@pytest.fixture
def scripted(monkeypatch):
    def put_in(follows) -> Scripted:
        model = Scripted(follows)
        monkeypatch.setattr(decoding, "Steps", model)
        return model

    return put_in


def until(time: int, y: tuple) -> dict[int, float]:
    """Token 3 until step `time`, then EOS; `time` is the first token of the source."""
    return {EOS: 1.0} if len(y) + 1 == time else {3: 1.0}


def test_each_sentence_stops_and_is_padded(scripted):
    model = scripted(until)
    src = torch.tensor([[3], [1], [4]])
    expected = [[3, 3, EOS, PAD], [EOS, PAD, PAD, PAD], [3, 3, 3, EOS]]
    assert greedy(model, src, max_length=13).tolist() == expected
    assert model.asked == 4  # no step after the last sentence has ended
    assert beam(model, src, beam_size=1, max_length=13).tolist() == expected
    assert greedy(model, src, max_length=2).tolist() == [[3, 3], [EOS, PAD], [3, 3]]
    assert beam(model, src, beam_size=1, max_length=2).tolist() == [[3, 3], [EOS, PAD], [3, 3]]


GARDEN_PATH = {
    (): {3: 0.6, 4: 0.4},
    (3,): {EOS: 0.35, 3: 0.33, 4: 0.32},
    (4,): {EOS: 0.9, 3: 0.1},
}


def test_a_beam_finds_what_greedy_misses(scripted):
    """Greedy takes 3 (0.6), and ends with 0.6 · 0.35 = 0.21; by way of 4 it is 0.4 · 0.9 = 0.36."""
    model, src = scripted(lambda _, y: GARDEN_PATH.get(y, {EOS: 1.0})), torch.tensor([[1]])
    assert greedy(model, src, max_length=5).tolist() == [[3, EOS]]
    assert beam(model, src, beam_size=2, length_penalty=0.0, max_length=5).tolist() == [[4, EOS]]
    assert model.asked == 2  # 0.21 is the most that is left: nothing can beat 0.36 without a penalty


def test_a_beam_stops_when_nothing_better_can_follow(scripted):
    model = scripted(lambda _, y: {EOS: 0.5, 3: 0.5} if not y else {EOS: 1.0})
    assert beam(model, torch.tensor([[1]]), length_penalty=0.0, max_length=5).tolist() == [[EOS]]
    assert model.asked == 1
    assert beam(model, torch.tensor([[1]]), length_penalty=2.0, max_length=5).tolist() == [[3, EOS]]  # better


def test_length_penalty_by_hand():
    assert (lp(1, 0.6), lp(7, 1.0), lp(13, 2.0)) == (1, 2, 9)


# ---- Sampling


@pytest.mark.parametrize("cut", [{"top_k": 1}, {"top_k": 3}, {"top_k": 99}, {"top_p": 0.3}, {"top_p": 0.8}])
def test_top_k_and_top_p_keep_the_tokens_that_transformers_keeps(cut):
    logits_process = pytest.importorskip("transformers.generation.logits_process")
    [(name, value)] = cut.items()
    kinds = {"top_k": logits_process.TopKLogitsWarper, "top_p": logits_process.TopPLogitsWarper}
    torch.manual_seed(0)
    logits = 3 * torch.randn(29, 17, dtype=torch.float64)
    assert torch.equal(likeliest(logits, **cut), kinds[name](value)(None, logits))


def test_drawn_sentences_are_as_frequent_as_likely():
    model, draws = talkative(3, target_vocab_size=5).eval(), 4_000
    src = torch.tensor([[5, 7, 11]])
    torch.manual_seed(0)
    drawn = sample(model, src.expand(draws, -1), max_length=2, temperature=2.5, top_k=3).tolist()
    with torch.no_grad():
        first = model(src, torch.tensor([[BOS]]))[0, -1] / 2.5
        p = first.masked_fill(first < first.topk(3).values[-1], -math.inf).softmax(dim=-1)
    counts = torch.tensor([sum(row[0] == token for row in drawn) for token in range(5)])
    assert (p > 0.05).sum() >= 2
    assert (counts[p == 0] == 0).all()
    deviation = (draws * p * (1 - p)).sqrt()
    assert ((counts - draws * p).abs() <= 4 * deviation + 1e-9).all()
    then = {row[0]: [other[1] for other in drawn if other[0] == row[0]] for row in drawn}
    assert set(then.pop(EOS, [PAD])) == {PAD}  # nothing follows EOS
    assert all(len(set(tokens)) > 1 for tokens in then.values())
