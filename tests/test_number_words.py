"""The number words, against num2words over the whole range, and the reading of what people type."""

import hashlib
import json
import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from num2words import num2words

from transformer_lessons.data.number_words import (
    ENGLISH_TOKENS,
    GERMAN_TOKENS,
    LIMIT,
    english,
    english_tokens,
    german,
    german_tokens,
    held_out,
    pairs,
    parse,
    training_numbers,
)

pytestmark = pytest.mark.usefixtures("no_shape_checks")


def has_known_bug(n: int) -> bool:
    """num2words 0.5.14 says "einhunderteinstausend" for 101,000, and so on; it is "einhunderteintausend"."""
    return n >= 101_000 and (n // 1000) % 100 == 1


def disagreements(numbers: range) -> list[int]:
    """The numbers that num2words spells differently, outside its bug."""
    return [
        n
        for n in numbers
        if english(n) != num2words(n) or (not has_known_bug(n) and german(n) != num2words(n, lang="de"))
    ]


def test_equal_to_num2words_for_every_thousand_and_every_rest():
    """A number is so many thousands and a rest: all of the one with some of the other, and numbers at random."""
    chance = random.Random(0)
    some = [0, 1, 2, 10, 12, 21, 99, 100, 101, 110, *(chance.randrange(1000) for _ in range(3))]
    numbers = {1000 * a + b for t in some for r in range(1000) for a, b in ((t, r), (r, t))}
    assert not disagreements(sorted(numbers) + [chance.randrange(LIMIT) for _ in range(5000)])


@pytest.mark.full
def test_equal_to_num2words_for_every_number():
    chunks = [range(start, start + 10_000) for start in range(0, LIMIT, 10_000)]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:  # two million words take minutes
        wrong = [n for chunk in pool.map(disagreements, chunks) for n in chunk]
    assert sum(map(len, chunks)) == LIMIT
    assert not wrong


def test_where_num2words_is_wrong():
    assert num2words(101_000, lang="de") == "einhunderteinstausend"  # if this fails, the bug is mended
    assert german(101_000) == "einhunderteintausend"
    assert german(301_021) == "dreihunderteintausendeinundzwanzig"


def test_examples_of_the_course():
    assert english(421_005) == "four hundred and twenty-one thousand and five"
    assert english(900_654) == "nine hundred thousand, six hundred and fifty-four"
    assert english(1_099) == "one thousand and ninety-nine"
    assert english(1_100) == "one thousand, one hundred"
    assert german(421) == "vierhunderteinundzwanzig"
    assert german_tokens(421) == ["vier", "hundert", "ein", "und", "zwanzig"]


def test_vocabularies_hold_every_token():
    numbers = [*range(1000), *range(0, LIMIT, 997)]
    assert {t for n in numbers for t in english_tokens(english(n))} == set(ENGLISH_TOKENS)
    assert {t for n in numbers for t in german_tokens(n)} == set(GERMAN_TOKENS)


@pytest.mark.parametrize(
    "n", [0, 7, 13, 20, 21, 100, 101, 110, 999, 1000, 1001, 1100, 20_000, 421_005, 999_999]
)
def test_parse_reads_what_english_says(n):
    text = english(n)
    spellings = {text, text.upper(), text.replace(",", ""), text.replace("-", " "), text.replace(" and", "")}
    spellings |= {f"  {text} ", str(n), f"{n:,}", text.replace(" and", "").replace("-", " ").replace(",", "")}
    assert {parse(spelling) for spelling in spellings} == {n}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "got nothing"),
        ("minus five", "expected 0 to 999,999"),
        ("-5", "expected 0 to 999,999, got -5"),
        ("−5", "expected 0 to 999,999, got -5"),
        ("1000000", "got 1,000,000"),
        ("a million", "expected digits or English number words, got 'a'"),
        ("one million", "expected 0 to 999,999"),
        ("twelve hundred", "in their order"),
        ("one thousand thousand", "in their order"),
        ("ten hundred thousand", "in their order"),
        ("twenty eleven", "in their order"),
        ("five twenty", "in their order"),
        ("hundred", "in their order"),
        ("four and hundred", "in their order"),
        ("four hundred and", "in their order"),
        ("zero thousand and five", "in their order"),
        ("forty-towo", "got 'towo'"),
        ("1,00", "got '1'"),
        ("3.5", "got '3.5'"),
    ],
)
def test_parse_refuses(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse(text)


@pytest.mark.parametrize("n", [-1, LIMIT])
@pytest.mark.parametrize("function", [english, german])
def test_numbers_out_of_range(function, n):
    with pytest.raises(ValueError, match="number: expected 0 to 999,999"):
        function(n)


def test_held_out_numbers_are_fixed_and_never_trained_on():
    numbers = held_out()
    assert len(set(numbers)) == 1000
    assert numbers == held_out.__wrapped__()
    trained = [n for seed in range(5) for n in training_numbers(20_000, seed)]
    assert not set(trained) & set(numbers)
    assert all(0 <= n < LIMIT for n in trained)


def test_the_numbers_of_the_committed_model():
    """Its record, and those in the book, were measured after training on these."""
    numbers = training_numbers(20_000, seed=0)
    assert numbers[:6] == [116_554, 794_772, 219_513, 42_450, 34, 536_110]
    assert hashlib.sha256(json.dumps(numbers).encode()).hexdigest()[:16] == "2c2b6fedac4101cf"


def test_pairs_are_ids_of_both_vocabularies():
    # "twenty one" and "ein und zwanzig": an id is a place in the list, after the three special ones.
    english_ids = [3 + ENGLISH_TOKENS.index(word) for word in ("twenty", "one")]
    german_ids = [3 + GERMAN_TOKENS.index(word) for word in ("ein", "und", "zwanzig")]
    assert pairs([21]) == [(english_ids, german_ids)]
    with pytest.raises(ValueError, match="numbers: expected several"):
        pairs(21)


def test_all_numbers_may_be_held_out():
    assert set(held_out.__wrapped__(LIMIT)) == set(range(LIMIT))
    with pytest.raises(
        ValueError, match="count: expected at most 1,000,000 different numbers, got 1,000,001"
    ):
        held_out.__wrapped__(LIMIT + 1)


def test_training_numbers_are_half_uniform_half_log_uniform():
    numbers = training_numbers(20_000, seed=0)
    assert numbers == training_numbers(20_000, seed=0)
    assert numbers != training_numbers(20_000, seed=1)
    # Below 1,000 lie 0.1% of the uniform half and half of the log-uniform one: about 25% of all.
    assert 0.23 < sum(n < 1000 for n in numbers) / len(numbers) < 0.27
