"""The way to a learner's code: the one door to it, and what stands behind that in this process."""
