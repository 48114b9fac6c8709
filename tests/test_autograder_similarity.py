"""Pairs of submissions: the same under other names is found, and what everybody writes is not."""

import ast
import inspect
import io
import random
import re
import runpy
import sys
import time
import tokenize
from functools import cache
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exercises import release
from exercises.autograder.course.folders import Course
from exercises.autograder.flags import answered
from exercises.autograder.rehearse.renaming import renamed
from exercises.autograder.similarity import Pair, compare, of_course, of_two, pairs, side_by_side
from exercises.autograder.similarity.course import OWN, answers_of
from exercises.autograder.similarity.fingerprints import (
    LEFT_OUT,
    LENGTHS,
    WINDOW,
    handed_out,
    prints_of,
    tokens,
    words,
)
from tests.checks.answers import MODULES
from tests.rewording import reworded

HERE = Path(__file__).parent
NAME = "ps01_embeddings_attention"
ATTENTION = "ps01-3-answer"
SCALE = "ps01-7-scale-answer"

# Right answers in other words to functions that no check of the catalogue looks at.
ALSO_RIGHT = {
    "ps01-5-largest-answer": [
        """def largest_weight(cap, keys):
    best, others = math.exp(cap), (keys - 1) * math.exp(-cap)
    return best / (best + others)""",
        """def largest_weight(cap, keys):
    scores = torch.full((keys,), -float(cap))
    scores[0] = cap
    return scores.softmax(0)[0].item()""",
        """def largest_weight(cap, keys):
    if keys == 1:
        return 1.0
    return torch.sigmoid(torch.tensor(2.0 * cap - math.log(keys - 1)))""",
    ],
    "ps01-6-answer": [
        """def row_entropy(weights):
    terms = torch.where(weights > 0, weights * torch.log2(weights), torch.zeros_like(weights))
    return -terms.sum(-1)""",
        """def row_entropy(weights):
    return -torch.xlogy(weights, weights).sum(dim=-1) / math.log(2)""",
        """def row_entropy(weights):
    return torch.special.entr(weights).sum(-1) / math.log(2)""",
        """def row_entropy(weights):
    logs = torch.log2(weights + 1e-12)
    return torch.sum(-weights * logs, dim=-1)""",
    ],
    "ps02-4-sink-answer": [
        """def sink_window_mask(queries, keys, window, sinks):
    causal = torch.ones(queries, keys).tril(keys - queries).bool()
    near = torch.ones(queries, keys).triu(keys - queries - window + 1).bool()
    near[:, :sinks] = True
    return causal & near""",
        """def sink_window_mask(queries, keys, window, sinks):
    mask = torch.zeros(queries, keys, dtype=torch.bool)
    for i in range(queries):
        own = i + keys - queries
        for j in range(own + 1):
            mask[i, j] = j < sinks or j > own - window
    return mask""",
        """def sink_window_mask(queries, keys, window, sinks):
    distance = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)[None]
    in_window = torch.logical_and(distance >= 0, distance < window)
    is_sink = torch.logical_and(distance >= 0, torch.arange(keys) < sinks)
    return torch.logical_or(in_window, is_sink)""",
    ],
    "ps02-5-positions-answer": [
        """def packed_positions(segments):
    result = torch.zeros_like(segments)
    for b in range(segments.shape[0]):
        for t in range(1, segments.shape[1]):
            if segments[b, t] == segments[b, t - 1]:
                result[b, t] = result[b, t - 1] + 1
    return result""",
        """def packed_positions(segments):
    same = segments[:, :, None] == segments[:, None, :]
    return torch.tril(same).sum(dim=-1) - 1""",
        """def packed_positions(segments):
    rows = []
    for row in segments.tolist():
        count, last, found = 0, None, []
        for segment in row:
            count = count + 1 if segment == last else 0
            found.append(count)
            last = segment
        rows.append(found)
    return torch.tensor(rows)""",
    ],
    "ps02-6-answer": [
        """def moved(before, after, tolerance=1e-5):
    same = torch.isclose(before, after, rtol=0.0, atol=tolerance)
    return ~same.all(dim=-1)""",
        """def moved(before, after, tolerance=1e-5):
    difference = torch.nan_to_num(torch.abs(after - before), nan=float("inf"))
    return torch.amax(difference, dim=-1) > tolerance""",
        """def moved(before, after, tolerance=1e-5):
    largest = (before - after).abs().max(dim=-1).values
    return ~(largest <= tolerance)""",
    ],
    "ps05-5-answer": [
        """def sorting_weights():
    W_1 = torch.zeros(2, 4)
    W_1[0, 0], W_1[1, 0] = 1.0, -1.0  # a - b
    W_1[1, 1], W_1[1, 2] = 1.0, -1.0
    W_2 = torch.zeros(4, 2)
    W_2[0, 0] = 1
    W_2[1, 0], W_2[2, 0] = 1, -1
    W_1[0, 3], W_1[1, 3] = -1.0, 1.0
    W_2[1, 1], W_2[2, 1], W_2[3, 1] = 1, -1, -1
    return W_1, torch.zeros(4), W_2, torch.zeros(2)""",
        """def sorting_weights():
    # max(a, b) = (a + b + |a - b|) / 2 and min(a, b) = (a + b - |a - b|) / 2
    first = torch.tensor([[1.0, -1.0, 1.0, -1.0], [1.0, -1.0, -1.0, 1.0]])
    second = 0.5 * torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [1.0, -1.0]])
    return first, torch.zeros(4), second, torch.zeros(2)""",
    ],
    "ps05-6-answer": [
        """def momentum_for(size):
    steps = 64 / size
    kept = math.exp(math.log(0.9) / steps)
    return 1.0 - kept""",
        """def momentum_for(size):
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 - middle) ** (64 / size) > 0.9 else (low, middle)
    return low""",
    ],
    "ps06-2-encoder-answer": [
        """class EncoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.add_norm_self = AddAndNorm(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.add_norm_feed_forward = AddAndNorm(config)

    def forward(self, x, mask=None):
        x = self.add_norm_self(x, lambda y: self.self_attention(y, y, y, mask))
        x = self.add_norm_feed_forward(x, self.feed_forward)
        return x""",
        """class EncoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        for name in ("add_norm_self", "add_norm_feed_forward"):
            setattr(self, name, AddAndNorm(config))
        width = config.d_model
        self.self_attention = MultiHeadAttention(width, num_heads=config.num_heads)
        self.feed_forward = FeedForward(width, config.d_ff)

    def forward(self, x, mask=None):
        attended = self.add_norm_self(x, partial(self.self_attention, mask=mask))
        return self.add_norm_feed_forward(attended, self.feed_forward)""",
    ],
    "ps06-2-decoder-answer": [
        """class DecoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.cross_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.add_norm_self = AddAndNorm(config)
        self.add_norm_cross = AddAndNorm(config)
        self.add_norm_feed_forward = AddAndNorm(config)

    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        def look_back(y):
            return self.self_attention(y, mask=tgt_mask, is_causal=True)

        def look_across(y):
            return self.cross_attention(y, memory, mask=src_mask)

        x = self.add_norm_self(x, look_back)
        x = self.add_norm_cross(x, look_across)
        return self.add_norm_feed_forward(x, self.feed_forward)""",
    ],
    "ps06-4-answer": [
        """def decoder_layer_step(weights, num_heads, x, keys, values, memory_keys, memory_values, src_mask=None):
    W = weights
    batch, new, d_model = x.shape
    split = lambda y: y.view(batch, new, num_heads, -1).transpose(1, 2)
    join = lambda y: y.transpose(1, 2).reshape(batch, new, d_model)
    q = split(x @ W["self_attention.W_q.weight"].T + W["self_attention.W_q.bias"])
    k = split(x @ W["self_attention.W_k.weight"].T + W["self_attention.W_k.bias"])
    v = split(x @ W["self_attention.W_v.weight"].T + W["self_attention.W_v.bias"])
    keys, values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
    earlier = keys.size(2) - new
    mask = torch.ones(new, earlier + new).tril(earlier).bool()
    a = join(scaled_dot_product_attention(q, keys, values, mask)[0])
    a = a @ W["self_attention.W_o.weight"].T + W["self_attention.W_o.bias"]
    x = F.layer_norm(x + a, [d_model], W["add_norm_self.norm.weight"], W["add_norm_self.norm.bias"])
    q = split(x @ W["cross_attention.W_q.weight"].T + W["cross_attention.W_q.bias"])
    a = join(scaled_dot_product_attention(q, memory_keys, memory_values, src_mask)[0])
    a = a @ W["cross_attention.W_o.weight"].T + W["cross_attention.W_o.bias"]
    x = F.layer_norm(x + a, [d_model], W["add_norm_cross.norm.weight"], W["add_norm_cross.norm.bias"])
    h = torch.relu(x @ W["feed_forward.W_1.weight"].T + W["feed_forward.W_1.bias"])
    f = h @ W["feed_forward.W_2.weight"].T + W["feed_forward.W_2.bias"]
    scale, shift = W["add_norm_feed_forward.norm.weight"], W["add_norm_feed_forward.norm.bias"]
    return F.layer_norm(x + f, [d_model], scale, shift), keys, values""",
    ],
    "ps06-6-answer": [
        """def steps_until(losses, level, window=10):
    means = torch.tensor(losses, dtype=torch.float64).unfold(0, window, 1).mean(-1)
    below = (means < level).nonzero()
    return None if len(below) == 0 else int(below[0]) + window""",
        """def steps_until(losses, level, window=10):
    recent = []
    for number, loss in enumerate(losses, 1):
        recent.append(loss)
        recent = recent[-window:]
        if len(recent) == window and sum(recent) < level * window:
            return number""",
    ],
    "ps10-3-answer": [
        """def interval(right, total):
    z2 = 1.96 * 1.96
    share = right / total
    spread = 1.96 * (share * (1 - share) / total + z2 / (4 * total * total)) ** 0.5
    low = (share + z2 / 2 / total - spread) / (1 + z2 / total)
    high = (share + z2 / 2 / total + spread) / (1 + z2 / total)
    return low, high""",
        """def interval(right, total):
    n, z = total, 1.96
    center = (right + z * z / 2) / (n + z * z)
    radius = z / (n + z * z) * math.sqrt(right * (n - right) / n + z * z / 4)
    return center - radius, center + radius""",
    ],
}


