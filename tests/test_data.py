"""From text to batches of ids: number words, encodings, files of sentences, batches."""

import gzip
import hashlib
import json
import random
import sys
import threading
import types
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pooch
import pytest
import torch
from num2words import num2words

from transformer_lessons.data import corpus, multi30k, number_words, wmt14
from transformer_lessons.data.batches import Batches, TokenBatches, make_batch
from transformer_lessons.data.byte_pair import BytePairEncoding
from transformer_lessons.data.corpus import Corpus, read_pairs
from transformer_lessons.data.encoded import EncodedPairs
from transformer_lessons.data.libraries import library
from transformer_lessons.data.number_words import english, german
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.data.vocabulary import BOS, EOS, PAD, Vocabulary, pad

SENTENCES = [
    "Ein Mann fährt über die Straße, und zwei Hunde sehen ihm zu.",
    "A man rides over the street, and two dogs are watching him ...",
    "東京は夜の七時。東京は 夜 の七時!",
    "\tdef f(x_1):\n\t\treturn  x_1 ** 2   # 42 42 42\n",
    "👩‍👩‍👧 says hi to 👩‍👩‍👧, naïve café cafe\u0301 \ufeff\x85\u2028\0",
]
NUMBERS = random.Random(0).sample(range(number_words.LIMIT), 150)
TEXTS = [*SENTENCES, *map(english, NUMBERS), *map(german, NUMBERS)]

# ---- Number words, against num2words, and what people type


def test_number_words_are_those_of_num2words_for_every_thousand_and_every_rest():
    some = [0, 1, 12, 21, 101, 347]
    numbers = {1000 * a + b for t in some for r in range(1000) for a, b in ((t, r), (r, t))}
    for n in numbers:
        assert english(n) == num2words(n)
        # num2words 0.5.14 says "einhunderteinstausend" for 101,000, and so on; it is "einhunderteintausend".
        has_known_bug = n >= 101_000 and (n // 1000) % 100 == 1
        assert has_known_bug or german(n) == num2words(n, lang="de"), n
    assert german(301_021) == "dreihunderteintausendeinundzwanzig"


@pytest.mark.parametrize("n", [0, 7, 13, 20, 21, 100, 110, 999, 1000, 1001, 1100, 20_000, 421_005, 999_999])
def test_parse_reads_what_english_says(n):
    text = english(n)
    spellings = {text, text.upper(), text.replace(",", ""), text.replace("-", " "), text.replace(" and", "")}
    spellings |= {f"  {text} ", str(n), f"{n:,}", text.replace(" and", "").replace("-", " ").replace(",", "")}
    assert {number_words.parse(spelling) for spelling in spellings} == {n}


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        ("|,", "got nothing"),
        ("-5|−5", "expected 0 to 999,999, got "),
        ("1000000|1,000,000", "got 1,000,000"),
        (
            "a million|minus five|1,00|3.5",
            "one below 1,000,000 in digits or English words, got '(a|minus|1|3.5)'",
        ),
        (
            "twelve hundred|one thousand thousand|ten hundred thousand|twenty eleven|five twenty",
            "form one number",
        ),
        ("hundred|thousand|zero thousand and five|four thousand zero", "form one number"),
    ],
)
def test_parse_refuses(texts, complaint):
    for text in texts.split("|"):
        with pytest.raises(ValueError, match=f"^number: .*{complaint}"):
            number_words.parse(text)


def test_training_numbers_are_reproducible_and_not_held_out():
    """Half uniform, half log-uniform; those of the committed model, and none held out."""
    numbers = number_words.training_numbers(20_000, seed=0)
    assert hashlib.sha256(json.dumps(numbers).encode()).hexdigest()[:16] == "2c2b6fedac4101cf"
    assert 0.23 < sum(n < 1000 for n in numbers) / len(numbers) < 0.27
    held_out = set(number_words.held_out())
    assert len(held_out) == 1000
    assert not held_out & {n for seed in range(3) for n in number_words.training_numbers(20_000, seed)}


