"""Near-identical pairs of submissions, for a person to look at; no mark depends on them.

`fingerprints` has what of a text is compared, `outliers` which pairs stand out, what was measured, and what this
cannot tell; `course` reads a course's folder, and shows two submissions beside each other.
"""

from exercises.autograder.similarity.course import of_course, of_two
from exercises.autograder.similarity.outliers import Pair

__all__ = ["Pair", "of_course", "of_two"]