# --- A class as it could be -----------------------------------------------------------------------------------


@cache
def cells_of(assignment: str, kind: str) -> dict[str, nbformat.NotebookNode]:
    path = HERE.parent / "exercises" / kind / assignment / f"{assignment}.ipynb"
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


def handed(assignment: str) -> dict[str, str]:
    return {name: cell.source for name, cell in cells_of(assignment, "release").items()}


@cache
def masters(assignment: str) -> dict[str, str]:
    """The master's answers."""
    return {
        name: re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", cell.source, flags=re.MULTILINE)
        for name, cell in cells_of(assignment, "source").items()
        if cell.metadata.get("nbgrader", {}).get("solution")
    }


def code_of(assignment: str) -> dict[str, str]:
    cells = cells_of(assignment, "source")
    return {name: text for name, text in masters(assignment).items() if cells[name].cell_type == "code"}


def alternates(task: str) -> list[str]:
    """The texts of right answers in other words, each with what it uses of its file."""
    texts = []
    for module in MODULES:
        nodes = {}
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                nodes[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                nodes[node.targets[0].id] = node
        names = [ast.Name(answer.__name__) for answer in module.RIGHT.get(task, ())]
        texts += [ast.unparse(ast.Module(used(name, nodes), [])) for name in names]
    return texts


def used(one: ast.expr, nodes: dict) -> list[ast.stmt]:
    found, left = {}, [one]
    while left:
        names = [node.id for node in ast.walk(left.pop()) if isinstance(node, ast.Name)]
        new = [name for name in names if name in nodes and name not in found]
        found |= {name: nodes[name] for name in new}
        left += [nodes[name] for name in new]
    return sorted(found.values(), key=lambda node: node.lineno)


@cache
def ways(assignment: str) -> dict[str, list[str]]:
    """Of each answer in code what somebody may write: first the master's, then others, wrong ones too."""
    wrong = runpy.run_path(str(HERE / "typical_answers.py"))["WRONG"]
    tasks = answered((name, cell.source) for name, cell in cells_of(assignment, "release").items())
    found = {}
    for name, text in code_of(assignment).items():
        others = alternates(next(iter(tasks[name]))) if len(tasks.get(name, ())) == 1 else []
        mistakes = [wrong for check, _, wrong, _ in wrong if check.replace("-check", "-answer") == name]
        found[name] = [text, *others, *ALSO_RIGHT.get(name, ()), *mistakes]
    return found


def a_class(assignment: str, number: int, seed: int, usual: float = 0.5) -> dict[str, dict[str, str]]:
    """Honest students. The better write the usual answers, so these come together; `usual` is their share in all.

    Whoever repairs a broken program changes the wrong lines only; all else is in words of the student's own.
    """
    texts = {}
    for n in range(number):
        chance = random.Random(f"{assignment} {seed} {n}")
        skill, often = chance.random() ** (1 / usual - 1), chance.uniform(0, 0.7)
        texts[f"student-{n:04}"] = {}
        for name, text in ways(assignment).items():
            kind = text[0] if chance.random() < skill else chance.choice(text)
            own = kind if "repaired" in kind else renamed(reworded(kind, chance, often), chance, 0.5)
            if chance.random() < 0.6 + 0.4 * skill:
                texts[f"student-{n:04}"][name] = own
    return texts


def copies(texts: dict[str, dict[str, str]], number: int, *, rename: bool) -> set[tuple[str, str]]:
    """Let some students copy all of the one before: with other names, or with comments and line breaks."""
    students, chance = sorted(texts), random.Random(0)
    found = set()
    for first, second in zip(students[: 2 * number : 2], students[1 : 2 * number : 2], strict=True):
        disguise = renamed if rename else spread
        texts[second] = {name: disguise(text, chance) for name, text in texts[first].items()}
        found.add((first, second))
    return found


def spread(code: str, chance: random.Random) -> str:
    """The same with line breaks within brackets, and comments at the ends of lines."""
    lines = code.splitlines(keepends=True)
    depth = 0
    inserted = []
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))
        if token.type == tokenize.OP and depth and token.string in "([,+" and chance.random() < 0.3:
            inserted.append((token.end, "\n" + " " * chance.randrange(20)))
        elif token.type == tokenize.NEWLINE and chance.random() < 0.3:
            inserted.append((token.start, f"  # {chance.choice(('why', 'that is it', 'fix (later)'))}"))
    for (row, column), text in reversed(inserted):
        lines[row - 1] = lines[row - 1][:column] + text + lines[row - 1][column:]
    return "".join(lines)


