"""Running a notebook's cells without a kernel: IPython's own shell, with its outputs in nbformat's form.

Magics, `!commands`, top-level ``await``, ``display`` and inline figures work as in Jupyter; whatever asks for
a person at a keyboard does not.
"""

import builtins
import getpass
import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

TEXT = 20_000  # the longest text that one output keeps
OUTPUTS = 200  # the most outputs of one cell
PICTURES = 150_000  # the longest picture, in base64


class _Stream(io.TextIOBase):
    """A replacement of `sys.stdout` or `sys.stderr` that turns what is written into outputs."""

    encoding = "utf-8"

    def __init__(self, name: str, shell: "Shell"):
        self._name, self._shell = name, shell

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._shell.outputs.add_stream(self._name, str(text))
        return len(text)


class Outputs(list):
    """The outputs of a cell so far, within bounds."""

    def add_stream(self, name: str, text: str) -> None:
        """Add printed text; successive texts are one output."""
        last = self[-1] if self else {}
        if last.get("output_type") != "stream" or last["name"] != name:
            last = {"output_type": "stream", "name": name, "text": ""}
            self.add(last)
        space = TEXT - len(last["text"])
        if len(text) > space > 0:
            text = text[:space] + "\n[cut: too much was printed]\n"
        if space > 0:
            last["text"] += text

    def add_data(self, kind: str, data: dict, metadata: dict, **more: Any) -> None:
        """Add something displayed, in one or several forms."""
        kept = {mime: value for mime, value in data.items() if _is_small(mime, value)}
        if data and not kept:
            kept = {"text/plain": "[cut: too large an output]"}
        self.add({"output_type": kind, "data": kept, "metadata": metadata or {}, **more})

    def add(self, output: dict) -> None:
        """Add one more output, unless there are too many."""
        if len(self) < OUTPUTS:
            self.append(output)


def _is_small(mime: str, value: Any) -> bool:
    size = len(value) if isinstance(value, str | bytes) else len(repr(value))
    return size <= (PICTURES if mime.startswith("image/") else TEXT)


class _Publisher(DisplayPublisher):
    """The publisher behind `display`."""

    def publish(self, data, metadata=None, **_):
        self.parent.outputs.add_data("display_data", data, metadata)

    def clear_output(self, wait=False):
        self.parent.outputs.clear()


class _Hook(DisplayHook):
    """The hook that shows the value of a cell's last line."""

    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        self.shell.outputs.add_data("execute_result", format_dict, md_dict, execution_count=self.prompt_count)

    def finish_displayhook(self):
        pass


class Shell(InteractiveShell):
    """IPython without a terminal, a kernel, or a history."""

    display_pub_class = _Publisher
    displayhook_class = _Hook

    outputs = Outputs()  # of the running cell

    def enable_gui(self, gui=None):
        """Do nothing: there is no GUI."""

    def ask_exit(self):
        """End the cell, for `exit` and `quit`."""
        raise SystemExit

    def system(self, cmd):
        """Run a command after ``!`` and collect its output; IPython's own method wants a terminal."""
        sys.stdout.write(self.getoutput(cmd, split=False, depth=1))

    def _showtraceback(self, etype, evalue, stb):
        name = str(getattr(etype, "__name__", etype))[:200]
        self.outputs.add(error_output(name, _text(evalue), [str(line)[:TEXT] for line in stb]))

    def run(self, source: str) -> list[dict]:
        """Run one cell and return its outputs, an exception included."""
        self.outputs = Outputs()
        with redirect_stdout(_Stream("stdout", self)), redirect_stderr(_Stream("stderr", self)):
            self.loop_runner(self._run(source))  # one event loop for all cells, as tasks may go on
        return list(self.outputs)

    async def _run(self, source: str) -> None:
        try:
            transformed, failed = self.transform_cell(source), None
        except Exception:
            transformed, failed = source, sys.exc_info()
        result = await self.run_cell_async(
            source, store_history=True, transformed_cell=transformed, preprocessing_exc_tuple=failed
        )
        self.events.trigger("post_execute")  # inline figures are drawn by these
        self.events.trigger("post_run_cell", result)


def error_output(name: str, text: str, traceback: list[str] | None = None) -> dict:
    """The output of a cell that ends with an error."""
    lines = [f"{name}: {text}"] if traceback is None else traceback
    return {"output_type": "error", "ename": name, "evalue": text, "traceback": lines}


def _text(value: object) -> str:
    try:
        return str(value)[:2000]
    except Exception:
        return "(no readable message)"


def _no_keyboard(*_: Any) -> str:
    raise EOFError("there is no keyboard input while a notebook is graded")


def get_shell() -> Shell:
    """The process's shell, which draws figures inline and keeps no history (a file and a thread)."""
    if not Shell.initialized():
        settings = {"HistoryManager": {"enabled": False}, "InteractiveShell": {"colors": "nocolor"}}
        shell = Shell.instance(config=Config(settings))
        shell.run_line_magic("matplotlib", "inline")
        builtins.input = getpass.getpass = _no_keyboard
    return Shell.instance()
