"""Where submissions come from: every file is received or put aside with a reason, and none stops another."""

import copy
import io
import json
import os
import unicodedata
import zipfile
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exercises.autograder.intake import Quarantined, Received, files, submissions, take_in
from exercises.autograder.intake.cells import Cell
from exercises.autograder.intake.contents import CannotBeGraded, content_of
from exercises.autograder.intake.matching import Catalogue
from exercises.autograder.intake.names import safe_id, sender_of

RELEASE = Path(__file__).parent.parent / "exercises" / "release"
NAMES = ("ps02_masks", "ps01_embeddings_attention", "ps04_multi_head")
TEXTS = {name: (RELEASE / name / f"{name}.ipynb").read_text(encoding="utf-8") for name in NAMES}
ASSIGNMENTS = {name: nbformat.reads(text, as_version=4) for name, text in TEXTS.items()}
PS02, PS01, PS04 = NAMES
MOODLE = "assignsubmission_file"


def answered(name: str = PS01, answer: str = "mine = 1") -> str:
    content = json.loads(TEXTS[name])
    for cell in content["cells"]:
        if cell["id"].endswith("-answer"):
            cell["source"] = answer
    return json.dumps(content)


def cells_of(*names: str) -> str:
    """A notebook with the cells of several assignments."""
    cells = [cell for name in names for cell in json.loads(TEXTS[name])["cells"]]
    return json.dumps({**json.loads(TEXTS[names[0]]), "cells": cells})


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
    """Make a zip archive, likewise; a name may also be a `ZipInfo`."""

    def make(files: dict, method: int = zipfile.ZIP_DEFLATED) -> Path:
        with zipfile.ZipFile(tmp_path / "bulk.zip", "w", method) as made:
            for name, data in files.items():
                made.writestr(name, data)
        return tmp_path / "bulk.zip"

    return make


def taken(source: Path, **options) -> dict[str, Received | Quarantined]:
    """Outcomes by path; every path has one."""
    outcomes = list(take_in(source, ASSIGNMENTS, **options))
    by_path = {outcome.path: outcome for outcome in outcomes}
    assert len(by_path) == len(outcomes)
    for outcome in outcomes:
        if isinstance(outcome, Quarantined):
            assert outcome.reason.endswith(".")
        else:
            nbformat.validate(outcome.notebook)
            assert safe_id(outcome.student) == outcome.student
    return by_path


def students(outcomes: dict) -> dict[str, str | None]:
    """Who was received, by path; None for what was put aside."""
    return {path: one.student if isinstance(one, Received) else None for path, one in outcomes.items()}


def only(outcomes: dict) -> Received | Quarantined:
    (outcome,) = outcomes.values()
    return outcome