# --- Tokens and fingerprints ----------------------------------------------------------------------------------


def test_tokens_by_hand():
    code = """def f(self, a, b=1_000):  # c
    "Doc."
    self.scale = a.sum(-1) + 0X1F
    return f"{a}", [len(b)], a.my_own, x.T // .5e-3
"""
    plain = "def x x x x = 1000 : x . x = x . sum - 1 + 0x1f return [ len x ] x . x x . T // .5e-3"
    named = (
        "def f self a b = 1000 : self . scale = a . sum - 1 + 0x1f return [ len b ] a . my_own x . T // .5e-3"
    )
    assert tokens(code) == plain.split()
    assert tokens(code, names=True) == named.split()


def of_python(code: str) -> list[str]:
    """What Python's own tokenizer finds."""
    kinds = (tokenize.NAME, tokenize.NUMBER, tokenize.OP)
    found = [one for one in tokenize.generate_tokens(io.StringIO(code).readline) if one.type in kinds]
    texts = [(one.type, one.string) for one in found if one.string not in LEFT_OUT]
    return [text.lower().replace("_", "") if kind == tokenize.NUMBER else text for kind, text in texts]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there it reads what is within f-strings, too")
def test_tokens_are_those_of_python():
    paths = sorted((HERE / "checks").rglob("*.py"))
    assert len(paths) > 10
    for path in paths:
        code = path.read_text(encoding="utf-8")
        assert tokens(code, names=True) == of_python(code), path


