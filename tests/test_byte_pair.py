"""Byte-pair encoding: by hand, against the `tokenizers` library, and for all texts.

The library knows characters, not bytes: each byte gets a character that stands for it, in the bytes' own order,
so that ties are broken alike and the ids of both are the same numbers.
"""

import io
import json
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from transformer_lessons.data import number_words
from transformer_lessons.data.batches import make_batch
from transformer_lessons.data.byte_pair import BytePairEncoding, merge, split_words
from transformer_lessons.data.vocabulary import BOS, EOS, PAD, Vocabulary

STANDS_FOR = [chr(0x4E00 + byte) for byte in range(256)]
SENTENCES = [
    "Ein Mann fährt über die Straße, und zwei Hunde sehen ihm zu.",
    "A man rides over the street, and two dogs are watching him ...",
    "東京は夜の七時。東京は 夜 の七時!",
    "\tdef f(x_1):\n\t\treturn  x_1 ** 2   # 42 42 42\n",
    "👩‍👩‍👧 says hi to 👩‍👩‍👧, naïve café cafe\u0301",
]
SOME = random.Random(0).sample(range(999_999), 150)
NUMBERS = [*map(number_words.english, SOME), *map(number_words.german, SOME)]
CORPORA = {"sentences": SENTENCES, "numbers": NUMBERS, "both": SENTENCES + NUMBERS}
few = settings(derandomize=True, max_examples=60, deadline=None)


def disguised(text: str) -> str:
    """The text's words, with spaces between them, each byte as the character that stands for it."""
    return " ".join("".join(STANDS_FOR[byte] for byte in word.encode()) for word in split_words(text))