def reason_of(data: bytes) -> str:
    with pytest.raises(CannotBeGraded) as caught:
        content_of(data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("path", "student", "said", "order", "late"),
    [
        # nbgrader
        ("ann/ps01_embeddings_attention/ps01_embeddings_attention.ipynb", "ann", [PS01], (0, 0), False),
        ("x/submitted/ann/ps01_embeddings_attention/Untitled.ipynb", "ann", [PS01], None, False),
        ("ann/ps01_embeddings_attention/ps02_masks.ipynb", "ann", [PS01, PS02], (0, 0), False),
        ("a_1_2_x/ps01_embeddings_attention/b_1_2_c.ipynb", "a_1_2_x", [PS01], None, False),
        # Canvas
        ("smithann_123_456_ps01_embeddings_attention.ipynb", "smithann_123", [PS01], (456, 0), False),
        ("smithann_LATE_123_456_ps01_embeddings_attention-1.ipynb", "smithann_123", [PS01], (456, 0), True),
        ("van_der_berg_12_34_Copy of x_1_2_3.ipynb", "van_der_berg_12", [], (34, 0), False),
        ("anon_Ab9_456_ps01_embeddings_attention.ipynb", "anon_Ab9", [PS01], (456, 0), False),
        ("LATE_anon_Ab9_456_x.ipynb", "anon_Ab9", [], (456, 0), True),
        ("unpacked/smithann_123_456_a.ipynb", "smithann_123", [], (456, 0), False),
        ("smithann_LATE_123_text.html", "smithann_123", [], (0, 0), True),
        ("anon_Ab9_link.html", "anon_Ab9", [], (0, 0), False),
        ("smith_ps01_embeddings_attention_1_2_final.ipynb", "smith 1_2_final", [PS01], (0, 0), False),
        # Moodle
        (f"Ann Smith_77_{MOODLE}_/ps01_embeddings_attention.ipynb", "Ann Smith_77", [PS01], (0, 0), False),
        (
            f"Ann Smith_77_{MOODLE}/sub/ps01_embeddings_attention (2).ipynb",
            "Ann Smith_77",
            [PS01],
            (0, 2),
            False,
        ),
        (f"Ann_Smith_77_{MOODLE}_ps01_embeddings_attention-1.ipynb", "Ann_Smith_77", [PS01], (0, 1), False),
        (
            f"Ann O'Hara_77_{MOODLE}_/ps01_embeddings_attention_final.ipynb",
            "Ann O-Hara_77",
            [PS01],
            None,
            False,
        ),
        # by hand
        ("ann__ps01_embeddings_attention.ipynb", "ann", [PS01], (0, 0), False),
        ("week3/ann__ps01_embeddings_attention (1).ipynb", "ann", [PS01], (0, 1), False),
        ("week3/ann__notes.ipynb", "week3", [], None, False),
        ("ps01_embeddings_attention__ann.ipynb", "ann", [PS01], (0, 0), False),
        ("ann/ps01_embeddings_attention.ipynb", "ann", [PS01], (0, 0), False),
        ("ann/ps01_embeddings_attention (12).IPYNB", "ann", [PS01], (0, 12), False),
        ("ann__ps01_embeddings_attention.ipynb.txt", "ann", [PS01], (0, 0), False),
        ("ann__ps01_embeddings_attention (3).json", "ann", [PS01], (0, 3), False),
        ("ann/ps01_embeddings_attention-2.ipynb", "ann", [PS01], (0, 2), False),
        ("ann/ps01_embeddings_attention-Copy1.ipynb", "ann", [PS01], None, False),
        ("ann/ps01_embeddings_attention - Copy (2).ipynb", "ann", [PS01], None, False),
        ("ann/Copy of ps01_embeddings_attention.ipynb", "ann", [PS01], None, False),
        ("ann/Kopie von ps01_embeddings_attention.ipynb", "ann", [PS01], None, False),
        ("ann/“ps01_embeddings_attention.ipynb”的副本.ipynb", "ann", [PS01], None, False),
        ("ann/Hausaufgabe (1).ipynb", "ann", [], None, False),
        ("ann_PS01-Embeddings-Attention.ipynb", "ann", [PS01], (0, 0), False),
        ("Copy of ann_ps01_embeddings_attention.ipynb", "ann", [PS01], None, False),
        ("ps01_embeddings_attention/ann.ipynb", "ann", [PS01], None, False),
        ("student-1.ipynb", "student-1", [], None, False),
        ("student (1).ipynb", "student (1)", [], None, False),
        ("a+b*[c]__ps01_embeddings_attention.ipynb", "a-b--c", [PS01], (0, 0), False),
        ("../ps01_embeddings_attention.ipynb", None, [PS01], (0, 0), False),
        ("+/ps01_embeddings_attention.ipynb", None, [PS01], (0, 0), False),
        ("ps01_embeddings_attention.ipynb", None, [PS01], None, False),
        ("bob__Copy of homework.ipynb", "bob", [], None, False),
        ("__homework.ipynb", None, [], None, False),
        ("Untitled3.ipynb", None, [], None, False),
        ("ps01_embeddings_attention/ps01_embeddings_attention.ipynb", None, [PS01], None, False),
        ("名字_ps01_embeddings_attention.ipynb", "名字", [PS01], (0, 0), False),
        (
            unicodedata.normalize("NFD", "müller__ps01_embeddings_attention.ipynb"),
            "müller",
            [PS01],
            (0, 0),
            False,
        ),
    ],
)
def test_what_a_path_says(path, student, said, order, late):
    sender = sender_of(tuple(path.split("/")), ASSIGNMENTS)
    assert sender.student == (student and safe_id(student))
    assert (list(sender.said), sender.order, sender.late) == (said, order, late)


def test_names_of_all_scripts_stay_and_dangerous_ones_do_not():
    for name in ("ann", "Ann Smith_77", "名字", "ann@uni.edu", "a.b-c_d", "नमिता"):
        assert safe_id(name) == name
    for name in ("", ".", "..", "+", "-", " ", "/", "\0", "\ud800"):
        assert safe_id(name) is None
    assert safe_id("../x\\y/z\n\u202e+[*]") == "x-y-z"
    assert safe_id("x" * 300 + "_77").endswith("x_77")


