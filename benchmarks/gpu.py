"""On one GPU: ``python -m benchmarks.gpu`` (ten minutes at most).

Training beside the other implementations of `benchmarks.peers`, all compiled, in bfloat16 and with the fused
optimiser, and held against the rate at which the card multiplies matrices in the same run; a larger model of
ours; greedy decoding beside Marian's. It needs ``pip install transformers x-transformers``.

Writes ``transformer_lessons/records/gpu.json`` after every part. What the ten minutes leave no time for is not
begun, and the record says so; no GPU, no record.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from benchmarks.peers import (
    OURS,
    PEERS,
    Same,
    Sizes,
    compared,
    in_turns,
    matmul_rate,
    our_steps,
    peer_steps,
    real_tokens,
    step_flops,
    translating,
)
from transformer_lessons.files import write_json
from transformer_lessons.runs import versions

RECORD = Path(__file__).parent.parent / "transformer_lessons" / "records" / "gpu.json"
BASE = Sizes(vocabulary=32_000, d_model=512, num_heads=8, d_ff=2048, layers=6)
WIDE = Sizes(vocabulary=32_000, d_model=1024, num_heads=16, d_ff=4096, layers=6)
ROUNDS, STEPS = 5, 10
SECONDS = 540  # no part is begun that would probably not end within ten minutes
COSTS = {
    "training, base": 300,
    "training, wide": 90,
    "greedy, 64 sentences of 50": 60,
    "greedy, 1 sentence of 50": 40,
}


def training(sizes: Sizes, rows: int, length: int, names: list[str], device: str, rounds: int) -> dict:
    """Ours and the peers of these names on full batches, and the share of the card's rate that ours reaches."""
    batches = Same(rows, length, sizes.vocabulary)
    how = {"device": device, "on_gpu": device == "cuda"}
    contenders = {OURS: our_steps(batches, sizes, **how)}
    contenders |= {name: peer_steps(PEERS[name](sizes), batches, **how) for name in names}
    rates: list[float] = []

    def matrices() -> int:
        size, dtype = (8192, torch.bfloat16) if how["on_gpu"] else (256, torch.float32)
        rates.append(matmul_rate(size, device=device, dtype=dtype))
        return 0

    speeds = in_turns({**contenders, "matrices": matrices}, rounds, STEPS)
    del speeds["matrices"]
    flops = step_flops(batches.batch, sizes) / real_tokens(batches.batch)
    best = [max(rates[STEPS * (n + 1) : STEPS * (n + 2)]) for n in range(rounds)]
    shares = [flops * speed / rate for speed, rate in zip(speeds[OURS], best, strict=True)]
    return {
        **compared(speeds),
        "settings": {**asdict(sizes), "rows": rows, "length": length},
        "share_of_matmul_rate": round(statistics.median(shares), 3),
        "matmul_rate": round(statistics.median(best)),
    }


def parts(device: str, rounds: int) -> dict[str, Callable[[], dict]]:
    """What is measured, in order; eager Marian is no peer of compiled models."""
    names = [name for name in PEERS if "eager" not in name]
    decode = partial(translating, sizes=BASE, device=device)
    return {
        "training, base": partial(training, BASE, 200, 128, names, device, rounds),
        "training, wide": partial(training, WIDE, 100, 128, [], device, rounds),
        "greedy, 64 sentences of 50": partial(decode, 64, 50, rounds),
        "greedy, 1 sentence of 50": partial(decode, 1, 50, rounds),
    }


def measure_all(named: dict[str, Callable[[], dict]], record: dict, path: Path, seconds: float) -> None:
    """Each part as long as there is time, and the record after each."""
    started = time.monotonic()
    for name, measure in named.items():
        if time.monotonic() - started + COSTS[name] > seconds:
            record[name] = "not measured: no time was left"
        else:
            began = time.monotonic()
            record[name] = {**measure(), "seconds": round(time.monotonic() - began)}
        print(name, record[name], file=sys.stderr, flush=True)
        write_json(path, record)


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
    measure_all(parts("cuda", options.rounds), {"made_with": made_with}, RECORD, SECONDS)


if __name__ == "__main__":
    main()
