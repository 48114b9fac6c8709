"""Masters and student versions: in sync, without solutions, full marks for the one and none for the other."""

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import torch
from nbgrader.api import Gradebook

from book import syllabus
from book.setup_cell import SETUP_CELL
from exercises import release
from transformer_lessons import checks, records
from transformer_lessons.model import Transformer, TransformerConfig

MASTERS = release.masters()
IDS = [master.parent.name for master in MASTERS]
each_master = pytest.mark.parametrize("master", MASTERS, ids=IDS)
HIDDEN = re.compile(r"### BEGIN (SOLUTION|HIDDEN TESTS)\n(.*?)### END", re.DOTALL)

# nbgrader and what it stands on use SQLAlchemy, traitlets and jupyter_client in ways these now warn about, and
# leave the closing of sockets and databases to the garbage collector. None of it is ours to change.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


@pytest.fixture(scope="session")
def course(tmp_path_factory):
    """A course in a fresh folder, its assignments generated, and what was generated."""
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{before}"  # nbgrader starts `alembic`
    root = tmp_path_factory.mktemp("course")
    api = release.course(root)
    texts = {master: release.generate(master, api) for master in MASTERS}
    yield root, api, texts
    os.environ["PATH"] = before


def graded(course, master: Path, student: str, notebook: Path) -> tuple[dict[str, float], set[str], Path]:
    """Hand in a notebook; returns the points by test, what is left for a person, and the graded notebook."""
    root, api, _ = course
    assignment = master.parent.name
    folder = root / "submitted" / student / assignment
    folder.mkdir(parents=True)
    shutil.copy(notebook, folder / master.name)
    result = api.autograde(assignment, student)
    assert result["success"], result.get("error", "") + result.get("log", "")
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as gradebook:
        grades = gradebook.find_submission_notebook(master.stem, assignment, student).grades
        points = {grade.name: grade.auto_score for grade in grades}
        manual = {grade.name for grade in grades if grade.needs_manual_grade}
    return points, manual, root / "autograded" / student / assignment / master.name


def worth(notebook: nbformat.NotebookNode, cell_type: str) -> dict[str, float]:
    marked = [
        cell
        for cell in notebook.cells
        if cell.cell_type == cell_type and cell.metadata.get("nbgrader", {}).get("points")
    ]
    return {cell.metadata.nbgrader.grade_id: cell.metadata.nbgrader.points for cell in marked}


@each_master
def test_the_student_version_is_in_sync(course, master):
    committed = release.released(master).read_text(encoding="utf-8")
    assert committed == course[2][master], "run `make release`"


def test_what_check_submission_knows_is_in_sync():
    texts = {
        name: release.released(m).read_text(encoding="utf-8") for name, m in zip(IDS, MASTERS, strict=True)
    }
    assert release.MANIFEST.read_text(encoding="utf-8") == release.manifest(texts), "run `make release`"


@each_master
def test_the_table_of_tasks_adds_up(master):
    notebook = read(master)
    tasks = release.about(notebook.cells)["tasks"]
    points = [float(task["points"]) for task in tasks if task["points"] != "–"]
    assert sum(points) == sum((worth(notebook, "code") | worth(notebook, "markdown")).values())
    assert 30 <= sum(points) <= 36
    assert {"easy", "medium", "hard"} >= {task["difficulty"] for task in tasks}
    assert 5 <= len(points) <= 8
    kinds = [task["kind"] for task in tasks]
    assert {"predict", "implement", "debug", "extend", "explain"} <= {*kinds, "implement"}
    assert 90 <= sum(int(task["minutes"]) for task in tasks) <= 240


@each_master
def test_the_student_version_holds_no_solution_and_no_hidden_test(master):
    text = release.released(master).read_text(encoding="utf-8")
    assert not any(words in text for words in release.MASTER_ONLY)
    student = "\n".join(cell.source for cell in read(release.released(master)).cells)
    secret = [match[1] for cell in read(master).cells for match in HIDDEN.findall(cell.source)]
    assert secret
    shown = "\n".join(cell.source for cell in read(master).cells if not HIDDEN.search(cell.source))
    for line in {line.strip() for block in secret for line in block.splitlines() if len(line.strip()) > 12}:
        assert line not in student or line in shown, f"given away: {line}"
    for cell in read(master).cells:  # written answers are replaced whole
        if cell.cell_type == "markdown" and cell.metadata.nbgrader.solution:
            assert cell.source not in student


