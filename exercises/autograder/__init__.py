"""Grading untrusted notebooks: the learner's code in one process, the instructor's tests in another."""
