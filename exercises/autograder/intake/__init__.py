"""Submissions, from wherever they come: each file is either ready to be graded or put aside with a reason.

Read `submissions` first, which goes through them and takes one of several. `files` opens folders and archives,
`cells` reads what a file holds, `names` whose it is, `matching` which cell is which, and of which assignment;
`repair` mends what is found.
"""

from exercises.autograder.intake.submissions import Quarantined, Received, ingest

__all__ = ["Quarantined", "Received", "ingest"]
