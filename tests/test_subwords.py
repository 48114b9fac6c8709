"""The `tokenizers` library behind our interface: the same merges as our own, no text lost, and files."""

import os
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, trainers
from tokenizers.processors import TemplateProcessing

from transformer_lessons.data.batches import make_batch
from transformer_lessons.data.byte_pair import BytePairEncoding
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.data.vocabulary import BOS, EOS, PAD

ENGLISH = ["A man rides over the street, and two dogs watch him.", "Two dogs run over the wide street."] * 3
GERMAN = [
    "Ein Mann fährt über die Straße, und zwei Hunde sehen zu.",
    "Zwei Hunde laufen über die Straße.",
] * 3


@pytest.fixture(scope="module")
def trained() -> Subwords:
    return Subwords.train([*ENGLISH, *GERMAN], 320)


def test_ids(trained):
    assert (trained.pad_id, trained.bos_id, trained.eos_id) == (0, 1, 2)
    assert [trained.tokenizer.token_to_id(token) for token in (PAD, BOS, EOS)] == [0, 1, 2]
    assert len(trained) == 320
    assert len(Subwords.train([], 1000)) == 259


def test_merges_are_those_of_our_own():
    """ab 14, then ab+c 5, then xy 3, then the two bytes of ä: no tie, which the two might break differently."""
    texts = ["ab"] * 9 + ["abc"] * 5 + ["xy"] * 3 + ["ä"] * 2
    own, library = BytePairEncoding.train(texts, 1000), Subwords.train(texts, 1000)
    assert own.tokens[259:] == [b"ab", b"abc", b"xy", "ä".encode()]
    assert [library.decode([number]) for number in range(259, len(library))] == ["ab", "abc", "xy", "ä"]
    for vocab_size in (259, 260, 261):
        assert len(Subwords.train(texts, vocab_size)) == vocab_size


def test_many_texts_at_once(trained):
    assert trained.encode_all(iter(ENGLISH + GERMAN)) == [trained.encode(text) for text in ENGLISH + GERMAN]
    assert trained.encode_all([]) == []
    assert trained.encode_all(["<eos>"]) == [trained.encode("<eos>")]


def test_training_makes_sentences_shorter(trained):
    for text in ENGLISH + GERMAN:
        assert 0 < len(trained.encode(text)) < 0.6 * len(text.encode())
    assert Subwords.train(ENGLISH + GERMAN, 320).tokenizer.to_str() == trained.tokenizer.to_str()


@settings(derandomize=True, max_examples=150, deadline=None)
@given(text=st.text())
def test_round_trip(trained, text):
    ids = trained.encode(text)
    assert trained.decode(ids) == text
    assert all(2 < number < len(trained) for number in ids)


@pytest.mark.parametrize(
    "text", ["", " ", "  a  b ", "\0\x1b\x7f\r\n\t", "e\u0301", "👩‍👩‍👧🇩🇪", "\ufeff\x85\u2028"]
)
def test_round_trip_of_odd_texts(trained, text):
    assert trained.decode(trained.encode(text)) == text


@pytest.mark.parametrize("text", [EOS, f"{PAD}a{BOS}", f"over {EOS} the street"])
def test_a_text_never_gives_a_special_id(trained, tmp_path, text):
    trained.save(tmp_path / "tokenizer.json")
    for subwords in (trained, Subwords.load(tmp_path / "tokenizer.json")):
        assert min(subwords.encode(text)) > 2
        assert subwords.decode(subwords.encode(text)) == text


def test_decode_stops_at_the_end_mark_and_shows_no_marks(trained):
    dogs, man = trained.encode(" dogs"), trained.encode(" man")
    assert trained.decode([1, *dogs, 0, *man, 2, *dogs, 2]) == " dogs man"
    assert trained.decode([2]) == trained.decode([]) == ""


def test_bytes_that_are_no_text(trained):
    euro = trained.encode("€")
    assert trained.decode([*euro, *euro[:1]]) == "€�"


def test_ids_can_feed_a_model(trained):
    batch = make_batch([(trained.encode("the street"), trained.encode("die Straße")), ([], [])])
    assert (
        trained.decode(batch.tgt_out[0].tolist()) == trained.decode(batch.tgt_in[0].tolist()) == "die Straße"
    )


# ---- Files


