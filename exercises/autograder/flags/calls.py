"""Notes of what the learner's code calls, and what it reads of the package, taken where it runs.

That code may forge the notes or stop them: a note is a reason to look, and nothing more.
"""

import os
import sys
from collections.abc import Iterator
from itertools import islice
from traceback import walk_stack
from types import FrameType
from typing import Any

from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

import transformer_lessons
from exercises.autograder.flags import LINE, MOST, public

FRAMES = 500
# Modules that read on behalf of their callers.
ON_BEHALF = set(
    "IPython _pyio codecs decorator fileinput importlib inspect io linecache pathlib pkgutil runpy shutil "
    "tokenize zipimport".split()
)


def _is_cell(file: str) -> bool:
    """Whether code was compiled from a cell of the learner's, as IPython names these."""
    return file.startswith("<ipython-input")


def _note(notes: list, what: str, name: str, line: str = "") -> None:
    note = {"what": what, "name": name[:LINE], "line": line[:LINE]}
    if len(notes) < MOST and note not in notes:
        notes.append(note)


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
        self._handles.append(register_optimizer_step_pre_hook(self._steps))
        return super().__enter__()

    def __exit__(self, *error):
        self._handles.pop().remove()
        return super().__exit__(*error)

    def _steps(self, optimizer: Any, args: tuple, kwargs: dict) -> None:
        self._calls(type(optimizer).__name__)

    def _calls(self, name: str) -> None:
        self._known.add(name)
        if whole := public(name):
            callers = _callers(sys._getframe(1))
            cell = next((one for one in callers if _is_cell(one.f_code.co_filename)), None)
            _note(self.notes, "call", whole, _line_of(cell))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", None)
        if type(name) is str and name not in self._known:
            self._calls(name)
        return func(*args, **(kwargs or {}))


def watch_reads(notes: list) -> None:
    """Note what the learner's cells read of the package's files, other than by importing them.

    From now on, for as long as the process lives. Not seen are sources that were read before, and other programs.

    Args:
        notes: where they go, as plain values, see `flags.seen`.
    """
    root = os.path.dirname(os.path.abspath(transformer_lessons.__file__)) + os.sep

    def hook(event: str, args: tuple) -> None:
        if event != "open":
            return
        try:
            file = _file_in(root, args[0])
            if file and (frame := _asking(sys._getframe(1))):
                _note(notes, "read", file, _line_of(frame))
        except Exception:  # whatever it is, the learner's program goes on
            return

    sys.addaudithook(hook)


def _file_in(root: str, path: Any) -> str:
    """Where a source file lies below the root; "" for any other file."""
    if not isinstance(path, str | bytes):
        return ""
    path = os.path.abspath(os.fsdecode(path))
    return path.removeprefix(root) if path.startswith(root) and path.endswith((".py", ".pyc")) else ""


def _asking(frame: FrameType) -> FrameType | None:
    """The learner's cell that a file is opened for, if any; an import opens one for itself."""
    for caller in _callers(frame):
        module, file = str(caller.f_globals.get("__name__")), caller.f_code.co_filename
        if _is_cell(file):
            return caller
        is_import = module == "importlib._bootstrap" and caller.f_code.co_name == "_find_and_load"
        is_made = file.startswith("<") and "frozen" not in file  # by exec, for example
        if is_import or not (is_made or module.split(".")[0] in ON_BEHALF):
            break
    return None


def _callers(frame: FrameType) -> Iterator[FrameType]:
    return (caller for caller, _ in islice(walk_stack(frame), FRAMES))


def _line_of(frame: FrameType | None) -> str:
    """As IPython left it in `linecache`; to read it in another way would be a read."""
    try:
        return sys.modules["linecache"].cache[frame.f_code.co_filename][2][frame.f_lineno - 1].strip()
    except Exception:  # there is no cell, or its code has changed what is kept there
        return ""