def test_ids_of_number_words():
    source, target = number_words.vocabularies()
    ((english_ids, german_ids),) = number_words.pairs([21])
    assert source.decode(english_ids) == ["twenty", "one"]
    assert target.decode(german_ids) == ["ein", "und", "zwanzig"]


# ---- Vocabularies and byte pairs


def test_a_vocabulary_there_and_back():
    vocabulary = Vocabulary(iter(["apple", "pear", "fig"]))
    assert vocabulary.tokens == [PAD, BOS, EOS, "apple", "pear", "fig"]
    assert vocabulary.encode(["fig", "apple", "fig"]) == [5, 3, 5]
    assert vocabulary.decode([1, 3, 0, 4, 2, 5, 2]) == ["apple", "pear"]
    with pytest.raises(ValueError, match="tokens: expected tokens of the vocabulary, got 'plum'"):
        vocabulary.encode(["fig", "plum"])


def test_pad_fills_up_on_the_right():
    assert pad([[3, 4], [], [5, 6, 7]], pad_id=9).tolist() == [[3, 4, 9], [9, 9, 9], [5, 6, 7]]
    assert [pad(nothing, 0).shape for nothing in ([], [[]], [[], []])] == [(0, 0), (1, 0), (2, 0)]


def test_merges_stay_within_words():
    """Chapter 2 finds the same merges and ids by counting."""
    words = "to| be|,| or|  |not_1| «|Straße|»|\n |be|?!|\t\t".split("|")
    encoding = BytePairEncoding.train(["".join(words)], 1000)  # merges as long as there are pairs
    assert [encoding.tokens[number].decode() for number in encoding.encode("".join(words))] == words
    encoding = BytePairEncoding.train(["to be, to be"], 1000)
    assert encoding.tokens[259:] == [b" b", b"to", b" be", b" to"]


@pytest.fixture(scope="module")
def encodings() -> list:
    """Our encoding, its copy made from the merges, and the library's, learned from the same texts."""
    own = BytePairEncoding.train(TEXTS, 400)
    return [own, BytePairEncoding(json.loads(json.dumps(own.merges))), Subwords.train(TEXTS, 400)]


def test_any_text_survives_a_round_trip_and_special_ids_are_skipped(encodings):
    all_bytes = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000, 97)]))
    for encoding in encodings:
        for text in (*SENTENCES, EOS, f"over {PAD} {EOS}", all_bytes):
            ids = encoding.encode(text)
            assert encoding.decode(ids) == text
            assert 2 < min(ids) <= max(ids) < len(encoding)
        low, euro = encoding.encode("low"), encoding.encode("€")
        assert encoding.decode([1, *low, 0, *low, 2, *low, 2]) == "lowlow"
        assert encoding.decode([*euro, *euro[:1]]) == "€�"


def test_an_encoding_is_kept_in_a_file(encodings, tmp_path):
    subwords, path = encodings[2], tmp_path / "tokenizer.json"
    assert subwords.encode_all(iter(TEXTS)) == [subwords.encode(text) for text in TEXTS]
    subwords.save(path)
    assert all(Subwords.load(path).encode(text) == subwords.encode(text) for text in [*TEXTS, EOS])
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json: expected a tokenizer.json, got ."):
        Subwords.load(path)


def test_an_import_error_within_an_installed_library_is_kept(tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text("import no_such_part")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"^No module named 'no_such_part'"):
        library("broken_library", extra="text")


# ---- Batches


def test_make_batch_by_hand():
    batch = make_batch([([7, 8, 9], [5]), ([6], [3, 4])])
    assert batch.src.tolist() == [[7, 8, 9], [6, 0, 0]]
    assert batch.tgt_in.tolist() == [[1, 5, 0], [1, 3, 4]]
    assert batch.tgt_out.tolist() == [[5, 2, 0], [3, 4, 2]]