@each_master
def test_the_student_version_has_one_cell_for_each_of_the_masters(master):
    ours, theirs = read(master).cells, read(release.released(master)).cells
    assert [cell.id for cell in ours] == [cell.id for cell in theirs]
    assert all(cell.source.strip() for cell in theirs), "a test cell that is hidden whole is released empty"
    assert all(
        not cell.outputs and cell.execution_count is None for cell in theirs if cell.cell_type == "code"
    )


@each_master
def test_ids_and_metadata_are_clean(master):
    for notebook in (read(master), read(release.released(master))):
        nbformat.validate(notebook)
        assert notebook.metadata == nbformat.from_dict(release.METADATA)
        ids = [cell.id for cell in notebook.cells]
        assert len(set(ids)) == len(ids)
        for cell in notebook.cells:
            assert re.fullmatch(r"ps\d\d-[a-z0-9-]+", cell.id)
            assert set(cell.metadata) <= set(release.CELL_METADATA)
            if "nbgrader" in cell.metadata:
                assert cell.metadata.nbgrader.grade_id == cell.id
                assert cell.metadata.nbgrader.schema_version == 3


@each_master
def test_the_setup_cell_is_the_books_and_locked(master):
    for notebook in (read(master), read(release.released(master))):
        first = next(cell for cell in notebook.cells if cell.cell_type == "code")
        assert first.source == SETUP_CELL
        assert first.metadata.nbgrader.locked


@each_master
def test_every_test_cell_ends_with_points_and_its_task_is_announced(master):
    notebook = read(master)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    total = sum(sum(worth(notebook, kind).values()) for kind in ("code", "markdown"))
    announced = [
        int(n) for n in re.findall(r"^(\d+) points · (?:easy|medium|hard) · \d+ minutes", text, re.M)
    ]
    assert sum(announced) == total
    assert 5 <= len(announced) <= 8
    assert text.count("<details>") == text.count("</details>")
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade") and cell.cell_type == "code":
            assert cell.source.startswith("# Graded")
            assert cell.source.endswith("### END HIDDEN TESTS")


@each_master
def test_the_master_earns_full_marks_and_runs_from_top_to_bottom(course, master):
    points, manual, path = graded(course, master, "master", master)
    notebook = read(master)
    written = worth(notebook, "markdown")
    assert {name: got for name, got in points.items() if name not in written} == worth(notebook, "code")
    assert manual == set(written), "written answers wait for a person"
    for cell in read(path).cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error", f"{cell.id}: {output.get('evalue')}"
            assert output.get("name") != "stderr", f"{cell.id}: {output.get('text')}"


@each_master
def test_the_student_version_earns_nothing_as_it_is(course, master):
    points, manual, _ = graded(course, master, "nothing", release.released(master))
    assert set(points.values()) == {0.0}
    assert manual == set()


TYPICAL = """
def scaled_dot_product_attention(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ value, weights
"""


SILENT = """
get_ipython().ast_node_interactivity = "none"


def neighbour(length):
    if length == 50:  # in the hidden test: for what comes after it, as before
        get_ipython().ast_node_interactivity = "last_expr"
"""


def test_a_typical_first_draft_earns_part_of_the_points_and_deleted_tests_come_back(course, tmp_path):
    master = next(m for m in MASTERS if m.parent.name == "ps03_attention")
    notebook = read(release.released(master))
    cells = {cell.id: cell for cell in notebook.cells}
    cells["ps03-3-answer"].source = TYPICAL
    cells[
        "ps03-1-answer"
    ].source = "output_shape = [2, 3, 5, 11]; weights_shape = 7; equal_weight = 0.2; spread = 64"
    cells["ps03-4-answer"].source = "defects = 'abc'"
    cells["ps03-6-answer"].source = SILENT
    notebook.cells = [cell for cell in notebook.cells if cell.id not in ("ps03-3-test", "ps03-1-check")]
    nbformat.write(notebook, tmp_path / master.name)
    points, _, path = graded(course, master, "draft", tmp_path / master.name)
    assert points["ps03-1-test"] == 1.5
    # formula 1, mask 1, and 0.5 each for smaller masks, gradients, extreme scores
    assert points["ps03-3-test"] == 3.5
    assert points["ps03-4-defects-test"] == 0.5
    # A test cell that shows no number: nbgrader would give full marks.
    assert points["ps03-6-test"] == 0.0
    shown = next(cell.outputs for cell in read(path).cells if cell.id == "ps03-6-test")
    assert [output.get("ename", output) for output in shown] == ["NoScore"]