def test_broken_code_has_the_tokens_before_and_behind_the_break():
    whole = code_of(NAME)[ATTENTION]
    place = len(tokens(whole[: whole.index(":\n        similarity")]))
    expected = tokens(whole)
    assert expected.pop(place) == ":"
    assert (
        tokens(whole.replace("is not None:\n        similarity", "is not None\n        similarity"))
        == expected
    )
    assert tokens("print('a\nb = 1") == ["print", "x", "=", "1"]
    assert tokens('"""never ended\nb = 1\\') == []


@pytest.mark.parametrize("piece", ['"', '"""', "\\", "a.", "\ud800"])
def test_a_long_text_takes_no_long_time(piece):
    start = time.process_time()
    for kind in LENGTHS:
        prints_of((piece * 200_000)[:200_000], kind)
    assert time.process_time() - start < 10


def test_the_shortest_text_with_a_fingerprint():
    for kind, text in (("code", "a + " * 6), ("names", "a + " * 6), ("words", "a " * 5)):
        assert len(prints_of(text, kind)) == 1
        assert prints_of(text[2:], kind) == frozenset()
        assert prints_of(text, kind, handed_out([text])) == frozenset()


LETTERS = st.lists(st.sampled_from("abcdefgh"), max_size=40)


@given(LETTERS, LETTERS, LETTERS, LETTERS, st.lists(st.sampled_from("abcdefgh"), min_size=8, max_size=8))
def test_a_long_run_in_common_is_a_fingerprint_in_common(a, b, c, d, run):
    """That is what winnowing promises, whatever stands around the run."""
    assert len(run) == LENGTHS["words"] + WINDOW - 1
    one, other = (" ".join([*before, *run, *behind]) for before, behind in ((a, b), (c, d)))
    assert prints_of(one, "words") & prints_of(other, "words")


