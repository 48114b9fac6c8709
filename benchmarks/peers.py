"""Comparison with other implementations: ``python -m benchmarks.peers`` (15 minutes on two CPU cores).

Models of the same sizes train on the same captions, translate the same sentences, and are compared with the
rate at which this machine multiplies matrices. It needs the captions, and
``pip install transformers x-transformers ctranslate2``. Contenders alternate, a few steps each, and the
median of all rounds' ratios counts, so that other load on the machine affects all of them. Speeds are in
tokens per second, not counting padding.

Writes ``transformer_lessons/records/peers.json``, on an AMD processor ``peers_amd.json``; chapter 16 shows both.
On a GPU, `benchmarks.gpu` runs two of its parts with larger models, compiled, in bfloat16, with fused optimisers.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.contenders import (
    PEERS,
    Marian,
    OneBatch,
    by_ctranslate2,
    decoding_products,
    our_steps,
    peer_steps,
    products_alone,
    real_tokens,
    without_cache,
)
from benchmarks.measuring import OURS, compared, interleave, matrices, measure, median_share
from transformer_lessons import decoding
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data.batches import Batches, TokenBatches
from transformer_lessons.data.corpus import in_chunks
from transformer_lessons.data.vocabulary import Vocabulary, pad
from transformer_lessons.export.huggingface import to_huggingface
from transformer_lessons.fast import accelerate, products
from transformer_lessons.fast.compiled import compile_decoding
from transformer_lessons.fast.decoding import beam, greedy
from transformer_lessons.fast.int8 import quantize
from transformer_lessons.model import Transformer
from transformer_lessons.tools.costs import BatchShape, training_operations
from transformer_lessons.trainer.evaluation import BATCH
from transformer_lessons.trainer.runs import new_trainer
from transformer_lessons.trainer.tasks import TASKS

PAIRS = 64  # per shuffled batch
LONGEST = 64  # tokens of a translated caption
ROUNDS = 9
ENGINE = "CTranslate2"
SIZES = {"d_model": 256, "num_heads": 8, "d_ff": 1024, "num_encoder_layers": 3, "num_decoder_layers": 3}
SMALL = TransformerConfig(8000, 8000, **SIZES, norm_first=True, shared_vocabulary=True)


def on_captions(rounds: int) -> dict:
    """Training on captions: ours on batches of similar length, the others on shuffled ones and on ours."""
    task = replace(TASKS["multi30k"], vocab_size=SMALL.target_vocab_size)
    pairs = task.pairs(*task.tokenisers(), task.training)
    tokens = round((pairs.sizes.sum() / len(pairs) + 1) * PAIRS)
    feeds = {"shuffled": Batches(pairs, PAIRS, seed=0), "like_lengths": TokenBatches(pairs, tokens, seed=0)}
    found = {}
    for feed, batches in feeds.items():
        steps = {OURS: our_steps(feeds["like_lengths"], SMALL)}
        steps |= {name: peer_steps(make(SMALL), batches) for name, make in PEERS.items()}
        found[f"peers_on_{feed}"] = compared(interleave(steps, rounds, 4))
    return found


def on_full_batches(config: TransformerConfig, rows: int, length: int, rounds: int, device: str) -> dict:
    """Training without padding: our speed and the others', and the shares of the machine's rate reached.

    Shares are those of a whole step and, on a CPU, of its products alone, which is the limit. On a GPU, eager
    Marian is left out, since the others are compiled.
    """
    batches, is_cpu = OneBatch(rows, length, config.target_vocab_size), device == "cpu"
    peers = {name: make for name, make in PEERS.items() if is_cpu or "eager" not in name}
    steps = {OURS: our_steps(batches, config, device=device)}
    steps |= {name: peer_steps(make(config), batches, device=device) for name, make in peers.items()}
    if is_cpu:
        # All products PyTorch's usual way, as on processors for which MKL is fast.
        steps["ours, by MKL"] = patch.object(products, "MKL_IS_SLOW", False)(our_steps(batches, config))
        steps["products"] = products_alone(batches.batch, config)
    steps["matrices"] = matrices() if is_cpu else matrices(8192, device=device, dtype=torch.bfloat16)
    speeds = interleave(steps, rounds, 2 if is_cpu else 10)
    rates, tokens = speeds.pop("matrices"), real_tokens(batches.batch)
    # A causal kernel skips half of the scores but is credited with all of them, as is usual.
    flops = training_operations(config, BatchShape(rows, length, length)) / tokens
    shares = {"step": median_share(speeds[OURS], flops, rates)}
    shares |= {"products_alone": median_share(speeds.pop("products"), flops, rates)} if is_cpu else {}
    return {**compared(speeds), "share_of_matmul_rate": shares}


def measure_decoding(config: TransformerConfig, rows: int, length: int, rounds: int, device: str) -> dict:
    """Greedy decoding of `rows` sentences of `length` tokens; the end mark is never the likeliest.

    On a GPU, weights are in bfloat16, and CTranslate2 is left out, as its wheel is for CPUs here.
    """
    draw = torch.Generator().manual_seed(0)
    src = torch.randint(3, config.target_vocab_size, (rows, 20), generator=draw).to(device)
    models = accelerate(Transformer(config)), Marian("sdpa", config).model
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    own, other = (model.to(device, dtype).eval() for model in models)
    own.output.weight.data[own.config.eos_id] = 0.0

    def translate_all(translate: Callable[[], Tensor | list[list[int]]]) -> int:
        tokens = torch.as_tensor(translate())
        assert tokens.shape == (rows, length), tokens.shape
        return tokens.numel()

    ways = {
        OURS: partial(greedy, own, src, max_length=length),
        "Marian, cached": partial(by_marian, other, src, min_new_tokens=length, max_new_tokens=length),
        "ours, without a cache": partial(without_cache, own, src, max_length=length),
    }
    if device != "cpu":
        ways["ours, not replayed"] = partial(decoding.greedy, own, src, max_length=length)
    else:
        ways["ours, compiled"] = partial(greedy, compile_decoding(deepcopy(own)), src, max_length=length)
        ways["ours, int8"] = partial(greedy, quantize(deepcopy(own)), src, max_length=length)
        kinds = {"": {}, ", one thread": {"intra_threads": 1}, ", int8": {"compute_type": "int8"}}
        for name, how in kinds.items():
            engine = by_ctranslate2(own, **how)
            ways[ENGINE + name] = partial(engine, src.tolist(), beam_size=1, max_decoding_length=length)
    contenders = {name: partial(translate_all, translate) for name, translate in ways.items()}
    if device == "cpu":
        contenders["ours, products alone"] = decoding_products(own, rows, length)
    return compared(interleave(contenders, rounds, 1))


def by_marian(model: nn.Module, src: Tensor, **how: float) -> Tensor:
    """Marian's translations by its own search, with a cache, without the start mark."""
    return model.generate(src, attention_mask=(src != 0).long(), do_sample=False, **how)[:, 1:]


