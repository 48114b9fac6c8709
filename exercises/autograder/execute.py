"""nbgrader's `Execute`, replaced: the same place in its autograde preprocessors, other ways."""

from dataclasses import replace
from pathlib import Path

from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Enum, Float, Int, Unicode

from exercises.autograder import result as results
from exercises.autograder.box.confine import Limits
from exercises.autograder.running import notebook
from exercises.autograder.running.notebook import master_of

__all__ = ["IsolatedExecute"]


class IsolatedExecute(NbGraderPreprocessor):
    """Runs a submission in processes of its own, and writes a `Result` besides."""

    isolation = Enum(
        ["full", "none"], default_value="full", help="none: run it unprotected, and mark all grades so"
    ).tag(config=True)
    records = Unicode(help="the folder for results; by default records/ beside the gradebook").tag(
        config=True
    )
    cell_seconds = Float(30.0, help="the wall-clock time that a cell may take").tag(config=True)
    seconds = Float(240.0, help="the wall-clock time that a submission may take").tag(config=True)
    memory = Int(2 << 30, help="bytes that a submission may use beyond Python and torch").tag(config=True)

    def preprocess(self, nb, resources):
        """Run all code cells of a notebook that nbgrader has sanitised."""
        about = resources["nbgrader"]
        master = master_of(about["db_url"], about["assignment"], about["notebook"])
        result = notebook.run(nb, master, self.limits(), self.isolation)
        result = replace(result, student=about["student"], assignment=about["assignment"])
        folder = Path(self.records or Path(about["db_url"].removeprefix("sqlite:///")).parent / "records")
        results.write(folder / result.student / result.assignment / f"{about['notebook']}.json", result)
        return nb, resources

    def limits(self) -> Limits:
        """What a submission may use."""
        return Limits(cell_seconds=self.cell_seconds, seconds=self.seconds, memory=self.memory)
