"""The autograder for untrusted notebooks: one, or those of a class of a thousand.

`intake` reads a submission, `running` runs it in its `box`, `batch` does this for the whole class and enters
the results into the `course`; `feedback`, `report` and `export` present them. `similarity` compares
submissions, `rehearse` invents a class, `commands` holds what an instructor types, `doctor` checks the
machine, and `result` is what is known about a graded submission.
"""
