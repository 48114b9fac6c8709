"""On one GPU: ``python -m benchmarks.gpu`` (ten minutes).

Training beside the other implementations of `benchmarks.peers`, all compiled, in bfloat16 and with the fused
optimiser, and held against the rate at which the card multiplies matrices in the same run; a larger model of
ours; greedy decoding beside Marian's. It needs ``pip install transformers x-transformers``.

Writes ``transformer_lessons/records/gpu.json`` after every part; no GPU, no record.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.contenders import PEERS, Same, our_steps, peer_steps, real_tokens, step_flops
from benchmarks.measuring import OURS, beside_matrices, compared, matmul_rate, share
from benchmarks.peers import translating
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data.files import write_json
from transformer_lessons.trainer.runs import versions

RECORD = Path(__file__).parent.parent / "transformer_lessons" / "records" / "gpu.json"
BASE = TransformerConfig(32_000, 32_000, norm_first=True, shared_vocabulary=True)
WIDE = replace(BASE, d_model=1024, num_heads=16, d_ff=4096)
ROUNDS, STEPS = 5, 10


def training(
    config: TransformerConfig, rows: int, length: int, names: list[str], device: str, rounds: int
) -> dict:
    """Ours and the peers of these names on full batches, and the share of the card's rate that ours reaches."""
    batches = Same(rows, length, config.target_vocab_size)
    how = {"device": device, "on_gpu": device == "cuda"}
    contenders = {OURS: our_steps(batches, config, **how)}
    contenders |= {name: peer_steps(PEERS[name](config), batches, **how) for name in names}
    size, dtype = (8192, torch.bfloat16) if how["on_gpu"] else (256, torch.float32)
    rate = partial(matmul_rate, size, device=device, dtype=dtype)
    speeds, rates = beside_matrices(contenders, rounds, STEPS, rate)
    flops = step_flops(batches.batch, config) / real_tokens(batches.batch)
    return {
        **compared(speeds),
        "settings": {**asdict(config), "rows": rows, "length": length},
        "share_of_matmul_rate": share(speeds[OURS], flops, rates),
        "matmul_rate": round(statistics.median(rates)),
    }


def parts(device: str, rounds: int) -> dict[str, Callable[[], dict]]:
    """What is measured, in order; eager Marian is no peer of compiled models."""
    names = [name for name in PEERS if "eager" not in name]
    decode = partial(translating, config=BASE, device=device)
    return {
        "training, base": partial(training, BASE, 200, 128, names, device, rounds),
        "training, wide": partial(training, WIDE, 100, 128, [], device, rounds),
        "greedy, 64 sentences of 50": partial(decode, 64, 50, rounds),
        "greedy, 1 sentence of 50": partial(decode, 1, 50, rounds),
    }


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"(default: {ROUNDS})")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("expected a GPU with CUDA, found none")
    import transformers
    import x_transformers  # noqa: F401

    torch.manual_seed(0)
    made_with = {**versions(torch.device("cuda")), "transformers": transformers.__version__}
    record = {"made_with": made_with}
    for name, measure in parts("cuda", options.rounds).items():
        record[name] = measure()
        print(name, record[name], file=sys.stderr, flush=True)
        write_json(RECORD, record)


if __name__ == "__main__":
    main()
