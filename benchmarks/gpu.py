"""What a GPU reaches, compared with its data sheet: ``python -m benchmarks.gpu`` (ten minutes on an H100).

Chapters 16 and 17 and the pages about costs show the results: rates by number format, the roofline's
operations, training steps, attention on long sequences, the captions (which need their data), decoding, and
training beside other implementations (half of the time; ``pip install transformers x-transformers``).

Writes ``transformer_lessons/records/gpu.json`` after every part. A test checks on a CPU that everything runs.
`replanned.json`, also shown in chapter 16, has runs from before `accelerate` excluded cuDNN's attention.
"""

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import Timer

from benchmarks import multi30k
from benchmarks.contenders import OneBatch
from benchmarks.measuring import Parts, measure
from benchmarks.peers import measure_decoding, on_full_batches
from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.config import TransformerConfig
from transformer_lessons.fast.graphs import capture_graph
from transformer_lessons.fast.kernels import fused_attention
from transformer_lessons.model import Transformer
from transformer_lessons.norms import LayerNorm
from transformer_lessons.trainer import Trainer, TrainingConfig
from transformer_lessons.trainer.runs import choose_device
from transformer_lessons.trainer.tasks import TASKS

BASE = TransformerConfig(32_000, 32_000, norm_first=True, shared_vocabulary=True)
# Kinds of kernels, by what is in their names; the rest are norms, dropout, sums, softmax and copies. Fused
# attention counts as products, since nearly all of its operations are.
KINDS = {
    "products": ("gemm", "nvjet", "xmma", "cutlass", "cublas", "fmha", "flash", "attention"),
    "optimiser": ("multi_tensor", "adam"),
}


def median_seconds(work: Callable[[], object]) -> float:
    """Median seconds of one call; PyTorch's timer waits until the device is done."""
    return Timer("work()", globals={"work": work}).blocked_autorange(min_run_time=1.0).median


# --- The card


