"""What ``lessons oracles`` prints."""

from collections.abc import Sequence

import torch

from transformer_lessons.oracles import Case, is_within


def row_of(case: Case, seeds: int) -> dict:
    """The worst deviations of one comparison, in both precisions."""
    row = {"component": case.component, "oracle": case.oracle, "options": case.options, "within_bounds": True}
    for name, dtype in (("float64", torch.float64), ("float32", torch.float32)):
        deviation = case.worst(dtype, seeds)
        row[name] = deviation._asdict()
        row["within_bounds"] &= is_within(deviation, dtype)
    return row


def table_of(rows: Sequence[dict]) -> list[str]:
    """A heading, one line a comparison, and their number; deviations of values, then of gradients.

    A pitfall: a dash is no gradient at all, of tokens or learning rates; 0.0 is one that agrees to the last bit.
    """
    table = [("component", "oracle", "float64: value", "gradient", "float32: value", "gradient", "")]
    for row in rows:
        numbers = [row[dtype][part] for dtype in ("float64", "float32") for part in ("value", "gradient")]
        options = ", ".join(f"{name}={value}" for name, value in row["options"].items())
        component = row["component"] + (f" ({options})" if options else "")
        shown = ["–" if number is None else f"{number:.1e}" for number in numbers]
        table.append((component, row["oracle"], *shown, "" if row["within_bounds"] else "OUT OF BOUNDS"))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    padded = (map(str.ljust, cells, widths) for cells in table)
    outside = sum(not row["within_bounds"] for row in rows)
    total = f"{len(rows)} comparisons, {outside or 'none'} out of bounds (1e-10 in float64, 1e-5 in float32)"
    return [*("  ".join(cells).rstrip() for cells in padded), total]
