"""Decoder input and target in other words."""

import itertools

import torch
from torch.nn.utils.rnn import pad_sequence


def refuse(targets, bos_id, eos_id, pad_id):
    if not targets or pad_id in (bos_id, eos_id):
        raise ValueError("targets, pad_id")


def with_pad_sequence(targets, bos_id, eos_id, pad_id):
    refuse(targets, bos_id, eos_id, pad_id)
    reads = [torch.tensor([bos_id, *y]) for y in targets]
    says = [torch.tensor([*y, eos_id]) for y in targets]
    return tuple(pad_sequence(side, batch_first=True, padding_value=pad_id) for side in (reads, says))


def filled_in(targets, bos_id, eos_id, pad_id):
    refuse(targets, bos_id, eos_id, pad_id)
    shape = len(targets), max(len(y) for y in targets) + 1
    tgt_in, tgt_out = torch.full(shape, pad_id), torch.full(shape, pad_id)
    tgt_in[:, 0] = bos_id
    for row, y in enumerate(targets):
        ids = torch.tensor(y, dtype=torch.long)
        tgt_in[row, 1 : len(y) + 1] = ids
        tgt_out[row, : len(y)] = ids
        tgt_out[row, len(y)] = eos_id
    return tgt_in, tgt_out


def columns_by_zip(targets, bos_id, eos_id, pad_id):
    """Columns first, then turned."""
    refuse(targets, bos_id, eos_id, pad_id)
    sides = ([(bos_id, *y) for y in targets], [(*y, eos_id) for y in targets])
    return tuple(torch.tensor(list(itertools.zip_longest(*side, fillvalue=pad_id))).T for side in sides)


def one_whole_row(targets, bos_id, eos_id, pad_id):
    """[bos, y, eos] padded, cut on both sides; the end marks left in the input are painted over."""
    refuse(targets, bos_id, eos_id, pad_id)
    rows = [torch.tensor([bos_id, *y, eos_id]) for y in targets]
    whole = pad_sequence(rows, batch_first=True, padding_value=pad_id)
    tgt_out = whole[:, 1:]
    return whole[:, :-1].masked_fill(tgt_out == pad_id, pad_id), tgt_out


ALTERNATES = [with_pad_sequence, filled_in, columns_by_zip, one_whole_row]
