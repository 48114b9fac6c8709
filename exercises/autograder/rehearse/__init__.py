"""Made-up students of mixed quality: an instructor tries the whole way before the first real deadline.

`answers` makes what they write, `rewording` and `renaming` the same in other words, `wounds` what becomes of a
file on its way, `classes` puts a class together, and `files` writes it as Canvas or nbgrader hand it out.
"""

from exercises.autograder.rehearse.answers import passing, submission
from exercises.autograder.rehearse.classes import Student, students
from exercises.autograder.rehearse.files import write

__all__ = ["Student", "passing", "students", "submission", "write"]
