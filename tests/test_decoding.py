"""Greedy decoding against the plainest loop there is: one sentence, one token, the whole model again."""

import inspect
import math
from functools import cache

import pytest
import torch
from conftest import assert_close

from transformer_lessons.data import number_words
from transformer_lessons.data.vocabulary import pad
from transformer_lessons.decoding import beam, greedy
from transformer_lessons.decoding_steps import Steps, column_major, going_on
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer.checkpoints import load_model

PAD, BOS, EOS = 0, 1, 2
SOURCE_LENGTHS = (11, 7, 5, 3, 2, 1, 11)


def random_model(seed: int) -> Transformer:
    """Untrained, but with weights so large, and a vocabulary so small, that sentences differ and end."""
    torch.manual_seed(seed)
    sizes = {"d_model": 15, "num_heads": 3, "d_ff": 23, "num_encoder_layers": 2, "num_decoder_layers": 3}
    model = Transformer(
        TransformerConfig(17, 7, **sizes, max_length=13, tie_embeddings=False, norm_first=True)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=2 / parameter.size(1) ** 0.5)
    return model.double()


def sources() -> torch.Tensor:
    ids = torch.randint(3, 17, (len(SOURCE_LENGTHS), 11))
    return ids.masked_fill(torch.arange(11) >= torch.tensor(SOURCE_LENGTHS)[:, None], PAD)


def number_words_model():
    """The trained, post-norm model, and numbers of one to eleven words."""
    model, source, _ = load_model()
    numbers = [0, 7, 21, 100, 421, 1000, 987_654, 70_013, 300_300]
    sentences = [source.encode(number_words.english_tokens(number_words.english(n))) for n in numbers]
    return model.double(), pad(sentences, PAD)


@torch.no_grad()
def naive(model: Transformer, src: torch.Tensor, max_length: int) -> list[list[int]]:
    model.eval()
    sentences = []
    for row in src.tolist():
        real, tokens = [token for token in row if token != PAD], [BOS]
        while len(tokens) <= max_length and EOS not in tokens:
            logits = model(torch.tensor([real]), torch.tensor([tokens]))
            tokens.append(int(logits[0, -1].argmax()))
        sentences.append(tokens[1:])
    return sentences


@cache
def example(seed: int) -> tuple[Transformer, torch.Tensor, list[list[int]]]:
    model, src = random_model(seed), sources()
    return model, src, naive(model, src, 13)


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_equal_to_one_sentence_at_a_time(seed, use_cache):
    model, src, expected = example(seed)
    assert greedy(model, src, max_length=13, use_cache=use_cache).tolist() == pad(expected, PAD).tolist()


@pytest.mark.parametrize("decode", [greedy, beam])
def test_the_cache_saves_its_work(decode):
    # With it, the source's keys are computed once, and of the target's those of one token a step.
    model, src, expected = example(1)
    steps, seen = max(map(len, expected)), {"self_attention": [], "cross_attention": []}
    hooks = [
        getattr(model.decoder_layers[1], name).W_k.register_forward_hook(
            lambda module, inputs, output, lengths=lengths: lengths.append(output.size(1))
        )
        for name, lengths in seen.items()
    ]
    for use_cache in (True, False):
        decode(model, src, max_length=13, use_cache=use_cache)
    for hook in hooks:
        hook.remove()
    cached = seen["self_attention"].count(1) - 1  # the first step without a cache is of one token too
    assert seen["self_attention"] == [1] * cached + list(range(1, cached + 1))
    assert seen["cross_attention"] == [11] * (1 + cached)
    assert cached == steps or decode is beam


def test_the_random_models_say_enough_to_prove_something():
    sentences = [example(seed)[2] for seed in (1, 2, 5)]
    assert all(len(set(map(tuple, of_one_model))) > 2 for of_one_model in sentences)
    assert len({len(sentence) for of_one_model in sentences for sentence in of_one_model}) > 3


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_trained_model_too(use_cache):
    model, src = number_words_model()
    expected = naive(model, src, 64)
    assert greedy(model, src, max_length=64, use_cache=use_cache).tolist() == pad(expected, PAD).tolist()
    assert {len(sentence) for sentence in expected} >= {2, 4, 6}
    assert all(sentence[-1] == EOS for sentence in expected)


