"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), as the book builds it up.

Section and equation numbers in the docstrings (§3.2.1, equation 1) are the paper's. Read the modules in the
order of their floors, each importing only lower ones: `config`, `masks`, `cache`, `schedule`; `encodings`,
`embeddings`, `norms`, `feed_forward`, `attention`, `losses`; `layers`; `model`; `decoding`, `training`.
"""

__version__ = "0.1.0"
