"""Beside other implementations: ``python -m benchmarks.peers`` (a quarter of an hour on two CPU cores).

Models of the same sizes train on the same captions, translate the same sentences, and are held against the rate
at which this machine multiplies matrices. It needs the captions, and ``pip install transformers x-transformers``.
Contenders take turns, a few steps each, and what counts is the median of the ratios of all rounds: whatever else
the machine does meets all of them. Speeds are in tokens that are not padding, a second.

Writes ``transformer_lessons/records/peers.json``.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, count
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from transformer_lessons import costs
from transformer_lessons.attention import fused_attention, scaled_dot_product_attention
from transformer_lessons.data import multi30k
from transformer_lessons.data.batches import Batch, Batches, TokenBatches
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.decoding import greedy
from transformer_lessons.encodings import sinusoidal
from transformer_lessons.files import read_json, write_json
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.runs import versions
from transformer_lessons.training import Trainer, TrainingConfig
from transformer_lessons.training_loss import batch_loss

RECORD = Path(__file__).parent.parent / "transformer_lessons" / "records" / "peers.json"
DROPOUT, SMOOTHING, CLIP = 0.1, 0.1, 1.0
PAIRS = 64  # in a shuffled batch
OURS, ALONE, COMPILED = "ours", "ours, forward and backward", "ours, compiled"
ROUNDS, STEPS = 9, 4


@dataclass(frozen=True)
class Sizes:
    """Of all contenders alike."""

    vocabulary: int = 8000
    d_model: int = 256
    num_heads: int = 8
    d_ff: int = 1024
    layers: int = 3
    longest: int = 1024


SMALL = Sizes()


# --- The contenders: modules from source and target so far to logits


def ours(sizes: Sizes) -> Transformer:
    """The package's model, pre-norm."""
    widths = {"d_model": sizes.d_model, "num_heads": sizes.num_heads, "d_ff": sizes.d_ff}
    layers = {"num_encoder_layers": sizes.layers, "num_decoder_layers": sizes.layers}
    other = {"max_length": sizes.longest, "dropout": DROPOUT, "norm_first": True, "shared_vocabulary": True}
    return Transformer(TransformerConfig(sizes.vocabulary, sizes.vocabulary, **widths, **layers, **other))


class PyTorch(nn.Module):
    """`torch.nn.Transformer` with what it lacks: embeddings, positions, a tied projection."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.d_model)
        self.register_buffer("positions", sinusoidal(sizes.longest, sizes.d_model), persistent=False)
        layers = sizes.layers, sizes.layers
        self.transformer = nn.Transformer(
            sizes.d_model, sizes.num_heads, *layers, sizes.d_ff, DROPOUT, batch_first=True
        )

    def _embed(self, ids: Tensor) -> Tensor:
        scaled = self.embedding(ids) * self.embedding.embedding_dim**0.5
        return F.dropout(scaled + self.positions[: ids.size(1)], DROPOUT)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits, as `Transformer` gives them."""
        hidden = src == 0
        later = nn.Transformer.generate_square_subsequent_mask(tgt_in.size(1), device=src.device)
        padding = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
        y = self.transformer(
            self._embed(src), self._embed(tgt_in), tgt_mask=later, tgt_is_causal=True, **padding
        )
        return y @ self.embedding.weight.T


def marian(attention: str, sizes: Sizes) -> nn.Module:
    """The translation model of Hugging Face's transformers."""
    from transformers import MarianConfig, MarianMTModel

    class Marian(MarianMTModel):
        def forward(self, src=None, tgt_in=None, **other):
            if src is None:  # called by its own `generate`
                return super().forward(**other)
            return super().forward(input_ids=src, attention_mask=src != 0, decoder_input_ids=tgt_in).logits

    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (
            ("layers", sizes.layers),
            ("attention_heads", sizes.num_heads),
            ("ffn_dim", sizes.d_ff),
        )
    }
    config = MarianConfig(
        vocab_size=sizes.vocabulary,
        d_model=sizes.d_model,
        max_position_embeddings=sizes.longest,
        dropout=DROPOUT,
        activation_function="relu",
        scale_embedding=True,
        attn_implementation=attention,
        **sides,
        **{"pad_token_id": 0, "decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2},
        forced_eos_token_id=None,
    )
    return Marian(config)


class XTransformers(nn.Module):
    """The encoder-decoder of x-transformers, with fused attention."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        from x_transformers import XTransformer

        side = {
            "num_tokens": sizes.vocabulary,
            "depth": sizes.layers,
            "heads": sizes.num_heads,
            "attn_dim_head": sizes.d_model // sizes.num_heads,
            "max_seq_len": sizes.longest,
            "attn_flash": True,
            "ff_dropout": DROPOUT,
            "emb_dropout": DROPOUT,
        }
        sides = {f"{name}_{key}": value for name in ("enc", "dec") for key, value in side.items()}
        self.model = XTransformer(dim=sizes.d_model, tie_token_emb=True, **sides)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits, as `Transformer` gives them."""
        shown = src != 0
        memory = self.model.encoder(src, mask=shown, return_embeddings=True)
        return self.model.decoder.net(tgt_in, context=memory, context_mask=shown)


PEERS: dict[str, Callable[[Sizes], nn.Module]] = {
    "torch.nn.Transformer": PyTorch,
    "Marian, SDPA": partial(marian, "sdpa"),
    "Marian, eager": partial(marian, "eager"),
    "x-transformers": XTransformers,
}


# --- Training


def peer_steps(
    model: nn.Module, batches: Batches | TokenBatches, *, device: str = "cpu", on_gpu: bool = False
) -> Callable[[], int]:
    """One training step as its users write it; returns the number of tokens that are not padding.

    On a GPU that is with `torch.compile`, in bfloat16, and with the fused optimiser.
    """
    optimizer = torch.optim.AdamW(model.to(device).parameters(), lr=1e-4, fused=on_gpu)
    logits_of = torch.compile(model) if on_gpu else model
    numbers = count()

    def step() -> int:
        batch = batches[next(numbers)].to(device)
        model.train()
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=on_gpu):
            logits = logits_of(batch.src, batch.tgt_in)
            loss = F.cross_entropy(
                logits.flatten(0, 1), batch.tgt_out.flatten(), ignore_index=0, label_smoothing=SMOOTHING
            )
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return real_tokens(batch)

    return step