@given(LETTERS)
def test_fingerprints_are_the_least_hashes_of_windows(letters):
    """Winnowing by its definition, from the hashes of the runs, each got from a text that is one run."""
    length = LENGTHS["words"]
    runs = [letters[start : start + length] for start in range(len(letters) - length + 1)]
    hashes = [next(iter(prints_of(" ".join(run), "words"))) for run in runs]
    windows = [hashes[start : start + WINDOW] for start in range(max(1, len(hashes) - WINDOW + 1)) if hashes]
    assert prints_of(" ".join(letters), "words") == {min(window) for window in windows}


# --- Two submissions ------------------------------------------------------------------------------------------


def both(first: dict[str, str], second: dict[str, str]) -> Pair:
    """Compared both ways, which must come to the same."""
    one, other = (compare(*texts, handed(NAME), [SCALE]) for texts in ((first, second), (second, first)))
    assert one == other
    return one


def test_the_same_is_all_the_same():
    found = both(masters(NAME), masters(NAME))
    assert (found.score, found.exact) == (1.0, True)
    assert set(found.cells.values()) == {1.0}
    assert found.cells.keys() >= {ATTENTION, SCALE}


def test_what_was_handed_out_is_nothing():
    assert both(handed(NAME), handed(NAME)) == Pair("first", "second", 0.0, {}, False)
    assert both(handed(NAME), masters(NAME)).score == 0.0
    again = "\n\n".join(cells_of(NAME, "release")[name].source for name in ("ps01-4-broken", "ps01-0-try"))
    # Only the seam between the two is nobody's.
    assert both({OWN: again}, {OWN: again}).exact
    assert len(prints_of(again, "code", handed_out(handed(NAME).values()))) <= 6
    assert len(prints_of(again, "code")) > 50


@given(st.integers(0, 10**6), st.sampled_from(sorted(code_of(NAME))))
def test_names_layout_and_comments_do_not_matter(seed, name):
    chance, text = random.Random(seed), code_of(NAME)[name]
    found = both({name: text}, {name: "# mine\n" + spread(renamed(spread(text, chance), chance), chance)})
    assert found.score == 1.0
    assert not found.exact


def test_an_answer_in_another_cell_counts():
    text = code_of(NAME)[ATTENTION]
    found = both({ATTENTION: text}, {OWN: text})
    assert found.cells == {ATTENTION: 1.0, OWN: 1.0}
    assert (found.score, found.exact) == (1.0, False)


def test_shares_by_hand():
    """Of five words there is one fingerprint."""
    words_ = "one two three four five"
    found = compare({"a": words_, "b": words_}, {"a": words_, "b": "1 2 3 4 5"}, {}, ["a", "b"])
    # b: the first's is the second's in a, the second's own is nobody's: one half of one and a half.
    assert found.cells == {"a": 1.0, "b": 1 / 3}
    assert found.score == 1.5 / 2.5


# --- A class --------------------------------------------------------------------------------------------------


def names_of(found: list[Pair]) -> set[tuple[str, str]]:
    return {(pair.first, pair.second) for pair in found}


