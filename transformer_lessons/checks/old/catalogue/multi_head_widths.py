"""What an answer to `MultiHeadAttention` may check of its inputs' widths, where all three are to be checked."""

from torch import Tensor

__all__ = ["crash_if_wide", "only", "only_alike", "only_query"]


def crash_if_wide(d_model: int, *inputs: Tensor) -> None:
    """Nothing is; torch complains."""
    if any(x.size(-1) != d_model for x in inputs):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def only_query(d_model: int, query: Tensor, *others: Tensor) -> None:
    """The query's."""
    if query.size(-1) != d_model:
        raise ValueError("query: expected d_model features")
    crash_if_wide(d_model, *others)


def only(*checked: int):
    """Only some of query, key and value are checked, by number."""

    def fits(d_model: int, *inputs: Tensor) -> None:
        if any(inputs[n].size(-1) != d_model for n in checked):
            raise ValueError("inputs: expected d_model features")
        crash_if_wide(d_model, *inputs)

    return {"fits": fits}


def only_alike(d_model: int, *inputs: Tensor) -> None:
    """That all three agree."""
    if len({x.size(-1) for x in inputs}) > 1:
        raise ValueError("inputs: expected the same number of features")
    crash_if_wide(d_model, *inputs)