@given(st.text(max_size=99) | st.text("ab+/. -\u0301", max_size=99))
def test_an_id_can_always_be_the_name_of_a_folder(raw):
    name = safe_id(raw)
    if name is not None:
        assert unicodedata.is_normalized("NFC", name)
        assert safe_id(name) == name
        assert 0 < len(name) <= 60
        assert len(name.encode()) <= 255
        assert not set(name) & set("+/\\\0*?[]")
        assert name[0] not in " .-"


@given(
    st.lists(
        st.text(max_size=20) | st.sampled_from((PS01, "a_1_2_b", "..", "x_1_assignsubmission_file_")),
        min_size=1,
    )
)
def test_any_path_can_be_read(parts):
    sender = sender_of(tuple(parts), ASSIGNMENTS)
    assert sender.student is None or safe_id(sender.student) == sender.student
    assert set(sender.said) <= set(ASSIGNMENTS)
    assert sender.number == "" or sender.number.isdecimal()
    assert all(note.endswith(".") for note in sender.notes)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "The file is empty. Download the notebook again"),
        (b" \n\0\0", "The file is empty."),
        (TEXTS[PS01][:500].encode(), "The file breaks off after 500 characters. Download"),
        (b'{"cells": [', "The file breaks off after 11 characters."),
        (b'{"cells": [1 2], "a": 3}', "The file is damaged at line 1: Expecting ',' delimiter. Download"),
        (b'{"n": ' + b"1" * 5000 + b"}", "The file is damaged at line 1: Exceeds the limit"),
        (b"\n<!DOCTYPE html><html>", "The file is a web page"),
        (b"\xef\xbb\xbf<html>", "The file is a web page"),
        (b"%PDF-1.7 ...", "The file is a PDF"),
        (b"PK\x03\x04...", "The file is a zip archive."),
        (b"import torch\nx = 1", "The file is no notebook: it begins with “import torch�x = 1”."),
        (b"\x89PNG\r\n\x1a\n\xff", "The file is no notebook: it begins with “‰PNG"),
        (b"\xff\xfe\x00", "The file is no notebook: it begins with “�”"),
        (b"[1]", "The file is no notebook: it holds a list, not a JSON object. Download"),
        (b"null", "The file is no notebook: it holds nothing, not a JSON object."),
        (b'{"a": 1}\n<<<<<<< HEAD\n', "The file holds the marks of a merge conflict"),
        (b"<<<<<<< HEAD\n{}", "The file holds the marks of a merge conflict"),
        (b'{"a": ' + b"[" * 100_000, "The file is no notebook: it is nested too deeply."),
        (b" " * 20_000_001, "The file has 20.0 MB, more than 20. Clear the outputs"),
    ],
)
def test_what_holds_no_notebook(data, reason):
    assert reason_of(data).startswith(reason)


@pytest.mark.parametrize(
    ("data", "content", "said"),
    [
        ('{"a": "ä"}'.encode(), {"a": "ä"}, []),
        ('{"a": "ä"}'.encode("utf-8-sig"), {"a": "ä"}, []),
        ('{"a": "ä"}'.encode("utf-16"), {"a": "ä"}, ["in UTF-16"]),
        ('{"a": "ä"}'.encode("cp1252"), {"a": "ä"}, ["read as Windows-1252"]),
        (b'{"a": [Infinity, -Infinity]}', {"a": [float("inf"), float("-inf")]}, []),
    ],
)
def test_what_can_be_read(data, content, said):
    found, notes = content_of(data)
    assert found == content
    assert len(notes) == len(said)
    assert all(words in note for words, note in zip(said, notes, strict=True))


@given(
    st.binary(max_size=30)
    | st.integers(0, 2000).map(lambda n: TEXTS[PS01].encode()[:n])
    | st.text().map(str.encode)
)
def test_any_bytes_are_read_or_refused(data):
    try:
        content, _ = content_of(data)
    except CannotBeGraded as error:
        content = {"reason": str(error)}
    assert isinstance(content, dict)
    assert content.get("reason", "").isprintable()


def test_a_single_notebook(folder):
    source = (
        folder({"ann__ps01_embeddings_attention.ipynb": answered()}) / "ann__ps01_embeddings_attention.ipynb"
    )
    one = only(taken(source))
    assert (one.student, one.assignment, one.path) == ("ann", PS01, "ann__ps01_embeddings_attention.ipynb")
    assert (one.repairs, one.timestamp, one.late) == ((), None, False)
    assert [cell.source for cell in one.notebook.cells].count("mine = 1") == 9


def test_a_single_notebook_of_nbgraders_folder(folder):
    root = folder({"ann/ps01_embeddings_attention/ps01_embeddings_attention.ipynb": answered()})
    assert only(taken(root / "ann" / PS01 / "ps01_embeddings_attention.ipynb")).student == "ann"


