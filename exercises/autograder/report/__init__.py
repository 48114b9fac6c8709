"""What the marks of a class say, for the person who teaches it: `questions`, and `pages` of all."""

from exercises.autograder.report.pages import Numbers, numbers, page

__all__ = ["Numbers", "numbers", "page"]
