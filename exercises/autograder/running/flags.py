"""Hints for a person: what solves a task by a library's call, or takes the package's own answer.

The text of a submission shows what is imported of the package; what is called is noted while it runs. No mark
depends on them: the learner's code may forge the notes or stop them, and a student who wants to can hide.
"""

import ast
import re
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from traceback import walk_stack
from types import FrameType
from typing import Any

from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from exercises.autograder.intake.cells import shown
from exercises.autograder.result import Flag

PARSED = 100_000  # characters of a cell
MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
TASK = re.compile(r"checks\.(?:check|require)\(\s*\"(\w+)\"")
LINE = 200  # the longest line or name in a flag or a note
MOST = 100  # flags, and notes
FRAMES = 500  # that are looked through for a cell

# Other people's models, layers, decoders and scores. Not einops: it moves axes.
READY = set(
    "evaluate fairseq flash_attn keras nltk rotary_embedding_torch sacrebleu tensorflow timm torchmetrics "
    "torchtext torchtune transformers x_transformers xformers".split()
)

PACKAGE = "transformer_lessons"
CHECKS = f"{PACKAGE}.checks"
MODULES = {PACKAGE, CHECKS}  # which may be imported, and of which this may be used:
OPEN = {
    f"{PACKAGE}.__version__",
    *(f"{CHECKS}.{name}" for name in ("check", "require", "tasks", "Report")),
    *(f"{CHECKS}.{name}" for name in ("try_in_translator", "my_transformer")),
}


def seen(cells: Iterable[tuple[str | None, str]], given: Mapping[str, str], notes: Any) -> list[Flag]:
    """What a person should look at in a submission; each thing once in a cell, at its first line.

    Args:
        cells: grade id (None for a cell of the learner's own) and text of the learner's code cells.
        given: the assignment's own code cells by grade id; what "…imports" imports may be used.
        notes: what was called while it ran: a list of {"name": …, "line": …}, from the learner's process.
            Whatever has another form, means nothing, or is too much, is left out.
    """
    trees = [(cell, text.splitlines(), tree) for cell, text in cells if (tree := _parsed(text))]
    imports = (_parsed(text) for cell, text in given.items() if cell.endswith("imports"))
    handed_over = [name for tree in imports if tree for name in _imported(tree)]
    names = dict(handed_over + [name for *_, tree in trees for name in _imported(tree)])
    allowed = OPEN | {full for _, full in handed_over} - MODULES
    flags: dict[tuple, Flag] = {}
    for cell, lines, tree in trees:
        for number, full in sorted(_taken(tree, names)):
            if said := _about(full, allowed, is_answer=bool(cell)):
                flags.setdefault(
                    (cell, *said), Flag(*said, cell, shown("".join(lines[number - 1 : number]), LINE))
                )
    for cell, name in _elsewhere([(cell, tree) for cell, _, tree in trees]):
        text = f"Left open here, where it counts: {shown(name, LINE)}, which a cell of the student's own defines."
        flags["elsewhere", name] = Flag("elsewhere", text, cell)
    tasks = answered(given)
    kept = [note for note in notes[:MOST] if _is_note(note)] if type(notes) is list else []
    for note in kept:
        where = (cell for cell, lines, _ in trees if note["line"] in (line.strip()[:LINE] for line in lines))
        cell = next(where, None) if note["line"] else None
        asked = tasks.get(cell) or set(TASK.findall("\n".join(given.values())))
        if text := _about_call(note["name"], asked):
            flags.setdefault((cell, text), Flag("library", text, cell, shown(note["line"], LINE)))
    return list(flags.values())[:MOST]


def answered(given: Mapping[str, str]) -> dict[str, set[str]]:
    """The tasks that an answer cell is for: those that are checked in the cells whose ids begin alike.

    Args:
        given: the assignment's own code cells, by grade id.
    """
    found: dict[str, set[str]] = {}
    for cell, text in given.items():
        if tasks := TASK.findall(text):
            found.setdefault(f"{cell.rpartition('-')[0]}-answer", set()).update(tasks)
    return found


# ---- In the text