def test_a_source_that_is_none(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("nowhere", "pipe"):
        with pytest.raises(FileNotFoundError, match="expected a notebook, a folder or a zip archive, got"):
            list(take_in(tmp_path / name, ASSIGNMENTS))


def test_nbgraders_folder(folder):
    root = folder(
        {
            "ann/ps01_embeddings_attention/ps01_embeddings_attention.ipynb": answered(),
            "ann/ps01_embeddings_attention/timestamp.txt": "2026-11-21 10:00:00 UTC\n",
            "ann/ps01_embeddings_attention/submission_secret.txt": "ada2a328",
            f"ann/{PS01}/.ipynb_checkpoints/{PS01}-checkpoint.ipynb": answered(),
            "ann/ps02_masks/ps02_masks.ipynb": answered(PS02),
            "bob/ps01_embeddings_attention/ps01_embeddings_attention.ipynb": "",
            "bob/ps01_embeddings_attention/helper.py": "x = 1",
            "cem/ps01_embeddings_attention/ps01_embeddings_attention.ipynb": answered(),
            "cem/ps01_embeddings_attention/timestamp.txt": "<script>",
            ".DS_Store": "x",
        }
    )
    found = taken(root)
    assert students(found) == {
        "ann/ps02_masks/ps02_masks.ipynb": "ann",
        "ann/ps01_embeddings_attention/ps01_embeddings_attention.ipynb": "ann",
        "bob/ps01_embeddings_attention/helper.py": None,
        "bob/ps01_embeddings_attention/ps01_embeddings_attention.ipynb": None,
        "cem/ps01_embeddings_attention/ps01_embeddings_attention.ipynb": "cem",
    }
    ann, cem = (
        found[f"{name}/ps01_embeddings_attention/ps01_embeddings_attention.ipynb"] for name in ("ann", "cem")
    )
    assert ann.timestamp == "2026-11-21 10:00:00 UTC"
    assert (cem.timestamp, cem.repairs) == (None, ("Its timestamp.txt holds no time: “<script>”.",))
    empty = found["bob/ps01_embeddings_attention/ps01_embeddings_attention.ipynb"]
    assert (empty.student, empty.assignment) == ("bob", PS01)
    assert empty.reason.startswith("The file is empty. Download the notebook again")


def test_canvas(archive):
    found = taken(
        archive(
            {
                "smithann_123_456_ps01_embeddings_attention.ipynb": answered(),
                "smithann_99_457_ps01_embeddings_attention.ipynb": answered(),
                "kurtbob_LATE_124_458_Copy of ps01_embeddings_attention-1.ipynb": answered(),
                "kurtbob_124_text.html": "<html>",
                "__MACOSX/._smithann_123_456_ps01_embeddings_attention.ipynb": "x",
            }
        )
    )
    assert students(found) == {
        "bulk.zip: smithann_123_456_ps01_embeddings_attention.ipynb": "smithann_123",
        "bulk.zip: smithann_99_457_ps01_embeddings_attention.ipynb": "smithann_99",
        "bulk.zip: kurtbob_LATE_124_458_Copy of ps01_embeddings_attention-1.ipynb": "kurtbob_124",
        "bulk.zip: kurtbob_124_text.html": None,
    }
    assert [one.late for one in found.values() if isinstance(one, Received)] == [False, False, True]
    typed = found["bulk.zip: kurtbob_124_text.html"]
    assert typed.student == "kurtbob_124"
    assert typed.reason.startswith("The file is a web page")


def test_moodle(archive):
    found = taken(
        archive(
            {
                f"Ann Smith_77_{MOODLE}_/Untitled.ipynb": answered(),
                f"Ann Smith_78_{MOODLE}_/Untitled.ipynb": answered(),
                f"Bob_79_{MOODLE}_ps01_embeddings_attention.ipynb": answered(),
            }
        )
    )
    assert list(students(found).values()) == ["Ann Smith_77", "Ann Smith_78", "Bob_79"]


def test_a_name_that_was_guessed_or_changed_is_said(folder):
    found = taken(
        folder({"Hausaufgabe.ipynb": answered(), "a+b__ps01_embeddings_attention.ipynb": answered()})
    )
    guessed, changed = found["Hausaufgabe.ipynb"], found["a+b__ps01_embeddings_attention.ipynb"]
    assert (guessed.student, changed.student) == ("Hausaufgabe", "a-b")
    assert guessed.repairs == ("“Hausaufgabe” was taken as the student's name, after the name of the file.",)
    assert changed.repairs == ("“a+b” cannot be the name of a folder; “a-b” is used instead.",)


@pytest.mark.parametrize("other", ["a-b", "A-b", "a*b"])
def test_two_students_never_become_one(folder, other):
    found = taken(folder({f"{name}__ps01_embeddings_attention.ipynb": answered() for name in ("a+b", other)}))
    kept, aside = sorted(found.values(), key=lambda one: isinstance(one, Quarantined))
    assert isinstance(kept, Received)
    assert "would both be called" in aside.reason
    assert all(f"“{name}”" in aside.reason for name in ("a+b", other))


def test_one_student_in_two_spellings_of_unicode_is_one(folder):
    names = {unicodedata.normalize(form, "müller") for form in ("NFC", "NFD")}
    files = {f"{name}__{one}.ipynb": answered(one) for name, one in zip(names, (PS02, PS01), strict=True)}
    assert [one.student for one in taken(folder(files)).values()] == ["müller"] * 2


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("ann/ps01_embeddings_attention.ipynb", "ann/ps01_embeddings_attention (1).ipynb"),
        ("ann/ps01_embeddings_attention (2).ipynb", "ann/ps01_embeddings_attention (10).ipynb"),
        ("ann/ps01_embeddings_attention.ipynb", "ann/ps01_embeddings_attention-1.ipynb"),
        ("ann__ps01_embeddings_attention.ipynb", "ann__ps01_embeddings_attention (1).ipynb"),
        ("ann_1_99_ps01_embeddings_attention-1.ipynb", "ann_1_100_Untitled.ipynb"),
        ("ann_1_99_ps01_embeddings_attention.ipynb", "ann_LATE_1_100_ps01_embeddings_attention.ipynb"),
        (
            f"Ann_7_{MOODLE}_/ps01_embeddings_attention.ipynb",
            f"Ann_7_{MOODLE}_/ps01_embeddings_attention-1.ipynb",
        ),
    ],
)
def test_of_two_by_one_student_the_newer_counts(folder, older, newer):
    found = taken(folder({older: answered(answer="old = 1"), newer: answered(answer="new = 1")}))
    assert isinstance(found[newer], Received)
    assert found[newer].repairs == (f"There were 2 notebooks; {newer} counts, because it is the newest.",)
    assert found[older].reason == f"Superseded: {newer} counts instead, because it is the newest."
    assert (found[older].student, found[older].assignment) == (found[newer].student, PS01)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ann/ps01_embeddings_attention.ipynb", "ann/Copy of ps01_embeddings_attention.ipynb"),
        ("ann/ps01_embeddings_attention.ipynb", "ann/ps01_embeddings_attention-Copy1.ipynb"),
        ("week3/ann.ipynb", "week3/bob.ipynb"),
        ("week3/student (1).ipynb", "week3/student (2).ipynb"),
        ("ann/ps01_embeddings_attention (1).ipynb", "ann/ps01_embeddings_attention-1.ipynb"),
        ("ann/a/ps01_embeddings_attention.ipynb", "a/ps01_embeddings_attention.ipynb"),
    ],
)
def test_of_two_that_cannot_be_told_apart_none_counts(folder, one, other):
    found = taken(folder({one: answered(answer="a = 1"), other: answered(answer="b = 1")}))
    for outcome in found.values():
        assert outcome.reason.startswith("Nothing tells which is the newest: ")
        assert one in outcome.reason
        assert other in outcome.reason


