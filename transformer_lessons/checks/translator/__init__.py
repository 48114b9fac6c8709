"""Learners' parts in a whole translator: tried in the trained one, or assembled and trained from scratch."""
