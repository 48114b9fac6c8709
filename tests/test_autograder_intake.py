"""Submissions from any source: each file is received or put aside with a reason, and none stops another."""

import json
import os
import stat
import unicodedata
import zipfile
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exercises.autograder import intake
from exercises.autograder.intake import Arrival, files, ingest
from exercises.autograder.intake.cells import CannotBeGraded, Cell, content_of
from exercises.autograder.intake.names import on_roster, safe_id, sender_of
from exercises.autograder.intake.repair import Catalogue

RELEASE = Path(__file__).parent.parent / "exercises" / "release"
NAMES = ("ps02_masks", "ps01_embeddings_attention", "ps04_multi_head")
TEXTS = {name: (RELEASE / name / f"{name}.ipynb").read_text(encoding="utf-8") for name in NAMES}
ASSIGNMENTS = {name: nbformat.reads(text, as_version=4) for name, text in TEXTS.items()}
CATALOGUE = Catalogue({name: [notebook] for name, notebook in ASSIGNMENTS.items()})
PS02, PS01, PS04 = NAMES
MOODLE = "assignsubmission_file"


def answered(name: str = PS01, answer: str = "mine = 1") -> str:
    content = json.loads(TEXTS[name])
    for cell in content["cells"]:
        if cell["id"].endswith("-answer"):
            cell["source"] = answer
    return json.dumps(content)


@pytest.fixture
def folder(tmp_path):
    """Make a folder of files from their paths and texts."""

    def make(files: dict[str, str | bytes]) -> Path:
        for path, data in files.items():
            target = tmp_path / "all" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data.encode() if isinstance(data, str) else data)
        return tmp_path / "all"

    return make


@pytest.fixture
def archive(tmp_path):
    """Make a zip archive from the names and contents of its members."""

    def make(files: dict, method: int = zipfile.ZIP_DEFLATED) -> Path:
        with zipfile.ZipFile(tmp_path / "bulk.zip", "w", method) as made:
            for name, data in files.items():
                made.writestr(name, data)
        return tmp_path / "bulk.zip"

    return make


def taken(source: Path, **options) -> dict[str, Arrival]:
    """Ingest a source and return its outcomes by path, exactly one for each."""
    outcomes = list(ingest(source, CATALOGUE, **options))
    by_path = {outcome.path: outcome for outcome in outcomes}
    assert len(by_path) == len(outcomes)
    for outcome in outcomes:
        if outcome.reason:
            assert outcome.reason.endswith(".")
        else:
            nbformat.validate(outcome.notebook)
            assert safe_id(outcome.student) == outcome.student
    return by_path


def students(outcomes: dict) -> dict[str, str | None]:
    """The student of each received file by path; None for a file that was put aside."""
    return {path: None if one.reason else one.student for path, one in outcomes.items()}


def only(outcomes: dict) -> Arrival:
    (outcome,) = outcomes.values()
    return outcome


# ---- Names