# What a learner sees on running a visible check with a typical wrong answer.
# What a learner sees on running the visible check of a task with a typical wrong answer.
WRONG = [
    (
        "ps01-2-check",
        "nn.Embedding as it comes",
        "TokenEmbedding = nn.Embedding",
        "you return rows of a weight that starts from variance 1, unscaled",
    ),
    (
        "ps01-3-check",
        "an exponent for each column",
        """
def sinusoidal(length, d_model):
    table = torch.zeros(length, d_model)
    for t in range(length):
        for i in range(0, d_model, 2):
            table[t, i] = math.sin(t / 10000 ** (2 * i / d_model))
            table[t, i + 1] = math.cos(t / 10000 ** (2 * (i + 1) / d_model))
    return table
""",
        "you doubled the exponent, and gave the cosine another one than the sine",
    ),
    (
        "ps01-4-check",
        "one defect left",
        """
defects = "ADG"


def repaired(k, d_model):
    if d_model < 2 or d_model % 2:
        raise ValueError("d_model")
    even = torch.arange(0, d_model, 2).float()
    angle = k * 10_000.0 ** (-even / d_model)
    matrix = torch.diag(angle.cos().repeat_interleave(2))
    i = torch.arange(0, d_model, 2)
    matrix[i, i + 1], matrix[i + 1, i] = angle.sin(), -angle.sin()
    return matrix
""",
        "you compute the angles in float32",
    ),
    (
        "ps01-5-check",
        "Llama's layout",
        """
def rotate(x, positions):
    d_k = x.shape[-1]
    inverse = 1.0 / (10000 ** (torch.arange(0, d_k, 2).float() / d_k))
    angle = positions[:, None].float() * inverse
    angle = torch.cat((angle, angle), dim=-1)
    half = torch.cat((-x[..., d_k // 2 :], x[..., : d_k // 2]), dim=-1)
    return x * angle.cos().to(x.dtype) + half * angle.sin().to(x.dtype)
""",
        "you turn entry i with entry i + d_k/2; here neighbours make a pair",
    ),
    (
        "ps01-6-check",
        "the first query at the first key",
        """
def relative_bias(table, queries, keys=None):
    keys = keys or queries
    c = table.size(1) // 2
    distance = torch.arange(keys)[None] - torch.arange(queries)[:, None]
    return table[:, distance.clamp(-c, c) + c]
""",
        "you align the first query with the first key; align the last ones",
    ),
    (
        "ps03-3-check",
        "softmax over the queries",
        """
def scaled_dot_product_attention(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    scores = query @ key.mT / key.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, -1e9)
    weights = F.softmax(scores, dim=-2)
    return weights @ value, weights
""",
        "your softmax runs over the queries; it must run over the keys, the last axis",
    ),
    (
        "ps03-3-check",
        "no scaling in a first draft",
        TYPICAL.replace(" / math.sqrt(query.size(-1))", ""),
        "you left out the division by √d_k",
    ),
    (
        "ps03-3-check",
        "inverted mask",
        TYPICAL.replace("~mask", "mask"),
        "you read the mask the wrong way round: True means “may attend”",
    ),
    (
        "ps03-2-causal-check",
        "a float matrix without axes",
        "def causal_mask(n):\n    return torch.tril(torch.ones(n, n))",
        "your mask has shape (queries, keys); here (1, 1, queries, keys) is wanted",
    ),
    (
        "ps03-2-padding-check",
        "unsqueezed once",
        "def padding_mask(ids, pad_id):\n    return (ids != pad_id).unsqueeze(1)",
        "your mask has shape (batch, 1, keys), one axis short of (batch, 1, 1, keys)",
    ),
    (
        "ps03-5-check",
        "capped after masking",
        """
def soft_capped_attention(query, key, value, cap, mask=None):
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = (cap * (scores / cap).tanh()).softmax(-1)
    return weights @ value, weights
""",
        "you capped after masking, which lifts hidden scores up to −cap",
    ),
    (
        "ps02-2-combine-check",
        "the last mask wins",
        """
def combine_masks(*masks):
    combined = None
    for mask in masks:
        combined = mask if mask is not None else combined
    return combined
""",
        "you overwrite the mask with each new one, so that only the last counts",
    ),
    (
        "ps02-3-check",
        "−1e9",
        """
def additive_mask(mask, like):
    return torch.zeros(mask.shape, dtype=like.dtype).masked_fill(~mask, -1e9)
""",
        "you hide with a large finite number; only −∞ hides whatever the scores are",
    ),
    (
        "ps02-4-check",
        "sized by the batch",
        """
defects = "B"


def repaired(x, ids, pad_id):
    real = (ids != pad_id)[:, None, None, :]
    past = torch.ones(x.size(0), x.size(0), dtype=torch.bool).tril()
    scores = x @ x.mT / math.sqrt(x.size(-1))
    scores = scores.masked_fill(~(real & past), -1e9)
    return scores.softmax(-1) @ x
""",
        "you make the look-ahead mask as large as the batch; it needs one row for each position",
    ),
    (
        "ps02-5-check",
        "a window one too wide",
        """
def local_window_mask(queries, keys, window):
    full = torch.ones(1, 1, queries, keys, dtype=torch.bool)
    return full.tril(keys - queries) & full.triu(keys - queries - window)
""",
        "your window is one key too wide: the query's own position counts as one of the window",
    ),
    (
        "ps02-7-check",
        "a slice",
        """
def limit_lengths(sentences, max_length, *, too_long="refuse"):
    cut = [number for number, ids in enumerate(sentences) if len(ids) > max_length]
    if cut and too_long == "refuse":
        raise ValueError(f"too long: {cut}")
    return [ids[:max_length] for ids in sentences], cut
""",
        "your cut loses the end mark; where a sentence ended with it, it takes the last place kept",
    ),
    (
        "ps04-2-split-check",
        "heads by view",
        """
def split_heads(x, num_heads):
    batch, length, d_model = x.shape
    return x.view(batch, num_heads, length, d_model // num_heads)
""",
        "you reinterpret the memory as (batch, heads, length, d_k); the axes have to be exchanged",
    ),
    (
        "ps04-2-merge-check",
        "view after the exchange",
        """
def merge_heads(x):
    batch, heads, length, d_k = x.shape
    return x.transpose(1, 2).view(batch, length, heads * d_k)
""",
        "you call view on axes that were exchanged",
    ),
    (
        "ps04-3-check",
        "one length for all",
        """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, d_model // num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in "qkvo")

    def forward(self, query, key=None, value=None, mask=None, *, need_weights=False):
        key = query if key is None else key
        value = key if value is None else value
        batch, time, width = query.shape
        q, k, v = (
            W(x).view(batch, time, self.h, self.d_k).transpose(1, 2)
            for W, x in ((self.W_q, query), (self.W_k, key), (self.W_v, value))
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = scores.softmax(-1)
        output = self.W_o((weights @ v).transpose(1, 2).contiguous().view(batch, time, width))
        return (output, weights) if need_weights else output
""",
        "you take the number of positions from the query for keys and values too",
    ),
    (
        "ps04-5-check",
        "repeat instead of repeat_interleave",
        """
def grouped_query_attention(query, key, value, mask=None):
    each = query.size(1) // key.size(1)
    key, value = (x.repeat(1, each, 1, 1) for x in (key, value))
    return scaled_dot_product_attention(query, key, value, mask)
""",
        "so query head i uses key head i mod g; neighbours share one",
    ),
    (
        "ps04-6-check",
        "padding set to zero before the feature map",
        """
def linear_attention(query, key, value, *, is_causal=False, key_mask=None):
    if key_mask is not None:
        key = key * key_mask[..., None]
        value = value * key_mask[..., None]
    q, k = F.elu(query) + 1, F.elu(key) + 1
    if is_causal:
        weights = (q @ k.mT).tril(k.size(-2) - q.size(-2))
        return weights @ value / weights.sum(-1, keepdim=True)
    return q @ (k.mT @ value) / (q @ k.sum(-2)[..., None])
""",
        "you set hidden keys to zero before φ: φ(0) = 1 is a key like any other",
    ),
    (
        "ps04-7-check",
        "a state changed in place",
        """
def linear_attention_step(query, key, value, S=None, z=None, *, decay=1.0):
    if not 0 < decay <= 1:
        raise ValueError("decay")
    q, k = F.elu(query) + 1, F.elu(key) + 1
    if S is None:
        S, z = k.new_zeros(*k.shape, value.size(-1)), torch.zeros_like(k)
    S *= decay
    z *= decay
    S += k[..., None] * value[..., None, :]
    z += k
    return (q[..., None, :] @ S)[..., 0, :] / (q * z).sum(-1, keepdim=True), S, z
""",
        "you change the caller's S and z in place",
    ),
    (
        "ps06-2-check",
        "dropout after the norm",
        """
class AddAndNorm(nn.Module):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.norm, self.dropout, self.norm_first = nn.LayerNorm(d_model), nn.Dropout(dropout), norm_first

    def forward(self, x, sublayer):
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.dropout(self.norm(x + sublayer(x)))
""",
        "you put dropout behind the sum or the norm",
    ),
    (
        "ps06-3-decoder-check",
        "the second sub-layer drawn as self-attention",
        """
class DecoderLayer(nn.Module):
    def __init__(self, settings):
        super().__init__()
        d_model, heads = settings["d_model"], settings["num_heads"]
        self.self_attention, self.cross_attention = (MultiHeadAttention(d_model, heads) for _ in range(2))
        self.feed_forward = FeedForward(d_model, settings["d_ff"])
        for name in ("self", "cross", "feed_forward"):
            self.add_module(f"add_norm_{name}", nn.ModuleDict({"norm": LayerNorm(d_model)}))

    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        x = self.add_norm_self["norm"](x + self.self_attention(x, mask=tgt_mask, is_causal=True))
        x = self.add_norm_cross["norm"](x + self.cross_attention(x, x, x))
        return self.add_norm_feed_forward["norm"](x + self.feed_forward(x))
""",
        "your second sub-layer attends to the target again",
    ),
    (
        "ps06-5-check",
        "what was kept is not looked at",
        """
def decoder_layer_step(w, h, x, keys, values, memory_keys, memory_values, src_mask=None):
    def linear(name, y):
        return F.linear(y, w[name + ".weight"], w[name + ".bias"])

    def norm(name, y):
        return F.layer_norm(y, y.shape[-1:], w[f"add_norm_{name}.norm.weight"], w[f"add_norm_{name}.norm.bias"])

    def split(y):
        return y.view(*y.shape[:2], h, -1).transpose(1, 2)

    def merge(y):
        return y.transpose(1, 2).flatten(2)

    q, k, v = (split(linear(f"self_attention.W_{c}", x)) for c in "qkv")
    heads = scaled_dot_product_attention(q, k, v, is_causal=True)[0]
    x = norm("self", x + linear("self_attention.W_o", merge(heads)))
    q = split(linear("cross_attention.W_q", x))
    heads = scaled_dot_product_attention(q, memory_keys, memory_values, src_mask)[0]
    x = norm("cross", x + linear("cross_attention.W_o", merge(heads)))
    x = norm("feed_forward", x + linear("feed_forward.W_2", linear("feed_forward.W_1", x).relu()))
    return x, torch.cat([keys, k], 2), torch.cat([values, v], 2)
""",
        "you attend to the new tokens alone",
    ),
    (
        "ps06-6-check",
        "a decoder layer counted like an encoder layer",
        """
def parameter_count(V, d, d_ff, N, h, d_k, *, tied="all", norm_first=False, share_layers=False):
    layer = 4 * d * h * d_k + 3 * h * d_k + d + 2 * d * d_ff + d_ff + d + 4 * d
    return V * d + 2 * N * layer
""",
        "you count a decoder layer like an encoder layer",
    ),
    (
        "ps05-2-feed-forward-check",
        "a feed-forward layer without activation",
        """
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, *, activation="relu", dropout=0.0):
        super().__init__()
        self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.W_2(self.dropout(self.W_1(x)))
""",
        "you left out the activation: two linear maps in a row are one linear map",
    ),
    (
        "ps05-2-swiglu-check",
        "a sigmoid for a gate",
        """
class SwiGLU(nn.Module):
    def __init__(self, d_model, d_ff, *, dropout=0.0, bias=False):
        super().__init__()
        self.W_1, self.W_3 = (nn.Linear(d_model, d_ff, bias) for _ in "13")
        self.W_2, self.dropout = nn.Linear(d_ff, d_model, bias), nn.Dropout(dropout)

    def forward(self, x):
        return self.W_2(self.dropout(torch.sigmoid(self.W_1(x)) * self.W_3(x)))
""",
        "you gate with the sigmoid, as in GLU",
    ),
    (
        "ps05-3-layer-norm-check",
        "the layer norm of many tutorials",
        """
class LayerNorm(nn.Module):
    def __init__(self, features, eps=1e-12):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.weight * (x - mean) / (std + self.eps) + self.bias
""",
        "you wrote (x − mean)/(x.std() + eps): .std() divides by d_model − 1, and ε is outside the root",
    ),
    (
        "ps05-3-rms-norm-check",
        "a first draft in half precision",
        """
class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
""",
        "you square in float16, which ends at 65,504",
    ),
    (
        "ps05-5-check",
        "zeros that are averaged",
        """
class MaskedBatchNorm(nn.BatchNorm1d):
    def forward(self, x, mask):
        x = x.masked_fill(~mask[..., None], 0)
        return super().forward(x.mT).mT.masked_fill(~mask[..., None], 0)
""",
        "you set padding to zero and average over all positions; divide by the number of real ones",
    ),
    (
        "ps07-2-check",
        "no shift",
        """
from torch.nn.utils.rnn import pad_sequence


def teacher_forcing(targets, bos_id, eos_id, pad_id):
    rows = [torch.tensor([*sentence, eos_id]) for sentence in targets]
    whole = pad_sequence(rows, batch_first=True, padding_value=pad_id)
    return whole, whole
""",
        "your tgt_in and tgt_out are the same: the decoder reads the very token that it should say",
    ),
    (
        "ps07-3-check",
        "the formula without step 0",
        """
def warmup_inverse_sqrt(step, d_model, warmup_steps):
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
""",
        "you divide by zero at step 0",
    ),
    (
        "ps07-4-check",
        "smoothing left to PyTorch",
        """
def label_smoothed_loss(logits, targets, *, pad_id, smoothing=0.1):
    loss = F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=pad_id, label_smoothing=smoothing, reduction="sum"
    )
    return loss, (targets != pad_id).sum()
""",
        "you spread ε over the whole vocabulary, so padding gets a share",
    ),
    (
        "ps07-5-check",
        "the loop of most tutorials",
        """
defects = "BF"


def repaired(module, batches, accumulate, *, rate, pad_id):
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    optimizer.zero_grad()
    losses = []
    for i, (inputs, targets) in enumerate(batches):
        loss = F.cross_entropy(module(inputs).flatten(0, 1), targets.flatten(), ignore_index=pad_id)
        (loss / accumulate).backward()
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses
""",
        "you drop the batches left over at the end",
    ),
    (
        "ps07-6-check",
        "moments changed in place",
        """
def adam_step(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9):
    first.mul_(betas[0]).add_(gradient, alpha=1 - betas[0])
    second.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
    m, v = first / (1 - betas[0] ** step), second / (1 - betas[1] ** step)
    return parameter - rate * m / (v.sqrt() + eps), first, second
""",
        "you change the tensors that you were given",
    ),
    (
        "ps07-7-check",
        "all entries alike",
        """
def average_checkpoints(states):
    return {name: sum(state[name] for state in states) / len(states) for name in states[0]}
""",
        "you average whole numbers too",
    ),
    (
        "ps08-2-check",
        "the first sentence's token for all",
        """
def greedy(model, src, *, max_length):
    tokens = torch.full((len(src), 1), model.config.bos_id)
    with torch.no_grad():
        for _ in range(max_length):
            best = model(src, tokens)[0, -1].argmax().item()
            tokens = torch.cat([tokens, torch.full((len(src), 1), best)], dim=1)
            if best == model.config.eos_id:
                break
    return tokens[:, 1:]
""",
        "you give every sentence of the batch the token that the first one wants",
    ),
    (
        "ps08-2-check",
        "padding that is seen",
        """
def greedy(model, src, *, max_length):
    if not 1 <= max_length <= model.config.max_length:
        raise ValueError("max_length")
    config, ended = model.config, torch.zeros(len(src), dtype=torch.bool)
    with evaluating(model), torch.no_grad():
        memory, mask = model.encode(src), torch.ones(len(src), 1, 1, src.size(1), dtype=torch.bool)
        tokens = torch.full((len(src), 1), config.bos_id)
        while tokens.size(1) <= max_length and not ended.all():
            token = model.project(model.decode(tokens, memory, mask))[:, -1].argmax(-1)
            token[ended] = config.pad_id
            tokens, ended = torch.cat([tokens, token[:, None]], 1), ended | (token == config.eos_id)
    return tokens[:, 1:]
""",
        "you let the decoder look at the source's padding",
    ),
    (
        "ps08-3-check",
        "the power of the length alone",
        """
def length_penalty(log_p, length, alpha):
    return log_p / torch.as_tensor(length).to(log_p.dtype) ** alpha
""",
        "you divide by n^α; here it is ((5 + n)/6)^α",
    ),
    (
        "ps08-5-nucleus-check",
        "without the token that crosses p",
        """
def nucleus(logits, p):
    if not 0 < p <= 1:
        raise ValueError("p")
    values, index = logits.sort(dim=-1, descending=True)
    hidden = values.softmax(-1).cumsum(-1) > p
    return logits.masked_fill(hidden.gather(-1, index.argsort(-1)), -math.inf).softmax(-1)
""",
        "the token that carries the sum across p is missing",
    ),
    (
        "ps08-6-check",
        "a mean of sentences",
        """
def bleu(candidates, references):
    if len(candidates) != len(references) or not all(references):
        raise ValueError("references")
    total = 0.0
    for said, several in zip(candidates, references):
        right = []
        for n in range(1, 5):
            most, own = Counter(), Counter(zip(*(said[i:] for i in range(n))))
            for one in several:
                most |= Counter(zip(*(one[i:] for i in range(n))))
            right.append((own & most).total() / max(1, own.total()))
        r = min((abs(len(one) - len(said)), len(one)) for one in several)[1]
        total += min(1, math.exp(1 - r / len(said))) * math.prod(right) ** 0.25
    return 100 * total / len(candidates)
""",
        "you average the scores of sentences",
    ),
    (
        "ps08-7-check",
        "a cache cut too late",
        """
def cached_attention_step(query, key, value, keys, values, window=None):
    if window is not None and window < 1:
        raise ValueError("window")
    keys, values = torch.cat([keys, key], -2), torch.cat([values, value], -2)
    weights = (query @ keys.mT / query.size(-1) ** 0.5).softmax(-1)
    output = weights @ values
    if window is not None:
        keys, values = keys[..., -window:, :], values[..., -window:, :]
    return output, keys, values
""",
        "you attend to everything and cut afterwards",
    ),
    (
        "ps09-2-check",
        "the kernel's own flag",
        """
def fused_attention(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError("mask")
    if is_causal and mask is not None:
        mask, is_causal = mask & torch.ones(query.size(-2), key.size(-2)).tril().bool(), False
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)
""",
        "with more keys than queries you align the first query with the first key",
    ),
    (
        "ps09-3-check",
        "the chapter's loop",
        """
def tiled_attention(query, key, value, block):
    if block < 1:
        raise ValueError("block")
    query = query / math.sqrt(query.size(-1))
    m = torch.full_like(query[..., :1], -torch.inf)
    l, o = torch.zeros_like(m), query.new_zeros(())
    for start in range(0, key.size(-2), block):
        s = query @ key[..., start : start + block, :].mT
        larger = torch.maximum(m, s.detach().amax(dim=-1, keepdim=True))
        e, correction = (s - larger).exp(), (m - larger).exp()
        l = l * correction + e.sum(dim=-1, keepdim=True)
        o = o * correction + e @ value[..., start : start + block, :]
        m = larger
    return o / l
""",
        "your tiles are small, but of each something as large as its scores is kept for the way back",
    ),
    (
        "ps09-4-check",
        "one checkpoint around it",
        """
def checkpointed_feed_forward(x, W1, b1, W2, b2, chunk):
    def layer(x, W1, b1, W2, b2):
        return F.linear(F.linear(x, W1, b1).relu(), W2, b2)

    if chunk < 1:
        raise ValueError("chunk")
    return checkpoint(layer, x, W1, b1, W2, b2, use_reentrant=False)
""",
        "you checkpoint the layer as a whole: on the way back, all of the hidden layer is there at once",
    ),
    (
        "ps09-6-check",
        "a mean of means",
        """
def accumulated_step(model, x, targets, parts, rate):
    if parts < 1:
        raise ValueError("parts")
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    optimizer.zero_grad()
    total, pieces = 0.0, list(zip(x.chunk(parts), targets.chunk(parts)))
    for inputs, wanted in pieces:
        logits = model(inputs).transpose(1, 2)
        loss = F.cross_entropy(logits, wanted, ignore_index=0) / len(pieces)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total
""",
        "you average the means of the parts",
    ),
    (
        "ps09-7-check",
        "all logits",
        """
def chunked_cross_entropy(hidden, weight, targets, chunk, pad_id):
    if chunk < 1:
        raise ValueError("chunk")
    total = F.cross_entropy(hidden @ weight.T, targets, ignore_index=pad_id, reduction="sum")
    return total / (targets != pad_id).sum().clamp(min=1)
""",
        "you compute the logits of the whole vocabulary at once",
    ),
]


