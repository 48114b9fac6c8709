"""The check of `greedy`: its requirements, the calls that probe them, and the known wrong ways to write it."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transformer_lessons.checks.old.catalogue.decoding_mistakes import MODES, SOURCE_PADDING_SEEN, ids_assumed
from transformer_lessons.checks.old.catalogue.small_models import (
    NEARLY_ALL,
    WATCHED,
    Small,
    in_evaluation,
    in_training,
    loudest,
    steps_taken,
)
from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import evaluating, greedy, padding_mask

__all__ = ["TASK"]

GREEDY, BATCH, WRONG, CACHE = "#ch15-greedy", "#ch15-batch", "#ch15-wrong", "#ch15-cache"
# Small models that tell all mistakes apart; each with a seed that gives the numbers 0, 1 and 2 to words that
# are read in the probe `ids`, and said there before a sentence is over.
NUMBERS = {150: 184, 246: 295, 262: 290, 329: 257, 445: 275}
ROWS, LONGEST = 13, 6
OTHER = (5, 3, 6)  # padding, beginning and end; 0, 1 and 2 are words
# A source of one word, at which all small models go on and on, and room for it: neither one token less than
# the model's limit nor what goes by the source's length would do.
ENDLESS, MANY = [4], 11


def _sizes(seed: int) -> dict[str, int]:
    return {"number": random.Random(seed).choice(list(NUMBERS)), "seed": seed, "rows": ROWS}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    small, taken = Small(s["number"], s["seed"], ROWS), steps_taken(s["number"], ROWS)
    loud = loudest(s["number"], ROWS)
    rows = _in_order(small.order[: s["rows"]], taken, loud)
    long = [row for row in small.order if taken[row] > LONGEST][:1]
    short = [row for row in small.order if taken[row] < LONGEST][: s["rows"]]
    quickest = [min(short, key=lambda row: taken[row])] * len(short)  # so that most end before the others do
    early = _in_order(short + quickest, taken, loud)
    full = small.max_length
    model, src = small.model(), small.source(rows)
    training, evaluated = (small.model(kind=kind, dropout=NEARLY_ALL) for kind in WATCHED)
    renamed = Small(s["number"], NUMBERS[s["number"]], ROWS)
    return {
        "alone": Probe([model, small.source(long)], {"max_length": 3}),
        "batch": Probe([model, src], {"max_length": LONGEST}),
        "early": Probe([model, small.source(early)], {"max_length": full}),
        "full": Probe([small.model(max_length=MANY), small.source(ENDLESS)[:, :1]], {"max_length": MANY}),
        "ids": Probe([renamed.model(OTHER), _after_zero(renamed.source(rows, OTHER))], {"max_length": 4}),
        "training": Probe([training, src], {"max_length": 1}, look=(0,), view=in_training),
        "evaluation": Probe([evaluated, src], {"max_length": 1}, look=(0,), view=in_evaluation),
        "none": Probe([model, src], {"max_length": 0}, refused="max_length=0"),
        "negative": Probe([model, src], {"max_length": -1}, refused="max_length=-1"),
        "beyond": Probe(
            [model, small.source(short)],
            {"max_length": full + 1},
            refused=f"max_length={full + 1}, of a model for {full} tokens",
        ),
    }


def _in_order(rows: list[int], taken: list[int], loudest: int) -> list[int]:
    """The same with two at the ends whose answers are neither the longest nor the shortest of all.

    Nor is the first the loudest: an argmax over everything would be its own.
    """
    least = min(taken[row] for row in rows)
    ends = [row for row in rows if least < taken[row] < LONGEST and row != loudest][:2]
    return ends[:1] + [row for row in rows if row not in ends] + ends[1:]


def _after_zero(src: Tensor) -> Tensor:
    """The same behind the word 0, which makes a column of zeros that is no padding."""
    return torch.cat([torch.zeros_like(src[:, :1]), src], 1)


def _accept(max_length: int, longest: int) -> None:
    if not 1 <= max_length <= longest:
        raise ValueError(f"max_length: expected 1 to {longest}")


def _advance(tokens: Tensor, token: Tensor, done: Tensor, pad: int, eos: int) -> tuple[Tensor, Tensor]:
    token = token.masked_fill(done, pad)
    return torch.cat([tokens, token[:, None]], 1), done | (token == eos)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    mode: Callable = evaluating
    ids: Callable = lambda config: (config.pad_id, config.bos_id, config.eos_id)
    read: Callable = lambda src, pad: src
    first: Callable = lambda pad, bos: bos
    source_mask: Callable = padding_mask
    most: Callable = lambda max_length, longest, source: max_length
    over: Callable = lambda done: bool(done.all())
    context: Callable = lambda tokens: tokens
    position: Callable = lambda logits: logits[:, -1]
    choose: Callable = lambda logits: logits.argmax(1)
    advance: Callable = _advance
    result: Callable = lambda tokens, pad, eos: tokens[:, 1:]


def assemble(steps: Steps) -> Callable:
    """Greedy decoding in these steps, without a cache."""

    def greedy(model, src, *, max_length):
        steps.accept(max_length, model.config.max_length)
        pad, bos, eos = steps.ids(model.config)
        src = steps.read(src, pad)
        with torch.no_grad(), steps.mode(model):
            memory, src_mask = model.encode(src), steps.source_mask(src, model.config.pad_id)
            tokens = src.new_full((len(src), 1), steps.first(pad, bos))
            done = torch.zeros(len(src), dtype=torch.bool)
            for _ in range(steps.most(max_length, model.config.max_length, src.size(1))):
                if steps.over(done):
                    break
                logits = model.project(model.decode(steps.context(tokens), memory, src_mask))
                token = steps.choose(steps.position(logits))
                tokens, done = steps.advance(tokens, token, done, pad, eos)
        return steps.result(tokens, pad, eos)

    return greedy


def _goes_on(tokens: Tensor, token: Tensor, done: Tensor, pad: int, eos: int) -> tuple[Tensor, Tensor]:
    return torch.cat([tokens, token[:, None]], 1), done | (token == eos)


def _forgets(tokens: Tensor, token: Tensor, done: Tensor, pad: int, eos: int) -> tuple[Tensor, Tensor]:
    token = token.masked_fill(done, pad)
    return torch.cat([tokens, token[:, None]], 1), token == eos


def _drops_the_end(tokens: Tensor, token: Tensor, done: Tensor, pad: int, eos: int) -> tuple[Tensor, Tensor]:
    done = done | (token == eos)
    return torch.cat([tokens, token.masked_fill(done, pad)[:, None]], 1), done


def _repeats_the_end(
    tokens: Tensor, token: Tensor, done: Tensor, pad: int, eos: int
) -> tuple[Tensor, Tensor]:
    token = token.masked_fill(done, eos)
    return torch.cat([tokens, token[:, None]], 1), done | (token == eos)


def _later_ends_left(tokens: Tensor, pad: int, eos: int) -> Tensor:
    said = tokens[:, 1:]
    return torch.where((said == eos).cumsum(1).bool() & (said != eos), pad, said)


def _as_long_as(row: int) -> dict[str, Callable]:
    return {"result": lambda tokens, pad, eos: tokens[:, 1 : 1 + int((tokens[row, 1:] != pad).sum())]}


def _ends_at_too(number: int) -> dict[str, Callable]:
    def advance(tokens, token, done, pad, eos):
        tokens, ended = _advance(tokens, token, done, pad, eos)
        return tokens, ended | (token == number)

    return {"advance": advance}


def _without_zeros(src: Tensor, pad: int) -> Tensor:
    return nn.utils.rnn.pad_sequence([row[row != 0] for row in src], batch_first=True, padding_value=pad)


def _limited(limit: Callable) -> dict[str, Callable]:
    return {"most": lambda max_length, longest, source: min(max_length, limit(source))}


IDS_ASSUMED = ids_assumed(GREEDY)
ZEROS = (  # and more ways to make that mistake
    {"read": lambda src, pad: src[:, (src != 0).any(0)]},
    {"read": _without_zeros},
    {"source_mask": lambda src, pad: padding_mask(src, 0)},
)


def _room_for_all(max_length: int, longest: int) -> None:
    torch.empty(max_length)  # no room for −1, and no complaint otherwise


def _drawn(logits: Tensor) -> Tensor:
    return torch.multinomial(logits.softmax(-1), 1).squeeze(-1)


MISTAKES = (
    Mistake(
        "first_row_for_all",
        "you give every sentence of the batch the token that the first one wants",
        "logits[0, -1].argmax() is how one sentence is decoded.",
        "One sentence alone is right; in a batch all say the same.",
        BATCH,
        ({"choose": lambda logits: logits[0].argmax().expand(len(logits))},),
    ),
    Mistake(
        "argmax_over_batch",
        "your argmax runs over the batch, or over everything; it must run over the vocabulary, the last axis",
        "argmax() without an axis, or axis 0, is right as long as there is one vector.",
        "The wrong number of tokens, or tokens that do not exist.",
        BATCH,
        (
            {"choose": lambda logits: logits.argmax(0)},
            {"choose": lambda logits: logits.argmax().expand(len(logits))},
        ),
    ),
    Mistake(
        "first_position",
        "you read the logits of the first position; the next token is told at the last one",
        "Index 0 looks as good as index −1 while there is one token.",
        "The first token again and again.",
        GREEDY,
        ({"position": lambda logits: logits[:, 0]},),
    ),
    Mistake(
        "least_likely",
        "you take the least likely token",
        "Losses are minimised, probabilities are not.",
        "Nonsense from the first token on.",
        GREEDY,
        ({"choose": lambda logits: logits.argmin(-1)},),
    ),
    Mistake(
        "drawn",
        "you draw the next token by chance; greedy decoding takes the likeliest",
        "Sampling is what chat programs do.",
        "Another sentence at every call.",
        GREEDY,
        ({"choose": _drawn},),
    ),
    Mistake(
        "last_token_only",
        "you give the decoder the last token alone, without a cache of those before it",
        "With a cache that is all it needs.",
        "From the second token on, the model has forgotten what it said, and takes every token for the first.",
        CACHE,
        ({"context": lambda tokens: tokens[:, -1:]},),
    ),
    Mistake(
        "starts_with_padding",
        "you start with padding; a sentence starts with the model's bos_id",
        "torch.zeros is a quick way to get a first column.",
        "The model was never trained on such a beginning.",
        GREEDY,
        ({"first": lambda pad, bos: pad},),
    ),
    Mistake(
        "bos_kept",
        "you return the first token, bos_id, too; only what was generated is wanted",
        "It is the first column of the tokens.",
        "Everything is one place too far right.",
        GREEDY,
        ({"result": lambda tokens, pad, eos: tokens},),
    ),
    Mistake(
        "goes_on_after_end",
        "a sentence that has ended goes on while others are not finished; it must be given padding",
        "The loop watches the end, the tokens are kept as they come.",
        "Words after the end mark, other ones for other batch-mates.",
        BATCH,
        ({"advance": _goes_on},),
    ),
    Mistake(
        "stops_with_the_first",
        "you stop as soon as one sentence has ended; all have to",
        "With one sentence, any and all are the same.",
        "The longer sentences of a batch are cut off.",
        BATCH,
        ({"over": lambda done: bool(done.any())},),
    ),
    Mistake(
        "never_stops",
        "you go on to max_length although all sentences have ended",
        "The loop has no second way out.",
        "Columns full of padding, and time for nothing.",
        BATCH,
        ({"over": lambda done: False},),
    ),
    Mistake(
        "forgets_who_ended",
        "you forget which sentences had ended before: only those that end at this very step count as done",
        "is_done was assigned where it should collect.",
        "One padding after the end, and then the sentence goes on.",
        BATCH,
        ({"advance": _forgets},),
    ),
    Mistake(
        "end_dropped",
        "you replace the end mark itself by padding; it belongs to the sentence",
        "The sentence was marked as done before its token was written down.",
        "A finished sentence looks like one that was cut off.",
        BATCH,
        ({"advance": _drops_the_end},),
    ),
    Mistake(
        "end_repeated",
        "you fill up with eos_id; after the first end mark there is padding",
        "Some libraries have no padding and do so.",
        "Every further end mark counts as a token.",
        BATCH,
        ({"advance": _repeats_the_end},),
    ),
    Mistake(
        "later_ends_kept",
        "you erase what follows an end mark, but leave further end marks standing",
        "“All but end marks” was to save the first of them.",
        "A sentence that had ended goes on to an end mark that nobody said.",
        BATCH,
        ({"advance": _goes_on, "result": _later_ends_left},),
    ),
    Mistake(
        "one_rows_width",
        "you go by the length of one sentence for all; the longest decides",
        "One row was looked at for where padding begins, or whether it has ended.",
        "Longer sentences of the batch are cut off, or shorter ones leave columns of padding.",
        BATCH,
        (_as_long_as(-1), _as_long_as(0)),
    ),
    Mistake(
        "one_too_few",
        "you generate one token too few: bos_id does not count towards max_length",
        "The first column was counted.",
        "Long sentences lose their last token.",
        GREEDY,
        ({"most": lambda max_length, longest, source: max_length - 1},),
    ),
    Mistake(
        "one_too_many",
        "you generate one token too many: max_length is the most there may be, the end mark included",
        "The end mark, or a ≤ in the condition of the loop.",
        "One column more than was asked for.",
        GREEDY,
        ({"most": lambda max_length, longest, source: max_length + 1},),
    ),
    Mistake(
        "model_not_filled",
        "you stop one token before the model's own max_length; the last token is never read and needs no place",
        "The tokens, bos_id among them, were not to grow longer than the model allows.",
        "With the largest max_length, long sentences lose their last token.",
        GREEDY,
        ({"most": lambda max_length, longest, source: min(max_length, longest - 1)},),
    ),
    Mistake(
        "limited_by_source",
        "you let the source's length limit the sentence; max_length alone does",
        "A translation is about as long as its source.",
        "Short sources get cut-off sentences.",
        GREEDY,
        (
            *(_limited(lambda source, more=more: source + more) for more in (0, 1, 2, 3, 5)),
            *(_limited(lambda source, more=more: 2 * source + more) for more in (1, 3, 5)),
        ),
    ),
    SOURCE_PADDING_SEEN,
    replace(IDS_ASSUMED, variants=(*IDS_ASSUMED.variants, *ZEROS, *map(_ends_at_too, (0, 2)))),
    *MODES,
    Mistake(
        "length_unchecked",
        "you do not check max_length: it must lie between 1 and the model's own",
        "A range of zero steps runs without complaint, and short sentences end in time.",
        "An empty answer, or an error that comes with the first long sentence.",
        GREEDY,
        (
            {"accept": lambda max_length, longest: None},
            {"accept": lambda max_length, longest: _accept(max_length, max(max_length, 1))},
            {"accept": lambda max_length, longest: _accept(max(max_length, 1), longest)},
            {"accept": lambda max_length, longest: _accept(abs(max_length), longest)},
            {"accept": _room_for_all},
        ),
    ),
)

TASK = Task(
    name="greedy",
    signature="greedy(model, src, max_length=…)",
    arguments=("model", "src"),
    returns=("tokens",),
    reference=greedy,
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (batch, length), without bos_id.",
            ("alone",),
            GREEDY,
            ("structure",),
        ),
        Requirement(
            "values", "the next token is the likeliest one, given all before it.", ("alone",), GREEDY
        ),
        Requirement(
            "batch",
            "every sentence is decoded as if it were alone: padding in the source is not looked at, and after a "
            "sentence's end mark there is only pad_id.",
            ("batch",),
            BATCH,
        ),
        Requirement(
            "stopping",
            "it is over when all sentences have ended; no column is all padding.",
            ("early", "full"),
            BATCH,
        ),
        Requirement("ids", "the special tokens are those of model.config.", ("ids",), GREEDY),
        Requirement(
            "evaluation",
            "the model decodes in evaluation mode, and is left in the mode it came in.",
            ("training", "evaluation"),
            WRONG,
        ),
        Requirement("inputs", "src is left unchanged.", ("batch",), GREEDY, ("inputs",)),
        Requirement(
            "refusals",
            "a max_length below 1, or beyond the model's, is refused with ValueError.",
            ("none", "negative", "beyond"),
            GREEDY,
        ),
    ),
    sizes=_sizes,
    small=(
        {"number": 262, "seed": 0, "rows": 1},
        {"number": 445, "seed": 1, "rows": 2},
        {"number": 150, "seed": 2, "rows": 3},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