def test_one_decoder_layer_is_enough():
    torch.manual_seed(0)
    sizes = {"d_model": 15, "num_heads": 3, "d_ff": 23, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(TransformerConfig(17, 7, **sizes, max_length=13)).double()
    src = sources()
    assert (
        greedy(model, src, max_length=5).tolist()
        == greedy(model, src, max_length=5, use_cache=False).tolist()
    )


class Scripted(Transformer):
    """Says token 5 until each row's time has come, then ends. The time is all that its encoder finds in a row."""

    def __init__(self, times: list[int]):
        super().__init__(TransformerConfig(17, 7, d_model=15, num_heads=3, max_length=13))
        self.times, self.batches = torch.tensor(times, dtype=torch.float32), []

    @property
    def steps(self) -> int:
        return len(self.batches)

    def encode(self, src):
        return self.times[:, None, None].expand(*src.shape, 15)

    def decode(self, tgt_in, memory, src_mask, caches=None):
        return memory[:, :1]

    def project(self, hidden):
        self.batches.append(len(hidden))
        token = torch.where(hidden[:, 0] == self.steps, EOS, 5)
        return torch.nn.functional.one_hot(token, 7).to(hidden.dtype)


class Certain(Scripted):
    """Leaves no doubt: what it says costs log p ≈ 0, everything else as good as certain failure."""

    def project(self, hidden):
        return 100 * super().project(hidden)


@pytest.mark.parametrize("use_cache", [True, False])
def test_each_sentence_stops_and_is_padded(use_cache):
    model, src = Scripted([3, 1, 4]), torch.full((3, 2), 5)
    expected = [[5, 5, EOS, PAD], [EOS, PAD, PAD, PAD], [5, 5, 5, EOS]]
    assert greedy(model, src, max_length=13, use_cache=use_cache).tolist() == expected
    assert model.steps == 4  # no step after the last sentence has ended


@pytest.mark.parametrize("use_cache", [True, False])
def test_max_length_cuts_off(use_cache):
    model = Scripted([2, 99])
    tokens = greedy(model, torch.full((2, 2), 5), max_length=3, use_cache=use_cache)
    assert tokens.tolist() == [[5, EOS, PAD], [5, 5, 5]]
    assert model.steps == 3


@pytest.mark.parametrize("was_training", [True, False])
def test_dropout_is_off_and_the_mode_restored(was_training):
    model, src = random_model(2), sources()  # dropout 0.1
    model.train(was_training)
    assert greedy(model, src, max_length=13).tolist() == greedy(model, src, max_length=13).tolist()
    assert model.training == was_training
    with pytest.raises(ValueError, match="ids: expected"):
        greedy(model, src + 100, max_length=13)
    assert model.training == was_training


def test_no_graph_is_kept():
    model, src, grad_modes = random_model(2), sources(), []
    model.encoder_layers[0].register_forward_hook(lambda *_: grad_modes.append(torch.is_grad_enabled()))
    greedy(model, src, max_length=3)
    assert grad_modes == [False]


def test_nothing_to_translate():
    empty = torch.zeros(0, 5, dtype=torch.long)
    assert greedy(random_model(0), empty, max_length=3).shape == (0, 0)


@pytest.mark.parametrize("max_length", [0, -1, 14])
def test_max_length_out_of_range(max_length):
    with pytest.raises(ValueError, match=f"max_length: expected 1 to 13, the model's, got {max_length}"):
        greedy(random_model(0), sources(), max_length=max_length)


# --- Beam search


def penalised(log_p: float, length: int, alpha: float) -> float:
    return log_p / ((5 + length) / 6) ** alpha


@torch.no_grad()
def exhaustive(model: Transformer, row: list[int], alpha: float, max_length: int) -> list[int]:
    """The best of all sentences there are: those that end with EOS, and those that max_length cuts off."""
    memory = torch.tensor([[token for token in row if token != PAD]])
    best, best_score, open_sentences = [], -math.inf, [([BOS], 0.0)]
    for length in range(1, max_length + 1):
        logits = model(memory.expand(len(open_sentences), -1), torch.tensor([s for s, _ in open_sentences]))
        log_p = logits[:, -1].log_softmax(-1).tolist()
        longer = [
            ([*sentence, token], score + log_p[number][token])
            for number, (sentence, score) in enumerate(open_sentences)
            for token in range(model.config.target_vocab_size)
        ]
        for sentence, score in longer:
            is_whole = sentence[-1] == EOS or length == max_length
            if is_whole and penalised(score, length, alpha) > best_score:
                best, best_score = sentence[1:], penalised(score, length, alpha)
        open_sentences = [pair for pair in longer if pair[0][-1] != EOS]
    return best


def tiny_model(seed: int) -> Transformer:
    """Five target tokens: 1 + 4 + 16 + 64 sentences end within four, 256 are cut off there: 341 in all."""
    torch.manual_seed(seed)
    sizes = {"d_model": 6, "num_heads": 3, "d_ff": 7, "num_encoder_layers": 1, "num_decoder_layers": 2}
    model = Transformer(TransformerConfig(7, 5, **sizes, max_length=13, tie_embeddings=False))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=2 / parameter.size(1) ** 0.5)
    return model.double().eval()


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_beam_as_wide_as_everything_finds_the_best_of_all_sentences(seed, alpha, use_cache):
    model = tiny_model(seed)
    src = torch.tensor([[3, 4, 5, 6, 3], [6, 5, 3, 0, 0], [4, 0, 0, 0, 0]])
    expected = [exhaustive(model, row, alpha, 4) for row in src.tolist()]
    options = {"beam_size": 341, "length_penalty": alpha, "max_length": 4, "use_cache": use_cache}
    assert beam(model, src, **options).tolist() == pad(expected, PAD).tolist()


