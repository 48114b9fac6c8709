"""Data to train on, and the way from text to batches of ids."""
