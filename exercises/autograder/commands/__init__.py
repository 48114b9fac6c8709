"""The commands of ``python -m exercises.autograder``: `grading` changes a course, `reporting` shows it."""
