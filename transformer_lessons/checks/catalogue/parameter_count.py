"""How many parameters a Transformer has, of any sizes. The paper's own sizes hide what depends on d_k."""

from collections.abc import Callable, Iterator

from transformer_lessons.checks.definitions import Call, Remark, Requirement, Task, draws

BASE, BIG = (37_000, 512, 2_048, 6, 8, 64), (37_000, 1_024, 4_096, 6, 16, 64)
ODD, WIDE = (11, 6, 5, 3, 2, 3), (11, 6, 7, 2, 3, 5)  # heads as wide as the stream, and wider


def parameter_count(
    vocab_size, d_model, d_ff, num_layers, num_heads, d_k, *, tied="all", norm_first=False, share_layers=False
):
    """The number of parameters of an encoder-decoder of these sizes."""

    def linear(before, after):
        return (before + 1) * after

    inner, norm = num_heads * d_k, 2 * d_model
    attention = 3 * linear(d_model, inner) + linear(inner, d_model)
    network = linear(d_model, d_ff) + linear(d_ff, d_model)
    encoder_layer = attention + network + 2 * norm
    decoder_layer = 2 * attention + network + 3 * norm
    layers = (1 if share_layers else num_layers) * (encoder_layer + decoder_layer)
    matrices = {"all": 1, "output": 2, "none": 3}[tied]
    return layers + matrices * vocab_size * d_model + (2 * norm if norm_first else 0)


def calls(*sizes: tuple[int, ...], **options) -> list[Call]:
    """A call for each of these."""
    return [Call(size, options) for size in sizes]


def small(**options) -> Callable[[], Iterator[Call]]:
    """One layer of two or three features."""
    sizes = (3, 2, 5, 1, 1, 2), (3, 2, 5, 1, 2, 1), (3, 2, 5, 1, 1, 3), (3, 2, 5, 2, 1, 2)
    return lambda: iter(calls(*sizes, **options))


def small_tying() -> Iterator[Call]:
    """Both other words."""
    return iter([*calls((3, 2, 5, 1, 1, 2), tied="output"), *calls((3, 2, 5, 1, 1, 2), tied="none")])


TASK = Task(
    name="parameter_count",
    right=[parameter_count],
    arguments=("vocab_size", "d_model", "d_ff", "num_layers", "num_heads", "d_k"),
    requirements=(
        Requirement(
            "layers",
            "layers have attentions, feed-forward networks and norms, with biases: the paper's two models have "
            "63,082,496 and 214,245,376 parameters",
            points=1.5,
            calls=draws(*calls(BASE, BIG, ODD)),
            small=small(),
            anchor="parameters",
        ),
        Requirement(
            "d_k",
            "h·d_k may be another number than d_model",
            points=1,
            calls=draws(*calls(WIDE, (11, 6, 7, 2, 2, 2), (11, 6, 7, 2, 1, 6))),
            small=lambda: iter(calls((3, 2, 5, 1, 1, 3), (3, 2, 5, 1, 2, 2))),
            anchor="model-table-3",
        ),
        Requirement(
            "tying",
            'there are one, two or three matrices of the vocabulary with tied="all", "output" or "none"',
            points=0.5,
            calls=draws(*calls(ODD, tied="output"), *calls(ODD, tied="none")),
            small=small_tying,
            anchor="tying",
            needs="layers",
        ),
        Requirement(
            "norm_first",
            "with norm_first there is one norm more behind the encoder and one behind the decoder",
            points=0.5,
            calls=draws(*calls(ODD, norm_first=True), *calls(BASE, norm_first=True)),
            small=small(norm_first=True),
            anchor="parameters",
            needs="layers",
        ),
        Requirement(
            "sharing",
            "with share_layers each stack is one layer, whatever num_layers says",
            points=0.5,
            calls=draws(*calls(ODD, share_layers=True), *calls(BASE, share_layers=True)),
            small=lambda: iter(calls((3, 2, 5, 2, 1, 2), share_layers=True)),
            anchor="parameters",
            needs="layers",
        ),
    ),
    remarks=(
        Remark(
            "it returns a float; a number of parameters is an int (// divides without making one).",
            Call((3, 2, 5, 1, 1, 2), view=lambda number: type(number).__name__),
        ),
    ),
)
