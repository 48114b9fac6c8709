"""Pairs of similar submissions: copies with renamed variables are found, common solutions are not."""

import inspect
import itertools
import random
import time
from functools import cache, partial

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exercises import release
from exercises.autograder.course.folders import Course
from exercises.autograder.rehearse import rename_variables
from exercises.autograder.running.flags import tasks_of
from exercises.autograder.similarity import OWN, compare, course_pairs, own_runs, pairs, shares, side_by_side
from tests.checks.answers import MODULES
from tests.rewording import reworded
from tests.submissions import NAME, answers_in, read, with_answers
from tests.typical_answers import WRONG

all_renamed = partial(rename_variables, probability=1.0)
ATTENTION = "ps01-3-answer"
SCALE = "ps01-7-scale-answer"


# --- A class as it could be -----------------------------------------------------------------------------------


@cache
def notebook_of(assignment: str, kind: str) -> nbformat.NotebookNode:
    return read(release.HERE / kind / assignment / f"{assignment}.ipynb")


def handed(assignment: str) -> dict[str, str]:
    return {cell.id: cell.source for cell in notebook_of(assignment, "release").cells}


def masters(assignment: str) -> dict[str, str]:
    return answers_in(notebook_of(assignment, "source"))


def code_of(assignment: str) -> dict[str, str]:
    code = {cell.id for cell in notebook_of(assignment, "source").cells if cell.cell_type == "code"}
    return {name: text for name, text in masters(assignment).items() if name in code}


@cache
def ways(assignment: str) -> dict[str, list[str]]:
    """Possible texts of each answer in code: the master's first, then other right and wrong ones."""
    tasks = tasks_of(handed(assignment))
    found = {}
    for name, text in code_of(assignment).items():
        right = (module.RIGHT.get(task, ()) for task in tasks.get(name, ()) for module in MODULES)
        others = [inspect.getsource(answer) for answers in right for answer in answers]
        mistakes = [wrong for check, _, wrong, _ in WRONG if check.replace("-check", "-answer") == name]
        found[name] = [text, *others, *mistakes]
    return found


def a_class(assignment: str, number: int, seed: int, usual: float = 0.5) -> dict[str, dict[str, str]]:
    """Honest students. Better ones write more of the usual answers, whose overall share is `usual`.

    A student who repairs a broken program changes the wrong lines only; all other answers are reworded.
    """
    texts = {}
    for n in range(number):
        chance = random.Random(f"{assignment} {seed} {n}")
        skill, often = chance.random() ** (1 / usual - 1), chance.uniform(0, 0.7)
        texts[f"student-{n:04}"] = {}
        for name, text in ways(assignment).items():
            kind = text[0] if chance.random() < skill else chance.choice(text)
            own = kind if "repaired" in kind else rename_variables(reworded(kind, chance, often), chance)
            if chance.random() < 0.6 + 0.4 * skill:
                texts[f"student-{n:04}"][name] = own
    return texts


def spread(code: str, chance: random.Random) -> str:
    """The same code with comments, and with line breaks after commas outside strings and comments."""
    lines = []
    for line in code.splitlines():
        broken = line if set(line) & set("#'\"") else line.replace(", ", ",\n        ")
        lines.append(f"{broken}  # {chance.choice(('why', 'that is it', 'fix (later)'))}")
    return "\n".join(lines)


# --- Two submissions ------------------------------------------------------------------------------------------


def test_released_text_and_short_answers_do_not_count():
    given = handed(NAME).values()
    assert own_runs({"a": handed(NAME), "b": {}}, given) == ({}, {})
    assert pairs({f"s{n}": handed(NAME) for n in range(30)}, given) == []
    short = {"ps01-1-answer": masters(NAME)["ps01-1-answer"]}
    assert pairs({f"s{n}": short for n in range(9)}, given) == []
    assert pairs({"s": masters(NAME)}, given) == []
    assert pairs({}, given) == []
    again = "\n\n".join(handed(NAME)[name] for name in ("ps01-4-broken", "ps01-0-try"))
    assert pairs({name: {OWN: again} for name in "abc"}, given) == []
    assert len(pairs({name: {OWN: again} for name in "abc"}, [])) == 2