@pytest.mark.parametrize(
    ("path", "student", "said", "order", "late"),
    [
        # nbgrader
        (f"x/submitted/ann/{PS01}/Untitled.ipynb", "ann", [PS01], None, False),
        (f"ann/{PS01}/{PS02}.ipynb", "ann", [PS01, PS02], (0, 0), False),
        (f"a_1_2_x/{PS01}/b_1_2_c.ipynb", "a_1_2_x", [PS01], None, False),
        # Canvas
        (f"smithann_LATE_123_456_{PS01}-1.ipynb", "smithann_123", [PS01], (456, 0), True),
        ("van_der_berg_12_34_Copy of x_1_2_3.ipynb", "van_der_berg_12", [], (34, 0), False),
        ("LATE_anon_Ab9_456_x.ipynb", "anon_Ab9", [], (456, 0), True),
        ("unpacked/smithann_LATE_123_text.html", "smithann_123", [], (0, 0), True),
        (f"smith_{PS01}_1_2_final.ipynb", None, [PS01], None, False),
        # Moodle
        (f"Ann Smith_77_{MOODLE}/sub/{PS01} (2).ipynb", "Ann Smith_77", [PS01], (0, 2), False),
        (f"Ann_Smith_77_{MOODLE}_{PS01}-1.ipynb", "Ann_Smith_77", [PS01], (0, 1), False),
        (f"Ann O'Hara_77_{MOODLE}_/{PS01}_final.ipynb", "Ann O-Hara_77", [PS01], None, False),
        # by hand
        (f"week3/ann__{PS01} (1).ipynb.txt", "ann", [PS01], (0, 1), False),
        ("week3/ann__notes.ipynb", "week3", [], None, False),
        (f"ann__{PS01}-Copy1.ipynb", "ann", [PS01], None, False),
        (f"{PS01}__ann.ipynb", None, [PS01], None, False),
        (f"ann/{PS01} (12).IPYNB", "ann", [PS01], (0, 12), False),
        (f"ann/Kopie von {PS01}.ipynb", "ann", [PS01], None, False),
        ("ann_PS01-Embeddings-Attention.ipynb", None, [PS01], None, False),
        (f"{PS01}/ann.ipynb", None, [PS01], None, False),
        (unicodedata.normalize("NFD", f"müller__{PS01}.ipynb"), "müller", [PS01], (0, 0), False),
    ],
)
def test_student_assignment_and_order_are_read_from_the_path(path, student, said, order, late):
    sender = sender_of(tuple(path.split("/")), ASSIGNMENTS)
    assert sender.student == (student and safe_id(student))
    assert (list(sender.claimed), sender.order, sender.late) == (said, order, late)


@pytest.mark.parametrize(
    ("path", "student"),
    [
        (f"Bob_79_{MOODLE}_/Ann_77_{MOODLE}_/{PS01} (9).ipynb", "bob"),
        (f"Bob_79_{MOODLE}_Ann_77_{MOODLE}_{PS01}.ipynb", None),
        (f"Ann_77_{MOODLE}__79_{MOODLE}_/{PS01}.ipynb", None),
        (f"Ann_77_{MOODLE}_79_{MOODLE}_{PS01}.ipynb", None),
        (f"Bob_79_{MOODLE}_ann_77_1_{PS01}.ipynb", "bob"),
        (f"Bob_79_{MOODLE}_/ann/{PS01}/{PS01}.ipynb", "bob"),
        (f"bob_79_1_Ann_77_{MOODLE}_{PS01}.ipynb", "bob"),
        (f"bob_LATE_79_1_ann_77_2_{PS01}.ipynb", "bob"),
        (f"submitted/bob/{PS01}/Ann_77_{MOODLE}_/{PS01}.ipynb", None),
        (f"submitted/bob/{PS01}/ann/{PS01}/{PS01}.ipynb", None),
        (f"submitted/bob/{PS01}/ann/{PS01} (9).ipynb", None),
    ],
)
def test_nobody_can_name_their_file_as_anothers(path, student):
    """Otherwise it would count instead of the other student's file, as the newer one."""
    sender = sender_of(tuple(path.split("/")), ASSIGNMENTS)
    assert on_roster(sender, {"77": "ann", "79": "bob"})[0].student == student


@given(st.text(max_size=99) | st.text("ab+/. -\u0301", max_size=99))
def test_an_id_can_always_be_the_name_of_a_folder(raw):
    name = safe_id(raw)
    if name is not None:
        assert unicodedata.is_normalized("NFC", name)
        assert safe_id(name) == name != ""
        assert len(name) <= 60
        assert len(name.encode()) <= 255
        assert not set(name) & set("+/\\\0*?[]")
        assert name[0] not in " .-"


def test_names_of_all_scripts_stay_and_invisible_letters_make_no_other_student():
    for name in ("Ann Smith_77", "名字", "ann@uni.edu", "a.b-c_d", "नमिता"):
        assert safe_id(name) == name
    assert safe_id("x" * 300 + "_77").endswith("x_77")
    assert {safe_id(f"an{letter}n") for letter in "\u3164\uffa0\u115f\ufe0f\U000e0100"} == {"ann"}


