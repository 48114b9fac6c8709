"""Keys and values kept between decoding steps, so that a step computes only its own."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer_lessons import expect


class KeyValueCache:
    """The keys and values of one attention module while a sentence is being generated.

    Without it, step t recomputes the keys and values of all t positions; with it, of one. In self-attention
    each step appends (`append`); in cross-attention the encoder's output never changes, so its keys and
    values are computed once (`fill_once`).

    Memory is allocated at once, and the number of positions filled is a tensor: no step changes a shape or
    makes the CPU wait for the GPU, and a compiled step can be replayed. So `append` returns all `max_length`
    slots, and `visible` is the mask that hides those not yet filled; only on a CPU, where nothing has to wait,
    just the filled ones. A pitfall: attending to the slots without that mask averages in zeros.

    Args:
        batch: number of sequences.
        max_length: number of positions that fit.
        num_heads: key/value heads.
        d_k: width of a key.
        d_v: width of a value, d_k unless given.
        dtype, device: as for `torch.zeros`.

    Raises:
        ValueError: for a negative batch or max_length, or other sizes below 1.
    """

    def __init__(
        self,
        batch: int,
        max_length: int,
        num_heads: int,
        d_k: int,
        d_v: int | None = None,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        shape, d_v = (batch, num_heads, max_length), d_k if d_v is None else d_v
        expect.lengths(batch=batch, max_length=max_length)
        expect.sizes(num_heads=num_heads, d_k=d_k, d_v=d_v)
        self.keys: Float[Tensor, "batch heads slots d_k"] = torch.zeros(
            *shape, d_k, dtype=dtype, device=device
        )
        self.values: Float[Tensor, "batch heads slots d_v"] = torch.zeros(
            *shape, d_v, dtype=dtype, device=device
        )
        self.position: Int[Tensor, ""] = torch.zeros((), dtype=torch.long, device=device)
        self.is_filled = False

    def append(
        self, k: Float[Tensor, "batch heads new d_k"], v: Float[Tensor, "batch heads new d_v"]
    ) -> tuple[Float[Tensor, "batch heads slots d_k"], Float[Tensor, "batch heads slots d_v"]]:
        """Store the keys and values of the next positions; the slots to attend to come back, by `visible`.

        Raises:
            ValueError: for other batches, heads, widths, dtypes or devices than the cache's, or if there is no
                room (on a GPU that is torch's own index error: asking first would make it wait).
        """
        self._check(k, v)
        new, max_length = k.size(2), self.keys.size(2)
        if expect.readable(k) and self.position + new > max_length:
            raise ValueError(
                f"cache: expected at most max_length = {max_length} positions, got {int(self.position) + new}"
            )
        slots = self.position + torch.arange(new, device=k.device)
        self.keys.index_copy_(2, slots, k)
        self.values.index_copy_(2, slots, v)
        # In place, as the keys and values: a graph that is replayed finds it where it was.
        self.position.add_(new)
        slots = self._slots()
        return self.keys[:, :, :slots], self.values[:, :, :slots]

    def _slots(self) -> int:
        """How many slots attention has to look at.

        All of them, unless it costs nothing to ask how many are filled: on a CPU, outside a compiled graph. That
        halves the work of attention over a whole sentence, and one query then needs no mask.
        """
        return int(self.position) if expect.readable(self.position) else self.keys.size(2)

    def visible(self, queries: int) -> Bool[Tensor, "1 1 queries slots"] | None:
        """The causal mask of the last `queries` positions appended: each sees itself and what came before.

        None if that is all that `append` gave.

        Raises:
            ValueError: for a negative number of queries, or one that is no integer.
        """
        expect.lengths(queries=queries)
        if queries == 1 and expect.readable(self.position):
            return None
        slots = torch.arange(self._slots(), device=self.keys.device)
        own = self.position - queries + torch.arange(queries, device=self.keys.device)
        return (slots <= own[:, None])[None, None]

    def fill_once(
        self, keys_and_values: Callable[[], tuple[Tensor, Tensor]]
    ) -> tuple[Float[Tensor, "batch heads slots d_k"], Float[Tensor, "batch heads slots d_v"]]:
        """Cross-attention: the first call computes and keeps the keys and values, later calls return them.

        Raises:
            ValueError: for other batches, heads, widths, dtypes or devices than the cache's.
        """
        expect.function(keys_and_values=keys_and_values)
        if not self.is_filled:
            k, v = keys_and_values()
            self._check(k, v)
            # Every later step reads them: each head's in one piece.
            self.keys, self.values = k.contiguous(), v.contiguous()
            self.is_filled = True
        return self.keys, self.values

    def reorder(self, indices: Int[Tensor, " batch"]) -> None:
        """Row b becomes what row ``indices[b]`` was: in beam search, the parent that hypothesis b continues.

        Raises:
            ValueError: for what is no int64 or int32 of one axis, or is on another device, or (where it costs no
                synchronisation: not on a GPU, not in a compiled graph) no row.
        """
        expect.ids("batch", indices=indices)
        expect.same_device(self.keys, "the cache", indices=indices)
        expect.below(len(self.keys), indices=indices)
        if len(indices) != len(self.keys):
            self.keys, self.values = self.keys[indices], self.values[indices]
            return
        slots = self.keys.size(2) if self.is_filled else self._slots()
        for kept in (self.keys, self.values):  # in place: a graph that is replayed finds them where they were
            filled = kept[:, :, :slots]
            filled.copy_(filled[indices])

    def _check(self, k: Tensor, v: Tensor) -> None:
        for name, x, own in (("keys", k, self.keys), ("values", v, self.values)):
            expect.floats("batch", "heads", "length", "width", **{name: x})
            batch, heads, _, width = own.shape
            if x.shape != (batch, heads, k.size(2), width) or (x.dtype, x.device) != (own.dtype, own.device):
                expected = f"{(batch, heads, k.size(2), width)} {own.dtype} on {own.device}"
                got = f"{tuple(x.shape)} {x.dtype} on {x.device}"
                raise ValueError(f"cache: expected {name} of {expected}, got {got}")
