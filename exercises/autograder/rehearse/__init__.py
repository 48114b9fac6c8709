"""Made-up students of mixed quality: an instructor tries the whole way before the first real deadline.

`answers` makes a class and what it writes, `files` what comes of it, as Canvas hands it out. `expected` grades
known answers.
"""

from exercises.autograder.rehearse.answers import Student, passing, students, submission
from exercises.autograder.rehearse.files import write

__all__ = ["Student", "passing", "students", "submission", "write"]
