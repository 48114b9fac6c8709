"""Near-identical pairs of submissions, for a person to look at; no mark depends on them.

`fingerprints` has what of a text is compared, `index` who has what, `outliers` which pairs stand out; `course`
reads a course's folder, and `rendering` shows two submissions beside each other. What was measured, and what this
cannot tell, is in `outliers`.
"""

from exercises.autograder.similarity.course import of_course, of_two
from exercises.autograder.similarity.outliers import Pair, compare, pairs
from exercises.autograder.similarity.rendering import side_by_side

__all__ = ["Pair", "compare", "of_course", "of_two", "pairs", "side_by_side"]