@pytest.mark.parametrize(("assignment", "usual"), [(NAME, 0.3), ("ps07_training", 0.7)])
def test_copies_stand_out_and_honest_work_does_not(assignment, usual):
    texts = a_class(assignment, 100, seed=1, usual=usual)
    assert len(pairs(texts, handed(assignment))) <= 1
    made = copies(texts, 10, rename=False)
    found = pairs(texts, handed(assignment))
    assert len(names_of(found) & made) >= 7
    assert len(names_of(found) - made) <= 1
    assert all(pair.score == 1 and not pair.exact for pair in found if (pair.first, pair.second) in made)


@pytest.mark.full
@pytest.mark.parametrize("master", release.masters(), ids=lambda master: master.stem)
def test_few_false_pairs_in_a_class_of_a_hundred(master):
    """What the docstring of `outliers` says, measured anew."""
    honest, kept, changed = [], [], []
    for usual in (0.2, 0.5, 0.8):
        for seed in range(3):
            honest.append(len(pairs(a_class(master.stem, 100, seed, usual), handed(master.stem))))
            for rename, counted in ((False, kept), (True, changed)):
                texts = a_class(master.stem, 100, seed, usual)
                made = copies(texts, 5, rename=rename)
                counted.append(len(names_of(pairs(texts, handed(master.stem))) & made) / 5)
    assert sum(honest) <= 0.3 * len(honest)
    assert sum(kept) > 0.8 * len(kept)
    assert sum(changed) > 0.3 * len(changed)


def test_untouched_notebooks_are_no_pairs():
    assert pairs({f"s{n}": handed(NAME) for n in range(30)}, handed(NAME)) == []
    assert pairs({f"s{n}": {} for n in range(3)}, handed(NAME)) == []
    assert pairs({"s": masters(NAME)}, handed(NAME)) == []
    assert pairs({}, {}) == []


def test_of_those_with_the_same_text_each_is_paired_with_the_first():
    texts = a_class(NAME, 12, seed=0)
    texts |= {name: masters(NAME) for name in ("zoe", "amy", "kim")}
    texts["pat"] = {name: renamed(text, random.Random(0)) for name, text in masters(NAME).items()}
    found = pairs(texts, handed(NAME), words=[SCALE])
    assert [(pair.first, pair.second) for pair in found if pair.exact] == [("amy", "kim"), ("amy", "zoe")]
    others = {name for pair in found if not pair.exact for name in (pair.first, pair.second)}
    assert not {"kim", "zoe"} & others


def test_the_same_text_is_found_in_a_class_of_two_and_when_all_have_it():
    assert names_of(pairs({"b": masters(NAME), "a": masters(NAME)}, handed(NAME))) == {("a", "b")}
    everybody = {f"s{number}": masters(NAME) for number in range(1, 9)}
    assert names_of(pairs(everybody, handed(NAME))) == {("s1", f"s{number}") for number in range(2, 9)}


def test_a_short_answer_says_nothing():
    texts = {f"s{number}": {"ps01-1-answer": masters(NAME)["ps01-1-answer"]} for number in range(9)}
    assert pairs(texts, handed(NAME)) == []


def test_white_space_at_the_ends_of_lines_makes_no_difference():
    text = masters(NAME)
    other = {name: one.replace("\n", "  \r\n") + "\n\n" for name, one in text.items()}
    [found] = pairs({"a": text, "b": other}, handed(NAME))
    assert found.exact


def test_an_answer_in_words_that_was_copied_is_enough():
    texts = a_class(NAME, 30, seed=3)
    plain = masters(NAME)[SCALE].split()
    for number, student in enumerate(sorted(texts)):
        # Each changes every fourth word in a way of their own.
        own = [word if place % 4 else f"{word}{number}" for place, word in enumerate(plain)]
        texts[student][SCALE] = " ".join(own)
    assert pairs(texts, handed(NAME), words=[SCALE]) == []
    texts["student-0009"][SCALE] = texts["student-0004"][SCALE].upper()
    [found] = pairs(texts, handed(NAME), words=[SCALE])
    assert (found.first, found.second, found.cells[SCALE]) == ("student-0004", "student-0009", 1.0)


def numbers(seed: int) -> str:
    """Code that nobody else has."""
    return " + ".join(str(random.Random(seed).randrange(10**9) + step) for step in range(40))


