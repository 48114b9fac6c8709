"""The page a student gets back.

Read `pages` first: what is on it, and why nothing of it can do harm. `panels` is what is said of each task, and
`cells` the notebook with its outputs, which `markdown`, `pictures` and `text` make inert; `inspection` looks at
the finished page.
"""

from exercises.autograder.feedback.pages import page

__all__ = ["page"]
