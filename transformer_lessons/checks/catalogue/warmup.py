"""The paper's learning rate. Width 1 hides d_model."""

from transformer_lessons.checks.definitions import Call, Draw, Task, calls
from transformer_lessons.schedule import warmup_inverse_sqrt


def rise(draw: Draw) -> list[Call]:
    """Steps within the warm-up, its last one among them."""
    return calls((1, 1, 9), (int(draw.integers(2, 16, 1)), 1, 16), (7, 1, 7), (40, 1, 4000))


def fall(draw: Draw) -> list[Call]:
    """Steps after the warm-up, also after one of a single step."""
    return calls((10, 1, 9), (int(draw.integers(20, 90, 1)), 1, 16), (3, 1, 1), (100_003, 1, 4000))


def compare(args: tuple, other: tuple, factor: float = 1.0) -> Call:
    """Whether `factor` times the rate is the rate of other arguments; a rate of 0 equals nothing."""
    times, once = (lambda rate, n=n: n * rate or object() for n in (factor, 1.0))
    return Call(args, view=times, same_as=other, view_as=once)


TASK = Task(
    name="warmup",
    solution=[warmup_inverse_sqrt],
    probes={
        "rise": (rise, calls((1, 1, 4), (2, 1, 4), (4, 1, 4), (40, 1, 4000))),
        "fall": (fall, calls((16, 1, 4), (100, 1, 4))),
        "width": (
            [compare((s, d, w), (s, 1, w), d**0.5) for s, d, w in ((1, 512, 1), (2, 9, 4), (50, 16, 7))],
            calls((1, 4, 1), (1, 4, 4), (16, 4, 4)),
        ),
        "zero": ([compare((0, *x), (1, *x)) for x in ((1, 1), (4, 9))], calls((0, 1, 1), (0, 4, 9))),
    },
)
