"""A decoding step compiled ahead of time by AOTInductor; other processes load it from the user's cache."""

import hashlib
import sys
import warnings
from itertools import chain
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.export import Dim
from torch.utils._pytree import tree_map

from transformer_lessons import __version__
from transformer_lessons.data.files import replacing
from transformer_lessons.fast.decoding_steps import ReplayedSteps
from transformer_lessons.fast.products import CPU
from transformer_lessons.model import Transformer

CAPACITY = 16  # a cache's room at first, in positions; attention and beam search go through all of it


def compile_decoding(model: Transformer) -> Transformer:
    """Return the model itself, which `fast.decoding` on a CPU now decodes with compiled steps, in float32.

    One compiled step is for a single sentence, another for several. The first use of each waits for a C++
    compiler, a quarter of a minute; later processes find it in the user's cache, by the model's weights. A
    pitfall: a compiled step has its own copy of the weights, so later changes to the model do not reach it.
    """
    model.compiled_steps = {}  # by whether there is only one row
    return model


class OneRowLinear(nn.Linear):
    """An `nn.Linear` for one vector, as sums that the compiler turns into loops over all cores."""

    def forward(self, x: Tensor) -> Tensor:
        """``x Wᵀ + b``; a matrix product of one row would run on a single core."""
        y = (self.weight * x.view(-1)).sum(-1)
        return (y if self.bias is None else y + self.bias).view(*x.shape[:-1], -1)


class StepFunction(nn.Module):
    """A step as a function of tensors alone, which is what can be compiled."""

    def __init__(self, steps: ReplayedSteps):
        super().__init__()
        self.model, self.steps = steps.model, steps

    def forward(
        self,
        token: Int[Tensor, "sentences copies"],
        position: Int[Tensor, "1"],
        src_mask: Bool[Tensor, "sentences 1 1 source"],
        kept: list[tuple[Tensor, Tensor]],
    ) -> Tensor:
        """The logits of the next tokens; `position` and what is `kept` of earlier tokens change in place."""
        steps = self.steps
        steps.position, steps.src_mask, steps.copies = position, src_mask, token.size(1)
        for cache, (cache.k, cache.v) in zip([*steps.past, *steps.source], kept, strict=True):
            cache.position = position
        return steps._step(token.view(-1, 1))


class CompiledSteps(ReplayedSteps):
    """`Steps` on a CPU, each one call of a compiled function."""

    def __init__(self, model: Transformer, src: Int[Tensor, "batch source"], copies: int = 1):
        super().__init__(model, src, copies)
        rows = len(src) * copies
        # If the step for several is there, a last sentence alone need not wait for a compiler.
        self.is_one = rows == 1 and False not in getattr(model, "compiled_steps", ())
        for past, source in zip(self.past, self.source, strict=True):
            both = source.k, source.v = source.k.contiguous(), source.v.contiguous()  # every step reads them
            past.k, past.v = (x.new_zeros(rows, x.size(1), CAPACITY, x.size(3)) for x in both)

    def inputs(self, token: Int[Tensor, "rows 1"]) -> tuple:
        """What `StepFunction` takes; compiled code expects contiguous tensors and does not check."""
        kept = [(cache.k, cache.v) for cache in (*self.past, *self.source)]
        return token.contiguous().view(-1, self.copies), self.position, self.src_mask, kept

    def step(self, token: Int[Tensor, "rows 1"]) -> Tensor:
        """The logits of the next tokens."""
        compiled = self.model.compiled_steps
        if self.is_one not in compiled:
            compiled[self.is_one] = load_step(self.model, self.is_one)
        *tensors, kept = self.inputs(token)
        return compiled[self.is_one].run([*tensors, *chain(*kept)])[0]

    def _reset_graphs(self) -> None:
        """There are none."""


def load_step(model: Transformer, is_one: bool):
    """The compiled step for one row, or for any number of rows; compiled now if it is not in the cache."""
    path = step_path(model, is_one)
    if not path.exists():
        print(f"compiling a decoding step, once for this model ({path}) …", file=sys.stderr)
        with replacing(path) as temporary:
            compile_step(model, is_one, temporary)
    # What torch._inductor.aoti_load_package does after two seconds, in which it imports the compiler.
    return torch._C._aoti.AOTIModelPackageLoader(str(path), "model", False, 1, -1)


def step_path(model: Transformer, is_one: bool) -> Path:
    """Where the compiled step is kept, by all that it depends on."""
    made_with = __version__, torch.__version__, torch.get_num_threads(), sorted(CPU.items())
    key = hashlib.sha256(repr((made_with, model.config, is_one)).encode())
    for weight in model.state_dict().values():
        key.update(weight.numpy())
    return Path(torch.hub.get_dir()).parent / "transformer_lessons" / f"{key.hexdigest()[:16]}.pt2"


@torch.no_grad()
def compile_step(model: Transformer, is_one: bool, path: Path) -> None:
    """Compile a step of the model for one row, or for any number of rows, and write it to a file."""
    from torch._inductor import aoti_compile_and_package

    plain = Transformer(model.config).eval()
    plain.load_state_dict(model.state_dict())
    sentences, copies = (1, 1) if is_one else (5, 3)  # sizes of 1 are taken as fixed, all others as examples
    steps = CompiledSteps(plain, torch.full((sentences, 7), model.config.eos_id), copies)
    inputs = steps.inputs(torch.full((sentences * copies, 1), model.config.bos_id))
    for linear in [module for module in plain.modules() if is_one and type(module) is nn.Linear]:
        linear.__class__ = OneRowLinear
    shapes = tree_map(lambda x: {axis: Dim.AUTO for axis, size in enumerate(x.shape) if size > 1}, inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own
        exported = torch.export.export(StepFunction(steps), inputs, dynamic_shapes=shapes)
        aoti_compile_and_package(exported, package_path=str(path), inductor_configs={"freezing": True})
