"""The costs of a model, from its config: parameters, operations and bytes, and what GPUs can do.

Operations are counted by the formulas that chapter 11 derives. The memory of training is measured, in a
step with fake tensors, which have sizes but no numbers.
"""

import weakref
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from transformer_lessons.config import TransformerConfig
from transformer_lessons.fast import accelerate
from transformer_lessons.fast.losses import hidden_loss
from transformer_lessons.fast.recompute import recompute as recompute_layers
from transformer_lessons.masks import padding_mask
from transformer_lessons.model import Transformer


@dataclass(frozen=True)
class BatchShape:
    """The number of sentence pairs in a batch, and their lengths with padding, which is computed too."""

    sentences: int
    source: int
    target: int


def parameters(config: TransformerConfig) -> int:
    """The number of parameters of ``Transformer(config)`` (chapter 12).

    An attention has ``4 d² + 4 d``, a feed-forward network ``2 d d_ff + d_ff + d``, a norm ``2 d``. A pitfall: a
    matrix that is used twice, as embedding and as output, counts once.
    """
    with torch.device("meta"):  # whose tensors have sizes but no numbers
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


class Operations(NamedTuple):
    """Floating-point operations in matrix products; a multiplication and an addition are two.

    They are those of W_q, W_k, W_v and W_o in all attentions; of queries with keys and weights with values,
    quadratic in the length; of feed-forward networks; and of the projection to the vocabulary. A pitfall:
    norms, sums and softmax are not matrix products: they have few operations but take more of the time.
    """

    projections: int
    scores: int
    feed_forward: int
    output: int

    @property
    def total(self) -> int:
        """The operations of all parts."""
        return sum(self)


def forward_operations(config: TransformerConfig, shape: BatchShape) -> Operations:
    """The operations of a forward pass, exactly those that PyTorch's `FlopCounterMode` counts (chapter 11).

    A matrix of M entries costs ``2 M`` per vector, attention between n queries and m keys ``4 n m d``. A
    pitfall: causal attention counts in full, though a kernel may skip the half that is hidden.
    """
    encoder, decoder, d = config.num_encoder_layers, config.num_decoder_layers, config.d_model
    sources, targets = shape.sentences * shape.source, shape.sentences * shape.target
    vectors = encoder * sources + decoder * targets
    return Operations(
        # Cross-attention: queries and outputs are the target's, keys and values the source's.
        projections=2 * d * d * (4 * vectors + decoder * (2 * targets + 2 * sources)),
        scores=4 * d * (encoder * sources * shape.source + decoder * targets * (shape.target + shape.source)),
        feed_forward=4 * vectors * d * config.d_ff,
        output=2 * targets * d * config.target_vocab_size,
    )


def training_operations(config: TransformerConfig, shape: BatchShape, *, recompute: bool = False) -> int:
    """The operations of a training step: forward, and twice as many backward.

    Each product ``X W`` has two in the backward pass, for the gradients of X and of W. With `recompute`, all
    but the output is computed again: four times the forward pass instead of three. With pre-norm this counts
    too much, since W_2 is not applied again: nothing after it needs its result.
    """
    forward = forward_operations(config, shape)
    return 3 * forward.total + (forward.total - forward.output if recompute else 0)


class Held(TorchDispatchMode):
    """A counter of the bytes of floating-point tensors and dropout masks made inside: now, and at most."""

    def __init__(self):
        super().__init__()
        self.sizes, self.now, self.peak = {}, 0, 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        asks_device = operation is torch.ops.prim.device.default  # more than half of all: answered at once
        result = args[0].fake_device if asks_device else operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and (tensor.is_floating_point() or tensor.dtype == torch.int8):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.sizes:
                    self.sizes[storage._cdata] = storage.nbytes()
                    self.now += storage.nbytes()
                    weakref.finalize(storage, self.free, storage._cdata)
        self.peak = max(self.peak, self.now)
        return result

    def free(self, key: int) -> None:
        """Subtract a storage that no longer exists."""
        self.now -= self.sizes.pop(key)


class TrainingMemory(NamedTuple):
    """The bytes of tensors in a training step; those of the allocator and the libraries come on top.

    `parameters` are weights, gradients and AdamW's two moments, in float32; `encoder`, `decoder` and `loss`
    what each saves for the backward pass (with autocast, copies of matrices too); `peak` is the maximum.
    """

    parameters: int
    encoder: int
    decoder: int
    loss: int
    peak: int

    @property
    def saved(self) -> int:
        """The bytes that the graph holds between forward and backward."""
        return self.encoder + self.decoder + self.loss


@lru_cache
def training_memory(
    config: TransformerConfig, shape: BatchShape, precision: str = "float32", *, recompute: bool = False
) -> TrainingMemory:
    """The memory of a Trainer step with AdamW, measured on fake tensors, which have sizes but no numbers.

    In "bfloat16" or "float16", weights, gradients and moments stay float32. `recompute` keeps layers' inputs.
    """
    with FakeTensorMode(), Held() as held:
        model = accelerate(Transformer(config))
        if recompute:
            recompute_layers(model)
        weights = sum(parameter.nbytes for parameter in model.parameters())
        src, tgt = (torch.ones(shape.sentences, n, dtype=torch.long) for n in (shape.source, shape.target))
        at = [held.now]
        with torch.autocast("cpu", getattr(torch, precision), enabled=precision != "float32"):
            src_mask = padding_mask(src, config.pad_id)
            memory = model.encode(src, src_mask)
            at.append(held.now)
            hidden = model.decode(tgt, memory, src_mask)
            del memory
            at.append(held.now - hidden.nbytes)  # if anything keeps `hidden`, the loss does
            hidden = hidden.flatten(0, 1)
            loss, _ = hidden_loss(model, hidden, tgt.flatten())
            del hidden
        at.append(held.now - loss.nbytes)
        loss.backward()
    parts = [after - before for before, after in pairwise(at)]
    return TrainingMemory(4 * weights, *parts, peak=held.peak + 2 * weights)


class Card(NamedTuple):
    """A data sheet: a precision, operations per second of products in it, bytes per second, bytes."""

    precision: str
    rate: float
    bandwidth: float
    memory: float


# Peak rates, dense; the data sheets are named on the page "What a Transformer costs".
CARDS = {
    "P100": Card("float32", 9.5e12, 732e9, 16e9),  # the rate that the paper assumes (footnote 5)
    "T4": Card("float16", 65e12, 300e9, 16e9),
    "A100": Card("bfloat16", 312e12, 2039e9, 80e9),  # SXM, 80 GB
    "H100": Card("bfloat16", 989e12, 3350e9, 80e9),  # SXM
    "H200": Card("bfloat16", 989e12, 4800e9, 141e9),
}
