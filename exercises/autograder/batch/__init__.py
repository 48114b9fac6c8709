"""Grading a class: a journal of what was graded, workers that grade, one writer that enters it.

`grade` is what the commands call; it uses `grading`, which decides what must be graded at all, stores each
outcome at once, and enters it. `pool` is where the work is done, here or on a cluster.
"""
