"""Running one notebook: the learner's code in one process, the instructor's tests in another.

`job` is a grading's input and outcome; `notebook` goes through the cells of one submission. For each, a
`worker` asks its `forker`, which has imported torch, to fork a `student`, which runs the learner's `cells` in
the box, and a `runner` for the tests. These exchange plain values over a socket (`wire`): `remote` is both
ends, `proxy` what a test holds for a remote object. `inert` makes outputs safe for a browser, `flags` are
hints for a person, and `transformer` builds a student's own model in the box.
"""
