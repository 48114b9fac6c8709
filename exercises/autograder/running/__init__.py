"""Running one notebook: the learner's code in one process, the instructor's tests in another.

`job` is what a grading depends on and what comes of it; `notebook` goes through the cells of one submission. For
each, a `worker` asks its `forker`, which has imported torch and forks: a `student` in the box runs the learner's
`cells`, a `runner` the tests. These two talk plain values over a socket (`wire`): `remote` is both ends of the
conversation, `proxy` what a test holds of an object beyond it. `inert` makes of what was shown something that a
browser will not run; `flags` are hints for a person; `transformer` has a student's own model made in the box.
"""
