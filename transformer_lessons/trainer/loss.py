"""What a training step minimises, as a module: it is what is compiled, and what gradients are averaged through."""

from torch import Tensor, nn

from transformer_lessons.data.batches import Batch
from transformer_lessons.data.packing import PackedBatch
from transformer_lessons.fast.losses import batch_loss
from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.model import Transformer


class BatchLoss(nn.Module):
    """The smoothed loss of a batch, its number of target tokens, and how many were right (§5.4).

    A pitfall: it has the model's own parameters, under longer names; save the model, not this.
    """

    def __init__(self, model: Transformer, smoothing: float, *, plain: bool = False):
        super().__init__()
        self.model, self.smoothing, self.plain = model, smoothing, plain

    def forward(self, batch: Batch | PackedBatch) -> tuple[Tensor, Tensor, Tensor]:
        """By `fast.losses`, or plainly, as the chapter on training has it."""
        if not self.plain:
            return batch_loss(self.model, batch, self.smoothing)
        logits, pad_id = self.model(batch.src, batch.tgt_in), self.model.config.pad_id
        loss, tokens = label_smoothed_loss(logits, batch.tgt_out, pad_id=pad_id, smoothing=self.smoothing)
        is_right = (logits.argmax(-1) == batch.tgt_out) & (batch.tgt_out != pad_id)
        return loss, tokens, is_right.sum()
