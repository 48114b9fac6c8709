"""What several modules demand of their arguments, and how they complain: name, expected, got."""

from torch import Tensor


def sizes(**given: int) -> None:
    """Refuse sizes that are not whole numbers from 1 on. A pitfall: True would pass for 1, so types are compared.

    Raises:
        ValueError: naming the first argument that is no size.
    """
    for name, size in given.items():
        if type(size) is not int or size < 1:
            raise ValueError(f"{name}: expected an integer, 1 or more, got {size!r}")


def probability(**given: float) -> None:
    """Refuse what is no probability of dropping. A pitfall: 1 would drop everything and divide by zero.

    Raises:
        ValueError: naming the first argument outside [0, 1).
    """
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise ValueError(f"{name}: expected 0 or more and below 1, got {value!r}")


def width(x: Tensor, d_model: int, *, name: str = "x", width_name: str = "d_model") -> None:
    """Refuse a tensor whose last axis is not `d_model` wide. A pitfall: an axis of one would broadcast.

    Raises:
        ValueError: naming tensor and width.
    """
    if x.shape[-1:] != (d_model,):
        raise ValueError(f"{name}: expected a last axis of {width_name} = {d_model}, got {tuple(x.shape)}")
