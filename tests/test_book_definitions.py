"""What a chapter ends up with is what the package has: same state dict, same values, same gradients.

A cell whose definition ends as the package's carries a tag, ``canon:masks.padding_mask``. Here each is taken out
of its notebook, with the imports and definitions that it needs and nothing else, and put beside the package's.
"""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name

import nbformat
import pytest
import torch
from torch import Tensor, nn

from book.notebooks import chapters
from transformer_lessons.data.batches import Batch
from transformer_lessons.encodings import LearnedEncoding
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.oracles import is_within
from transformer_lessons.oracles.measure import Deviation, distance, leaves

F64 = torch.float64
IDS = torch.tensor([[4, 9, 4, 7, 0], [3, 0, 0, 0, 0], [8, 5, 6, 0, 0]])
CONFIG = TransformerConfig(
    source_vocab_size=23,
    target_vocab_size=19,
    d_model=35,
    num_heads=5,
    d_ff=13,
    num_encoder_layers=2,
    num_decoder_layers=3,
    dropout=0.0,
    max_length=31,
    tie_embeddings=False,
)


def random(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=F64)


def tensors(result: object) -> list[Tensor]:
    """All tensors of a result, in order; numbers become tensors."""
    if isinstance(result, list | tuple):
        return [tensor for part in result for tensor in tensors(part)]
    return [] if result is None else [torch.as_tensor(result)]


def outcome(call: Callable, inputs: list[Tensor], parameters: dict[str, Tensor]) -> list[Tensor]:
    """What comes out, and for random cotangents the gradients of float inputs and parameters."""
    inputs = [leaves(x)[0] if x.is_floating_point() else x for x in inputs]
    results = tensors(call(*inputs))
    differentiable = [r for r in results if r.requires_grad]
    wanted = [x for x in (*inputs, *parameters.values()) if x.requires_grad]
    gradients = []
    if differentiable and wanted:
        torch.manual_seed(1)
        cotangents = [torch.randn_like(r) for r in differentiable]
        gradients = torch.autograd.grad(differentiable, wanted, cotangents, materialize_grads=True)
    return [r.detach() for r in results] + list(gradients)


def function(*inputs: Tensor, **options) -> Callable:
    """A case: the definition is called with these."""
    return lambda definition: outcome(lambda *x: definition(*x, **options), list(inputs), {})


def module(build: Callable, call: Callable, *inputs: Tensor) -> Callable:
    """A case: the definition is built, gets the same weights by name, trains and is called."""

    def run(definition: type) -> list[Tensor]:
        built = build(definition).double()
        state = built.state_dict()
        torch.manual_seed(2)
        floats = [name for name in sorted(state) if state[name].is_floating_point()]
        built.load_state_dict({**state, **{name: torch.randn_like(state[name]).abs() for name in floats}})
        parameters = dict(sorted(built.named_parameters()))
        names = [torch.tensor([ord(letter) for letter in " ".join(sorted(state))])]
        found = names + outcome(lambda *x: call(built, *x), list(inputs), parameters)
        return found + [value.double() for _, value in sorted(built.state_dict().items())]

    return run


def plain(built: nn.Module, *inputs: Tensor) -> object:
    return built(*inputs)


torch.manual_seed(0)
QKV = random(2, 3, 5, 7), random(2, 3, 11, 7), random(2, 3, 11, 13)
MASK = torch.rand(2, 1, 5, 11) < 0.7
MASK[0, 0, 3] = False
SAME = random(2, 3, 11, 7), random(2, 3, 11, 7), random(2, 3, 11, 13)
X, MEMORY = random(2, 5, 35), random(2, 11, 35)
MEMORY_MASK = torch.rand(2, 1, 1, 11) < 0.7
OUTPUT = random(2, 3, 5, 13)

MODEL = Transformer(CONFIG).double()
for matrix in filter(lambda parameter: parameter.dim() == 2, MODEL.parameters()):
    nn.init.normal_(matrix, std=matrix.size(1) ** -0.5)  # so large that it has opinions

