"""Measurements whose results are committed as records: ``python -m benchmarks.NAME``."""

import transformer_lessons  # noqa: F401  before torch: it settles how torch's threads wait