def test_of_many_that_cannot_be_told_apart_a_few_are_named(folder):
    """Folders of files by different students, who are not in folders of their own."""
    files = {f"week3/{name}.ipynb": answered(answer=f"{name} = 1") for name in "abcdefg"}
    found = taken(folder(files | {path.replace("3", "4"): files[path] for path in list(files)[:5]}))
    listed = "{0}/a.ipynb, {0}/b.ipynb, {0}/c.ipynb, {0}/d.ipynb, {0}/e.ipynb"
    assert {one.reason for one in found.values()} == {
        f"Nothing tells which is the newest: {which}. Hand in only one. Different students need different names."
        for which in (f"{listed.format('week3')} and 2 more", listed.format("week4"))
    }


def test_the_newest_is_known_only_if_there_is_one(folder):
    names = ("ps01_embeddings_attention", "ps01_embeddings_attention (1)", "ps01_embeddings_attention-1")
    found = taken(folder({f"ann/{name}.ipynb": answered(answer=f"a = {name!r}") for name in names}))
    assert all(isinstance(one, Quarantined) for one in found.values())


def test_of_two_the_one_that_is_answered_counts(folder):
    worked_on, untouched = (
        "ann/Copy of ps01_embeddings_attention.ipynb",
        "ann/ps01_embeddings_attention (1).ipynb",
    )
    found = taken(folder({worked_on: answered(), untouched: TEXTS[PS01]}))
    assert isinstance(found[worked_on], Received)
    assert found[untouched].reason.endswith("because the others are not answered.")