# ---- The content of a file


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b" \n\0\0", "The file is empty. Download the notebook again"),
        (TEXTS[PS01][:500].encode(), "The file breaks off after 500 characters. Download"),
        (b'{"a": 1,\n<<<<<<< HEAD\n"b": 2}', "The file is damaged in line 2, “<<<<<<< HEAD”: Expecting"),
        (b'{"a": 1,\n}', "The file is damaged in line 2, “}”: Expecting property name"),
        (b"\xef\xbb\xbf\n<!DOCTYPE html><html>", "The file is a web page"),
        (b"<p>typed into Canvas</p>", "The file is a web page"),
        (b"PK\x03\x04...", "The file is a zip archive."),
        (b"import torch\nx = 1", "The file is not a notebook: it begins with “import torch�x = 1”."),
        (b"[1]", "The file is not a notebook: it begins with “[1]”. Download"),
        (b'{"a": ' + b"[" * 100_000, "The file is damaged: maximum recursion depth exceeded"),
        (b'{"a": ' + b"1" * 5_000 + b"}", "The file is damaged: Exceeds the limit (4300 digits)"),
        (b" " * 20_000_001, "The file has more than 20 MB. Clear the outputs"),
    ],
)
def test_file_without_a_notebook_is_refused_with_a_reason(data, reason):
    with pytest.raises(CannotBeGraded) as caught:
        content_of(data)
    assert str(caught.value).startswith(reason)


def test_file_of_another_type_is_called_that_unless_it_is_a_notebook():
    assert content_of(b"{}", ".v2") == {}
    for data in (b"import torch", b"L\0\0\0", b"<?xml version='1.0'?>", b"PK\x03\x04"):
        with pytest.raises(CannotBeGraded, match=r"This is a \.lnk file, not a notebook\. Download"):
            content_of(data, ".lnk")


def test_other_encodings_are_read_and_undecodable_bytes_are_replaced():
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le"):
        assert content_of('{"a": "ä"}'.encode(encoding)) == {"a": "ä"}
    assert content_of('{"a": "ä"}'.encode("cp1252")) == {"a": "�"}


@given(st.binary(max_size=30) | st.integers(0, 2000).map(lambda n: TEXTS[PS01].encode()[:n]))
def test_any_bytes_are_read_or_refused(data):
    try:
        content, reason = content_of(data), ""
    except CannotBeGraded as error:
        content, reason = {}, str(error)
    assert isinstance(content, dict)
    assert reason.isprintable()


# ---- Sources


def test_a_single_notebook(folder):
    root = folder({f"anm__{PS01}.ipynb": answered(), "Untitled.ipynb": answered()})
    one = only(taken(root / f"anm__{PS01}.ipynb", roster={"77": "ann"}))
    assert (one.student, one.assignment, one.path) == ("anm", PS01, f"anm__{PS01}.ipynb")
    said = "“anm” is not on the course's roster."
    assert (one.repairs, one.timestamp, one.late) == ((said,), None, False)
    assert [cell.source for cell in one.notebook.cells].count("mine = 1") == 10
    assert only(taken(root / "Untitled.ipynb")).reason == intake.NO_STUDENT


