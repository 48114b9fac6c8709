"""Chapter 20's experiments: ``python -m benchmarks.successors``, or ``benchmarks.experiments successors``."""

from benchmarks.experiments import successors, write

if __name__ == "__main__":
    write("successors", **successors())