def our_steps(
    batches: Batches | TokenBatches, sizes: Sizes, *, device: str = "cpu", on_gpu: bool = False
) -> Callable[[], int]:
    """One training step of the package's own trainer, on a GPU in the same way as the others."""
    options = {"compile": on_gpu, "precision": "bfloat16" if on_gpu else "float32"}
    config = TrainingConfig(
        steps=10**6, smoothing=SMOOTHING, clip_norm=CLIP, peak_learning_rate=1e-4, **options
    )
    trainer = Trainer(ours(sizes), batches, config, device=torch.device(device))

    def step() -> int:
        tokens = real_tokens(batches[trainer.step])
        trainer.train_step()
        return tokens

    return step


def real_tokens(batch: Batch) -> int:
    """Of both sides."""
    return int((batch.src != 0).sum() + (batch.tgt_out != 0).sum())


class Same(Batches):
    """The same full batch again and again: nothing is padding."""

    def __init__(self, rows: int, length: int, vocabulary: int = SMALL.vocabulary):
        draw = torch.Generator().manual_seed(0)
        ids = torch.randint(3, vocabulary, (3, rows, length), generator=draw)
        self.batch = Batch(*ids)

    def __getitem__(self, step: int) -> Batch:
        return self.batch


# --- Memory


def peak_bytes(work: Callable[[], object]) -> int:
    """The most that is allocated at one time during work(), beyond what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        work()
    events = (event for event in watched.profiler.kineto_results.events() if event.name() == "[memory]")
    return max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


def attention_memory(length: int = 4096) -> dict:
    """Causal attention, forward and backward, of one sentence: step by step, and fused."""
    shape = 1, SMALL.num_heads, length, SMALL.d_model // SMALL.num_heads
    query, key, value = (torch.randn(shape, requires_grad=True) for _ in range(3))

    def step_by_step(dropout: float) -> None:
        output = scaled_dot_product_attention(query, key, value, is_causal=True, dropout=dropout)[0]
        torch.autograd.grad(output.sum(), (query, key, value))

    def fused(dropout: float) -> None:
        output = fused_attention(query, key, value, is_causal=True, dropout=dropout)
        torch.autograd.grad(output.sum(), (query, key, value))

    found = {}
    for name, dropout in (("without dropout", 0.0), ("with dropout", DROPOUT)):
        most, least = (peak_bytes(partial(work, dropout)) for work in (step_by_step, fused))
        found[name] = {"step_by_step": most, "fused": least, "share": round(least / most, 4)}
    return found


# --- Measuring


def in_turns(contenders: dict[str, Callable[[], int]], rounds: int, steps: int) -> dict[str, list[float]]:
    """The speed of each in each round, after one round that does not count."""
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in tqdm(range(rounds + 1), unit="round", leave=False, disable=None):
        for name, step in contenders.items():
            started = time.perf_counter()
            tokens = sum(step() for _ in range(steps))
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()  # what was launched has to be done
            if number:
                speeds[name].append(tokens / (time.perf_counter() - started))
    return speeds


def compared(speeds: dict[str, list[float]]) -> dict:
    """Each one's median speed, and by how much ours is faster: the median of the rounds' ratios."""
    medians = {name: round(statistics.median(found)) for name, found in speeds.items()}
    return {"tokens_per_second": medians, "ours_is_faster": ratios(speeds, OURS)}


def ratios(speeds: dict[str, list[float]], base: str) -> dict[str, float]:
    """By how much `base` is faster than each of the others."""
    of = speeds[base]
    return {
        name: round(statistics.median(a / b for a, b in zip(of, other, strict=True)), 3)
        for name, other in speeds.items()
        if name != base
    }


def matmul_rate(size: int = 1024, repeats: int = 5, **kind: object) -> float:
    """Floating-point operations a second in products of square matrices, the best of a few."""
    a, b = torch.randn(size, size, **kind), torch.randn(size, size, **kind)
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        a @ b
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def captions() -> list[tuple[list[int], list[int]]]:
    """All training pairs in subwords of a vocabulary that both languages share."""
    pairs = multi30k.sentences("train")
    subwords = Subwords.train((text for pair in pairs for text in pair), SMALL.vocabulary)
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

    A whole step, and forward and backward alone, without dropout: what products of matrices are held against.
    """
    batches = Same(rows, length)
    contenders = {OURS: our_steps(batches, SMALL)}
    contenders |= {name: peer_steps(make(SMALL), batches) for name, make in PEERS.items()}
    rates: list[float] = []

    def matrices() -> int:
        rates.append(matmul_rate())
        return 0

    other = {ALONE: forward_and_backward(batches.batch), "matrices": matrices}
    speeds = in_turns({**contenders, **other}, rounds, steps)
    del speeds["matrices"]
    flops = step_flops(batches.batch, SMALL) / real_tokens(batches.batch)
    per_round = [max(rates[steps * (n + 1) : steps * (n + 2)]) for n in range(rounds)]

    def share(found: list[float]) -> float:
        reached = [flops * speed / rate for speed, rate in zip(found, per_round, strict=True)]
        return round(statistics.median(reached), 3)

    shares = {"step": share(speeds[OURS]), "forward_and_backward": share(speeds.pop(ALONE))}
    return {
        **compared(speeds),
        "share_of_matmul_rate": shares,
        "matmul_rate": round(statistics.median(per_round)),
    }