CASES: dict[str, Callable] = {
    "masks.padding_mask": function(IDS, pad_id=0),
    "masks.causal_mask": lambda f: tensors([f(5), f(3, 7), f(1, 4)]),
    "masks.combine": function(MASK, MASK.roll(1, -1), torch.rand(2, 3, 5, 11) < 0.5),
    "masks.boolean": function(torch.zeros(2, 1, 5, 11, dtype=F64).masked_fill(~MASK, -torch.inf)),
    "masks.additive": lambda f: tensors(f(MASK, F64)),
    "masks.segment_mask": function(IDS, IDS.roll(1, -1)),
    "encodings.sinusoidal": lambda f: tensors([f(11, 13), f(7, 4)]),
    "encodings.shift_matrix": lambda f: tensors([f(3, 14), f(-5, 6)]),
    "encodings.SinusoidalEncoding": module(lambda c: c(13, 17), plain, random(2, 5, 13)),
    "encodings.LearnedEncoding": module(lambda c: c(13, 17), plain, random(2, 5, 13)),
    "encodings.RotaryEncoding": module(lambda c: c(14, 17), plain, random(2, 3, 5, 14), torch.arange(3, 8)),
    "embeddings.TokenEmbedding": module(lambda c: c(11, 7), plain, IDS),
    "embeddings.TransformerEmbedding": module(
        lambda c: c(11, 7, position=LearnedEncoding(7, 17), dropout=0.0), plain, IDS
    ),
    "attention.scaled_dot_product_attention": function(*QKV, mask=MASK),
    "attention.hard_attention": function(*QKV, mask=MASK),
    "attention.linear_attention": lambda f: [
        *function(*QKV)(f),
        *function(*SAME, is_causal=True)(f),
    ],
    "attention.recurrent_linear_attention": function(*SAME),
    "attention.attention_backward": lambda f: [g.detach() for g in f(*QKV, OUTPUT, MASK)],
    "attention.tiled_attention": function(*QKV, mask=MASK, tile=3),
    "attention.MultiHeadAttention": module(lambda c: c(35, 5), lambda m, x, y: m(x, y, y, MASK), X, MEMORY),
    "feed_forward.FeedForward": module(lambda c: c(7, 13), plain, random(2, 5, 7)),
    "feed_forward.SwiGLU": module(lambda c: c(7, 13), plain, random(2, 5, 7)),
    "norms.LayerNorm": module(lambda c: c(7), plain, random(2, 5, 7)),
    "norms.RMSNorm": module(lambda c: c(7), plain, random(2, 5, 7)),
    "norms.BatchNorm": module(lambda c: c(7), lambda m, x: [m(x), m.eval()(x)], random(2, 5, 7)),
    "layers.AddAndNorm": module(lambda c: c(CONFIG), lambda m, x: m(x, torch.tanh), X),
    "layers.EncoderLayer": module(lambda c: c(CONFIG), lambda m, x: m(x, MEMORY_MASK[..., :5]), X),
    "layers.DecoderLayer": module(
        lambda c: c(CONFIG),
        lambda m, x, y: m(x, y, tgt_mask=torch.ones(5, 5).tril().bool()[None, None], src_mask=MEMORY_MASK),
        X,
        MEMORY,
    ),
    "model.Transformer": module(lambda c: c(CONFIG), plain, IDS, IDS[:, :4]),
    "decoding.greedy": lambda f: [f(MODEL, IDS, max_length=9, use_cache=c) for c in (True, False)],
    "decoding.beam": lambda f: [
        f(MODEL, IDS, beam_size=k, length_penalty=alpha, max_length=9)
        for k, alpha in ((1, 0.6), (3, 0.0), (4, 0.6))
    ],
    "training_loss.split": lambda f: [
        ids for part in f(Batch(IDS, IDS + 1, IDS.roll(1, 0)), 2) for ids in part
    ],
    "losses.label_smoothed_loss": function(random(3, 5, 11), IDS, pad_id=0, smoothing=0.1),
    "schedule.warmup_inverse_sqrt": lambda f: tensors([f(s, 512, 4000) for s in (1, 7, 4000, 9999)]),
}


def taken_from(path: Path, name: str, cell: str) -> object:
    """The definition of `name` in a cell of a notebook, without running the rest of the notebook."""
    cells = [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    available = {}
    for source in [*cells[1 : cells.index(cell)], cell]:
        for node in ast.parse(re.sub(r"^( *)%.*", r"\1pass", source, flags=re.MULTILINE)).body:
            for bound in names_bound(node):
                available[bound] = node
    needed, wanted = [], [name]
    while wanted:
        node = available.get(wanted.pop())
        if node is not None and node not in needed:
            needed.append(node)
            wanted += [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
    body = sorted(needed, key=list(available.values()).index)
    scope = {"__name__": path.stem}
    exec(compile(ast.Module(body, type_ignores=[]), str(path), "exec"), scope)
    return scope[name]


def names_bound(node: ast.stmt) -> list[str]:
    """What a top-level import, definition or CONSTANT is called; nothing else may be needed."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Import() | ast.ImportFrom():
            return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
        case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
            return [name]
    return []


def apart(ours: Tensor, theirs: Tensor) -> float:
    """`distance`, for masks too: booleans and infinities must be equal."""
    if torch.equal(ours, theirs):
        return 0.0
    return distance(ours, theirs) if ours.is_floating_point() else torch.inf


def final_definitions() -> list:
    return [
        pytest.param(path, tag.removeprefix("canon:"), cell.source, id=f"{path.stem[:2]}-{tag[6:]}")
        for path in chapters()
        for cell in nbformat.read(path, as_version=4).cells
        for tag in cell.metadata.get("tags", [])
        if tag.startswith("canon:")
    ]


@pytest.mark.parametrize(("path", "name", "cell"), final_definitions())
def test_is_what_the_package_has(path, name, cell):
    case = CASES[name]
    public = resolve_name(f"transformer_lessons.{name}")
    ours = case(taken_from(path, name.rpartition(".")[2], cell))
    theirs = case(public)
    assert len(ours) == len(theirs) > 0
    deviation = max(map(apart, ours, theirs))
    assert is_within(Deviation(deviation), F64), deviation


def test_a_wrong_definition_is_found():
    wrong = CASES["attention.scaled_dot_product_attention"](
        lambda query, key, value, mask: (query @ key.mT @ value, torch.zeros(2, 3, 5, 11, dtype=F64))
    )
    right = CASES["attention.scaled_dot_product_attention"](
        resolve_name("transformer_lessons.attention.scaled_dot_product_attention")
    )
    assert max(map(distance, wrong, right)) > 0.1
