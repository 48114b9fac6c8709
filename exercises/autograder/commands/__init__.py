"""The commands of ``python -m exercises.autograder``: `working` changes a course, `looking` shows it."""

from exercises.autograder.commands.looking import export, feedback, my_transformer, report, similarity, status
from exercises.autograder.commands.said import STOPS, Said, stopped
from exercises.autograder.commands.working import collect, doctor, expected, grade, regrade, rehearse, release

__all__ = [
    "STOPS",
    "Said",
    "collect",
    "doctor",
    "expected",
    "export",
    "feedback",
    "grade",
    "my_transformer",
    "regrade",
    "rehearse",
    "release",
    "report",
    "similarity",
    "status",
    "stopped",
]