def test_of_two_that_say_the_same_one_counts(folder):
    found = taken(folder({"ann/a.ipynb": answered(), "ann/b.ipynb": answered().replace("\\n", " \\n")}))
    assert students(found) == {"ann/a.ipynb": "ann", "ann/b.ipynb": None}


def test_one_students_assignments_do_not_supersede_each_other(folder):
    found = taken(folder({f"ann/{name}.ipynb": answered(name) for name in NAMES}))
    assert {one.assignment for one in found.values() if isinstance(one, Received)} == set(NAMES)


@pytest.mark.parametrize(
    "name",
    [
        "Copy of ps01_embeddings_attention",
        "ps01_embeddings_attention (1)",
        "ps01_embeddings_attention-Copy1",
        "Untitled3",
        "Hausaufgabe",
        "ps01",
    ],
)
def test_the_assignment_is_known_by_its_cells(folder, name):
    one = only(taken(folder({f"ann/{name}.ipynb": answered()})))
    assert (one.assignment, one.student, one.repairs) == (PS01, "ann", ())


def test_a_wrong_name_is_said(folder):
    one = only(taken(folder({"ann/ps02_masks/ps04_multi_head.ipynb": answered()})))
    assert one.assignment == PS01
    named = "The file is named after ps02_masks and ps04_multi_head"
    assert one.repairs == (f"{named} but holds ps01_embeddings_attention; it was taken as that.",)


def test_the_assignment_is_known_by_its_texts(folder):
    content = json.loads(answered())
    for cell in content["cells"]:
        del cell["id"]
        cell["metadata"] = {}
    assert only(taken(folder({"ann/x.ipynb": json.dumps(content)}))).assignment == PS01


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            [],
            f"The notebook holds no cell of an assignment that is graded here ({PS02}, {PS01}, ",
        ),
        # What several assignments have in common says nothing.
        (
            [cell for cell in json.loads(TEXTS[PS01])["cells"] if cell["id"] == "ps01-setup"],
            "The notebook holds no cell of an assignment",
        ),
    ],
)
def test_a_notebook_of_no_assignment(folder, cells, reason):
    cells = [{**cell, "id": "x", "metadata": {}} for cell in cells]
    one = only(taken(folder({"ann/ps01_embeddings_attention.ipynb": json.dumps({"cells": cells})})))
    assert one.reason.startswith(reason)
    assert (one.student, one.assignment) == ("ann", PS01)


def test_two_assignments_in_one(folder):
    both = json.loads(cells_of(PS01, PS04))
    del both["cells"][-10:]  # a few less of the second, which is then named second
    both = json.dumps(both)
    found = taken(folder({"ann/x.ipynb": both, "bob/ps04_multi_head.ipynb": both}))
    assert found["ann/x.ipynb"].reason == (
        f"The notebook holds cells of {PS01} and {PS04}. Hand in one notebook for each."
    )
    assert isinstance(found["bob/ps04_multi_head.ipynb"], Received)
    assert found["bob/ps04_multi_head.ipynb"].assignment == PS04


@pytest.mark.parametrize(
    ("of_ps01", "of_ps04", "assignment"), [(2, 1, PS01), (3, 2, None), (1, 0, PS01), (1, 4, PS04)]
)
def test_how_much_of_another_assignment_there_may_be(of_ps01, of_ps04, assignment):
    """Answers only, whose texts say nothing; copies of a cell count once."""
    cells = [Cell(1, "code", "", ids=(f"ps01-{number}-answer",)) for number in (1, 3, 4)[:of_ps01]]
    cells += [
        Cell(1, "code", "", marks={"grade_id": f"ps04-{number}-answer"}) for number in (1, 3, 4, 5)[:of_ps04]
    ]
    if assignment:
        assert Catalogue(ASSIGNMENTS, {}).assignment_of(cells + cells[:1] * 9, ()) == assignment
    else:
        with pytest.raises(
            CannotBeGraded, match="holds cells of ps01_embeddings_attention and ps04_multi_head"
        ):
            Catalogue(ASSIGNMENTS, {}).assignment_of(cells, ())


