"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), as the book builds it up.

The modules here are what the chapters build, word for word. Numbers in their docstrings (§3.2.1, equation 1)
are the paper's. Read them in this order: `masks`, `encodings`, `embeddings`, `attention`, `feed_forward`,
`norms`, `layers`, `model`, with `config` beside it; then `losses`, `schedule`, `training`, `decoding`.

Everything else is in subpackages: `variants`, `fast`, `data`, `trainer`, `export`, `checks`, `oracles`,
`records`, `tools`.
"""

import os
import sys

__version__ = "0.1.0"

# On Linux, torch's threads (GNU OpenMP) spin for milliseconds while they wait; on a busy machine everything
# then takes several times as long. Spinning 4,000 times, a fifth of a millisecond, costs nothing on an idle
# machine: see `benchmarks.busy`. OpenMP reads the variable when it is loaded, together with torch.
if sys.platform == "linux" and not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
    os.environ["GOMP_SPINCOUNT"] = "4000"
    if "torch" in sys.modules:
        import logging  # a log line: no warnings filter can turn it into an error

        logging.getLogger(__name__).warning(
            "torch was imported before transformer_lessons, so its threads spin while they wait, "
            "which on a busy machine is slow: import transformer_lessons first, or set GOMP_SPINCOUNT=4000"
        )
