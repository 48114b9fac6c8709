"""Grading a class: a journal of what was graded, workers that grade, one writer that enters it.

`grade` and `regrade` are what the commands do, by `grading`, which decides what must be graded at all; `pool` is
where that happens, here or on a cluster; `journal` keeps each outcome at once, `status` tells how far it is,
`stopping` makes Ctrl-C count.
"""