@given(st.integers(0, 10**6), st.sampled_from(sorted(code_of(NAME))))
def test_names_layout_and_comments_do_not_matter(seed, name):
    chance, text = random.Random(seed), code_of(NAME)[name]
    changed = "# mine\n" + spread(all_renamed(text, chance), chance)
    _, runs = own_runs({"a": {name: text}, "b": {name: changed}}, handed(NAME).values(), [SCALE])
    assert shares(runs["a"], runs["b"]) == (1.0, {name: 1.0})


@pytest.mark.parametrize("piece", ['"', '"""', "\\", "a.", "\ud800"])
def test_long_texts_are_read_quickly(piece):
    start = time.process_time()
    own_runs({"a": {name: (piece * 200_000)[:200_000] for name in ("a", "b")}}, [], words=["b"])
    assert time.process_time() - start < 10


# --- A class --------------------------------------------------------------------------------------------------


def names_of(found: list) -> set[tuple[str, str]]:
    return {(pair.first, pair.second) for pair in found}


@pytest.mark.full
@pytest.mark.parametrize("master", release.masters(), ids=lambda master: master.stem)
def test_few_false_pairs_in_a_class_of_a_hundred(master):
    """Each assignment is tested by itself, as an easy one would hide the failure of another if pooled."""
    honest, kept, changed, given = [], [], [], handed(master.stem).values()
    for usual, seed in itertools.product((0.2, 0.5, 0.8), range(3)):
        honest.append(len(pairs(a_class(master.stem, 100, seed, usual), given)))
        for disguise, counted in ((spread, kept), (all_renamed, changed)):
            texts, chance = a_class(master.stem, 100, seed, usual), random.Random(0)
            made = list(zip(sorted(texts)[:10:2], sorted(texts)[1:10:2], strict=True))  # the second copies
            for first, second in made:
                texts[second] = {name: disguise(text, chance) for name, text in texts[first].items()}
            counted.append(len(names_of(pairs(texts, given)).intersection(made)) / 5)
    assert sum(honest) <= 0.3 * len(honest)
    assert sum(kept) > 0.8 * len(kept)
    assert sum(changed) > 0.3 * len(changed)


def test_students_with_identical_code_are_paired_with_the_first_of_them():
    """Also when the whole class has the same code."""
    texts = a_class(NAME, 12, seed=0)
    texts |= {name: masters(NAME) for name in ("zoe", "amy", "kim")}
    code = {name: all_renamed(text, random.Random(0)) for name, text in code_of(NAME).items()}
    texts["pat"] = masters(NAME) | code
    found = pairs(texts, handed(NAME).values(), words=[SCALE])
    assert [(pair.first, pair.second) for pair in found if pair.exact] == [("amy", "kim"), ("amy", "zoe")]
    others = {name for pair in found if not pair.exact for name in (pair.first, pair.second)}
    assert not {"kim", "zoe"} & others
    everybody = {f"s{number}": masters(NAME) for number in range(1, 9)}
    assert names_of(pairs(everybody, handed(NAME).values())) == {("s1", f"s{n}") for n in range(2, 9)}


def test_an_answer_in_words_that_was_copied_is_enough():
    """Python would take the text between two apostrophes for a string, which is not compared."""
    texts = a_class(NAME, 30, seed=4)
    plain = masters(NAME)[SCALE].replace("'", "").split()
    for number, student in enumerate(sorted(texts)):
        # Each student changes every fourth word in a different way.
        own = [word if place % 4 else f"{word}{number}" for place, word in enumerate(plain)]
        texts[student][SCALE] = f"It's this: {' '.join(own)}, isn't it?"
    assert pairs(texts, handed(NAME).values(), words=[SCALE]) == []
    words, _ = own_runs({student: {SCALE: own[SCALE]} for student, own in texts.items()}, [], [SCALE])
    assert len({*words.values()}) == len(texts)
    texts["student-0009"][SCALE] = texts["student-0004"][SCALE].upper()
    [found] = pairs(texts, handed(NAME).values(), words=[SCALE])
    assert (found.first, found.second, found.cells[SCALE]) == ("student-0004", "student-0009", 1.0)


def numbers(seed: int) -> str:
    """Code that no other seed gives."""
    return " + ".join(str(random.Random(seed).randrange(10**9) + step) for step in range(40))


