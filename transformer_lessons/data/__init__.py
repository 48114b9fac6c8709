"""Training data, and the code that turns text into batches of ids."""