@cache
def caption_model() -> tuple[Transformer, list[list[int]]]:
    """A model trained on captions, whose sentences end where they should, and the test set's ids."""
    task = TASKS["multi30k"]
    tokenisers = task.tokenisers()
    trainer = new_trainer(task, tokenisers, task.sizes, task.training, torch.device("cpu"))
    trainer.run()
    pairs = task.evaluation_pairs(task.files("test"))
    return trainer.model.eval(), [tokenisers[0].encode(english) for english, _ in pairs]


def sentences(beam_size: int, rounds: int) -> dict:
    """Captions of the test set per second, each as long as the model makes it, at most 64 tokens.

    They are sorted by length into batches, as by `lessons translate`; all three programs use the same weights.
    """
    model, captions = caption_model()
    batches = [*in_chunks(sorted(captions, key=len), BATCH)]
    search = greedy if beam_size == 1 else partial(beam, beam_size=beam_size)
    alike = {} if beam_size == 1 else {"length_penalty": 0.6}
    for_marian = {"num_beams": beam_size, "max_length": LONGEST + 1, **alike}  # with the start mark
    for_engine = {"beam_size": beam_size, "max_decoding_length": LONGEST, "patience": 2, **alike}

    def translate_all(translate: Callable[[list[list[int]]], Tensor | list[list[int]]]) -> int:
        assert sum(map(len, map(translate, batches))) == len(captions)
        return len(captions)

    def padded(translate: Callable[..., Tensor], model: nn.Module, **how: float) -> Callable:
        return lambda batch: translate(model, pad(batch, Vocabulary.pad_id), **how)

    ways = {
        OURS: padded(search, model, max_length=LONGEST),
        "ours, compiled": padded(search, compile_decoding(deepcopy(model)), max_length=LONGEST),
        "Marian, cached": padded(by_marian, to_huggingface(model), **for_marian),
        ENGINE: partial(by_ctranslate2(model), **for_engine),
    }
    steps = {name: partial(translate_all, translate) for name, translate in ways.items()}
    return compared(interleave(steps, rounds, 1))


if __name__ == "__main__":
    full = partial(on_full_batches, rounds=ROUNDS, device="cpu")
    decode = partial(measure_decoding, rounds=ROUNDS, device="cpu")
    parts = {
        "training on captions": partial(on_captions, ROUNDS),
        "training, 32 sentences of 32": partial(full, SMALL, 32, 32),
        "training, 1 sentence of 1024": partial(full, SMALL, 1, 1024),
        "greedy, 64 sentences of 50": partial(decode, SMALL, 64, 50),
        "greedy, 1 sentence of 50": partial(decode, SMALL, 1, 50),
        "the 1000 captions, greedy": partial(sentences, 1, ROUNDS),
        "the 1000 captions, beam of 4": partial(sentences, 4, ROUNDS),
    }
    packages, threads = ("transformers", "ctranslate2", "x-transformers"), torch.get_num_threads()
    name = "peers_amd" if products.MKL_IS_SLOW else "peers"
    measure(name, __doc__, parts, "cpu", packages, threads=threads, rounds=ROUNDS)