def test_nbgraders_folder(folder):
    root = folder(
        {
            f"ann/{PS01}/{PS01}.ipynb": answered(),
            f"ann/{PS01}/timestamp.txt": "2026-11-21 10:00:00 UTC\n",
            f"ann/{PS01}/submission_secret.txt": "ada2a328",
            f"ann/{PS01}/.ipynb_checkpoints/{PS01}-checkpoint.ipynb": answered(),
            f"ann/{PS02}/{PS02}.ipynb": answered(PS02),
            f"bob/{PS01}/{PS01}.ipynb": "",
            f"bob/{PS01}/helper.py": "x = 1",
            f"cem/{PS01}/{PS01}.ipynb": answered(),
            f"cem/{PS01}/README.md": "helper.py is of a friend",
            f"cem/{PS01}/timestamp.txt": "<script>",
            ".DS_Store": "x",
            ".git/config": "x",
            ".~ps01.ipynb": "x",
        }
    )
    found = taken(root)
    assert students(found) == {
        f"ann/{PS02}/{PS02}.ipynb": "ann",
        f"ann/{PS01}/{PS01}.ipynb": "ann",
        f"bob/{PS01}/helper.py": None,
        f"bob/{PS01}/{PS01}.ipynb": None,
        f"cem/{PS01}/{PS01}.ipynb": "cem",
    }
    ann, empty, cem = (found[f"{name}/{PS01}/{PS01}.ipynb"] for name in ("ann", "bob", "cem"))
    assert ann.timestamp == "2026-11-21 10:00:00 UTC"
    said = "Its timestamp.txt contains no time that can be read: “<script>”."
    assert (cem.timestamp, cem.repairs) == (None, (said,))
    assert (empty.student, empty.assignment) == ("bob", PS01)
    assert empty.reason.startswith("The file is empty. Download the notebook again")


def test_nobody_can_say_when_they_handed_in(folder):
    """Late days are counted from the timestamp, which only nbgrader's folders may set."""
    early, late = "2020-01-01 00:00:00 UTC", "2026-12-24 10:00:00 UTC"
    root = folder(
        {
            f"ann/{PS01}/timestamp.txt": late,
            f"ann/{PS01}/{PS01}.ipynb": answered(),
            f"Bob_79_{MOODLE}_/timestamp.txt": early,
            f"Bob_79_{MOODLE}_/{PS01}.ipynb": answered(),
            f"Cem_80_{MOODLE}_/{PS01}/timestamp.txt": early,
            f"Cem_80_{MOODLE}_/{PS01}/{PS01}.ipynb": answered(),
            "dan/work/timestamp.txt": early,
            f"dan/work/{PS01}.ipynb": answered(),
        }
    )
    assert [one.timestamp for _, one in sorted(taken(root).items())] == [None, None, late, None]


DEEP = f"exercises/release/{PS01}/{PS01}.ipynb"


@pytest.mark.parametrize(
    "paths",
    [
        {f"ps01-submissions/ann/{PS01}.ipynb": "ann", f"ps01-submissions/bob/work/{PS01}.ipynb": "bob"},
        {f"ann/work/{PS01}.ipynb": "ann", f"bob/work/{PS01} (1).ipynb": "bob"},
        {f"ann/{DEEP}": "ann", f"bob/{DEEP}": "bob", f"cem/{DEEP}": "cem"},
        {f"monday/ann/{PS01}.ipynb": "ann", f"tuesday/bob/{PS01}.ipynb": "bob"},
        {f"a/ann/{PS01}.ipynb": None, f"a/bob/{PS01}.ipynb": "bob", f"b/ann/{PS01} (1).ipynb": None},
        {f"ann/{PS01}.ipynb": "ann", f"mallory/x/ann/{PS01}/{PS01}.ipynb": "mallory"},
        {f"ann/{PS01}.ipynb": "ann", f"{PS01}/bob/{PS01}.ipynb": None, "ps01/x.ipynb": None},
    ],
)
def test_students_folders_are_found_whatever_is_around_and_in_them(folder, paths):
    root = folder({path: answered(answer=f"a = {path!r}") for path in paths})
    assert students(taken(root)) == paths