def test_save_and_load(trained, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text("an older one")
    trained.save(path)
    again = Subwords.load(path)
    assert len(again) == len(trained)
    assert all(again.encode(text) == trained.encode(text) for text in ENGLISH + GERMAN + ["東京"])
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]
    assert Tokenizer.from_file(str(path)).encode("the street").ids == trained.encode("the street")


def test_a_write_that_fails_leaves_the_old_file(trained, tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    trained.save(path)
    before = path.read_bytes()

    smaller = Subwords.train(ENGLISH, 300)
    whole = len(smaller.tokenizer.to_str(pretty=True).encode()) + 1

    def no_space(number):
        assert os.fstat(number).st_size == whole
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="no space left"):
        smaller.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


def test_a_reader_keeps_the_file_it_opened(trained, tmp_path):
    path = tmp_path / "tokenizer.json"
    trained.save(path)
    with path.open("rb") as reader:
        before = path.read_bytes()
        Subwords.train(ENGLISH, 300).save(path)
        assert reader.read() == before != path.read_bytes()


def test_what_a_file_switches_on_is_off(trained, tmp_path):
    cutting = Tokenizer.from_str(trained.tokenizer.to_str())
    cutting.enable_truncation(2)
    cutting.enable_padding(length=50)
    cutting.save(str(tmp_path / "tokenizer.json"))
    assert Subwords.load(tmp_path / "tokenizer.json").encode(ENGLISH[0]) == trained.encode(ENGLISH[0])


def test_no_post_processor_adds_marks(trained):
    marking = Tokenizer.from_str(trained.tokenizer.to_str())
    marking.post_processor = TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 1)])
    assert Subwords(marking).encode(" dogs") == trained.encode(" dogs")


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b"\xff\xfe", b'{"model": {"type": "BPE"}}'])
def test_a_file_that_is_none(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"tokenizer.json: expected a tokenizer.json, got .") as complaint:
        Subwords.load(path)
    assert str(complaint.value).startswith(str(path))


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Subwords.load(tmp_path / "nowhere")


def test_ids_of_another_kind(tmp_path):
    message = r"^tokenizer: expected <pad>, <bos>, <eos> as ids 0, 1, 2, got \['<bos>', 'a', None\]$"
    tokenizer = Tokenizer(models.BPE(vocab={BOS: 0, "a": 1}, merges=[]))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=message):
        Subwords.load(tmp_path / "tokenizer.json")


# ---- Complaints


def test_complaints(no_shape_checks, trained):
    with pytest.raises(ValueError, match=r"^vocab_size: expected 259 or more, .* got 258$"):
        Subwords.train(ENGLISH, 258)
    with pytest.raises(ValueError, match=r"^texts: expected several texts, such as a list, got one str$"):
        Subwords.train("over the street", 300)
    with pytest.raises(ValueError, match=r"^texts\[1\]: expected a str, got int$"):
        Subwords.train(["over", 7], 300)
    with pytest.raises(ValueError, match=r"^text: expected a str, got list$"):
        trained.encode(["over"])
    with pytest.raises(
        ValueError, match=r"^text: expected what UTF-8 can express, got half a surrogate pair, "
    ):
        trained.encode("\udc00")
    with pytest.raises(ValueError, match=r"^texts: expected several texts, such as a list, got one str$"):
        trained.encode_all("over the street")
    with pytest.raises(ValueError, match=r"^texts\[1\]: expected a str, got int$"):
        trained.encode_all(["over", 7])


@pytest.mark.parametrize("number", [-1, 320])
def test_an_id_out_of_range(trained, number):
    with pytest.raises(ValueError, match=f"^ids: expected 0 to 319, got {number}$"):
        trained.decode([number])


def test_without_the_library(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    message = r'^tokenizers: expected .* library, got none: pip install "transformer-lessons\[subwords\]"$'
    with pytest.raises(ImportError, match=message):
        Subwords.train(ENGLISH, 300)
    with pytest.raises(ImportError, match=message):
        Subwords.load(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("progress", [False, True])
def test_the_library_shows_progress_only_if_asked(monkeypatch, progress):
    asked, trainer = [], trainers.BpeTrainer

    def noting(**settings):
        asked.append(settings["show_progress"])
        return trainer(**settings)

    monkeypatch.setattr(trainers, "BpeTrainer", noting)
    Subwords.train(ENGLISH, 300, progress=progress)
    Subwords.train(ENGLISH, 300)
    assert asked == [progress, False]
