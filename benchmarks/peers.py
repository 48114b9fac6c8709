"""Beside other implementations: ``python -m benchmarks.peers`` (a quarter of an hour on two CPU cores).

Models of the same sizes train on the same captions, translate the same sentences, and are held against the rate
at which this machine multiplies matrices. It needs the captions, and ``pip install transformers x-transformers
ctranslate2``.
Contenders take turns, a few steps each, and what counts is the median of the ratios of all rounds: whatever else
the machine does meets all of them. Speeds are in tokens that are not padding, a second.

Writes ``transformer_lessons/records/peers.json``; with ``--record NAME``, a record beside it. On a
GPU, `benchmarks.gpu` runs two of its parts with larger models, compiled, in bfloat16 and with fused optimisers.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version

import torch

from benchmarks import RECORDS
from benchmarks.contenders import (
    PEERS,
    Same,
    by_ctranslate2,
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
from benchmarks.measuring import OURS, compared, in_turns, matrices, measured, peak_bytes, ratios, share
from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import Batches, TokenBatches
from transformer_lessons.data.files import read_json
from transformer_lessons.data.vocabulary import pad
from transformer_lessons.export.huggingface import to_huggingface
from transformer_lessons.fast import accelerate
from transformer_lessons.fast.decoding import beam, greedy
from transformer_lessons.fast.kernels import fused_attention
from transformer_lessons.model import Transformer
from transformer_lessons.trainer.checkpoints import load_model
from transformer_lessons.trainer.runs import versions
from transformer_lessons.trainer.tasks import TASKS

PAIRS = 64  # in a shuffled batch
COMPILED, ENGINE = "ours, compiled", "CTranslate2"
SIZES = {"d_model": 256, "num_heads": 8, "d_ff": 1024, "num_encoder_layers": 3, "num_decoder_layers": 3}
SMALL = TransformerConfig(8000, 8000, **SIZES, norm_first=True, shared_vocabulary=True)


def on_captions(rounds: int) -> dict:
    """Ours on batches of like lengths; the others on shuffled ones, as usual, and on ours."""
    task = replace(TASKS["multi30k"], vocab_size=SMALL.target_vocab_size)
    pairs = task.pairs(*task.tokenisers(), task.training)
    tokens = round((pairs.sizes.sum() / len(pairs) + 1) * PAIRS)
    feeds = {"shuffled": Batches(pairs, PAIRS, seed=0), "like_lengths": TokenBatches(pairs, tokens, seed=0)}
    found = {}
    for feed, batches in feeds.items():
        steps = {OURS: our_steps(feeds["like_lengths"], SMALL)}
        steps |= {name: peer_steps(make(SMALL), batches) for name, make in PEERS.items()}
        found[f"peers_on_{feed}"] = compared(in_turns(steps, rounds, 4))
    return found


def on_full_batches(config: TransformerConfig, rows: int, length: int, rounds: int, device: str) -> dict:
    """Beside the others where nothing is padding, and the shares of the machine's rate that are reached.

    A whole step; on a CPU, forward and backward alone, without dropout; and of these the products alone, the most
    there is. Eager Marian is no peer of compiled models.
    """
    batches, is_cpu = Same(rows, length, config.target_vocab_size), device == "cpu"
    peers = {name: make for name, make in PEERS.items() if is_cpu or "eager" not in name}
    steps = {OURS: our_steps(batches, config, device=device)}
    steps |= {name: peer_steps(make(config), batches, device=device) for name, make in peers.items()}
    partly = {"forward_and_backward": forward_and_backward, "products_alone": products_alone}
    steps |= {name: make(batches.batch, config) for name, make in partly.items() if is_cpu}
    steps["matrices"] = matrices() if is_cpu else matrices(8192, device=device, dtype=torch.bfloat16)
    speeds = in_turns(steps, rounds, 2 if is_cpu else 10)
    rates, flops = speeds.pop("matrices"), step_flops(batches.batch, config) / real_tokens(batches.batch)
    shares = {"step": share(speeds[OURS], flops, rates)}
    shares |= {name: share(speeds.pop(name), flops, rates) for name in partly if is_cpu}
    rate = round(statistics.median(rates))
    return {**compared(speeds), "share_of_matmul_rate": shares, "matmul_rate": rate}


def translating(config: TransformerConfig, rows: int, length: int, rounds: int, device: str) -> dict:
    """Greedy decoding of as many sentences and tokens; the end mark is never the likeliest.

    On a GPU with weights in bfloat16, and without CTranslate2, whose wheel is for CPUs here.
    """
    draw = torch.Generator().manual_seed(0)
    src = torch.randint(3, config.target_vocab_size, (rows, 20), generator=draw).to(device)
    models = accelerate(Transformer(config)), marian("sdpa", config)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    own, other = (model.to(device, dtype).eval() for model in models)
    own.output.weight.data[own.config.eos_id] = 0.0
    options = {"max_new_tokens": length, "num_beams": 1, "do_sample": False}

    def by_ours(decode: Callable, **options: bool) -> int:
        said = decode(own, src, max_length=length, **options)
        assert said.shape == (rows, length), said.shape
        return said.numel()

    @torch.no_grad()
    def by_marian() -> int:
        said = other.generate(src, attention_mask=torch.ones_like(src), min_new_tokens=length, **options)
        assert said.shape == (rows, length + 1), said.shape
        return rows * length

    def by_engine(translate: Callable) -> int:
        return sum(map(len, translate(src.tolist(), beam_size=1, max_decoding_length=length)))

    contenders = {
        OURS: partial(by_ours, greedy),
        COMPILED: partial(by_ours, greedy, compiled=True),
        "Marian, cached": by_marian,
        "ours, without a cache": partial(by_ours, without_cache),
        "its products alone": decoding_products(own, rows, length),
    }
    if device == "cpu":
        contenders[ENGINE] = partial(by_engine, by_ctranslate2(own))
        contenders[f"{ENGINE}, int8"] = partial(by_engine, by_ctranslate2(own, "int8"))
    speeds = in_turns(contenders, rounds, 1)
    return {**compared(speeds), "compiled_is_faster": ratios(speeds, COMPILED)}


def sentences(beam_size: int, rounds: int) -> dict:
    """Sentences a second of the thousand held-out numbers, by the trained model that comes with the package.

    Their lengths as they come, sorted into batches of 64, in all three programs the same weights.
    """
    model, source, _ = load_model()
    numbers = number_words.pairs(number_words.held_out())
    src = sorted((english for english, _ in numbers), key=len)
    batches = [src[start : start + PAIRS] for start in range(0, len(src), PAIRS)]
    theirs, engine = to_huggingface(model), by_ctranslate2(model)
    accelerate(model)

    search = greedy if beam_size == 1 else partial(beam, beam_size=beam_size)

    def by_ours(batch: list[list[int]]) -> list[list[int]]:
        return search(model, pad(batch, source.pad_id), max_length=model.config.max_length).tolist()

    def by_marian(batch: list[list[int]]) -> list[list[int]]:
        tokens = pad(batch, source.pad_id)
        options = {"num_beams": beam_size, "do_sample": False}
        options |= {"length_penalty": 0.6} if beam_size > 1 else {}
        return theirs.generate(tokens, attention_mask=(tokens != source.pad_id).long(), **options).tolist()

    def all_of_them(translate: Callable[[list[list[int]]], list[list[int]]]) -> int:
        assert sum(map(len, map(translate, batches))) == len(src)
        return len(src)

    by_engine = partial(engine, beam_size=beam_size, length_penalty=0.6, patience=2)
    ways = {OURS: by_ours, "Marian, cached": by_marian, ENGINE: by_engine}
    steps = {name: partial(all_of_them, translate) for name, translate in ways.items()}
    return compared(in_turns(steps, rounds, 1))


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
    full = partial(on_full_batches, rounds=rounds, device="cpu")
    decode = partial(translating, rounds=rounds, device="cpu")
    return {
        "training on captions": partial(on_captions, rounds),
        "training, 32 sentences of 32": partial(full, SMALL, 32, 32),
        "training, 1 sentence of 1024": partial(full, SMALL, 1, 1024),
        "greedy, 64 sentences of 50": partial(decode, SMALL, 64, 50),
        "greedy, 1 sentence of 50": partial(decode, SMALL, 1, 50),
        "the 1000 numbers, greedy": partial(sentences, 1, rounds),
        "the 1000 numbers, beam of 4": partial(sentences, 4, rounds),
        "memory of causal attention, 4096 positions": attention_memory,
    }


def main(arguments: list[str] | None = None) -> None:
    """The command; the record is written after every part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="(default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="parts with TEXT in their names")
    parser.add_argument("--record", default="peers", metavar="NAME", help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    target = RECORDS / f"{options.record}.json"
    torch.manual_seed(0)
    made_with = {
        **versions(torch.device("cpu")),
        "threads": torch.get_num_threads(),
        **{name: version(name) for name in ("transformers", "ctranslate2", "x-transformers")},
        "rounds": options.rounds,
        "matmul_rate": round(statistics.median(in_turns({"": matrices()}, options.rounds, 1)[""])),
    }
    record = read_json(target) if options.only and target.exists() else {}
    record |= {"made_with": made_with, "settings": asdict(SMALL)}
    measured(parts(options.rounds), options.only, record, target)


if __name__ == "__main__":
    main()
