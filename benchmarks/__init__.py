"""Measurements whose results are committed as records: ``python -m benchmarks.NAME``."""

from pathlib import Path

import transformer_lessons  # before torch: it sets how torch's threads wait

RECORDS = Path(transformer_lessons.__file__).parent / "records"