def _parsed(text: str) -> ast.Module | None:
    """As Python, with or without IPython's magics; None for what does not run anyway."""
    for python in (text, MAGIC.sub(r"\1pass", text)) if len(text) <= PARSED else ():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of strange escapes
                return ast.parse(python)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that imports give, with the full names of what they stand for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (root, root)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _taken(tree: ast.Module, names: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """The line and the full name of whatever is imported, or used by a name that an import gave."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom(module=str()):
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
            case ast.Name() if node.id in names:
                yield node.lineno, names[node.id]
            case ast.Attribute(value=ast.Name() as of) if of.id in names:
                yield node.lineno, f"{names[of.id]}.{node.attr}"


def _elsewhere(trees: Iterable[tuple[str | None, ast.Module]]) -> Iterator[tuple[str, str]]:
    """Answers that still raise what was handed out, by cell and name, of which another cell has a definition."""
    found: dict[str, dict[str | None, bool]] = {}
    for cell, tree in trees:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = (inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))
                found.setdefault(node.name, {})[cell] = "NotImplementedError" in names
    for name, places in found.items():
        if not places.get(None, True):
            yield from ((cell, name) for cell, is_open in places.items() if cell and is_open)


def _about(full: str, allowed: set[str], *, is_answer: bool) -> tuple[str, str] | None:
    """Kind and text of the flag that a name deserves, if any; who compares may use any library."""
    root = full.split(".")[0]
    if root in READY and is_answer:
        return "library", f"Uses {root}, which may have it ready-made."
    is_open = full in MODULES or any(f"{full}.".startswith(f"{name}.") for name in allowed)
    if root != PACKAGE or is_open:
        return None
    return "package", f"Takes {shown(full, LINE)}, which the assignment does not hand over."


def _is_note(note: Any) -> bool:
    if type(note) is not dict or note.keys() != {"name", "line"}:
        return False
    return all(type(value) is str and len(value) <= LINE for value in note.values())


# ---- What solves a task

# Functions of torch's, and optimizers, that solve a task; layers call these. What is not named is a part of an
# answer, and no answer: F.embedding, F.softmax, F.elu, torch.tril, F.kl_div, pad_sequence, clip_grad_norm_, …
ATTENTION = {"scaled_dot_product_attention", "flex_attention"}
HEADS = {"multi_head_attention_forward"}  # which nn.Transformer and its layers call, too
BATCH_NORM = {"batch_norm", "instance_norm"}
CROSS_ENTROPY = {"cross_entropy", "linear_cross_entropy"}
SOLVES: dict[str, set[str]] = {
    **dict.fromkeys(("masked_self_attention", "scaled_dot_product_attention"), ATTENTION | HEADS),
    **dict.fromkeys(("grouped_query", "tiled_attention"), ATTENTION | HEADS),  # the first by enable_gqa
    "soft_capped_attention": {"flex_attention"},
    "multi_head": HEADS,  # the attention within it is handed over
    **dict.fromkeys(("layer", "decoder_layer", "decoder_layer_step", "transformer"), HEADS),
    # All of them, once axes are moved: over the features of one position, or in one group.
    "layer_norm": BATCH_NORM | {"layer_norm", "group_norm"},
    **dict.fromkeys(("batch_norm", "masked_batch_norm"), BATCH_NORM),
    "rms_norm": {"rms_norm"},
    "label_smoothing": {"cross_entropy"},
    "chunked_cross_entropy": CROSS_ENTROPY,
    "adam_step": {"Adam", "AdamW"},
    "scaled_step": {"GradScaler"},
}
# What a task is about, or may well use, where it solves another task of the same assignment.
ORDINARY = {
    "cached_attention_step": ATTENTION,
    "attention_test": ATTENTION,
    "accumulated_gradients": CROSS_ENTROPY,
}
WATCHED = set().union(*SOLVES.values())


def _about_call(name: str, tasks: Collection[str]) -> str:
    """The text of the flag that something watched deserves; "" if it solves no task, or one is about using it."""
    those = sorted(task for task in tasks if name in SOLVES.get(task, ()))
    if not those or any(name in ORDINARY.get(task, ()) for task in tasks):
        return ""
    return f"When it ran: torch's {name}, which does all or most of what {', '.join(those)} asks for."


# ---- While it runs, in the learner's process


class LibraryCallRecorder(TorchFunctionMode):
    """Notes which watched functions of torch's are called while it is active, whatever the code calls them.

    It sees them through aliases, ``getattr``, modules and ``torch.ops``, and it sees an optimizer's step. It does
    not see another thread, what a torch.autograd.Function calls on the way back, or what `torch.jit` and
    `torch.compile` made before. Results, gradients and dtypes are those without it, except that in evaluation
    nn.MultiheadAttention and nn.TransformerEncoderLayer take their slow path, which may differ in the last digit.

    A call on a few numbers takes about 2.5 times as long, 2.2 times because there is a mode at all; an encoder
    layer on 64 · 64 · 64 numbers takes as long as without.
    """

    def __init__(self):
        super().__init__()
        self.notes: list[dict[str, str]] = []  # see `flags.seen`
        self._known: set[str] = set()
        self._handles: list = []

    def __enter__(self):
        steps = register_optimizer_step_pre_hook(lambda optimizer, *_: self._calls(type(optimizer).__name__))
        self._handles.append(steps)
        return super().__enter__()

    def __exit__(self, *error):
        self._handles.pop().remove()
        return super().__exit__(*error)

    def _calls(self, name: str) -> None:
        self._known.add(name)
        # A scaler calls kernels only; an overload's name goes on behind a point.
        whole = "GradScaler" if name.startswith("_amp_") else name.partition(".")[0]
        if whole in WATCHED:
            note = {"name": whole, "line": _line_of(sys._getframe(1))[:LINE]}
            if len(self.notes) < MOST and note not in self.notes:
                self.notes.append(note)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", None)
        if type(name) is str and name not in self._known:
            self._calls(name)
        return func(*args, **(kwargs or {}))


def _line_of(frame: FrameType) -> str:
    """The line of the learner's cell that a call came from, as IPython left it in `linecache`, or ""."""
    callers = (caller for caller, _ in islice(walk_stack(frame), FRAMES))
    cell = next((one for one in callers if one.f_code.co_filename.startswith("<ipython-input")), None)
    try:
        return sys.modules["linecache"].cache[cell.f_code.co_filename][2][cell.f_lineno - 1].strip()
    except Exception:  # there is no cell, or its code has changed what is kept there
        return ""
