"""What a class's marks say, for the person who teaches it: one page for an assignment.

Read `counting` first: it has all that is on the page. `questions`, `misconceptions` and `people` count its parts,
`pages` puts them on a page, and `charts` draws.
"""

from exercises.autograder.report.counting import Numbers, numbers
from exercises.autograder.report.pages import page

__all__ = ["Numbers", "numbers", "page"]