@pytest.mark.parametrize(("shared", "is_found"), [(4, True), (3, False)])
def test_pair_is_reported_above_the_threshold_in_bits(shared, is_found):
    """A code cell that two of eight students have in common is worth log2(8/2) = 2 bits.

    A pair needs more than log2(16 · 8) = 7 bits: four cells are enough, three are not.
    """
    texts = {f"s{n}": {f"c{cell}": numbers(10 * n + cell) for cell in range(5)} for n in range(8)}
    texts["s1"] |= {f"c{cell}": texts["s0"][f"c{cell}"] for cell in range(shared)}
    found = pairs(texts, [])
    assert names_of(found) == ({("s0", "s1")} if is_found else set())
    # Both together have six different cells and share four.
    assert [pair.score for pair in found] == [pytest.approx(4 / 6)] * is_found


@pytest.mark.full
def test_a_thousand_submissions_take_seconds():
    few = list(a_class(NAME, 60, seed=0).values())
    chance = random.Random(0)
    texts = {f"s{n:04}": {name: chance.choice(few).get(name, "") for name in ways(NAME)} for n in range(1000)}
    start = time.process_time()
    pairs(texts, handed(NAME).values())
    assert time.process_time() - start < 60


# --- A course -------------------------------------------------------------------------------------------------


def hand_in(course: Course, student: str, texts: dict[str, str], own: str = "") -> None:
    notebook = with_answers(texts)
    if own:
        notebook.cells.insert(3, nbformat.v4.new_code_cell(own, id=f"own-{student}"))
        notebook.cells.insert(3, nbformat.v4.new_markdown_cell("notes", id=f"notes-{student}"))
    path = course.received(student, NAME)
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)


def test_pairs_of_a_course_are_found_and_shown_side_by_side(tmp_path):
    """Of eleven students; ann's and bob's code differs in names only."""
    course = Course(tmp_path)
    for number in range(9):
        hand_in(course, f"s{number}", {name: numbers(number) for name in code_of(NAME)}, own="mine = 3")
    helper = "def helper(a, b):\n    first = a @ b.mT\n    return first.softmax(-1) / first.amax(-1)"
    theirs = {name: all_renamed(text, random.Random(1)) for name, text in code_of(NAME).items()}
    hand_in(course, "ann", masters(NAME), own=helper)
    hand_in(course, "bob", masters(NAME) | theirs, own=helper.replace("first", "second"))
    [pair] = course_pairs(course, NAME)
    assert (pair.first, pair.second, pair.exact) == ("ann", "bob", False)
    assert pair.cells[SCALE] == pair.cells[OWN] == pair.cells[ATTENTION] == 1.0
    text = compare(course, NAME, "ann", "bob")
    assert text.startswith(f"{NAME}: 100% of what both answered is the same\n=")
    assert f"── {ATTENTION} · 100% ──" in text
    assert "the same; identical except for" in compare(course, NAME, "ann", "ann")
    # What was handed out earlier does not count either.
    (tmp_path / "released" / NAME).mkdir(parents=True)
    old = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(masters(NAME)[ATTENTION])])
    nbformat.write(old, tmp_path / "released" / NAME / "1.ipynb")
    [pair] = course_pairs(course, NAME)
    assert pair.cells[SCALE] == pair.cells[OWN] == 1.0
    assert ATTENTION not in pair.cells


def test_side_by_side_by_hand():
    ours = {"b": f"x = f(1)\nsame()\n# mine\nonly_here{'3' * 60}", "a": "left"}
    theirs = {"b": "yy = f(1)  # why\nsame()\nimport other", "c": "tab\there \x1b[2Jgone"}
    lines = side_by_side(("ann\x1b[2J", "bob"), (ours, theirs), {"b": 0.5}).splitlines()
    rows = [(line[:58].rstrip(), line[59:60], line[61:]) for line in lines[1:] if line[:2] not in ("", "──")]
    assert rows == [
        ("ann⟨U+001B⟩[2J", " ", "bob"),
        ("x = f(1)", "~", "yy = f(1)  # why"),
        ("same()", "=", "same()"),
        ("# mine", "|", "import other"),
        (f"only_here{'3' * 49}", "|", ""),
        ("3" * 11, "", ""),
        ("left", "|", ""),
        ("", "|", "tab here ⟨U+001B⟩[2Jgone"),
    ]
    assert [line for line in lines if line.startswith("──")] == ["── b · 50% ──", "── a ──", "── c ──"]
