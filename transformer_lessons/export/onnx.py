"""Export as two ONNX graphs, for onnxruntime and others: the encoder, and one step of the decoder.

``encoder.onnx``: src ``(batch, source)`` → source_k, source_v ``(layers, batch, heads, source, d_k)``

``decoder_step.onnx``: token ``(batch, 1)``, src, source_k, source_v, past_k, past_v → logits
``(batch, vocab)``, and the past with one more position. At first, the token is `bos_id` and the past empty.
"""

import logging
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from transformer_lessons.data.libraries import library
from transformer_lessons.decoding import KeyValueCache, Steps
from transformer_lessons.masks import padding_mask
from transformer_lessons.model import Transformer
from transformer_lessons.trainer.checkpoints import Tokeniser, save_config

BATCH, SOURCE, PAST = "batch", "source", "past"  # these axes may have any length
SRC, SOURCE_KV, PAST_KV = {0: BATCH, 1: SOURCE}, {1: BATCH, 3: SOURCE}, {1: BATCH, 3: PAST}


@torch.no_grad()
def save(directory: Path, model: Transformer, source: Tokeniser, target: Tokeniser) -> None:
    """Write both graphs, and the config and the tokenisers as a run does."""
    c, encoder, step = model.config, Encoder(model), DecoderStep(model)
    src, token = torch.full((2, 3), c.eos_id), torch.full((2, 1), c.bos_id)
    source_kv = encoder(src)
    past_kv = [x[..., :2, :].contiguous() for x in source_kv]
    kept = {"source_k": SOURCE_KV, "source_v": SOURCE_KV}
    write(directory / "encoder.onnx", encoder, [src], {"src": SRC}, kept)
    past, new = ({f"{which}past_{x}": PAST_KV for x in "kv"} for which in ("", "new_"))
    inputs = {"token": {0: BATCH}, "src": SRC, **kept, **past}
    given = [token, src, *source_kv, *past_kv]
    write(directory / "decoder_step.onnx", step, given, inputs, {"logits": {0: BATCH}, **new})
    save_config(directory, c, source, target)


def write(path: Path, module: nn.Module, given: list[Tensor], inputs: dict, outputs: dict) -> None:
    """Trace a module into one graph; `inputs` and `outputs` map names to axes that may have any length."""
    library("onnxscript", extra="onnx")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it complains that torchvision is missing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # axes of the same name have the same length, as intended
        program = torch.onnx.export(
            module.eval(),
            tuple(given),
            dynamo=True,
            input_names=[*inputs],
            output_names=[*outputs],
            dynamic_shapes=tuple(inputs.values()),
            verbose=False,
        )
    program.save(path)


class Encoder(nn.Module):
    """The encoder, and the keys and values that the decoder's cross-attentions need from it."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def forward(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and the values of all decoder layers."""
        return stacked(Steps(self.model, src).source)


class DecoderStep(nn.Module):
    """`decoding.Steps` without state: its caches are inputs and outputs."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def forward(
        self, token: Tensor, src: Tensor, source_k: Tensor, source_v: Tensor, past_k: Tensor, past_v: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The logits of the token after `token`, and the past extended by the keys and values of `token`."""
        steps = Steps.__new__(Steps)  # does not read the source again
        steps.model, steps.length = self.model, past_k.size(3)
        steps.src_mask = padding_mask(src, self.model.config.pad_id)
        steps.source = [KeyValueCache(*both) for both in zip(source_k, source_v, strict=True)]
        steps.past = [KeyValueCache(*both) for both in zip(past_k, past_v, strict=True)]
        return steps.next_logits(token), *stacked(steps.past)


def stacked(caches: list[KeyValueCache]) -> tuple[Tensor, Tensor]:
    """The keys of all layers, stacked, and the values."""
    return torch.stack([one.k for one in caches]), torch.stack([one.v for one in caches])
