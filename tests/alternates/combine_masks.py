"""Masks combined in other words."""

from functools import reduce

import torch


def refuse(masks):
    for mask in masks:
        if mask.dtype != torch.bool:
            raise ValueError(f"masks of booleans are expected, not of {mask.dtype}")
    try:
        return torch.broadcast_shapes(*(mask.shape for mask in masks))
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def reduced(*masks):
    masks = [mask for mask in masks if mask is not None]
    refuse(masks)
    return reduce(torch.logical_and, masks) if masks else None


def stacked(*masks):
    masks = list(filter(lambda mask: mask is not None, masks))
    if not masks:
        return None
    shape = refuse(masks)
    return torch.stack([mask.expand(shape) for mask in masks]).all(0)


def none_hidden(*masks):
    """By de Morgan: hidden if any hides."""
    masks = [mask for mask in masks if mask is not None]
    shape = refuse(masks)
    if not masks:
        return None
    hidden = torch.zeros(shape, dtype=torch.bool)
    for mask in masks:
        hidden |= ~mask
    return hidden.logical_not()


def multiplied(*masks):
    product = None
    for mask in masks:
        if mask is None:
            continue
        refuse([mask] if product is None else [mask, product])
        product = mask.clone() if product is None else mask * product
    return product


ALTERNATES = [reduced, stacked, none_hidden, multiplied]
