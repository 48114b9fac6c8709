"""Limited lengths in other words."""


def refuse(too_long, max_length):
    if too_long not in {"refuse", "truncate"} or max_length < 1:
        raise ValueError(f"too_long={too_long!r}, max_length={max_length}")


def in_one_pass(sentences, max_length, *, too_long="refuse"):
    refuse(too_long, max_length)
    kept, cut = [], []
    for number, ids in enumerate(sentences):
        if len(ids) <= max_length:
            kept.append(ids)
            continue
        if too_long == "refuse":
            raise ValueError(f"sentence {number} has {len(ids)} ids")
        cut.append(number)
        shorter = ids[:max_length]
        if ids[-1] == 2:
            shorter[-1] = 2
        kept.append(shorter)
    return kept, cut


def from_lengths(sentences, max_length, too_long="refuse"):
    refuse(too_long, max_length)
    excess = [max(0, len(ids) - max_length) for ids in sentences]
    cut = [number for number, extra in enumerate(excess) if extra]
    if cut and too_long != "truncate":
        raise ValueError(f"too long: {cut}")
    return [
        ids[: len(ids) - extra - 1] + (ids[-1:] if ids[-1] == 2 else ids[max_length - 1 : max_length])
        if extra
        else ids
        for ids, extra in zip(sentences, excess, strict=True)
    ], cut


def popping(sentences, max_length, *, too_long="refuse"):
    """Drops the id before the end mark, or the last one, until the rest fits."""
    refuse(too_long, max_length)
    cut = {number for number in range(len(sentences)) if len(sentences[number]) > max_length}
    if cut and too_long == "refuse":
        raise ValueError(f"{len(cut)} sentences are too long")
    kept = [list(ids) for ids in sentences]
    for ids in kept:
        last = -2 if ids and ids[-1] == 2 else -1
        while len(ids) > max_length:
            del ids[last]
    return tuple(kept), tuple(sorted(cut))


ALTERNATES = [in_one_pass, from_lengths, popping]