def forward_and_backward(batch: Batch) -> Callable[[], int]:
    """Of our model, in evaluation mode: no dropout, no optimiser."""
    model = ours(SMALL).eval()

    def step() -> int:
        model.zero_grad()
        batch_loss(model, batch, SMOOTHING)[0].backward()
        return real_tokens(batch)

    return step


def step_flops(batch: Batch, sizes: Sizes) -> int:
    """Operations of our forward and backward pass where nothing is padding, by the formulas of `costs`.

    A causal kernel leaves out the later half of the scores, and is given the whole of them here, as is usual.
    """
    return costs.training_operations(
        ours(sizes).config, costs.BatchShape(*batch.src.shape, batch.tgt_in.size(1))
    )


def translating(rows: int, length: int, rounds: int, *, sizes: Sizes = SMALL, device: str = "cpu") -> dict:
    """Greedy decoding of as many sentences and tokens; the end mark is never the likeliest."""
    draw = torch.Generator().manual_seed(0)
    src = torch.randint(3, sizes.vocabulary, (rows, 20), generator=draw).to(device)
    own, other = (model.to(device).eval() for model in (ours(sizes), marian("sdpa", sizes)))
    own.output.weight.data[own.config.eos_id] = 0.0

    def by_ours(**options: bool) -> int:
        said = greedy(own, src, max_length=length, **options)
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
        OURS: by_ours,
        COMPILED: partial(by_ours, compiled=True),
        "Marian, cached": by_marian,
        "ours, without a cache": partial(by_ours, use_cache=False),
        "its products alone": products_alone(own, rows, length),
    }
    speeds = in_turns(contenders, rounds, 1)
    return {**compared(speeds), "compiled_is_faster": ratios(speeds, COMPILED)}


def products_alone(model: Transformer, rows: int, length: int) -> Callable[[], int]:
    """The limit: in each step each row meets every matrix of the decoder, and nothing else is done.

    Left out are W_k and W_v of the encoder's output, which are needed once, and all of attention.
    """
    known = {f"cross_attention.W_{letter}" for letter in "kv"}
    weights = [
        module.weight
        for name, module in [*model.decoder_layers.named_modules(), ("output", model.output)]
        if isinstance(module, nn.Linear) and name.partition(".")[2] not in known
    ]
    vectors = {w.size(1): torch.randn(rows, 1, w.size(1), device=w.device) for w in weights}

    @torch.no_grad()
    def multiply() -> int:
        for _ in range(length):
            for weight in weights:
                F.linear(vectors[weight.size(1)], weight)
        return rows * length

    return multiply


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
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    import transformers
    import x_transformers  # noqa: F401

    made_with = {
        **versions(torch.device("cpu")),
        "threads": torch.get_num_threads(),
        "transformers": transformers.__version__,
        "rounds": options.rounds,
    }
    record = {
        **(read_json(RECORD) if options.only else {}),
        "made_with": made_with,
        "settings": asdict(SMALL),
    }
    for name, measure in parts(options.rounds).items():
        if options.only in name:
            record[name] = measure()
            print(name, record[name], file=sys.stderr, flush=True)
    write_json(RECORD, record)


if __name__ == "__main__":
    main()
