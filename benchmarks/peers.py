"""Beside other implementations: ``python -m benchmarks.peers`` (ten minutes on two CPU cores).

Models of the same sizes train on the same captions, translate the same sentences, and are held against the rate
at which this machine multiplies matrices. It needs the captions, and ``pip install transformers x-transformers``.
Contenders take turns, a few steps each, and what counts is the median of the ratios of all rounds: whatever else
the machine does meets all of them. Speeds are in tokens that are not padding, a second.

Writes ``transformer_lessons/records/peers.json``; with ``--record peers_other_machine``, a record beside it.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from benchmarks.contenders import (
    PEERS,
    Same,
    column_major,
    decoding_products,
    forward_and_backward,
    marian,
    our_steps,
    peer_steps,
    products_alone,
    real_tokens,
    step_flops,
    without_cache,
)
from benchmarks.measuring import (
    OURS,
    beside_matrices,
    compared,
    in_turns,
    matmul_rate,
    peak_bytes,
    ratios,
    share,
)
from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.data import multi30k
from transformer_lessons.data.batches import Batches, TokenBatches
from transformer_lessons.data.files import read_json, write_json
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.fast import accelerate
from transformer_lessons.fast.decoding import greedy
from transformer_lessons.fast.kernels import fused_attention
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer.runs import versions

RECORD = Path(__file__).parent.parent / "transformer_lessons" / "records" / "peers.json"
PAIRS = 64  # in a shuffled batch
COMPILED = "ours, compiled"
BY_COLUMNS = "ours, by columns"
BOTH = "ours, by columns, compiled"
ROUNDS, STEPS = 9, 4
WIDTHS = {"d_model": 256, "num_heads": 8, "d_ff": 1024}
LAYERS = {"num_encoder_layers": 3, "num_decoder_layers": 3}
SMALL = TransformerConfig(8000, 8000, **WIDTHS, **LAYERS, norm_first=True, shared_vocabulary=True)


def captions() -> list[tuple[list[int], list[int]]]:
    """All training pairs in subwords of a vocabulary that both languages share."""
    pairs = multi30k.sentences("train")
    subwords = Subwords.train((text for pair in pairs for text in pair), SMALL.target_vocab_size)
    return [(subwords.encode(english), subwords.encode(german)) for english, german in pairs]


def on_captions(rounds: int, steps: int) -> dict:
    """Ours on batches of like lengths; the others on shuffled ones, as usual, and on ours."""
    pairs = captions()
    shuffled = Batches(pairs, PAIRS, seed=0)
    alike = TokenBatches(
        pairs, round(sum(len(a) + len(b) + 1 for a, b in pairs) / len(pairs) * PAIRS), seed=0
    )
    found = {}
    for feed, batches in (("shuffled", shuffled), ("like_lengths", alike)):
        contenders = {OURS: our_steps(alike, SMALL)}
        contenders |= {name: peer_steps(make(SMALL), batches) for name, make in PEERS.items()}
        found[f"peers_on_{feed}"] = compared(in_turns(contenders, rounds, steps))
    return found


def on_full_batches(rows: int, length: int, rounds: int, steps: int) -> dict:
    """Beside the others where nothing is padding, and the shares of the machine's rate that are reached.

    A whole step; forward and backward alone, without dropout; and of these the products alone, the most there is.
    """
    batches = Same(rows, length, SMALL.target_vocab_size)
    contenders = {OURS: our_steps(batches, SMALL)}
    contenders |= {name: peer_steps(make(SMALL), batches) for name, make in PEERS.items()}
    # Not beside the others, but beside matrices: what a step consists of.
    partly = {"forward_and_backward": forward_and_backward, "products_alone": products_alone}
    contenders |= {name: make(batches.batch, SMALL) for name, make in partly.items()}
    speeds, rates = beside_matrices(contenders, rounds, steps, matmul_rate)
    flops = step_flops(batches.batch, SMALL) / real_tokens(batches.batch)
    shares = {"step": share(speeds[OURS], flops, rates)}
    shares |= {name: share(speeds.pop(name), flops, rates) for name in partly}
    return {
        **compared(speeds),
        "share_of_matmul_rate": shares,
        "matmul_rate": round(statistics.median(rates)),
    }


def translating(
    rows: int, length: int, rounds: int, *, config: TransformerConfig = SMALL, device: str = "cpu"
) -> dict:
    """Greedy decoding of as many sentences and tokens; the end mark is never the likeliest."""
    draw = torch.Generator().manual_seed(0)
    src = torch.randint(3, config.target_vocab_size, (rows, 20), generator=draw).to(device)
    own, other = (
        model.to(device).eval() for model in (accelerate(Transformer(config)), marian("sdpa", config))
    )
    own.output.weight.data[own.config.eos_id] = 0.0
    by_columns = column_major(own)

    def by_ours(decode: Callable, model: Transformer, **options: bool) -> int:
        said = decode(model, src, max_length=length, **options)
        assert said.shape == (rows, length), said.shape
        return said.numel()

    @torch.no_grad()
    def by_marian() -> int:
        said = other.generate(
            input_ids=src,
            attention_mask=torch.ones_like(src),
            min_new_tokens=length,
            max_new_tokens=length,
            num_beams=1,
            do_sample=False,
        )
        assert said.shape == (rows, length + 1), said.shape
        return rows * length

    contenders = {
        OURS: partial(by_ours, greedy, own),
        COMPILED: partial(by_ours, greedy, own, compiled=True),
        BY_COLUMNS: partial(by_ours, greedy, by_columns),
        BOTH: partial(by_ours, greedy, by_columns, compiled=True),
        "Marian, cached": by_marian,
        "ours, without a cache": partial(by_ours, without_cache, own),
        "its products alone": decoding_products(own, rows, length),
        "its products alone, by columns": decoding_products(by_columns, rows, length),
    }
    speeds = in_turns(contenders, rounds, 1)
    fastest = {
        "compiled_is_faster": COMPILED,
        "by_columns_is_faster": BY_COLUMNS,
        "compiled_by_columns_is_faster": BOTH,
    }
    return {**compared(speeds), **{name: ratios(speeds, one) for name, one in fastest.items()}}


def attention_memory(length: int = 4096) -> dict:
    """Causal attention, forward and backward, of one sentence: step by step, and fused."""
    shape = 1, SMALL.num_heads, length, SMALL.d_model // SMALL.num_heads
    inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]

    def work(attention: Callable) -> None:
        torch.autograd.grad(attention(*inputs, is_causal=True)[0].sum(), inputs)

    most, least = (peak_bytes(partial(work, way)) for way in (scaled_dot_product_attention, fused_attention))
    return {"without dropout": {"step_by_step": most, "fused": least, "share": round(least / most, 4)}}


def parts(rounds: int) -> dict[str, Callable[[], dict]]:
    """What is measured, in order."""
    return {
        "training on captions": partial(on_captions, rounds, STEPS),
        "training, 32 sentences of 32": partial(on_full_batches, 32, 32, rounds, 2),
        "training, 1 sentence of 1024": partial(on_full_batches, 1, 1024, rounds, 2),
        "greedy, 64 sentences of 50": partial(translating, 64, 50, rounds),
        "greedy, 1 sentence of 50": partial(translating, 1, 50, rounds),
        "memory of causal attention, 4096 positions": attention_memory,
    }


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"(default: {ROUNDS})")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="parts with TEXT in their names; others stay"
    )
    parser.add_argument("--record", default=RECORD.stem, metavar="NAME", help=f"(default: {RECORD.stem})")
    options = parser.parse_args(arguments)
    target = RECORD.with_stem(options.record)
    torch.manual_seed(0)
    import transformers
    import x_transformers  # noqa: F401

    made_with = {
        **versions(torch.device("cpu")),
        "threads": torch.get_num_threads(),
        "transformers": transformers.__version__,
        "rounds": options.rounds,
        "matmul_rate": round(statistics.median(matmul_rate() for _ in range(ROUNDS))),
    }
    record = {
        **(read_json(target) if options.only and target.exists() else {}),
        "made_with": made_with,
        "settings": asdict(SMALL),
    }
    for name, measure in parts(options.rounds).items():
        if options.only in name:
            record[name] = measure()
            print(name, record[name], file=sys.stderr, flush=True)
    write_json(target, record)


if __name__ == "__main__":
    main()
