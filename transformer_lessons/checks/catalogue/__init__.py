"""The tasks, a file each: what is required, and the calls that show it."""
