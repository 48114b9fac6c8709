"""The captions: fetched once, held against their sums, and read as they are; the server is one of our own."""

import gzip
import hashlib
import os
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest

from transformer_lessons.data import multi30k

ENGLISH = ["Two dogs run.", "A man in a blue shirt."]
# A stray space, and a character at which str.splitlines would cut.
GERMAN = ["Zwei Hunde laufen. ", "Ein Mann\u2028in blauem Hemd."]


class Quiet(SimpleHTTPRequestHandler):
    asked: list[str]

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder behind a local server that stands for the public home; an empty cache; the files' own sums."""
    folder = tmp_path / "home"
    folder.mkdir()
    sums = {}
    for name in multi30k.SHA256:
        lines = ENGLISH if ".en." in name else GERMAN
        (folder / name).write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))
        sums[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    handler = type("Handler", (Quiet,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/"
    monkeypatch.setattr(multi30k, "HOMES", (url, f"{url}mirror/"))
    monkeypatch.setattr(multi30k, "SHA256", sums)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(multi30k.VARIABLE, raising=False)
    yield folder, handler.asked
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.skipif(sys.platform != "linux", reason="the cache is elsewhere: XDG_CACHE_HOME is Linux's")
def test_fetched_once_and_read(home, tmp_path, capsys, monkeypatch):
    _, asked = home
    for handler in pooch.get_logger().handlers:  # whichever test imported pooch, it took that one's stderr
        monkeypatch.setattr(handler, "stream", sys.stderr)
    expected = list(zip(ENGLISH, [line.strip() for line in GERMAN], strict=True))
    assert multi30k.sentences("validation") == expected
    assert sorted(asked) == ["/val.de.gz", "/val.en.gz"]
    said = capsys.readouterr().err
    assert "val.en.gz" in said  # it says what it fetches
    assert "100%" in said  # and how far it is
    kept = tmp_path / "cache" / "transformer-lessons" / "multi30k"
    assert sorted(path.name for path in kept.iterdir()) == ["val.de.gz", "val.en.gz"]
    assert multi30k.sentences("validation") == expected
    assert len(asked) == 2  # not fetched again

    (kept / "val.en.gz").write_bytes(b"half a file")
    assert multi30k.sentences("validation") == expected
    assert len(asked) == 3  # what was spoilt is


@pytest.mark.skipif(sys.platform != "linux", reason="the cache is elsewhere: XDG_CACHE_HOME is Linux's")
def test_what_came_is_not_what_was_expected(home, tmp_path):
    folder, _ = home
    (folder / "mirror").mkdir()
    for place in (folder, folder / "mirror"):
        (place / "train.en.gz").write_bytes(gzip.compress(b"Something else.\n"))
    with pytest.raises(ValueError, match=r"train\.en\.gz"):
        multi30k.sentences("train")
    kept = tmp_path / "cache" / "transformer-lessons" / "multi30k"
    assert [path for path in kept.iterdir() if path.name.startswith("train.en")] == []  # nothing half done


@pytest.mark.skipif(sys.platform != "linux", reason="the cache is elsewhere: XDG_CACHE_HOME is Linux's")
def test_a_file_that_is_not_there(home, monkeypatch):
    folder, asked = home
    (folder / "train.en.gz").unlink()
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(
        OSError, match=r"train\.en\.gz: .*404.*mirror.*TRANSFORMER_LESSONS_DATA names a folder"
    ):
        multi30k.sentences("train")
    assert asked == ["/train.en.gz"] * 3 + ["/mirror/train.en.gz"] * 3  # tried again, twice


@pytest.mark.skipif(sys.platform != "linux", reason="the cache is elsewhere: XDG_CACHE_HOME is Linux's")
@pytest.mark.parametrize("spoilt", [None, b"another file"])
def test_the_second_home_helps_out(home, monkeypatch, spoilt):
    folder, asked = home
    (folder / "mirror").mkdir()
    (folder / "val.en.gz").rename(folder / "mirror" / "val.en.gz")
    if spoilt:
        (folder / "val.en.gz").write_bytes(spoilt)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert [english for english, _ in multi30k.sentences("validation")] == ENGLISH
    assert asked[-2:] == ["/mirror/val.en.gz", "/val.de.gz"]


@pytest.mark.skipif(sys.platform != "linux", reason="the cache is elsewhere: XDG_CACHE_HOME is Linux's")
def test_a_machine_without_network_is_told_what_to_do(home, monkeypatch):
    monkeypatch.setattr(multi30k, "HOMES", ("http://127.0.0.1:1/", "http://127.0.0.1:1/mirror/"))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(
        OSError, match=r"127\.0\.0\.1.*Where there is no network, TRANSFORMER_LESSONS_DATA names"
    ):
        multi30k.sentences("test")


@pytest.mark.parametrize("below", ["", "multi30k"])
def test_a_folder_that_was_named_is_only_read(home, tmp_path, monkeypatch, below):
    folder, asked = home
    named = tmp_path / "named"
    named.mkdir()
    folder.rename(named / below)
    monkeypatch.setenv(multi30k.VARIABLE, str(named))
    assert len(multi30k.sentences("test")) == 2
    path = named / below / "train.de.gz"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        ValueError, match=rf"train\.de\.gz: expected SHA-256 {multi30k.SHA256[path.name]}, got "
    ):
        multi30k.sentences("train")
    path.unlink()
    with pytest.raises(
        FileNotFoundError, match=r"TRANSFORMER_LESSONS_DATA: expected a folder with train\.de\.gz"
    ):
        multi30k.sentences("train")
    assert asked == []
    assert sorted(os.listdir(named / below)) == sorted(set(multi30k.SHA256) - {"train.de.gz"})


def test_without_the_library(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(
        ImportError, match=r"pooch: expected an installed library, got none: pip install .*multi30k"
    ):
        multi30k.sentences("train")


@pytest.mark.skipif(
    multi30k.VARIABLE not in os.environ, reason="no captions here: TRANSFORMER_LESSONS_DATA names none"
)
def test_the_captions_themselves():
    assert [len(multi30k.sentences(split)) for split in multi30k.SPLITS] == [29_000, 1_014, 1_000]
    assert multi30k.sentences("test")[0] == (
        "A man in an orange hat starring at something.",
        "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
    )
    assert all(english and german for english, german in multi30k.sentences("train"))