def test_a_helper_from_another_assignment(folder):
    content = json.loads(answered())
    content["cells"][5:5] = json.loads(TEXTS[PS02])["cells"][8:12]
    one = only(taken(folder({"ann/x.ipynb": json.dumps(content)})))
    assert one.assignment == PS01
    assert len(one.repairs) == 4


def test_a_folder_of_traps(folder, tmp_path):
    root = folder({"ann/ps01_embeddings_attention.ipynb": answered(), "x.ipynb/y.txt": "x"})
    os.mkfifo(root / "pipe__ps01_embeddings_attention.ipynb")
    secret = tmp_path / "secret.ipynb"
    secret.write_text(answered(), encoding="utf-8")
    (root / "link__ps01_embeddings_attention.ipynb").symlink_to(secret)
    (root / "dangling.ipynb").symlink_to("nowhere")
    (root / "out").symlink_to(tmp_path)
    with (root / "huge.ipynb").open("wb") as file:
        file.truncate(10**12)
    (Path(os.fsdecode(os.fsencode(root) + b"/m\xfcller__ps01_embeddings_attention.ipynb"))).write_text(
        answered(), encoding="utf-8"
    )
    deep = root.joinpath(*"123456789")
    deep.mkdir(parents=True)
    (deep / "a.ipynb").write_text(answered(), encoding="utf-8")
    found = taken(root)
    reasons = {path: one.reason[:16] for path, one in found.items() if isinstance(one, Quarantined)}
    assert reasons == {
        "pipe__ps01_embeddings_attention.ipynb": "This is no ordin",
        "link__ps01_embeddings_attention.ipynb": "This is a link t",
        "dangling.ipynb": "This is a link t",
        "out": "This is a link t",
        "huge.ipynb": "The file has 100",
        "x.ipynb/y.txt": "The file is no n",
        "1/2/3/4/5/6/7/8/9": "More than 8 fold",
    }
    assert {one.student for one in found.values() if isinstance(one, Received)} == {"ann", "m-ller"}


def test_what_must_not_be_read(folder, monkeypatch):
    root = folder(
        {
            "ann/ps01_embeddings_attention.ipynb": answered(),
            "bob/ps01_embeddings_attention.ipynb": answered(),
            "cem/a": "x",
        }
    )
    really_open, really_list = os.open, os.listdir

    def no_bob(path, flags):
        if "bob" in str(path):
            raise PermissionError(13, "Permission denied")
        return really_open(path, flags)

    def no_cem(path):
        if "cem" in str(path):
            raise PermissionError(13, "Permission denied")
        return really_list(path)

    monkeypatch.setattr(files.os, "open", no_bob)
    monkeypatch.setattr(files.os, "listdir", no_cem)
    found = taken(root)
    assert (
        found["bob/ps01_embeddings_attention.ipynb"].reason
        == "The file could not be read (Permission denied)."
    )
    assert found["cem"].reason == "The folder could not be read (Permission denied)."
    assert students(found)["ann/ps01_embeddings_attention.ipynb"] == "ann"


def test_too_many_files(folder, monkeypatch):
    monkeypatch.setattr(files, "MOST_FILES", 2)
    found = taken(folder({f"{name}/ps01_embeddings_attention.ipynb": answered() for name in "abc"}))
    assert students(found) == {
        "a/ps01_embeddings_attention.ipynb": "a",
        "b/ps01_embeddings_attention.ipynb": "b",
        "all": None,
    }
    assert found["all"].reason == "There are more than 2 files. The rest was not looked at."


