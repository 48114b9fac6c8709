"""Hints for a person: code that solves a task by a library's call, or that takes the package's own answer.

A submission's text shows what it imports from the package; calls are noted while it runs. No mark depends on
these hints: the learner's code may forge or suppress the notes, and a student who wants to can hide.
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

from exercises.autograder.intake.cells import clip
from exercises.autograder.result import Flag

PARSED = 100_000  # characters of the longest cell that is parsed
MAGIC = re.compile(r"^([ \t]*)[%!].*$", re.MULTILINE)
TASK = re.compile(r"checks\.(?:check|require)\(\s*\"(\w+)\"")
LIMIT = 200  # the longest line or name in a flag or a note
MOST_FLAGS = 100  # the most flags, and the most notes
FRAMES = 500  # the most stack frames searched for a cell

# Libraries with ready-made models, layers, decoders and scores. Not einops: it only moves axes.
READY_MADE = set(
    "evaluate fairseq flash_attn keras nltk rotary_embedding_torch sacrebleu tensorflow timm torchmetrics "
    "torchtext torchtune transformers x_transformers xformers".split()
)

PACKAGE = "transformer_lessons"
CHECKS = f"{PACKAGE}.checks"
INSIDE = {"sys.modules", "__closure__", "__globals__"}  # ways to what modules keep
MODULES = {PACKAGE, CHECKS}  # modules that may be imported, and what may be used of them:
ALLOWED = {
    f"{PACKAGE}.__version__",
    *(f"{CHECKS}.{name}" for name in ("check", "require", "tasks", "Report")),
    *(f"{CHECKS}.{name}" for name in ("try_in_translator", "my_transformer")),
}


def scan(
    cells: Iterable[tuple[str | None, str]], given: Mapping[str, str], notes: Any, missing: Iterable[str] = ()
) -> list[Flag]:
    """What a person should look at in a submission: for each cell, each thing once, at its first line.

    Args:
        cells: grade id (None for a cell of the learner's own) and text of the learner's code cells.
        given: the assignment's own code cells by grade id; what "…imports" imports may be used.
        notes: what was called while it ran: a list of {"name": …, "line": …}, from the learner's process.
            Anything that has another form, has no meaning, or is too much, is left out.
        missing: names that tests did not find.
    """
    trees = [(cell, text.splitlines(), tree) for cell, text in cells if (tree := parsed(text))]
    imports = (parsed(text) for cell, text in given.items() if cell.endswith("imports"))
    handed_over = [name for tree in imports if tree for name in _imported(tree)]
    names = dict(handed_over + [name for *_, tree in trees for name in _imported(tree)])
    allowed = ALLOWED | {full for _, full in handed_over} - MODULES
    flags: dict[tuple, Flag] = {}
    shown = [set(text.splitlines()) for text in given.values()]
    for cell, lines, tree in trees:
        own = set(lines)
        if not cell and any(2 * len(own & theirs) > max(len(own), len(theirs)) for theirs in shown):
            continue  # a copy of one of the assignment's cells, changed in a few lines
        for number, full in sorted(_used_names(tree, names)):
            if found := _judge_use(full, allowed, is_answer=bool(cell)):
                line = clip("".join(lines[number - 1 : number]), LIMIT)
                flags.setdefault((cell, *found), Flag(*found, cell, line))
    for cell, name in _answered_elsewhere([(cell, tree) for cell, _, tree in trees], missing):
        text = f"{clip(name, LIMIT)} is unanswered where it counts, but defined in an extra cell."
        flags["elsewhere", name] = Flag("elsewhere", text, cell)
    tasks = tasks_of(given)
    kept = [note for note in notes[:MOST_FLAGS] if _is_note(note)] if type(notes) is list else []
    for note in kept:
        where = (cell for cell, lines, _ in trees if note["line"] in (line.strip()[:LIMIT] for line in lines))
        cell = next(where, None) if note["line"] else None
        asked = tasks.get(cell) or set(TASK.findall("\n".join(given.values())))
        if text := _judge_call(note["name"], asked):
            flags.setdefault((cell, text), Flag("library", text, cell, clip(note["line"], LIMIT)))
    return list(flags.values())[:MOST_FLAGS]


def tasks_of(given: Mapping[str, str]) -> dict[str, set[str]]:
    """The tasks of each answer cell: those that are checked in given cells whose ids begin like its own."""
    found: dict[str, set[str]] = {}
    for cell, text in given.items():
        if tasks := TASK.findall(text):
            found.setdefault(f"{cell.rpartition('-')[0]}-answer", set()).update(tasks)
    return found


# ---- In the text


def parsed(text: str) -> ast.Module | None:
    """The syntax tree of a cell, if need be without IPython's magics; None if too long or not runnable."""
    for python in (text, MAGIC.sub(r"\1pass", text)) if len(text) <= PARSED else ():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about invalid escapes
                return ast.parse(python)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that imports define, each with the full name of what was imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (root, root)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _used_names(tree: ast.Module, names: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """The line and the full name of what is imported, used by an imported name, or named in a string."""
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
            case ast.Attribute(attr=full) | ast.Constant(value=str() as full):  # as for `importlib`
                if full in INSIDE or full.startswith(f"{PACKAGE}."):
                    yield node.lineno, full


def _answered_elsewhere(trees: list, missing: Iterable[str]) -> Iterator[tuple[str | None, str]]:
    """The cell and name of answers that raise as handed out, or are missing, while an own cell defines them."""
    found: dict[str, dict[str | None, bool]] = {name: {"": True} for name in missing}
    for cell, tree in trees:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = (inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))
                found.setdefault(node.name, {})[cell] = "NotImplementedError" in names
    for name, places in found.items():
        if not places.get(None, True):
            yield from ((cell or None, name) for cell, is_open in places.items() if is_open)


def _judge_use(full: str, allowed: set[str], *, is_answer: bool) -> tuple[str, str] | None:
    """The kind and text of the flag for a used name, or None; outside answers, any library may be used."""
    root = full.split(".")[0]
    if is_answer and (root in READY_MADE or full in INSIDE):
        return "library", f"Uses {full if full in INSIDE else root}, which may contain the answer ready-made."
    is_open = full in MODULES or any(f"{full}.".startswith(f"{name}.") for name in allowed)
    if root != PACKAGE or is_open:
        return None
    return "package", f"Uses {clip(full, LIMIT)}, which the assignment does not provide."


def _is_note(note: Any) -> bool:
    if type(note) is not dict or note.keys() != {"name", "line"}:
        return False
    return all(type(value) is str and len(value) <= LIMIT for value in note.values())


# ---- What solves a task

# Torch's functions and optimisers that solve a task; layers call these. What is not listed may be part of an
# answer, not all of it: F.embedding, F.softmax, F.elu, torch.tril, F.kl_div, pad_sequence, clip_grad_norm_, …
ATTENTION = {"scaled_dot_product_attention", "flex_attention"}
HEADS = {"multi_head_attention_forward"}  # nn.Transformer and its layers call it, too
BATCH_NORM = {"batch_norm", "instance_norm"}
CROSS_ENTROPY = {"cross_entropy", "linear_cross_entropy"}
SOLVES: dict[str, set[str]] = {
    **dict.fromkeys(("masked_self_attention", "scaled_dot_product_attention"), ATTENTION | HEADS),
    **dict.fromkeys(("grouped_query", "tiled_attention"), ATTENTION | HEADS),  # the first by enable_gqa
    "soft_capped_attention": {"flex_attention"},
    "multi_head": HEADS,  # the attention inside it is provided
    **dict.fromkeys(("layer", "decoder_layer", "decoder_layer_step", "transformer"), HEADS),
    # All of these can, once axes are moved: over the features of one position, or in one group.
    "layer_norm": BATCH_NORM | {"layer_norm", "group_norm"},
    **dict.fromkeys(("batch_norm", "masked_batch_norm"), BATCH_NORM),
    "rms_norm": {"rms_norm"},
    "label_smoothing": {"cross_entropy"},
    "chunked_cross_entropy": CROSS_ENTROPY,
    "adam_step": {"Adam", "AdamW"},
    "scaled_step": {"GradScaler"},
}
# What a task is about, or may well use, although it solves another task of the same assignment.
ORDINARY = {
    "cached_attention_step": ATTENTION,
    "attention_test": ATTENTION,
    "accumulated_gradients": CROSS_ENTROPY,
}
WATCHED = set().union(*SOLVES.values())


def _judge_call(name: str, tasks: Collection[str]) -> str:
    """The text of the flag for a watched call; "" if it solves no task, or one task is about using it."""
    those = sorted(task for task in tasks if name in SOLVES.get(task, ()))
    if not those or any(name in ORDINARY.get(task, ()) for task in tasks):
        return ""
    return f"Called torch's {name}, which does all or most of what {', '.join(those)} asks for."


# ---- While it runs, in the learner's process


class LibraryCallRecorder(TorchFunctionMode):
    """A mode that notes calls of the watched torch functions while it is active, however the code calls them.

    It sees aliases, ``getattr``, modules, ``torch.ops``, and an optimiser's step. It does not see other
    threads, backward calls of a torch.autograd.Function, or what `torch.jit` and `torch.compile` made before.
    Results, gradients and dtypes are unchanged, except that in evaluation nn.MultiheadAttention and
    nn.TransformerEncoderLayer take their slow path, which may differ in the last digit.
    """

    def __init__(self):
        super().__init__()
        self.notes: list[dict[str, str]] = []  # see `scan`
        self._known: set[str] = set()
        self._handles: list = []

    def __enter__(self):
        steps = register_optimizer_step_pre_hook(lambda optimizer, *_: self._note(type(optimizer).__name__))
        self._handles.append(steps)
        return super().__enter__()

    def __exit__(self, *error):
        self._handles.pop().remove()
        return super().__exit__(*error)

    def _note(self, name: str) -> None:
        self._known.add(name)
        # A GradScaler calls only kernels; an overload's name has a suffix after a dot.
        whole = "GradScaler" if name.startswith("_amp_") else name.partition(".")[0]
        if whole in WATCHED:
            note = {"name": whole, "line": _line_of(sys._getframe(1))[:LIMIT]}
            if len(self.notes) < MOST_FLAGS and note not in self.notes:
                self.notes.append(note)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", None)
        if type(name) is str and name not in self._known:
            self._note(name)
        return func(*args, **(kwargs or {}))


def _line_of(frame: FrameType) -> str:
    """The line of the learner's cell that a call came from, as IPython stored it in `linecache`, or ""."""
    callers = (caller for caller, _ in islice(walk_stack(frame), FRAMES))
    cell = next((one for one in callers if one.f_code.co_filename.startswith("<ipython-input")), None)
    try:
        return sys.modules["linecache"].cache[cell.f_code.co_filename][2][cell.f_lineno - 1].strip()
    except Exception:  # there is no cell, or its code has changed what is stored there
        return ""
