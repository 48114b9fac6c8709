"""What a training step minimises: the loss of a batch, whole or in parts (§5.4)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lessons import expect
from transformer_lessons.attention.multi_head import is_plain
from transformer_lessons.data.batches import Batch
from transformer_lessons.data.packing import PackedBatch
from transformer_lessons.losses import label_smoothed_loss, projected_loss
from transformer_lessons.model import Transformer


def batch_loss(
    model: Transformer, batch: Batch | PackedBatch, smoothing: float
) -> tuple[Float[Tensor, ""], Int[Tensor, ""], Int[Tensor, ""]]:
    """The smoothed loss of a batch, summed; the number of real target tokens; how many of them were right.

    ``Σ_t −log p(y_t | y_<t, src)``, smoothed, over the real target tokens t (§5.4). Only their positions are
    projected to the vocabulary, and but for float16 some of them at a time (`losses.projected_loss`). Packed or
    padded, a pair has the same loss.

    A pitfall: the sum over a batch grows with its tokens; divide by their number.

    Raises:
        ValueError: for ids that the model refuses, targets of another shape than the inputs, or a smoothing
            outside [0, 1).
    """
    expect.kind(Transformer, model=model)
    expect.kind((Batch, PackedBatch), batch=batch)
    if batch.tgt_out.shape != batch.tgt_in.shape:
        raise ValueError(
            f"batch: expected tgt_out of shape {tuple(batch.tgt_in.shape)}, as tgt_in, "
            f"got {tuple(batch.tgt_out.shape)}"
        )
    real = batch.tgt_out != model.config.pad_id
    hidden, targets = model.hidden(batch.src, batch.tgt_in, *batch.places)[real], batch.tgt_out[real]
    options = {"pad_id": model.config.pad_id, "smoothing": smoothing}
    if _in_parts(model, hidden):
        return projected_loss(hidden, model.output.weight, targets, **options)
    logits = model.project(hidden)
    return *label_smoothed_loss(logits, targets, **options), (logits.argmax(-1) == targets).sum()


def _in_parts(model: Transformer, hidden: Tensor) -> bool:
    """Whether `project` is one product and nothing else, not in float16; and no compiler sees to it."""
    if torch.compiler.is_compiling() or expect.computed_in(hidden) == torch.float16:
        return False
    is_its_own = getattr(model.project, "__func__", None) is Transformer.project
    return is_its_own and is_plain(model.output) and model.output.bias is None


def split(batch: Batch | PackedBatch, parts: int) -> list[Batch] | list[PackedBatch]:
    """A batch in `parts` of nearly equal size, or fewer if it has fewer rows; together they are the whole.

    A packed row stays whole, and so do the pairs in it.

    A pitfall: equal numbers of rows are not equal numbers of tokens, so the parts' means must not be averaged.

    Raises:
        ValueError: for what is no batch, or fewer than one part.
    """
    expect.kind((Batch, PackedBatch), batch=batch)
    expect.sizes(parts=parts)
    return [type(batch)(*part) for part in zip(*(ids.chunk(parts) for ids in batch), strict=True)]


class BatchLoss(nn.Module):
    """`batch_loss` as a module, which is what is compiled, and what gradients are averaged through.

    A pitfall: it is the model's own parameters that it has, under longer names; save the model, not this.

    Raises:
        ValueError: for what is no `Transformer`; when called, as `batch_loss`.
    """

    def __init__(self, model: Transformer, smoothing: float):
        super().__init__()
        expect.kind(Transformer, model=model)
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Batch | PackedBatch) -> tuple[Tensor, Tensor, Tensor]:
        """As `batch_loss`."""
        return batch_loss(self.model, batch, self.smoothing)