def linked(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info


def nested() -> bytes:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as inner:
            inner.writestr("a.ipynb", answered())
        return file.getvalue()


def test_an_archive_of_traps(archive):
    """Nothing is written where a path says, so any path may be read."""
    source = archive(
        {
            "ann__ps01_embeddings_attention.ipynb": answered(),
            "../up__ps01_embeddings_attention.ipynb": answered(),
            "/etc/abs__ps01_embeddings_attention.ipynb": answered(),
            "C:\\win__ps01_embeddings_attention.ipynb": answered(),
            linked("link__ps01_embeddings_attention.ipynb"): "/etc/passwd",
            "bomb__ps01_embeddings_attention.ipynb": b" " * 20_000_001,
            "inner__ps01_embeddings_attention.zip": nested(),
            "1/2/3/4/5/6/7/8/9/deep__ps01_embeddings_attention.ipynb": answered(),
            "empty/": "",
            "bob__ps01_embeddings_attention.ipynb": answered(),
        }
    )
    found = taken(source)
    reasons = {path[10:14]: one.reason[:25] for path, one in found.items() if isinstance(one, Quarantined)}
    assert reasons == {
        "link": "The file is no notebook: ",
        "bomb": "The file has 20.0 MB, mor",
        "inne": "The file is a zip archive",
    }
    received = {one.student for one in found.values() if isinstance(one, Received)}
    assert received == {"ann", "up", "abs", "win", "deep", "bob"}


def patched(source: Path, old: bytes, new: bytes) -> Path:
    assert old in source.read_bytes()
    source.write_bytes(source.read_bytes().replace(old, new))
    return source


def test_a_member_that_is_larger_than_its_header_says(archive):
    source = archive(
        {
            "ann__ps01_embeddings_attention.ipynb": b" " * 20_000_001,
            "bob__ps01_embeddings_attention.ipynb": answered(),
        }
    )
    found = taken(patched(source, (20_000_001).to_bytes(4, "little"), (500).to_bytes(4, "little")))
    assert (
        "damaged in the archive (Bad CRC-32" in found["bulk.zip: ann__ps01_embeddings_attention.ipynb"].reason
    )
    assert isinstance(found["bulk.zip: bob__ps01_embeddings_attention.ipynb"], Received)


def test_an_encrypted_member(archive):
    source = archive({"ann.ipynb": answered()})
    data = bytearray(source.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    source.write_bytes(data)
    assert "is encrypted" in only(taken(source)).reason


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_that_python_unpacks_without_limit(archive, method):
    assert only(taken(archive({"ann.ipynb": answered()}, method))).reason.startswith(
        "It is packed by a method"
    )


def test_two_members_of_one_name(archive, tmp_path):
    source = archive({"ann__ps01_embeddings_attention.ipynb": answered()})
    with zipfile.ZipFile(source, "a") as opened, pytest.warns(UserWarning, match="Duplicate name"):
        opened.writestr("ann__ps01_embeddings_attention.ipynb", answered(answer="other = 1"))
    outcomes = list(take_in(source, ASSIGNMENTS))
    assert len(outcomes) == 2
    assert all(one.reason.startswith("Nothing tells which") for one in outcomes)


def test_names_without_an_encoding(archive):
    source = patched(
        archive({"mYYller__ps01_embeddings_attention.ipynb": answered()}), b"mYYller", "müller".encode()
    )
    assert only(taken(source)).student == "müller"
    source = patched(source, "müller".encode(), b"m\x81\x81ller")
    assert only(taken(source)).student == "müüller"


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"PK\x05\x06" + b"\xff" * 18])
def test_an_archive_that_is_none(tmp_path, data):
    source = tmp_path / "bulk.zip"
    source.write_bytes(data)
    assert only(taken(source)).reason.startswith("The archive cannot be read (")


@given(st.data())
def test_a_damaged_archive_stops_nothing(tmp_path_factory, data):
    source = tmp_path_factory.mktemp("damaged") / "bulk.zip"
    with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as made:
        for name in "abc":
            made.writestr(f"{name}__ps01_embeddings_attention.ipynb", TEXTS[PS01][:900])
    content = bytearray(source.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    source.write_bytes(content[: data.draw(st.none() | st.integers(0, len(content)))])
    outcomes = list(take_in(source, ASSIGNMENTS))
    assert all(isinstance(one, Quarantined) for one in outcomes)


def test_what_nobody_foresaw_stops_no_other(folder, monkeypatch):
    really = submissions.repair

    def repair(content, released):
        if content["nbformat_minor"] == 3:
            raise TypeError("a\nb")
        return really(content, released)

    monkeypatch.setattr(submissions, "repair", repair)
    odd = json.dumps({**json.loads(answered()), "nbformat_minor": 3})
    found = taken(folder({"a/x.ipynb": answered(), "b/x.ipynb": odd, "c/x.ipynb": answered()}))
    assert students(found) == {"a/x.ipynb": "a", "b/x.ipynb": None, "c/x.ipynb": "c"}
    assert found["b/x.ipynb"].reason == "The file could not be read (TypeError: a�b). Tell your instructor."


def test_what_is_received_knows_nothing_of_a_master(folder):
    before = copy.deepcopy(ASSIGNMENTS)
    content = json.loads(answered())
    content["cells"] = content["cells"][:3]
    one = only(taken(folder({"ann/x.ipynb": json.dumps(content)})))
    released = {cell.source for cell in ASSIGNMENTS[PS01].cells}
    assert {cell.source for cell in one.notebook.cells} <= released
    one.notebook.cells[0].metadata.nbgrader.points = 99
    assert before == ASSIGNMENTS, "the assignments are not shared with what is received"
