"""The way to a learner's code: the one interface to it, and its implementation for this process."""
