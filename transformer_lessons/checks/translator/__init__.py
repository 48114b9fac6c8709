"""Learners' parts in a whole translator: read aloud in the trained one, or assembled and trained anew."""
