"""Submissions, from wherever they come: each file is either ready to be graded or put aside with a reason.

Read `submissions` first, which goes through them. `files` opens folders and archives, `contents` and `cells` what
a file holds, `names` whose it is, `assignment` of which assignment, `choice` takes one of several. `repair` mends
what `matching` finds, and says so in `words`.
"""

from exercises.autograder.intake.choice import Quarantined, Received
from exercises.autograder.intake.submissions import take_in

__all__ = ["Quarantined", "Received", "take_in"]
