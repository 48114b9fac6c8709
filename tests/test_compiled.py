"""`torch.compile` in one graph and `torch.export` give what the plain code gives, in values and gradients.

Run as a script this file measures one kind and prints a line for each case. The tests run it as one: in their own
process the import hook that checks shapes is on, and cannot be compiled.
"""

import json
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from transformer_lessons.attention import (
    MultiHeadAttention,
    fused_attention,
    hard_attention,
    linear_attention,
    scaled_dot_product_attention,
    tiled_attention,
)
from transformer_lessons.masks import causal_mask
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.norms import BatchNorm
from transformer_lessons.oracles.measure import distance, perturb

LATER = {"norm_first": True, "norm": "rms", "activation": "swiglu", "position": "rotary"}


class Call(nn.Module):
    """A function as a module, which is what can be exported."""

    def __init__(self, function, **options):
        super().__init__()
        self.function, self.options = function, options

    def forward(self, *inputs):
        output = self.function(*inputs, **self.options)
        return output[0] if isinstance(output, tuple) else output


def transformer(**changes) -> tuple[nn.Module, tuple]:
    sizes = {"d_model": 15, "num_heads": 3, "d_ff": 23, "num_encoder_layers": 2, "num_decoder_layers": 2}
    config = TransformerConfig(17, 19, **{**sizes, "dropout": 0.0, "max_length": 13, **changes})
    src, tgt = torch.randint(3, 17, (3, 7)), torch.randint(3, 19, (3, 11))
    src[1, 4:] = 0
    src[2] = 0
    return Transformer(config), (src, tgt)


def attention(function, queries: int, keys: int, **options) -> tuple[nn.Module, tuple]:
    """Inputs for a form of attention; without `is_causal` or a mask, one that hides everything from one query."""
    inputs = [torch.randn(2, 3, length, 5) for length in (queries, keys, keys)]
    if not options.keys() & {"is_causal", "mask"}:
        inputs.append(a_mask(queries, keys))
    return Call(function, **options), tuple(inputs)


def multi_head(**options) -> tuple[nn.Module, tuple]:
    inputs = [torch.randn(2, length, 15) for length in (7, 11, 11)]
    return MultiHeadAttention(15, 3, **options), (*inputs, a_mask(7, 11))


def a_mask(queries: int, keys: int) -> Tensor:
    mask = torch.rand(2, 1, queries, keys) < 0.5
    mask[0, 0, 3] = False
    return mask


def evaluated_batch_norm() -> tuple[nn.Module, tuple]:
    norm = BatchNorm(15)
    norm(2 * torch.randn(5, 15) + 3)
    return norm.eval(), (torch.randn(2, 7, 15),)


CASES = {
    "the paper's Transformer": transformer,
    "pre-norm, RMSNorm, SwiGLU, rotary, grouped": lambda: transformer(
        **LATER, d_model=24, num_heads=6, num_key_value_heads=2
    ),
    "learned positions, GELU": lambda: transformer(position="learned", activation="gelu"),
    "MultiHeadAttention": multi_head,
    "MultiHeadAttention, grouped": lambda: multi_head(num_key_value_heads=1),
    "scaled_dot_product_attention": lambda: attention(scaled_dot_product_attention, 7, 11),
    "fused_attention": lambda: attention(fused_attention, 7, 11),
    "fused_attention, causal": lambda: attention(fused_attention, 7, 11, is_causal=True),
    "fused_attention, additive mask": lambda: attention(
        fused_attention, 7, 7, mask=torch.zeros(7, 7).masked_fill(~causal_mask(7)[0, 0], -torch.inf)
    ),
    "tiled_attention": lambda: attention(tiled_attention, 7, 11, tile=4),
    "hard_attention": lambda: attention(hard_attention, 7, 11),
    "linear_attention": lambda: attention(linear_attention, 7, 11, is_causal=False),
    "linear_attention, causal": lambda: attention(linear_attention, 131, 141, is_causal=True),
    "BatchNorm, evaluating": evaluated_batch_norm,
}
KINDS = {
    "exported": lambda module, inputs: torch.export.export(module, inputs, strict=True).module(),
    "aot_eager": lambda module, inputs: torch.compile(module, backend="aot_eager", fullgraph=True),
    "inductor": lambda module, inputs: torch.compile(module, backend="inductor", fullgraph=True),
}

# --- The script


def as_double(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


def values_and_gradients(module: nn.Module, call: nn.Module, inputs: tuple) -> list[Tensor]:
    inputs = [as_double(x).clone().requires_grad_(x.is_floating_point()) for x in inputs]
    by = [x for x in (*inputs, *module.parameters()) if x.requires_grad]
    output = call(*inputs)
    return [output, *torch.autograd.grad(output.cos().sum(), by, materialize_grads=True)]


def measure(kind: str, case: str) -> float:
    """The largest deviation from the plain code."""
    torch.manual_seed(0)
    torch.compiler.reset()
    module, inputs = CASES[case]()
    module = perturb(module).double()
    expected = values_and_gradients(module, module, inputs)
    other = KINDS[kind](module, tuple(as_double(x) for x in inputs))
    if kind == "exported":  # it has parameters of its own
        with torch.no_grad():
            return distance(other(*map(as_double, inputs)), expected[0].detach())
    actual = values_and_gradients(module, other, inputs)
    return max(distance(a, b) for a, b in zip(actual, expected, strict=True))


def main(kind: str) -> None:
    for case in CASES:
        try:
            result = measure(kind, case)
        except Exception as error:  # the test of this case shows it
            result = f"{type(error).__name__}: {error}"
        print(json.dumps([case, result]))


# --- The tests


@pytest.fixture(scope="module")
def measured():
    """What the script says of a kind; it runs once for each."""
    known = {}

    def of(kind: str) -> dict:
        if kind not in known:
            run = subprocess.run(
                [sys.executable, __file__, kind], capture_output=True, text=True, check=False, timeout=3600
            )
            assert run.returncode == 0, run.stderr
            known[kind] = dict(json.loads(line) for line in run.stdout.splitlines())
        return known[kind]

    return of


@pytest.mark.parametrize("kind", ["exported", "aot_eager", pytest.param("inductor", marks=pytest.mark.full)])
@pytest.mark.parametrize("case", CASES)
def test_equal_to_the_plain_code(measured, case, kind):
    result = measured(kind)[case]
    assert isinstance(result, float), result
    assert result <= 1e-10


if __name__ == "__main__":
    main(sys.argv[1])
