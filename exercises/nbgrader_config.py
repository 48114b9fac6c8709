"""nbgrader's configuration: run its commands in this folder, for example ``nbgrader collect ps02_masks``.

What nbgrader writes (gradebook, submissions, feedback) is stored under `_nbgrader`, which git ignores, or in
the folder named by the environment variable `TRANSFORMER_LESSONS_COURSE`. The student version that is
committed is made by ``python -m exercises.release`` instead of ``nbgrader generate_assignment``.
"""

import os
from pathlib import Path

from nbconvert.exporters import NotebookExporter
from nbgrader.converters.base import NbGraderException

HERE = Path(__file__).resolve().parent
SCRATCH = Path(os.environ.get("TRANSFORMER_LESSONS_COURSE") or HERE / "_nbgrader").absolute()


class Refuse(NotebookExporter):
    """An exporter that stops `nbgrader autograde` and `generate_feedback`, and formgrader's buttons for them.

    One would run students' code unprotected, the other replace students' pages by some that show hidden tests.
    It is created before nbgrader runs, removes or enters anything.
    """

    def __init__(self, parent, **_):
        grade = "Grade with `python -m exercises.autograder grade`, which confines students' code"
        parent.log.error(f"{grade}; make pages with `… feedback`, which shows no hidden tests.")
        raise NbGraderException("refused")


c = get_config()
c.CourseDirectory.root = str(HERE)
c.CourseDirectory.source_directory = "source"
for step in ("release", "submitted", "autograded", "feedback"):
    c.CourseDirectory[f"{step}_directory"] = str(SCRATCH / step)
SCRATCH.mkdir(parents=True, exist_ok=True)
c.CourseDirectory.db_url = f"sqlite:///{SCRATCH / 'gradebook.db'}"

c.ClearSolutions.code_stub = {"python": 'raise NotImplementedError("your answer goes here")'}
c.ClearSolutions.text_stub = "*Your answer goes here.*"

c.Autograde.exporter_class = c.GenerateFeedback.exporter_class = Refuse
# The limits of a submission, listed in `exercises/autograder/box/confine.py`, can be set here, for example
# c.Limits.seconds = 600