@pytest.mark.parametrize(("shared", "is_found"), [(3, True), (2, False)])
def test_bits_by_hand(shared, is_found):
    """What two of eight students have is worth log2(8/2) = 2 bits, whole cells of it as much for each cell.

    Needed are 4 = log2(2 · 8), and more than that: three cells will do, two will not.
    """
    texts = {f"s{n}": {f"c{cell}": numbers(10 * n + cell) for cell in range(4)} for n in range(8)}
    texts["s1"] |= {f"c{cell}": texts["s0"][f"c{cell}"] for cell in range(shared)}
    found = pairs(texts, {})
    assert names_of(found) == ({("s0", "s1")} if is_found else set())
    assert [pair.bits for pair in found] == [pytest.approx(6)] * is_found
    # Of five cells' fingerprints three are in both.
    assert [pair.score for pair in found] == [pytest.approx(3 / 5, abs=0.1)] * is_found


def test_what_a_few_have_in_common_does_not_make_pairs_of_them():
    """Ten of a hundred write the same: what a student shares with the eighth nearest is taken off."""
    texts = {f"s{n:02}": {f"c{cell}": numbers(10 * n + cell) for cell in range(4)} for n in range(100)}
    for size, expected in ((8, 28), (10, 0)):
        for n in range(size):
            like = {name: text + f" + {n}" for name, text in texts["s00"].items()}
            texts[f"s{n:02}"] = like if n else texts["s00"]
        assert len(pairs(texts, {})) == expected


def test_the_least_score_is_heeded():
    texts = a_class(NAME, 30, seed=1, usual=0.3)
    [pair] = copies(texts, 1, rename=False)
    texts[pair[1]][ATTENTION] = "def scaled_dot_product_attention(q, k, v, mask=None):\n    " + numbers(1)
    [found] = [one for one in pairs(texts, handed(NAME)) if (one.first, one.second) == pair]
    assert 0.1 < found.score < 0.95
    assert pair in names_of(pairs(texts, handed(NAME), least=found.score))
    assert pair not in names_of(pairs(texts, handed(NAME), least=found.score + 0.01))


@pytest.mark.full
def test_a_thousand_submissions_take_seconds():
    few = list(a_class(NAME, 60, seed=0).values())
    chance = random.Random(0)
    texts = {f"s{n:04}": {name: chance.choice(few).get(name, "") for name in ways(NAME)} for n in range(1000)}
    start = time.process_time()
    pairs(texts, handed(NAME))
    assert time.process_time() - start < 60


# --- A course -------------------------------------------------------------------------------------------------


def hand_in(course: Course, student: str, texts: dict[str, str], own: str = "") -> None:
    notebook = nbformat.v4.new_notebook()
    for name, cell in cells_of(NAME, "release").items():
        notebook.cells.append(nbformat.from_dict({**cell, "source": texts.get(name, cell.source)}))
    if own:
        notebook.cells.insert(3, nbformat.v4.new_code_cell(own, id=f"own-{student}"))
        notebook.cells.insert(3, nbformat.v4.new_markdown_cell("notes", id=f"notes-{student}"))
    path = course.received(student, NAME)
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)


@pytest.fixture(scope="module")
def a_course(tmp_path_factory):
    """Eleven students; ann and bob have the same, but for names; dan's file cannot be read."""
    course = Course(tmp_path_factory.mktemp("course"))
    for student, texts in a_class(NAME, 9, seed=4).items():
        hand_in(course, student, texts, own="mine = 3")
    helper = (
        "def helper(a, b):\n    first = a @ b.mT\n    return first.softmax(-1) / first.amax(-1).clamp(min=3)"
    )
    mine = {name: reworded(text, random.Random(7), 0.9) for name, text in code_of(NAME).items()}
    theirs = {name: renamed(text, random.Random(1)) for name, text in mine.items()}
    written = {SCALE: masters(NAME)[SCALE]}
    hand_in(course, "ann", mine | written, own=helper)
    hand_in(course, "bob", theirs | written, own=helper.replace("first", "second"))
    path = course.received("dan", NAME)
    path.parent.mkdir(parents=True)
    path.write_text("no notebook", encoding="utf-8")
    return course


def test_pairs_of_a_course(a_course):
    told: list[str] = []
    [pair] = of_course(a_course, NAME, tell=told.append)
    assert (pair.first, pair.second, pair.exact) == ("ann", "bob", False)
    assert pair.cells[SCALE] == pair.cells[OWN] == pair.cells[ATTENTION] == 1.0
    assert len(told) == 1
    assert told[0].startswith("dan: not compared: The file is no notebook: it begins with “no notebook”. ")