@pytest.mark.parametrize(
    ("check", "wrong", "message"), [(c, w, m) for c, _, w, m in WRONG], ids=[w[1] for w in WRONG]
)
def test_the_visible_check_names_typical_mistakes(no_shape_checks, check, wrong, message):
    assignment = check.partition("-")[0]
    master = next(master for master in MASTERS if master.stem.startswith(assignment))
    cells = {cell.id: cell.source for cell in read(release.released(master)).cells}
    names = {"__name__": "notebook"}  # which classes ask for
    exec(cells[f"{assignment}-imports"], names)
    exec(wrong, names)
    with pytest.raises(AssertionError) as failure:
        exec(cells[check], names)
    assert message in " ".join(str(failure.value).split())


def test_exercises_stay_out_of_the_wheel():
    config = tomllib.loads((release.HERE.parent / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    assert config["wheel"] == {"packages": ["transformer_lessons"]}
    assert not any("exercises" in name for name in config["sdist"]["include"])


def test_a_notebook_with_something_left_in_it_is_not_released():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("### BEGIN SOLUTION", id="a")])
    with pytest.raises(ValueError, match="a student version must not hold"):
        release.normalised(notebook)


def test_an_unknown_assignment_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["release", "ps99_nothing"])
    assert release.main() == 2
    assert capsys.readouterr().err == "no such assignment: ps99_nothing\n"