@pytest.mark.parametrize(
    ("seed", "row", "best", "other"),
    [
        (5, [5, 5, 6], [1, 1, 1, 1], [2]),
        (32, [5, 5, 6], [4, 2], [2]),
        (49, [3, 4, 5, 6, 3], [1, 1, 1, 1], [2]),
    ],
)
def test_the_penalty_counts_from_five(seed, row, best, other):
    """Wu et al. 2016 divide by ((5 + length) / 6)^α; with 6 + length, `other` would win (tried one by one)."""
    model = tiny_model(seed)
    assert exhaustive(model, row, 2.0, 4) == best
    options = {"beam_size": 341, "length_penalty": 2.0, "max_length": 4}
    assert beam(model, torch.tensor([row]), **options).tolist() == [best]
    scores = [
        log_probability(model, torch.tensor([row]), sentence) / (6 + len(sentence)) ** 2
        for sentence in (best, other)
    ]
    assert scores[0] < scores[1]


def test_defaults():
    """The paper's beam (§6.1): four beams, α = 0.6."""
    given = {
        function: {
            name: parameter.default
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.default is not parameter.empty
        }
        for function in (greedy, beam)
    }
    assert given[greedy] == {"use_cache": True, "compiled": False}
    assert given[beam] == {"beam_size": 4, "length_penalty": 0.6, "use_cache": True, "compiled": False}


def test_one_token_is_the_least():
    model, src, _ = example(1)
    assert greedy(model, src, max_length=1).shape == (len(src), 1)
    assert beam(model, src, max_length=1).shape == (len(src), 1)


@torch.no_grad()
def plain_beam(model: Transformer, row: list[int], beams: int, alpha: float, max_length: int) -> list[int]:
    """The rules of `beam`, for one sentence, with lists, and never done before max_length."""
    memory = torch.tensor([[token for token in row if token != PAD]])
    alive, finished = [(0.0, [BOS])], []
    for length in range(1, max_length + 1):
        logits = model(memory.expand(len(alive), -1), torch.tensor([sentence for _, sentence in alive]))
        continued = []
        for (score, sentence), log_p in zip(alive, logits[:, -1].log_softmax(-1).tolist(), strict=True):
            continued += [(score + log_p[token], [*sentence, token]) for token in range(len(log_p))]
        continued.sort(reverse=True)
        finished += [(penalised(s, length, alpha), y) for s, y in continued[:beams] if y[-1] == EOS]
        alive = [(s, y) for s, y in continued if y[-1] != EOS][:beams]
    finished += [(penalised(s, max_length, alpha), y) for s, y in alive]
    return max(finished)[1][1:]


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(("beams", "alpha"), [(1, 0.6), (2, 0.0), (3, 0.6), (5, 1.3), (13, 0.6)])
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_beams_equal_the_same_rules_with_lists(seed, beams, alpha, use_cache):
    model, src, _ = example(seed)
    expected = [plain_beam(model, row, beams, alpha, 13) for row in src.tolist()]
    options = {"beam_size": beams, "length_penalty": alpha, "max_length": 13, "use_cache": use_cache}
    assert beam(model, src, **options).tolist() == pad(expected, PAD).tolist()


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_one_beam_is_greedy(seed, use_cache):
    model, src, expected = example(seed)
    tokens = beam(model, src, beam_size=1, max_length=13, use_cache=use_cache)
    assert tokens.tolist() == pad(expected, PAD).tolist()