def test_what_is_beside_an_answer_is_left_out_unless_it_may_be_the_answer(folder):
    """A README is no answer, nor what comes with a clone of the course.

    Beside a blank notebook any file may be the answer; beside an answered one, what is named like a notebook.
    """
    cases = {  # the text, and whose it is: None if it is put aside, "" if it is left out
        f"ann/{DEEP}": (answered(), "ann"),
        f"ann/{DEEP.replace('release', 'source')}": (answered(answer="master = 1"), ""),
        f"ann/{DEEP.replace(PS01, PS02)}": (TEXTS[PS02], ""),
        "ann/README.md": ("x", ""),
        f"cem/{DEEP}": (TEXTS[PS01], None),
        f"dan/{PS01}.ipynb": (TEXTS[PS01], "dan"),
        "dan/solution.py": ("x = 1", None),
        f"eve/{PS01}.ipynb": (answered(), "eve"),
        "eve/notes.md": ("x", ""),
        "eve/homework2.ipynb.txt": (answered(PS02)[:5_000], None),
        f"eve/{PS01}.ipynb.crdownload": (answered()[:5_000], None),
    }
    found = taken(folder({path: text for path, (text, _) in cases.items()}))
    assert students(found) == {path: who for path, (_, who) in cases.items() if who != ""}
    assert (found[f"cem/{DEEP}"].student, found[f"cem/{DEEP}"].reason) == ("cem", intake.OF_COURSE)


# ---- Several notebooks


def test_two_students_never_become_one(folder):
    found = taken(folder({f"{name}__{PS01}.ipynb": answered() for name in ("A-b", "a*b", "a+b")}))
    said = "“A-b” and “a*b” and “a+b” would all have the id “a-b”. Give them other names."
    assert [one.reason for one in found.values()] == [said] * 3


def test_one_of_two_notebooks_by_a_student_counts(folder):
    mine = answered(answer="new = 1")
    texts = {
        "it is the newest": answered(answer="old = 1"),
        "the others have no answers": TEXTS[PS01],
        "all say the same": mine.replace("\\n", " \\n"),
    }
    cases = (
        (f"ann/{PS01} (2).ipynb", f"ann/{PS01} (10).ipynb", "it is the newest"),
        (f"bob_1_99_{PS01}-1.ipynb", "bob_LATE_1_100_Untitled.ipynb", "it is the newest"),
        (f"cem/{PS01} (1).ipynb", f"cem/Copy of {PS01}.ipynb", "the others have no answers"),
        ("dan/b.ipynb", "dan/a.ipynb", "all say the same"),
    )
    found = taken(folder({other: texts[why] for other, _, why in cases} | {one: mine for _, one, _ in cases}))
    for other, counts, why in cases:
        assert not found[counts].reason
        assert found[counts].repairs[-1] == f"There were 2 notebooks; {counts} counts, because {why}."
        assert found[other].reason == f"Superseded: {counts} counts instead, because {why}."
        assert (found[other].student, found[other].assignment) == (found[counts].student, PS01)


def test_no_notebook_counts_if_the_newest_is_unclear(folder):
    of_ann = [f"ann/{PS01}.ipynb", f"ann/{PS01} (1).ipynb", f"ann/{PS01}-1.ipynb"]
    of_others = ["week3/student (1).ipynb", "week3/student (2).ipynb"]
    found = taken(folder({path: answered(answer=f"a = {path!r}") for path in of_ann + of_others}))
    for path, outcome in found.items():
        those = of_ann if path in of_ann else of_others
        assert outcome.reason.startswith(f"It is not clear which is the newest: {', '.join(sorted(those))}.")
        assert outcome.reason.endswith("Different students need different names and no common folder.")


# ---- The assignment of a notebook


def test_the_assignment_is_known_by_its_cells_or_texts(folder):
    """Bob's cells have lost their names; dan's only one, which several assignments share, tells nothing."""
    mine, other = (json.loads(answered(name))["cells"] for name in (PS01, PS02))
    unnamed = [{**cell, "id": "x", "metadata": {}} for cell in other]
    shared = [{**cell, "id": "x", "metadata": {}} for cell in mine if cell["id"] == "ps01-setup"]
    named, both, nothing = f"ann/{PS02}/{PS04}.ipynb", f"cem/{PS01}.ipynb", f"dan/{PS01}.ipynb"
    files = {named: mine, "bob/Hausaufgabe.ipynb": unnamed, both: mine + other, nothing: shared}
    found = taken(folder({path: json.dumps({"cells": cells}) for path, cells in files.items()}))
    assert [one.assignment for _, one in sorted(found.items())] == [PS01, PS02, PS01, PS01]
    said = f"The file is named after {PS02} and {PS04} but contains {PS01}, and was taken as that."
    assert found[named].repairs == (said,)
    said = f"It also contains cells of {PS02}, which were not graded. Hand in one notebook for each."
    assert found[both].repairs == (said,)
    said = "The notebook contains no cell of an assignment that is graded here (ps02"
    assert (found[nothing].student, found[nothing].reason[: len(said)]) == ("dan", said)


