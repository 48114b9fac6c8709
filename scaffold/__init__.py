"""Begin a chapter, a task or a misconception with files that pass the tests: ``python -m scaffold --help``.

What is written is a small example that works, in the right place and with the conventions kept; then it is yours
to change. ``lessons new-chapter`` and its kin are the same commands. They need a clone, so no wheel has them.
"""