def trained_by_the_library(texts: list[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=STANDS_FOR,
        show_progress=False,
    )
    tokenizer.train_from_iterator([disguised(text) for text in texts], trainer)
    return tokenizer


def merges_of(tokenizer: Tokenizer) -> list[tuple[int, int]]:
    model = json.loads(tokenizer.to_str())["model"]
    return [(model["vocab"][left], model["vocab"][right]) for left, right in model["merges"]]


def given_to_the_library(encoding: BytePairEncoding) -> Tokenizer:
    """The library's encoder with our merges: what it does with them is its own affair."""
    names = [PAD, BOS, EOS, *("".join(STANDS_FOR[byte] for byte in token) for token in encoding.tokens[3:])]
    vocabulary = {name: number for number, name in enumerate(names)}
    merges = [(names[left], names[right]) for left, right in encoding.merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


@pytest.fixture(scope="module")
def trained() -> BytePairEncoding:
    return BytePairEncoding.train(CORPORA["both"], 400)


# ---- By hand


def test_the_example_of_sennrich_et_al():
    """low × 5, lower × 2, newest × 6, widest × 3, as in the paper's Algorithm 1, without its end-of-word mark.

    Pairs at first: es 9, st 9, we 2 + 6 = 8, lo 7, ow 7, ne 6, ew 6, wi id de 3, er 2.
    es = st: the smaller ids are e s.            -> es; now es+t 9, w+es 6, d+es 3
    es+t 9                                       -> est; w+e is 2 now, w+est 6, d+est 3
    lo 7 = ow 7: l before o                      -> lo; lo+w 7 -> low; left of w+e: low+e 2
    e+w 6 = n+e 6 = w+est 6: e before n, w       -> ew; n+ew 6, ew+est 6; n is a byte, ew is not -> new
    new+est 6                                    -> newest
    d+est 3 = i+d 3 = w+i 3                      -> dest; i+dest 3 = w+i 3 -> idest; w+idest 3 -> widest
    e+r 2 = low+e 2: e is a byte, low is not     -> er; low+er 2 -> lower; no pair is left
    """
    texts = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    encoding = BytePairEncoding.train(texts, 1000)
    learnt = b"es est lo low ew new newest dest idest widest er lower".split()
    assert encoding.tokens[259:] == learnt
    e, s, t = (3 + ord(letter) for letter in "est")
    assert encoding.merges[:2] == [(e, s), (259, t)]
    assert len(encoding) == 259 + 12
    # Never seen, and spelt from what was: the paper's "lowest" is low + est.
    assert encoding.encode("lowest") == [262, 260]
    words = "low lower newest widest".split()
    assert [encoding.encode(word) for word in words] == [[262], [270], [265], [268]]
    assert BytePairEncoding.train(texts, 262).tokens[259:] == learnt[:3]


def test_ids():
    encoding = BytePairEncoding()
    assert encoding.tokens[:3] == [b"<pad>", b"<bos>", b"<eos>"]
    assert (encoding.pad_id, encoding.bos_id, encoding.eos_id) == (0, 1, 2)
    assert (Vocabulary.pad_id, Vocabulary.bos_id, Vocabulary.eos_id) == (0, 1, 2)
    assert len(encoding) == 259
    assert encoding.encode("a\0ÿ") == [3 + 97, 3, 3 + 0xC3, 3 + 0xBF]
    assert encoding.encode("") == []


def test_a_text_never_gives_a_special_id():
    encoding = BytePairEncoding.train([f"{PAD} {BOS} {EOS}"] * 9, 300)
    assert min(encoding.encode(f"{PAD}{BOS} {EOS}")) > 2
    assert encoding.decode(encoding.encode(f"{PAD}{EOS}x")) == f"{PAD}{EOS}x"


@pytest.mark.parametrize(
    ("ids", "merged"),
    [
        ([], []),
        ([5], [5]),
        ([5, 6], [9]),
        ([6, 5], [6, 5]),
        ([5, 5, 6, 6], [5, 9, 6]),
        ([5, 6, 5, 6, 7], [9, 9, 7]),
    ],
)
def test_merge(ids, merged):
    before = list(ids)
    assert merge(ids, (5, 6), 9) == merged
    assert ids == before


def test_merge_from_left_to_right():
    assert merge([5] * 5, (5, 5), 9) == [9, 9, 5]


def test_words():
    words = "to| be|,| or|  |not_1| «|Straße|»|\n |be|?!|\t\t".split("|")
    assert split_words("".join(words)) == words
    assert split_words("") == []


def test_no_token_crosses_the_border_of_a_word():
    encoding = BytePairEncoding.train(["to be, to be, to be"], 1000)
    assert {token for token in encoding.tokens[259:] if not token.startswith(b" ")} == {b"to"}
    assert {len(token) for token in encoding.tokens[259:]} == {2, 3}


def test_decode_stops_at_the_end_mark_and_shows_no_marks():
    low = [3 + ord(letter) for letter in "low"]
    assert BytePairEncoding().decode([1, *low, 0, 2, *low]) == "low"
    assert BytePairEncoding().decode([]) == ""


def test_bytes_that_are_no_text():
    encoding = BytePairEncoding()
    euro = encoding.encode("€")
    assert len(euro) == 3
    assert encoding.decode([*euro, 3 + ord("!"), *euro[:2]]) == "€!�"
    assert encoding.decode([3 + 0xFF]) == "�"


def test_ids_can_feed_a_model(trained):
    batch = make_batch([(trained.encode("seven"), trained.encode("sieben dogs")), (trained.encode("a"), [])])
    assert trained.decode(batch.tgt_out[0].tolist()) == "sieben dogs"
    assert trained.decode(batch.tgt_in[0].tolist()) == "sieben dogs"
    assert trained.decode(batch.src[1].tolist()) == "a"
    assert int(batch.src.max()) < len(trained)


# ---- Against the library


@pytest.mark.parametrize("vocab_size", [259, 260, 331, 5000])
@pytest.mark.parametrize("corpus", CORPORA)
def test_merges_are_those_of_the_library(corpus, vocab_size):
    encoding = BytePairEncoding.train(CORPORA[corpus], vocab_size)
    other = trained_by_the_library(CORPORA[corpus], vocab_size)
    assert encoding.merges == merges_of(other)
    assert len(encoding) == other.get_vocab_size()
    for text in CORPORA["both"]:
        assert encoding.encode(text) == other.encode(disguised(text)).ids


# Few letters: ties, overlaps and runs everywhere.
@few
@given(
    st.lists(st.text("ab é", max_size=40), max_size=7), st.integers(259, 320), st.text("ab é", max_size=60)
)
def test_merges_are_those_of_the_library_for_few_letters(texts, vocab_size, unseen):
    encoding = BytePairEncoding.train(texts, vocab_size)
    other = trained_by_the_library(texts, vocab_size)
    assert encoding.merges == merges_of(other)
    assert encoding.encode(unseen) == other.encode(disguised(unseen)).ids


@few
@given(text=st.text(max_size=80))
def test_encoding_with_our_merges_is_the_library_s(trained, oracle, text):
    assert trained.encode(text) == oracle.encode(disguised(text)).ids


@pytest.fixture(scope="module")
def oracle(trained) -> Tokenizer:
    return given_to_the_library(trained)


# ---- For all texts


@few
@given(text=st.text())
@pytest.mark.parametrize("is_trained", [False, True])
def test_round_trip(trained, is_trained, text):
    encoding = trained if is_trained else BytePairEncoding()
    assert encoding.decode(encoding.encode(text)) == text
    assert "".join(split_words(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\0\x1b\x7f\r\n",
        "e\u0301",
        "👩‍👩‍👧🇩🇪",
        "\ufeff\u200b\u2028\x85",
        "\U0010ffff\ufffe",
        *SENTENCES,
    ],
)
def test_round_trip_of_odd_texts(trained, text):
    assert trained.decode(trained.encode(text)) == text
    assert trained.decode(trained.encode(text * 50)) == text * 50


@few
@given(st.lists(st.text("ab ", max_size=30), max_size=7), st.randoms(use_true_random=False))
def test_the_order_of_the_texts_does_not_matter(texts, generator):
    encoding = BytePairEncoding.train(texts, 300)
    generator.shuffle(texts)
    assert BytePairEncoding.train(texts, 300).merges == encoding.merges
    # A token is always made in the same way: no two ids for the same bytes.
    assert len(set(encoding.tokens)) == len(encoding.tokens) == 259 + len(encoding.merges)


def test_an_iterator_will_do():
    assert BytePairEncoding.train(iter(NUMBERS), 300).merges == BytePairEncoding.train(NUMBERS, 300).merges


def test_merges_are_all_there_is_to_save(trained):
    again = BytePairEncoding(json.loads(json.dumps(trained.merges)))
    assert (again.merges, again.tokens) == (trained.merges, trained.tokens)
    assert all(again.encode(text) == trained.encode(text) for text in CORPORA["both"])


def test_what_is_returned_is_the_caller_s(trained):
    expected = trained.encode("seven")
    trained.encode("seven").append(7)
    trained.merges.clear()
    assert trained.encode("seven") == expected


# ---- Progress and complaints


@pytest.mark.parametrize(
    ("is_terminal", "progress", "is_shown"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_progress_is_for_a_terminal_that_asks(monkeypatch, capsys, is_terminal, progress, is_shown):
    error = io.StringIO()
    error.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stderr", error)
    BytePairEncoding.train(NUMBERS, 270, progress=progress)
    assert ("11/11" in error.getvalue()) == is_shown == bool(error.getvalue())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("vocab_size", [258, 0, -1, 300.0, True, None])
def test_a_vocabulary_too_small(no_shape_checks, vocab_size):
    message = rf"^vocab_size: expected 259 or more, for 3 special tokens and 256 bytes, got {vocab_size}$"
    with pytest.raises(ValueError, match=message):
        BytePairEncoding.train(["low"], vocab_size)


@pytest.mark.parametrize(("texts", "kind"), [("low lower", "str"), (7, "int"), (None, "NoneType")])
def test_texts_that_are_not_several(no_shape_checks, texts, kind):
    with pytest.raises(ValueError, match=f"^texts: expected several texts, such as a list, got one {kind}$"):
        BytePairEncoding.train(texts, 300)


@pytest.mark.parametrize("odd", [b"low", 3, None])
def test_a_text_that_is_none(no_shape_checks, odd):
    with pytest.raises(ValueError, match=rf"^texts\[1\]: expected a str, got {type(odd).__name__}$"):
        BytePairEncoding.train(["low", odd], 300)
    with pytest.raises(ValueError, match=f"^text: expected a str, got {type(odd).__name__}$"):
        BytePairEncoding().encode(odd)


def test_half_a_surrogate_pair():
    half = r"expected what UTF-8 can express, got half a surrogate pair, '\\ud83d' at position 4$"
    with pytest.raises(ValueError, match=f"^text: {half}"):
        BytePairEncoding().encode("low \ud83d")
    with pytest.raises(ValueError, match=rf"^texts\[2\]: {half}"):
        BytePairEncoding.train(["a", "b", "low \ud83d"], 300)


@pytest.mark.parametrize("number", [-1, 260, 9999])
def test_an_id_out_of_range(number):
    with pytest.raises(ValueError, match=f"^ids: expected 0 to 259, got {number}$"):
        BytePairEncoding([(100, 101)]).decode([100, number])


@pytest.mark.parametrize(
    "pair",
    [(2, 100), (100, 260), (-1, 100), (100,), (100, 101, 102), (100, "a"), (100, True), "ab", 7, None],
)
def test_merges_that_are_no_pairs_of_ids(no_shape_checks, pair):
    with pytest.raises(ValueError, match=r"^merges\[1\]: expected two ids from 3 to 259, got ") as complaint:
        BytePairEncoding([(100, 101), pair])
    assert str(complaint.value).endswith(f"got {pair!r}")


def test_the_first_byte_can_be_merged():
    assert BytePairEncoding([(3, 258)]).tokens[-1] == bytes([0, 255])


def test_merges_given_twice_or_not_at_all(no_shape_checks):
    with pytest.raises(ValueError, match=r"^merges\[2\]: expected each pair once, got \(100, 101\) again$"):
        BytePairEncoding([(100, 101), (259, 259), [100, 101]])
    with pytest.raises(ValueError, match=r"^merges: expected pairs of ids, got 7$"):
        BytePairEncoding(7)
    assert BytePairEncoding([(100, 101), (259, 259)]).tokens[-1] == b"abab"