def test_who_is_left_out_is_told_on_standard_error(a_course, capsys):
    of_course(a_course, NAME)
    assert capsys.readouterr().err.startswith("dan: not compared: The file is no notebook")


def test_what_is_compared(a_course):
    found = answers_of(a_course, NAME)
    assert found.unreadable.keys() == {"dan"}
    assert found.words == {"ps01-6-conclusion", SCALE, "ps01-7-empty-answer"}
    assert found.texts["ann"].keys() == {*code_of(NAME), SCALE, OWN}
    assert found.texts["student-0001"][OWN] == "mine = 3"
    # Notes are no answer, what was handed out to be tried is no cell of their own, nor is a locked one.
    assert cells_of(NAME, "release")["ps01-0-try"].source not in found.texts["ann"].values()
    assert not any("checks.require" in text for text in found.texts["ann"].values())


def test_what_an_earlier_version_handed_out_counts_for_nothing(tmp_path):
    course, text = Course(tmp_path), code_of(NAME)[ATTENTION]
    for student in ("a", "b"):
        hand_in(course, student, {ATTENTION: text})
    assert names_of(of_course(course, NAME)) == {("a", "b")}
    (tmp_path / "released" / NAME).mkdir(parents=True)
    old = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text)])
    nbformat.write(old, tmp_path / "released" / NAME / "1.ipynb")
    assert of_course(course, NAME) == []


def test_an_unknown_assignment_or_student_is_said(a_course):
    with pytest.raises(FileNotFoundError, match="assignment: expected one that was released, got ps99"):
        of_course(a_course, "ps99")
    with pytest.raises(FileNotFoundError, match="zoe: expected a submission of ps01_embeddings_attention"):
        of_two(a_course, NAME, "ann", "zoe")
    with pytest.raises(ValueError, match="dan: The file is no notebook"):
        of_two(a_course, NAME, "dan", "ann")


def test_two_of_a_course_side_by_side(a_course):
    text = of_two(a_course, NAME, "ann", "bob", width=200)
    assert text.startswith(f"{NAME}: 100% of what both answered is the same\n=")
    assert f"── {ATTENTION} · 100% ──" in text
    assert " ~ " in text.split("──", 1)[1]
    assert " | " not in text.split("──", 1)[1]


# --- Side by side ---------------------------------------------------------------------------------------------


def test_side_by_side_by_hand():
    ours = {"b": "x = f(1)\nsame()\n# mine\nonly_here(3)[2]", "a": "left"}
    theirs = {"b": "yy = f(1)  # why\nsame()\nimport other", "c": "tab\there \x1b[2Jgone"}
    rows = side_by_side(("ann", "bob"), (ours, theirs), {"b": 0.5}, width=43).splitlines()
    assert rows[1:] == [
        "ann                    bob",
        "",
        "── b · 50% ──",
        "x = f(1)             ~ yy = f(1)  # why",
        "same()               = same()",
        "# mine               | import other",
        "only_here(3)[2]      <",
        "",
        "── a ──",
        "left                 <",
        "",
        "── c ──",
        "                     > tab here �[2Jgone",
    ]


def test_a_long_line_is_wrapped_and_a_long_text_cut():
    rows = side_by_side(("a", "b"), ({"c": "0123456789" * 3}, {"c": "y"}), width=33).splitlines()
    assert rows[-2:] == ["012345678901234 | y", "567890123456789"]
    for lines, last in ((1000, "x"), (1001, "[lines left out: 1]"), (1003, "[lines left out: 3]")):
        rows = side_by_side(("a", "b"), ({"c": "x\n" * lines}, {})).splitlines()
        assert rows[-1].rstrip(" <") == last
        assert len(rows) == 4 + min(lines, 1001)


@given(st.text(max_size=60), st.text(max_size=60))
def test_nothing_that_a_terminal_obeys_is_shown(one, other):
    text = side_by_side((one[:5], "b"), ({"c": one}, {"c": other}), {"c": 1.0})
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_words_are_in_small_letters():
    assert words("Straße, $d_k$: 3×") == ["strasse", "d_k", "3"]