@torch.no_grad()
def log_probability(model: Transformer, row: torch.Tensor, sentence: list[int]) -> float:
    tgt = torch.tensor([[BOS, *sentence]])
    log_p = model(row[None, row != PAD], tgt[:, :-1]).log_softmax(-1)
    return log_p.gather(-1, tgt[:, 1:, None]).sum().item()


def until_end(row: list[int]) -> list[int]:
    return row[: row.index(EOS) + 1] if EOS in row else row


def test_without_a_penalty_a_beam_finds_likelier_sentences_than_greedy():
    gains = []
    for seed in (1, 2, 5):
        model, src, expected = example(seed)
        found = beam(model, src, beam_size=5, length_penalty=0.0, max_length=13).tolist()
        for row, wide, narrow in zip(src, found, expected, strict=True):
            gains.append(log_probability(model, row, until_end(wide)) - log_probability(model, row, narrow))
    # No law: a beam can lose the one beginning that greedy follows. Here it gains, and nowhere loses much.
    assert sum(gain > 1e-6 for gain in gains) > 5
    assert min(gains) > -0.1


def test_a_trained_model_is_as_right_with_a_beam():
    model, src = number_words_model()
    for use_cache in (True, False):
        tokens = beam(model, src, beam_size=4, max_length=64, use_cache=use_cache)
        assert tokens.tolist() == greedy(model, src, max_length=64).tolist()


@pytest.mark.parametrize("use_cache", [True, False])
def test_batch_mates_do_not_change_a_beam(use_cache):
    model, src, _ = example(1)
    options = {"beam_size": 3, "max_length": 13, "use_cache": use_cache}
    together = beam(model, src, **options).tolist()
    for row, expected in zip(src, together, strict=True):
        alone = beam(model, row[None, row != PAD], **options)[0].tolist()
        assert until_end(alone) == until_end(expected)


def test_a_beam_stops_with_its_last_sentence():
    model = Certain([3])
    tokens = beam(model, torch.full((1, 2), 5), beam_size=2, max_length=13)
    assert tokens.tolist() == [[5, 5, EOS]]
    assert model.steps == 3


TIMES = [3, 1, 9, 2, 2, 6, 1, 1, 4, 3, 1]
# Done after each step: 4, 6, 8, 9, 9, 10, 10, 10, 11 of 11. Of 11 rows 5 go on after step 2, of those 2 after
# step 4 (after step 3, 3 of 5 are left, more than half), and of 2 one after step 6.
ROWS_IN_STEP = [11, 11, 5, 5, 2, 2, 1, 1, 1]


@pytest.mark.parametrize("use_cache", [True, False])
def test_sentences_that_are_done_leave_the_batch(use_cache):
    model = Scripted(TIMES)
    said = greedy(model, torch.full((11, 2), 5), max_length=13, use_cache=use_cache).tolist()
    assert model.batches == ROWS_IN_STEP
    assert said == [[5] * (time - 1) + [EOS] + [PAD] * (9 - time) for time in TIMES]


@pytest.mark.parametrize("use_cache", [True, False])
def test_sentences_that_are_done_leave_the_beam_search(use_cache):
    model = Certain(TIMES)
    said = beam(model, torch.full((11, 2), 5), beam_size=3, max_length=13, use_cache=use_cache).tolist()
    assert model.batches == [3 * rows for rows in ROWS_IN_STEP]
    assert said == [[5] * (time - 1) + [EOS] + [PAD] * (9 - time) for time in TIMES]


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("use_cache", [True, False])
def test_whoever_is_kept_goes_on_as_before(use_cache, copies):
    """Logits of the rows that are left, a step later, with caches of both kinds and masks of several lengths."""
    model, src, _ = example(1)
    tokens = torch.randint(3, 7, (len(src) * copies, 4))
    tokens[:, 0] = BOS
    kept = torch.tensor([5, 1, 2])
    rows = (kept[:, None] * copies + torch.arange(copies)).flatten()
    with torch.no_grad():
        whole, part = (Steps(model, src, 4, use_cache=use_cache, copies=copies) for _ in range(2))
        for length in (1, 2):
            assert torch.equal(whole.next_logits(tokens[:, :length]), part.next_logits(tokens[:, :length]))
        part.keep(kept)
        for length in (3, 4):
            expected = whole.next_logits(tokens[:, :length])[rows]
            assert_close(part.next_logits(tokens[rows, :length]), expected)


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_likeliest_token_is_written_behind_the_others(use_cache):
    model, src, _ = example(1)
    tokens = torch.full((len(src), 4), 6)
    tokens[:, 0] = BOS
    is_done = torch.arange(len(src)) == 2
    with torch.no_grad():
        steps = Steps(model, src, 3, use_cache=use_cache)
        chosen = model(src, tokens[:, :1])[:, -1].argmax(-1).masked_fill(is_done, model.config.pad_id)
        length, now_done = steps.likeliest(tokens, 1, is_done)
    assert length == 2
    assert torch.equal(tokens[:, 1], chosen)
    assert (tokens[:, 2:] == 6).all()
    assert torch.equal(now_done, is_done | (chosen == model.config.eos_id))