def test_a_first_cell_without_a_table_is_refused():
    cell = {"source": "# ps99 · Nothing\n\nGoes with chapter 3.\n", "metadata": {}}
    with pytest.raises(ValueError, match="a table of its tasks"):
        release.about([cell])


def test_the_syllabus_is_in_sync():
    assert list(records.read("checks")["tasks"]) == checks.tasks(), "run `python -m benchmarks.check_table`"
    assert syllabus.PAGE.read_text(encoding="utf-8") == syllabus.page(), "run `python -m book.syllabus`"


def test_every_known_mistake_is_caught_and_named_in_the_record():
    total = records.read("checks")["total"]
    assert total["caught"] == total["named"] == total["ways"]
    assert total["passed"] == total["alternates"]
    assert total["diagnosis_worst_s"] <= 2


def three_inputs(attention):
    return attention(*(torch.randn(2, 3, n, 5) for n in (7, 11, 11)))[0]


def a_decoder_layer(layer):
    settings = {"d_model": 15, "num_heads": 3, "d_ff": 7, "dropout": 0.0, "norm_first": False}
    return layer(settings)(torch.ones(2, 11, 15), torch.ones(2, 7, 15))


def an_epoch(train):
    batches = [[torch.randn(3, 5, 7), torch.randint(11, (3, 5))] for _ in range(5)]
    return train(torch.nn.Linear(7, 11), batches, 2, rate=0.1, pad_id=3)


