"""Measurements whose results are committed as records: ``python -m benchmarks.NAME``."""