# A pair is recognised by its first source token. As in translation, long sources have long targets.
LONG = [([100 + n] * (2 + n % 29), [3 + n] * (1 + n % 29 + n % 5)) for n in range(997)]
TOTAL = sum(len(source) + len(target) + 1 for source, target in LONG)
KINDS = {
    "shuffled": partial(Batches, batch_size=17),
    "of like lengths": partial(TokenBatches, tokens=503),
}
EACH_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def firsts(batch) -> list[int]:
    return (batch.src[:, 0] - 100).tolist()


def epoch_of(batches, number: int = 0) -> list:
    return [batches[step + number * batches.steps_per_epoch] for step in range(batches.steps_per_epoch)]


@EACH_KIND
def test_an_epoch_has_every_pair_once_and_the_next_mixes_them_again(kind):
    batches = kind(LONG, seed=0)
    epochs = [[firsts(batch) for batch in epoch_of(batches, number)] for number in (0, 1)]
    for epoch in epochs:
        seen = [n for batch in epoch for n in batch]
        assert len(seen) == len({*seen}) == (997 if kind is not KINDS["shuffled"] else 997 // 17 * 17)
    mates = [{n: set(batch) for batch in epoch for n in batch} for epoch in epochs]
    kept = [len(mates[0][n] & mates[1][n]) / len(mates[0][n]) for n in mates[0].keys() & mates[1].keys()]
    assert sum(kept) / len(kept) < 0.5


@EACH_KIND
def test_a_batch_is_a_function_of_seed_and_step(kind):
    one, other, before = kind(LONG, seed=7), kind(LONG, seed=7), torch.get_rng_state()
    steps = one.steps_per_epoch
    wanted = {step: one[step] for step in range(2 * steps)}
    for step in (steps, 3, 2 * steps - 1, 0):  # in any order, as after a restart
        assert all(torch.equal(a, b) for a, b in zip(other[step], wanted[step], strict=True))
    assert firsts(kind(LONG, seed=8)[0]) != firsts(wanted[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_batches_are_alike_in_tokens_and_nearly_free_of_padding():
    def share(kind) -> float:
        epoch = epoch_of(kind(LONG, seed=0))
        real = [int((batch.src != 0).sum() + (batch.tgt_out != 0).sum()) for batch in epoch]
        if kind is not KINDS["shuffled"]:  # a batch may differ from the average by a pair at either end
            assert len(epoch) == round(TOTAL / 503)
            assert all(abs(tokens - 503) <= 64 for tokens in real)
        return sum(real) / sum(batch.src.numel() + batch.tgt_out.numel() for batch in epoch)

    shuffled, alike = map(share, KINDS.values())
    assert shuffled < 0.65 < 0.9 < alike


@pytest.mark.parametrize("longest", [2, 7, 61])
@pytest.mark.parametrize("tokens", [3, 11, 419, 10**6])
def test_no_batch_is_empty_nor_far_from_its_tokens(longest, tokens):
    draw = random.Random(tokens)
    some = [([100 + n] * draw.randint(1, longest), [6] * draw.randint(1, longest)) for n in range(211)]
    sizes = [len(source) + len(target) + 1 for source, target in some]
    batches = TokenBatches(some, tokens, seed=2)
    found = [firsts(batch) for batch in epoch_of(batches, 5)]
    assert sorted(n for batch in found for n in batch) == [*range(211)]
    mean = sum(sizes) / len(found)
    assert mean >= min(max(sizes), tokens)
    assert all(0 < sum(sizes[n] for n in batch) <= mean + max(sizes) for batch in found)


@EACH_KIND
def test_pairs_on_disk_give_the_same_batches_as_a_list(tmp_path, kind):
    EncodedPairs.of(iter(LONG)).save(tmp_path / "pairs.pt")
    on_disk = EncodedPairs.load(tmp_path / "pairs.pt")
    assert list(on_disk) == LONG
    assert list(on_disk.select(slice(10, 400)).select(np.arange(390) % 3 == 0)) == LONG[10:400:3]
    assert on_disk.select(slice(400)).sizes.tolist() == [[len(s), len(t)] for s, t in LONG[:400]]
    one, other = kind(LONG, seed=3), kind(on_disk, seed=3)
    for step in (0, 1, 2 * one.steps_per_epoch + 1):
        assert all(torch.equal(a, b) for a, b in zip(one[step], other[step], strict=True))


# ---- Files of sentences


def files(folder, *names: str, lines: list[list[str]]) -> list:
    for name, side in zip(names, lines, strict=True):
        content = "".join(f"{line}\n" for line in side).encode()
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return [folder / name for name in names]


def test_lines_are_read_side_by_side(tmp_path):
    # Spaces, a byte order mark, an empty side, and characters that other programs take as ends of lines.
    odd = [["\ufeff Fine. ", "", "a\x0bb", "Ünë\r"], ["Gut.\u2028So.", "Nichts.", "c\rd", "e"]]
    expected = [("Fine.", "Gut.\u2028So."), ("a\x0bb", "c\rd"), ("Ünë", "e")]
    assert list(read_pairs(*files(tmp_path, "a.en.gz", "a.de", lines=odd))) == expected


def test_what_is_held_out_is_not_trained_on(tmp_path):
    lines = [[f"s{n % 90}" for n in range(100)], [f"t{n}" if n % 7 else "" for n in range(100)]]
    source, target = files(tmp_path, "a.en", "a.de", lines=lines)
    text = Corpus(source, target)
    whole, train = [p for p in zip(*lines, strict=True) if p[1]], list(text.training())
    assert text.held_out == whole[::20]
    left_out = {source for source, _ in text.held_out}
    assert train == [pair for pair in whole if pair[0] not in left_out]
    tested = Corpus(source, target, (target, source))
    assert list(tested.training()) == whole
    assert tested.fingerprint != text.fingerprint


def test_encoding_and_ids_are_made_once_by_one_of_several_processes(tmp_path, monkeypatch):
    """Threads stand in for processes: the operating system locks the file."""
    monkeypatch.setattr(pooch, "os_cache", lambda name: str(tmp_path / "cache" / name))
    monkeypatch.setattr(corpus, "CHUNK", 7)
    lines = [[english(n) for n in range(300)], [german(n) for n in range(300)]]
    source, target = files(tmp_path, "n.en", "n.de", lines=lines)
    text, read, original = Corpus(source, target, (source, target)), [], Corpus.training
    monkeypatch.setattr(Corpus, "training", lambda asked: read.append(asked) or original(asked))
    both, found = threading.Barrier(2, timeout=60), []

    def make():
        both.wait()
        found.append(text.encoded(text.joint_encoding(300)))

    threads = [threading.Thread(target=make) for _ in range(2)]
    _ = [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert len(read) == 2
    joint = text.joint_encoding(300)
    assert list(found[0]) == list(found[1]) == [(joint.encode(s), joint.encode(t)) for s, t in original(text)]
    assert len(text.joint_encoding(290)) == 290
    source.write_text("something else\n" * 300)  # is another corpus
    other = Corpus(source, target, (source, target)).joint_encoding(300)
    assert other.tokenizer.to_str() != joint.tokenizer.to_str()


# ---- Captions, from a server of our own, and WMT14, from a stand-in for the `datasets` library


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder of a server in place of the public one, and the paths requested; checksums are adapted."""
    folder, sums, asked = tmp_path / "home", {}, []
    folder.mkdir()
    for name in multi30k.SHA256:
        lines = ["Two dogs run.", "A man."] if ".en." in name else ["Zwei Hunde laufen. ", "Ein\u2028Mann."]
        (path,) = files(folder, name, lines=[lines])
        sums[name] = hashlib.sha256(path.read_bytes()).hexdigest()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            asked.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    monkeypatch.setattr(multi30k, "BASE_URLS", (url, f"{url}mirror/"))
    monkeypatch.setattr(multi30k, "SHA256", sums)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.delenv(multi30k.DATA_VARIABLE, raising=False)
    yield folder, asked
    server.shutdown()
    server.server_close()


def captions(split: str) -> list[tuple[str, str]]:
    return list(read_pairs(*multi30k.files(split)))


def test_captions_are_downloaded_once_and_checksums_verified(home, tmp_path):
    folder, asked = home
    expected = [("Two dogs run.", "Zwei Hunde laufen."), ("A man.", "Ein\u2028Mann.")]
    assert captions("validation") == captions("validation") == expected
    assert len(asked) == 2
    kept = tmp_path / "cache" / "transformer-lessons" / "multi30k"
    (kept / "val.en.gz").write_bytes(b"half a file")
    (folder / "mirror").mkdir()
    (folder / "val.en.gz").rename(folder / "mirror" / "val.en.gz")
    assert captions("validation") == expected  # downloaded again, from the mirror
    (folder / "train.en.gz").write_bytes(gzip.compress(b"Something else.\n"))
    with pytest.raises(
        OSError, match=r"train\.en\.gz: .*SHA256.*404.*set TRANSFORMER_LESSONS_DATA to a folder"
    ):
        captions("train")
    assert not [path for path in kept.iterdir() if "train.en" in path.name]


@pytest.mark.parametrize("below", ["", "multi30k"])
def test_a_folder_of_captions_that_was_named_is_only_read(home, tmp_path, monkeypatch, below):
    folder, asked = home
    (tmp_path / "named").mkdir()
    folder.rename(tmp_path / "named" / below)
    monkeypatch.setenv(multi30k.DATA_VARIABLE, str(tmp_path / "named"))
    assert len(captions("test")) == 2
    (path := tmp_path / "named" / below / "train.de.gz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"train\.de\.gz: expected SHA-256 \w{64}, got "):
        captions("train")
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"DATA: expected a folder with train\.de\.gz, got .*named$"):
        captions("train")
    assert asked == []


def test_wmt14_is_streamed_once_in_one_fixed_revision_or_read_from_a_folder(tmp_path, monkeypatch):
    library, asked = types.ModuleType("datasets"), []
    rows = [
        {"translation": {"de": "Ja.", "en": "Yes. "}},
        {"translation": {"de": "Nein.", "en": "N\no."}},
        None,
    ]
    library.load_dataset = lambda *where, **how: asked.append((*where, *how.values())) or rows
    monkeypatch.setitem(sys.modules, "datasets", library)
    monkeypatch.setattr(pooch, "os_cache", lambda name: str(tmp_path / "cache"))
    monkeypatch.delenv(wmt14.DATA_VARIABLE, raising=False)
    with pytest.raises(
        OSError,
        match=r"wmt/wmt14: expected to download it, got TypeError: .*\. Without a network, set TRANS",
    ):
        wmt14.files("test")
    del rows[2]
    for _ in range(2):  # only an interrupted download starts again
        assert list(read_pairs(*wmt14.files("test"))) == [("Yes.", "Ja."), ("N o.", "Nein.")]
    assert asked == [("wmt/wmt14", "de-en", "test", wmt14.REVISION, True)] * 2
    monkeypatch.setenv(wmt14.DATA_VARIABLE, str(tmp_path))
    (tmp_path / "wmt14").mkdir()
    files(tmp_path / "wmt14", "test.en.gz", "test.de", lines=[["One."], ["Eins."]])
    assert list(read_pairs(*wmt14.files("test"))) == [("One.", "Eins.")]
    with pytest.raises(FileNotFoundError, match=r"DATA: expected a folder with wmt14/train\.en\.gz, got "):
        wmt14.files("train")
