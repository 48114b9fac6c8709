"""Attacks on the autograder, by theme."""
