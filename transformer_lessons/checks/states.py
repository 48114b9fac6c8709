"""Matches a module's parameters with the wanted weights where the names differ, and loads the weights.

Where the text of a task leaves names open, ``gamma`` is as good as ``weight``, and one projection for query,
key and value as good as three. The words in the names tell which is which, or else the shapes do.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, permutations

import torch
from torch import Tensor

State = dict[str, Tensor]
MOST_ORDERS = 24  # the most that are tried for parameters of the same shape


@dataclass(frozen=True)
class Link:
    """Own parameters that, concatenated, hold the wanted ones: one holds one or several, or several hold one.

    Attributes:
        own, wanted: the names in the answer, and in the package.
        transposed: whether the answer computes ``x @ W`` where the package computes ``x @ W.T``.
    """

    own: tuple[str, ...]
    wanted: tuple[str, ...]
    transposed: bool = False

    def fits(self, own: State, state: State) -> bool:
        """Whether both have the same number of rows in total, and rows of the same size."""
        rows, parts = [state[name] for name in self.wanted], self._parts(own, state)
        same = all(part.numel() == len(part) * rows[0][:1].numel() for part in parts)
        return same and sum(map(len, parts)) == sum(map(len, rows))

    def load(self, own: State, state: State) -> State:
        """The answer's own parameters, filled with the wanted numbers."""
        whole = torch.cat([state[name] for name in self.wanted])
        parts = whole.split([len(part) for part in self._parts(own, state)])
        return {n: self._turned(part).reshape(own[n].shape) for n, part in zip(self.own, parts, strict=True)}

    def gradients(self, own: State, state: State) -> State:
        """Gradients of the answer's own parameters, rearranged as gradients of the wanted ones."""
        whole = torch.cat(self._parts(own, state))
        parts = whole.split([len(state[name]) for name in self.wanted])
        return dict(zip(self.wanted, parts, strict=True))

    def names(self) -> dict[str, str]:
        """For each wanted parameter, its name in the answer."""
        whole = " and ".join(self.own)
        return {name: whole if len(self.wanted) == 1 else f"{whole} ({name})" for name in self.wanted}

    def _parts(self, own: State, state: State) -> list[Tensor]:
        """The own parameters as rows of the wanted ones; axes of size one around a vector are dropped."""
        parts = [self._turned(own[name]) for name in self.own]
        return [part.flatten() for part in parts] if state[self.wanted[0]].dim() == 1 else parts

    def _turned(self, tensor: Tensor) -> Tensor:
        return tensor.T if self.transposed else tensor


def matchings(
    own: State, wanted: State, roles: dict[str, str], parameters: Iterable[str]
) -> Iterator[list[Link]]:
    """Lists of links, likeliest first; only one if names and shapes are as wanted: swapped weights must show.

    Under other names, `parameters`, each of them once, and running statistics can be what is wanted, or else all.
    """
    known = [n for n in wanted if n in own]
    if known and all(own[n].shape == wanted[n].shape for n in known):
        left = {name: own[name] for name in parameters if name in own and name not in known}
        more = _by_words(left, {name: wanted[name] for name in wanted if name not in known}, roles)
        yield [*(Link((n,), (n,)) for n in known), *more]
        return
    has_buffers = "running_mean" in wanted  # as in batch norm, but not its step count
    learned = {n: t for n, t in own.items() if n in parameters or (has_buffers and t.dim())}
    if links := _by_words(learned, wanted, roles):
        turned = [Link(link.own, link.wanted, own[link.own[0]].dim() == 2) for link in links]
        for way in links, turned:  # a way has the same number for all calls, whatever their sizes
            yield way if all(link.fits(own, wanted) for link in way) else []
    yield from _by_shapes(learned, wanted)
    if fixed := [n for n, t in own.items() if t.dim() and n not in learned]:  # weights that should be learned
        yield from matchings(own, wanted, roles, [*learned, *fixed])
    if links := _in_order(learned, wanted):
        yield links


def _in_order(own: State, wanted: State) -> list[Link]:
    """Links of matrices, and of vectors, in order; one with the rows of several wanted ones holds these."""
    found = []
    for dim in (1, 2):
        left = [name for name in wanted if wanted[name].dim() == dim]
        for name in (name for name in own if own[name].dim() == dim):
            rows = [len(wanted[n]) for n in left]
            taken = next((n for n in range(1, len(rows) + 1) if sum(rows[:n]) == len(own[name])), 0)
            if not taken or own[name].shape[1:] != wanted[left[0]].shape[1:]:
                return []
            found.append(Link((name,), tuple(left[:taken])))
            left = left[taken:]
    return found


def _by_shapes(own: State, wanted: State) -> Iterator[list[Link]]:
    shapes: dict[torch.Size, list[str]] = {}
    for name, tensor in own.items():
        shapes.setdefault(tensor.shape, []).append(name)
    groups = [(names, [n for n in wanted if wanted[n].shape == shape]) for shape, names in shapes.items()]
    if any(len(names) > len(fit) for names, fit in groups):
        return
    orders = [list(islice(permutations(fit, len(names)), MOST_ORDERS)) for names, fit in groups]
    for number in range(max(map(len, orders), default=0)):  # biases are permuted as their weights are
        pairs = [
            pair
            for (names, _), order in zip(groups, orders, strict=True)
            for pair in zip(names, order[number % len(order)], strict=True)
        ]
        yield [Link((name,), (fit,)) for name, fit in pairs]


def _words(name: str) -> set[str]:
    split = re.sub(r"(?<=[a-z])([A-Z])", r" \1", re.sub(r"_(\d)", r"\1", name)).lower().replace("_", " ")
    return set(re.findall(r"[a-z]+", split)) | set(re.findall(r"[a-z]+\d+", split))


def _by_words(own: State, wanted: State, roles: dict[str, str]) -> list[Link]:
    """Links by the words in the names; a name with several roles is a fused parameter; [] if sizes differ."""
    homes: dict[tuple[str, ...], list[str]] = {}
    for name in own:
        words = _words(name)
        parts = [role for role, known in roles.items() if words & set(known.split())]
        is_bias = "bias" in name or (own[name].dim() == 1 and not roles.keys() & wanted.keys())
        kind = "bias" if is_bias else "weight"
        fit = tuple(w for w in wanted if any(w in (part, f"{part}.{kind}") for part in parts))
        homes.setdefault(fit, []).append(name)
    for fit, names in homes.items():
        if sum(own[n].numel() for n in names) != sum(wanted[w].numel() for w in fit):
            return []
    return [Link(tuple(names), fit) for fit, names in homes.items()]