@pytest.mark.parametrize(
    ("of_ps01", "of_ps04", "said", "expected"),
    [(2, 1, (), (PS01, [])), (3, 2, (), None), (3, 2, (PS04,), (PS04, [PS01])), (1, 4, (), (PS04, []))],
)
def test_how_much_of_another_assignment_there_may_be(of_ps01, of_ps04, said, expected):
    """Answers are identified by their ids alone, not by their texts; copies of a cell count once."""
    cells = [Cell(1, "code", "", ids=(f"ps01-{number}-answer",)) for number in (1, 3, 4)[:of_ps01]]
    marks = [{"grade_id": f"ps04-{number}-answer"} for number in (1, 3, 4, 5)[:of_ps04]]
    cells += [Cell(1, "code", "", marks=mark) for mark in marks]
    if expected:
        assert CATALOGUE.assignment_of(cells + cells[:1] * 9, said) == expected
    else:
        with pytest.raises(CannotBeGraded, match=f"contains cells of {PS01} and {PS04}. Hand in one"):
            CATALOGUE.assignment_of(cells, said)


# ---- Traps


def test_a_folder_of_traps(folder, tmp_path, monkeypatch):
    root = folder({f"ann/{PS01}.ipynb": answered(), "x.ipynb/y.txt": "x", f"shut/{PS01}.ipynb": answered()})

    def scandir(path, real=os.scandir):  # although root may read everything
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    os.mkfifo(root / f"pipe__{PS01}.ipynb")
    os.mknod(root / f"socket__{PS01}.ipynb", stat.S_IFSOCK)
    secret = tmp_path / "secret.ipynb"
    secret.write_text(answered(), encoding="utf-8")
    (root / f"link__{PS01}.ipynb").symlink_to(secret)
    (root / "out").symlink_to(tmp_path)
    with (root / "huge.ipynb").open("wb") as file:
        file.truncate(10**12)
    name = os.fsencode(root) + b"/m\xfcller__" + f"{PS01}.ipynb".encode()
    Path(os.fsdecode(name)).write_text(answered(), encoding="utf-8")
    found = taken(root)
    reasons = {path: one.reason[:16] for path, one in found.items() if one.reason}
    assert reasons == {
        f"pipe__{PS01}.ipynb": "This is not an o",
        f"socket__{PS01}.ipynb": "The file could n",
        f"link__{PS01}.ipynb": "This is a link t",
        "out": "This is a link t",
        "huge.ipynb": "The file has mor",
        "x.ipynb/y.txt": "This is a .txt f",
        "shut": "The folder could",
    }
    assert {one.student for one in found.values() if not one.reason} == {"ann", "m-ller"}


def test_too_many_files(folder, monkeypatch):
    monkeypatch.setattr(files, "MOST_FILES", 2)
    found = taken(folder({f"{name}/{PS01}.ipynb": answered() for name in "abc"}))
    assert students(found) == {f"a/{PS01}.ipynb": "a", f"b/{PS01}.ipynb": "b", "all": None}
    assert found["all"].reason == "There are more than 2 files. The rest was not looked at."


