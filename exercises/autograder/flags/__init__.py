"""Hints for a person: what solves a task by a library's call, or gets at the package's own answers.

`source` reads the text of a submission; `calls` notes what is called, imported and read while it runs; `known` is
what both look for. No mark depends on them, and whoever wants to can hide.
"""

from exercises.autograder.flags.source import answered, in_source

__all__ = ["answered", "in_source"]
