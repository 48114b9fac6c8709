"""CUDA graphs: a step that is recorded and replayed is the same step.

Without a GPU a tape takes the place of the graph: it records every operation with its tensors, and repeats
them on these same tensors, as a graph does.
"""

import weakref

import pytest
import torch
from conftest import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.models import new_model, sentences, side_by_side, talkative
from transformer_lessons import decoding
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import Batch, TokenBatches
from transformer_lessons.fast import accelerate, decoding_steps, graphs, losses
from transformer_lessons.fast import decoding as fast
from transformer_lessons.fast.decoding_steps import ReplayedSteps, Steps
from transformer_lessons.fast.graphs import GraphedFunction, capture_graph
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer import Trainer, TrainingConfig
from transformer_lessons.variants import rotary_attention

CUDA = torch.device("cuda")
# Their results are numbers that Python waits for, or have shapes that depend on values: not for graphs.
WAITS = {"_local_scalar_dense", "nonzero", "masked_select"}


class Tape(TorchDispatchMode):
    """Records every operation with its inputs and results."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        assert operation.overloadpacket.__name__ not in WAITS
        result = operation(*args, **kwargs or {})
        self.operations.append((operation, args, kwargs or {}, result))
        return result

    def play(self) -> None:
        for operation, args, kwargs, result in self.operations:
            again = tree_leaves(operation(*args, **kwargs))
            for old, new in zip(tree_leaves(result), again, strict=True):
                if torch.is_tensor(old) and old.data_ptr() != new.data_ptr():
                    old.detach().copy_(new)


def taped(work, device, pool=None):
    """`graphs.capture_graph` for a CPU, except that recording already does the work once."""
    tape = Tape()
    with tape:
        result = work()
    calls = []

    def replay():
        if calls:
            with torch.no_grad():
                tape.play()
        calls.append(1)
        return result

    return replay


@pytest.fixture
def tape(monkeypatch) -> None:
    monkeypatch.setattr(graphs, "capture_graph", taped)
    monkeypatch.setattr(losses, "SYNCHRONOUS_DEVICES", ())


@pytest.fixture
def gpu(request) -> torch.device:
    if not torch.cuda.is_available():
        (pytest.fail if request.config.getoption("--full") else pytest.skip)("no CUDA device here")
    return CUDA


def test_each_shape_is_recorded_when_it_comes_again(tape):
    seen = []
    double = GraphedFunction(lambda x: seen.append(len(x)) or 2 * x, torch.device("cpu"))
    for length in (3, 5, 3, 3, 5, 5, 3):
        x = torch.randn(length)
        assert_close(double(x), 2 * x)
    assert seen == [3, 5, 3, 5]
    double.can_capture = False  # no memory is left
    for length in (2, 2, 2, 3):
        assert_close(double(torch.ones(length)), 2 * torch.ones(length))
    assert seen == [3, 5, 3, 5, 2, 2, 2]
    assert capture_graph(seen.pop, torch.device("cpu")) == seen.pop  # on a CPU nothing is recorded


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("change", ["", "hook"])
def test_padding_that_is_not_left_out_changes_nothing(tape, smoothing, change):
    model, found = new_model(), []
    if change:
        model.output.register_forward_hook(lambda module, given, y: y.tanh())
    src, tgt = sentences([5, 7, 2]), sentences([4, 9, 3])
    batch = Batch(src, tgt, tgt.roll(-1, 1) * (tgt != 0))
    for where in ((), ("cpu",)):
        losses.SYNCHRONOUS_DEVICES = where
        model.zero_grad()
        loss, tokens, right = losses.batch_loss(model, batch, smoothing)
        loss.backward()
        found.append([loss.detach(), tokens, right, *(p.grad for p in model.parameters())])
    for ours, expected in zip(*found, strict=True):
        assert_close(ours.double(), expected.double())


def trainers(device, dtype=torch.float32, **settings) -> tuple[Trainer, Trainer]:
    """A trainer that replays its steps, as on a GPU, and one that does not."""
    source, target = number_words.vocabularies()
    pairs = number_words.pairs(number_words.training_numbers(307, 0))
    how = TrainingConfig(**{"steps": 90, "tokens": 211, "warmup_steps": 5, "seed": 1} | settings)
    made = []
    for is_replayed in (True, False):
        torch.manual_seed(0)
        sizes = TransformerConfig(len(source), len(target), 15, 3, 17, 2, 2, dropout=0.0, max_length=15)
        trainer = Trainer(Transformer(sizes).to(device, dtype), TokenBatches(pairs, 211, seed=0), how)
        work = trainer._add_gradients
        trainer.add_gradients = GraphedFunction(work, trainer.device) if is_replayed else work
        made.append(trainer)
    return tuple(made)


def assert_same_steps(ours: Trainer, eager: Trainer, count: int, close: float) -> None:
    for _ in range(count):
        one, other = ours.train_step(), eager.train_step()
        for name in ("loss", "gradient_norm"):
            assert one[name] == pytest.approx(other[name], rel=close), (one, other)
        # In float16 one token of 100 may differ, which is 0.01 give or take rounding.
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=1.5 * close)
    assert len(ours.add_gradients.graphs) > 2


@pytest.mark.parametrize("accumulate", [1, 2])
def test_replayed_training_is_the_same_training(tape, accumulate):
    assert_same_steps(*trainers("cpu", torch.float64, accumulate=accumulate), 40, 1e-9)


@pytest.mark.usefixtures("no_shape_checks")  # torch cannot compile them
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of itself
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("compile", [False, True])
def test_on_a_gpu_replayed_training_is_the_same_training(gpu, precision, compile):
    close = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.01}[precision]
    assert_same_steps(*trainers(gpu, precision=precision, compile=compile), 40, close)


def test_on_a_gpu_a_resumed_run_is_replayed_too(gpu, tmp_path):
    whole, first, rest = (trainers(gpu, steps=steps, checkpoint_every=17)[0] for steps in (60, 60, 60))
    first.directory = rest.directory = tmp_path
    for _ in range(31):
        first.train_step()
    first.save()
    rest.restore()
    losses = [[one.train_step()["loss"] for _ in range(29)] for one in (first, rest)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0] == pytest.approx([whole.train_step()["loss"] for _ in range(60)][31:], rel=1e-4)


# --- Decoding


@pytest.mark.parametrize("changes", [{}, {"norm_first": True, "position": "learned"}], ids=str)
@pytest.mark.parametrize("copies", [1, 2])
def test_replayed_steps_give_the_same_logits(tape, monkeypatch, changes, copies):
    monkeypatch.setattr(decoding_steps, "INITIAL_CAPACITY", 4)
    model, src = accelerate(new_model(**changes, max_length=37)).eval(), sentences([5, 3, 7, 1, 4])
    with torch.no_grad():
        both = Steps(model, src, copies), ReplayedSteps(model, src, copies)
        for expected, ours in side_by_side(*both, 36, keep=(3, 9), drop=[12]):
            assert_close(ours, expected)
    gone = weakref.ref(both[1])
    del both
    assert gone() is None  # so its memory is free


@pytest.mark.parametrize("seed", [7, 11])
def test_on_a_gpu_decoding_gives_the_canons_tokens(gpu, seed):
    model = talkative(seed, norm_first=True).to(gpu)
    src = sentences([11, 7, 5, 3, 2, 1, 11, 4, 4, 8, 6]).to(gpu)
    options = {"beam_size": 4, "length_penalty": 0.6, "max_length": 13}
    expected = decoding.greedy(model, src, max_length=13), decoding.beam(model, src, **options)
    accelerate(model)
    assert type(fast.fastest_steps(model, src)) is ReplayedSteps
    for _ in range(2):
        assert torch.equal(fast.greedy(model, src, max_length=13), expected[0])
        assert torch.equal(fast.beam(model, src, **options), expected[1])
    model.decoder_layers[1].self_attention.attention = rotary_attention
    assert type(fast.fastest_steps(model, src)) is Steps