def test_notebooks_in_a_students_archive_are_theirs_and_the_one_with_answers_counts(folder, archive):
    """Whatever the names in there say: the student has chosen them."""
    packed = {f"bob__{PS01}.ipynb.txt": answered(), f"old/{PS01}.ipynb": TEXTS[PS01], "old/README.md": "x"}
    damaged = archive(packed).read_bytes()[:-9]
    root = folder(
        {
            f"ann__{PS01}.zip": archive(packed).read_bytes(),
            f"cem__{PS01}.zip": damaged,
            f"dan__{PS01}.zip": archive({"a.ipynb": b" " * 20_000_001}).read_bytes(),
            f"eve__{PS01}.zip": archive({f"{n}.ipynb": answered() for n in range(11)}).read_bytes(),
        }
    )
    mine, blank, *others = taken(root).values()
    assert (mine.student, mine.reason, blank.student) == ("ann", "", "ann")
    assert mine.repairs == (
        f"There were 2 notebooks; {mine.path} counts, because the others have no answers.",
    )
    assert blank.reason.startswith(f"Superseded: ann__{PS01}.zip/bob__{PS01}.ipynb.txt counts instead")
    zipped = "The file is a zip archive."
    assert [one.reason[:26] for one in others] == [zipped, "The file has more than 20 ", zipped]


def test_an_archive_of_traps(archive):
    """Nothing is extracted to disk, so members may have any path."""
    source = archive(
        {
            f"../up__{PS01}.ipynb": answered(),
            f"C:\\win__{PS01}.ipynb": answered(),
            f"bomb__{PS01}.ipynb": b" " * 20_000_001,
            f"lies__{PS01}.ipynb": b" " * 20_000_002,
            f"inner__{PS01}.zip": b"PK\x03\x04",
            "empty/": "",
            "__MACOSX/._up.ipynb": "x",
        }
    )
    # A header that claims fewer bytes than there are.
    data = source.read_bytes().replace((20_000_002).to_bytes(4, "little"), (500).to_bytes(4, "little"))
    source.write_bytes(data)
    found = taken(source)
    reasons = {path[10:14]: one.reason[:26] for path, one in found.items() if one.reason}
    assert reasons == {
        "bomb": "The file has more than 20 ",
        "lies": "The file cannot be read fr",
        "inne": "The file is a zip archive.",
    }
    assert {one.student for one in found.values() if not one.reason} == {"up", "win"}


def test_members_that_cannot_be_opened(archive):
    source = archive({"ann.ipynb": answered()})
    data = bytearray(source.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    source.write_bytes(data)
    assert "is encrypted" in only(taken(source)).reason
    # Python unpacks this method all at once, without a limit.
    lzma = only(taken(archive({"ann.ipynb": answered()}, zipfile.ZIP_LZMA)))
    assert lzma.reason.startswith("It is packed by a method")


def test_names_without_an_encoding(archive):
    """They are read as UTF-8, which many programs write without declaring it, or else as cp437."""
    source = archive({f"mYYller__{PS01}.ipynb": answered()})
    data = source.read_bytes()
    for name, student in (("müller".encode(), "müller"), (b"m\x81\x81ller", "müüller")):
        source.write_bytes(data.replace(b"mYYller", name))
        assert only(taken(source)).student == student


def test_a_damaged_archive_stops_nothing(archive):
    source = archive({"a.ipynb": "{}"})
    whole = source.read_bytes()
    for place in range(0, len(whole), 2):
        for damaged in (whole[:place], whole[:place] + b"\xff\x80" + whole[place + 2 :]):
            source.write_bytes(damaged)
            assert all(one.reason for one in ingest(source, Catalogue({})))


def test_unexpected_error_stops_no_other_submission(folder, monkeypatch):
    monkeypatch.setattr(intake, "content_of", lambda data, _: 1 / 0 if b"odd" in data else content_of(data))
    answers = {"a": "mine = 1", "b": "odd", "c": "mine = 1"}
    found = taken(folder({f"{name}/x.ipynb": answered(answer=answer) for name, answer in answers.items()}))
    assert students(found) == {"a/x.ipynb": "a", "b/x.ipynb": None, "c/x.ipynb": "c"}
    said = "The file could not be read (ZeroDivisionError: division by zero). Tell your instructor."
    assert found["b/x.ipynb"].reason == said