def ceilings(device: torch.device, size: int) -> dict:
    """Operations per second in products of large matrices, by number format."""
    found = {}
    for name in ("float32", "tf32", "float16", "bfloat16"):
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        a, b = torch.randn(2, size, size, device=device, dtype=getattr(torch, name, torch.float32))
        found[name] = 2 * size**3 / median_seconds(partial(torch.matmul, a, b))
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9):
        a, b = (x.to(torch.float8_e4m3fn) for x in torch.randn(2, size, size, device=device))
        one = torch.ones((), device=device)
        product = partial(torch._scaled_mm, a, b.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        found["float8_e4m3"] = 2 * size**3 / median_seconds(product)
    return {"operations_per_second": found}


def roofline(device: torch.device, rows: int, d: int = 512, d_ff: int = 2048) -> dict:
    """The pieces of work in figure 16.1: operations and bytes as counted there, and the time they take.

    Norms and softmax are in float32, with more rows than the cache holds; products are in bfloat16, and those
    of few tokens use many matrices, for the same reason.
    """
    x = torch.randn(8 * rows, d, device=device)
    norm, n = LayerNorm(d).to(device), x.numel()
    pieces = {
        "layer norm, step by step": (7 * n, 4 * 12 * n, lambda: norm(x)),
        "layer norm, one kernel": (7 * n, 4 * 2 * n, lambda: F.layer_norm(x, (d,), norm.weight, norm.bias)),
        "softmax": (5 * n, 4 * 2 * n, lambda: x.softmax(-1)),
    }
    for tokens in (1, 32, rows):
        count, kind = 64 if tokens < rows else 4, {"device": device, "dtype": torch.bfloat16}
        vectors, weights = torch.randn(count, tokens, d, **kind), torch.randn(count, d_ff, d, **kind)
        pieces[f"feed-forward, {tokens:,} token{'s' * (tokens > 1)}"] = (
            count * 2 * tokens * d * d_ff,
            count * 2 * (tokens * d + d * d_ff + tokens * d_ff),
            lambda given=(vectors, weights): [*map(F.linear, *given)],
        )
    found = {}
    with torch.no_grad():
        for name, (operations, moved, work) in pieces.items():
            work()
            seconds = median_seconds(capture_graph(work, device))  # of the work, not of launching it
            found[name] = {"operations": operations, "bytes": moved, "seconds": seconds}
    return found


# --- A step of training


def measure_training(
    device: torch.device, config: TransformerConfig, batches: OneBatch, *, tf32=False, replay=True, **settings
) -> dict:
    """The time of a new model's step with these settings, its kernels, their times by kind, and the peak memory.

    Without `replay`, the step is not replayed from CUDA graphs.
    """
    gc.collect()  # the previous model still holds memory
    torch.compiler.reset()  # graphs of other sizes count against the limit
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    how = TrainingConfig(peak_learning_rate=1e-5, **settings)
    trainer = Trainer(Transformer(config), batches, how, device=device)
    if not replay:
        trainer.add_gradients = trainer._add_gradients
    step = partial(trainer.train_step, trainer.prepare(0))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(3):  # compile, find the fastest kernels, capture the graph
        step()
    found = {"seconds": median_seconds(step)}
    if device.type == "cpu":
        return found
    peak = torch.cuda.max_memory_allocated()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    kernels = [event for event in profiler.events() if event.device_type == DeviceType.CUDA]
    kernels = [event for event in kernels if not event.is_user_annotation]
    spent = dict.fromkeys((*KINDS, "the rest"), 0.0)
    for kernel in kernels:
        name = kernel.name.lower()
        kind = next((kind for kind, parts in KINDS.items() if any(one in name for one in parts)), "the rest")
        spent[kind] += kernel.time_range.elapsed_us() / 1e6
    return found | {"kernels": len(kernels), "kernel_seconds": spent, "peak_bytes": peak}


def base_and_big(device: torch.device, configs: dict[str, TransformerConfig], rows: int, length: int) -> dict:
    """Steps of base in all ways, and of big in the fastest; nothing is padding."""
    fast, fastest = {"precision": "bfloat16"}, "bfloat16, compiled"
    ways = {
        "float32, as the chapters write it": {"plain": True},
        "fused kernels": {},
        "tf32": {"tf32": True},
        "bfloat16, not replayed": {**fast, "replay": False},
        "bfloat16": fast,
        fastest: {**fast, "compile": True},
        "bfloat16, recomputed": {**fast, "recompute": True},
    }
    found = {}
    for name, way in [*(("base", way) for way in ways), ("big", fastest)]:
        batches = OneBatch(rows, length, configs[name].target_vocab_size)
        found[f"{name}: {way}"] = measure_training(device, configs[name], batches, **ways[way])
    return {"sentences": rows, "length": length, "steps": found}


def number_words(device: torch.device) -> dict:
    """Steps on 64 pairs of number words: hardly any arithmetic, but as many kernels as in a large model."""
    task = TASKS["number-words"]
    size = len(task.tokenisers()[1])
    config, batches = TransformerConfig(size, size, **task.sizes), OneBatch(64, 12, size)
    ways = {"not replayed": {"replay": False}, "replayed": {}, "replayed, compiled": {"compile": True}}
    return {way: measure_training(device, config, batches, **settings) for way, settings in ways.items()}


# --- Attention at length


def attention(device: torch.device, longest: int, heads: int = 8, d_k: int = 64) -> dict:
    """Causal attention of one sentence in bfloat16, forward and backward: seconds and peak bytes."""
    ways = {"step by step": scaled_dot_product_attention, "fused": fused_attention}
    found = {"heads": heads, "d_k": d_k, **{name: {} for name in ways}}
    for length in (longest // 2**power for power in (4, 3, 2, 1, 0)):
        shape, kind = (1, heads, length, d_k), {"device": device, "dtype": torch.bfloat16}
        inputs = [torch.randn(shape, requires_grad=True, **kind) for _ in range(3)]
        for name, way in ways.items():
            found[name][length] = forward_and_backward(way, inputs)
    return found


def forward_and_backward(way: Callable, inputs: list[Tensor]) -> dict:
    """The seconds of attention and its gradients, and the peak of bytes beyond those allocated before."""

    def work() -> None:
        torch.autograd.grad(way(*inputs, is_causal=True)[0].sum(), inputs)

    found = {"seconds": median_seconds(work)}
    if inputs[0].is_cpu:
        return found
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    return found | {"peak_bytes": torch.cuda.max_memory_allocated() - before}


# --- Whole runs


def captions(device: torch.device) -> dict:
    """Runs on Multi30k with the task's own recipe in bfloat16, replayed and not."""
    task = TASKS["multi30k"]
    given = task, task.tokenisers(), task.sizes, replace(task.training, precision="bfloat16"), device
    return {way: multi30k.measure(*given, replay=way == "replayed") for way in ("replayed", "not replayed")}


def parts(device: torch.device, rounds: int, tiny: TransformerConfig | None = None) -> Parts:
    """The measurements, in order; the first five can also run with a tiny model at small sizes."""
    base, big = tiny or TransformerConfig.base(), tiny or TransformerConfig.big()
    rows = 50 if tiny else 25_000
    decode = partial(measure_decoding, BASE, rounds=rounds, device=device.type)
    return {
        "ceilings": partial(ceilings, device, 128 if tiny else 8192),
        "roofline": partial(roofline, device, rows),
        "number words": partial(number_words, device),
        "base and big": partial(base_and_big, device, {"base": base, "big": big}, rows // 25, 25),
        "attention": partial(attention, device, 256 if tiny else 16384),
        "captions": partial(captions, device),
        **{f"greedy, {count} of 50": partial(decode, count, 50) for count in (1, 32, 1024)},
        "training": partial(on_full_batches, BASE, 200, 128, rounds, device.type),
    }


if __name__ == "__main__":
    device = choose_device("auto")
    measure("gpu", __doc__, parts(device, rounds=7), device.type, ("transformers", "x-transformers"))