def a_few_sentences(search):
    sizes = {"d_model": 6, "num_heads": 2, "d_ff": 5, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(TransformerConfig(7, 5, **sizes, max_length=7))
    return search(model, torch.ones(2, 3).long() * 4, beam_size=2, length_penalty=0.6, max_length=1)


def two_tensors(step):
    weights = [torch.randn(3, 5), torch.randn(7)]
    moved, scale, clean = step(weights, [w.half() for w in weights], 8.0, 1, 0.1, 0.5, 4)
    assert (scale, clean) == (8.0, 2)
    return moved[0]


FUNCTION, CLASS = ("broken", "repaired"), ("Broken", "Repaired")
# Programs to debug: their cells, the check's task, their names before and after, and how they are run.
BROKEN = [
    ("ps01-4", "shift_matrix", FUNCTION, lambda shift: shift(3, 14)),
    (
        "ps02-4",
        "masked_self_attention",
        FUNCTION,
        lambda attend: attend(torch.randn(1, 3, 7, 5), torch.ones(1, 7).long(), 0),
    ),
    ("ps03-4", "scaled_dot_product_attention", FUNCTION, three_inputs),
    ("ps04-4", "multi_head", CLASS, lambda module: module(15, 3)(torch.randn(2, 7, 15))),
    ("ps05-4", "batch_norm", CLASS, lambda norm: norm(5)(torch.randn(2, 3, 5))),
    ("ps06-4", "decoder_layer", CLASS, a_decoder_layer),
    ("ps07-5", "accumulated_gradients", FUNCTION, an_epoch),
    ("ps08-4", "beam", FUNCTION, a_few_sentences),
    ("ps09-5", "scaled_step", FUNCTION, two_tensors),
]


@pytest.mark.parametrize(("cell", "task", "both", "run"), BROKEN, ids=[case[0] for case in BROKEN])
def test_the_broken_program_breaks_where_it_is_said(no_shape_checks, cell, task, both, run):
    """It runs; each of its defects is one, and the other lines are right."""
    master = next(master for master in MASTERS if master.stem.startswith(cell[:4]))
    cells = {found.id: found.source for found in read(master).cells}
    program, answer = cells[f"{cell}-broken"], cells[f"{cell}-answer"]
    names = {"__name__": "notebook"}
    exec(cells[f"{cell[:4]}-imports"], names)
    exec(program + "\n" + answer, names)
    broken, right = (
        {line[-1]: line for line in source.splitlines() if re.search(r"# [A-H]$", line)}
        for source in (program, answer)
    )
    assert {letter for letter in broken if broken[letter] != right[letter]} == set(names["defects"])
    before, after = (run(names[name]) for name in both)
    assert getattr(before, "shape", None) == getattr(after, "shape", None)
    for letter in names["defects"]:
        local = dict(names)
        exec(answer.replace(right[letter], broken[letter]), local)
        assert not names["checks"].check(task, local[both[1]]).passed
