"""Who has which fingerprint, and how much that surprises."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain

import numpy as np

__all__ = ["Index", "Prints"]

COLUMNS = 4096  # fingerprints that are compared at once
Prints = dict[str, frozenset[int]]  # a student's, of the cells that are long enough to have some


class Index:
    """An inverted index: of each fingerprint the students who have it, anywhere and in each cell.

    Args:
        prints: of each student.
    """

    def __init__(self, prints: list[Prints]):
        self._prints = prints
        self._anywhere: dict[int, list[int]] = defaultdict(list)
        self.cells: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for student, cells in enumerate(prints):
            for one in frozenset(chain.from_iterable(cells.values())):
                self._anywhere[one].append(student)
            for cell, some in cells.items():
                for one in some:
                    self.cells[cell][one].append(student)

    def bits(self, cell: str, size: int | None = None) -> np.ndarray:
        """What each pair has in common in a cell, divided by the fingerprints there or by a given size."""
        number, holders = len(self._prints), self.cells[cell]
        shared, worth = np.zeros((2, number, number), np.float32)
        # Nobody shares what one student alone has.
        columns = [one for one in sorted(holders) if len(self._anywhere[one]) > 1]
        for start in range(0, len(columns), COLUMNS):
            some = columns[start : start + COLUMNS]
            here, anywhere = (_table(number, (of[one] for one in some)) for of in (holders, self._anywhere))
            shared += here @ anywhere.T
            worth += here * np.log2(number / anywhere.sum(0)) @ anywhere.T
        sizes = np.array([len(one.get(cell, ())) for one in self._prints], np.float32)
        either = sizes[:, None] + sizes - (shared + shared.T) / 2 if size is None else size
        return (worth + worth.T) / 2 / np.maximum(either, 0.5)


def _table(students: int, holders: Iterable[list[int]]) -> np.ndarray:
    """1 where a student has a fingerprint, (students, fingerprints)."""
    columns = list(holders)
    table = np.zeros((students, len(columns)), np.float32)
    for column, rows in enumerate(columns):
        table[rows, column] = 1
    return table