def test_the_caches_stay_where_they_are():
    """As a graph that is replayed must find them: step after step, and when beams change places."""
    model, src, _ = example(1)
    with torch.no_grad():
        steps = Steps(model, src, 13, copies=2)
        tokens = torch.full((2 * len(src), 1), BOS)
        steps.next_logits(tokens)
        kept = [cache for layer in steps.caches for cache in layer]
        places = [(c.keys.data_ptr(), c.values.data_ptr(), c.position.data_ptr()) for c in kept]
        for _ in range(3):
            tokens = torch.cat([tokens, torch.full_like(tokens[:, :1], 5)], 1)
            steps.next_logits(tokens)
            steps.reorder(torch.arange(2 * len(src)).view(-1, 2).flip(1).flatten())
    assert places == [(c.keys.data_ptr(), c.values.data_ptr(), c.position.data_ptr()) for c in kept]


def test_half_of_all_must_be_done_before_any_leave():
    def left(*is_done: int) -> list[int] | None:
        found = going_on(torch.tensor(is_done, dtype=torch.bool))
        return None if found is None else found.tolist()

    assert left(0, 1, 0) is None
    assert left(0, 1) == [0]
    assert left(1, 0, 1, 1, 0) == [1, 4]
    assert left(1) == []
    assert left(0) is None
    assert left() == []


def test_a_beam_leaves_the_mode_and_the_graph_alone():
    model, src, _ = example(1)
    model.train()
    assert not beam(model, src, beam_size=2, max_length=3).requires_grad
    assert model.training
    model.eval()


def test_a_beam_over_nothing():
    empty = torch.zeros(0, 5, dtype=torch.long)
    assert beam(random_model(0), empty, beam_size=3, max_length=3).shape == (0, 0)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"max_length": 14}, "max_length: expected 1 to 13, the model's, got 14"),
        ({"beam_size": 0}, "beam_size: expected an integer, 1 or more, got 0"),
        ({"beam_size": 2.0}, "beam_size: expected an integer, 1 or more, got 2.0"),
        ({"length_penalty": -0.1}, "length_penalty: expected a number, 0 or more, got -0.1"),
        ({"length_penalty": math.nan}, "length_penalty: expected a number, 0 or more, got nan"),
        ({"length_penalty": True}, "length_penalty: expected a number, 0 or more, got True"),
    ],
)
def test_beam_complaints(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        beam(random_model(0), sources(), **{"max_length": 13, **options})


def test_weights_by_columns_are_the_same_weights():
    model, src = random_model(0), sources()
    before = {name: (weight.clone(), weight.stride()) for name, weight in model.named_parameters()}
    by_columns = column_major(model)
    for use_cache in (False, True):
        expected = greedy(model, src, max_length=13, use_cache=use_cache)
        assert torch.equal(greedy(by_columns, src, max_length=13, use_cache=use_cache), expected)
    for name, weight in by_columns.named_parameters():
        (kept, stride), own = before[name], model.get_parameter(name)
        assert torch.equal(weight, kept), name
        assert weight.data_ptr() != own.data_ptr()
        assert (weight.requires_grad, own.requires_grad) == (False, True)
        assert own.stride() == stride
        if weight.dim() == 2 and "embedding" not in name:  # of which rows are read
            assert weight.stride() == (1, len(weight)), name


def test_weights_by_columns_stay_tied():
    torch.manual_seed(0)
    sizes = {"d_model": 15, "num_heads": 3, "d_ff": 23, "num_encoder_layers": 2, "num_decoder_layers": 3}
    model = Transformer(TransformerConfig(17, 17, **sizes, shared_vocabulary=True)).eval()
    by_columns = column_major(model)
    embeddings = by_columns.source_embedding, by_columns.target_embedding
    assert all(embedding.token.weight is by_columns.output.weight for embedding in embeddings)
    assert by_columns.output.weight.stride() == (1, 17)
    src = sources()
    assert_close(by_columns(src, src.flip(1)), model(src, src.flip(1)))
