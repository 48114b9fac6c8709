"""Grading untrusted notebooks, one or a class of a thousand.

By what happens to a submission: `intake` takes it in, `running` runs it in its `box`,
`batch` does so for all and enters the results in the `course`; `feedback`, `report` and `export` tell them, and
`similarity` compares. `rehearse` makes up a class, `commands` are what an
instructor types, `doctor` looks at the machine. A `result` is what is known of a submission.
"""
