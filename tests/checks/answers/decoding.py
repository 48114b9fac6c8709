"""Greedy decoding, beam search, sampling, BLEU, and a cache."""

import math
from collections import Counter

import torch
import torch.nn.functional as F

from transformer_lessons.decoding import evaluating
from transformer_lessons.masks import padding_mask


def by_parts(model, src, *, max_length):
    """The form of the Annotated Transformer: encode once, decode all tokens so far."""
    src_mask = padding_mask(src, model.config.pad_id)
    with evaluating(model):
        memory = model.encode(src, src_mask)
        ys = torch.full((src.shape[0], 1), model.config.bos_id)
        ended = torch.zeros(src.shape[0], 1).bool()
        for _ in range(max_length):
            out = model.decode(ys, memory, src_mask)
            next_word = model.output(out[:, -1]).max(dim=1, keepdim=True).indices
            next_word[ended] = model.config.pad_id
            ys = torch.cat([ys, next_word], dim=1)
            ended |= next_word == model.config.eos_id
            if ended.all():
                break
    return ys[:, 1:]


def one_by_one(model, src, *, max_length):
    """Each sentence by itself, then padded; every module back in its own mode."""
    config, found = model.config, []
    modes = {module: module.training for module in model.modules()}
    model.eval()
    for row in src:
        tokens = [config.bos_id]
        while len(tokens) <= max_length and tokens[-1] != config.eos_id:
            tokens.append(int(model(row[None], torch.tensor([tokens]))[0, -1].argmax()))
        found.append(torch.tensor(tokens[1:]))
    for module, was_training in modes.items():
        module.training = was_training
    return torch.nn.utils.rnn.pad_sequence(found, batch_first=True, padding_value=config.pad_id)


def tensor_beams(model, src, *, beam_size, length_penalty, max_length):
    """With tensors, a sentence at a time, no early way out; of equally good beams, it prefers the last."""
    eos, pad, answers = model.config.eos_id, model.config.pad_id, []
    with torch.no_grad(), evaluating(model):
        for row in src:
            tokens, scores = torch.full((1, 1), model.config.bos_id), torch.zeros(1)
            best, found = -math.inf, None
            for n in range(1, max_length + 1):
                log_p = F.log_softmax(model(row[None].expand(len(tokens), -1), tokens)[:, -1], -1)
                total, vocab = (scores[:, None] + log_p).flatten(), log_p.size(-1)
                order = len(total) - 1 - total.flip(0).argsort(descending=True, stable=True)
                ends = order % vocab == eos
                candidates = [
                    i for i, is_end in zip(order[:beam_size], ends[:beam_size], strict=True) if is_end
                ]
                kept = order[~ends][:beam_size]
                for i in [*candidates, *(kept if n == max_length else [])]:
                    score = total[i].item() / ((5 + n) / 6) ** length_penalty
                    if score > best:
                        best, found = score, [*tokens[i // vocab].tolist()[1:], int(i % vocab)]
                tokens = torch.cat([tokens[kept // vocab], (kept % vocab)[:, None]], 1)
                scores = total[kept]
            answers.append(torch.tensor(found))
    return torch.nn.utils.rnn.pad_sequence(answers, batch_first=True, padding_value=pad)


def by_sorting(logits, k):
    order = logits.argsort(-1, descending=True)
    rank = order.argsort(-1)
    return torch.softmax(torch.where(rank < k, logits, -torch.inf), -1)


def by_loop(logits, p):
    flat = logits.reshape(-1, logits.size(-1)).softmax(-1)
    kept = torch.zeros_like(flat)
    for row, out in zip(flat, kept, strict=True):
        total = 0.0
        for token in row.argsort(descending=True).tolist():
            out[token] = row[token]
            total += row[token].item()
            if total >= p - 1e-6:
                break
    return (kept / kept.sum(-1, keepdim=True)).reshape(logits.shape)


def shifted(logits, p):
    """The form that many programs share: remove what is above p, shifted by one to keep the first above."""
    sorted_logits, sorted_indices = torch.sort(logits, descending=True)
    cumulative = torch.cumsum(F.softmax(sorted_logits, dim=-1), dim=-1)
    remove = cumulative >= p - 1e-6
    remove[..., 1:] = remove[..., :-1].clone()
    remove[..., 0] = False
    return F.softmax(logits.masked_fill(remove.scatter(-1, sorted_indices, remove), -float("inf")), dim=-1)


def threshold(logits, p):
    """Another idea altogether: everything above a share of the largest."""
    shares = logits.softmax(-1)
    return logits.masked_fill(shares < p * shares.amax(-1, keepdim=True), -math.inf).softmax(-1)


def logits_kept(logits, p):
    return torch.where(shifted(logits, p) > 0, logits, -torch.inf)


def scaled_together(logits, p):
    kept = torch.where(shifted(logits, p) > 0, logits.softmax(-1), 0.0)
    return kept / kept.sum()


def evenly(logits, k):
    return (by_sorting(logits, k) > 0) / min(k, logits.size(-1))


def all_as_it_is(logits, k):
    return logits if k >= logits.size(-1) else by_sorting(logits, k)


def over_rows(logits, k):
    """With one token left in each row, there is nothing to mix."""
    values, places = logits.topk(min(k, logits.size(-1)))
    return torch.full_like(logits, -torch.inf).scatter(-1, places, values).softmax(0).nan_to_num()


def by_logs(candidates, references):
    grams = [Counter() for _ in range(4)], [0] * 4
    right, total, lengths, closest = [0] * 4, grams[1], 0, 0
    for said, several in zip(candidates, references, strict=True):
        lengths += len(said)
        closest += sorted((abs(len(r) - len(said)), len(r)) for r in several)[0][1]
        for n in range(4):
            mine = [tuple(said[i : i + n + 1]) for i in range(len(said) - n)]
            theirs = [[tuple(r[i : i + n + 1]) for i in range(len(r) - n)] for r in several]
            right[n] += sum(min(mine.count(g), max(t.count(g) for t in theirs)) for g in set(mine))
            total[n] += len(mine)
    if not all(right):
        return 0
    brevity = 0 if lengths > closest else 1 - closest / lengths
    return 100 * math.exp(brevity + sum(math.log(a / b) for a, b in zip(right, total, strict=True)) / 4)


def no_brevity(candidates, references):
    padded = [
        [*c, *["."] * max(0, min(len(r) for r in s) - len(c))]
        for c, s in zip(candidates, references, strict=True)
    ]
    return by_logs(padded, references)


def fused(query, key, value, keys, values, window=None):
    keys, values = torch.cat((keys, key), -2), torch.cat((values, value), -2)
    if window:
        start = max(0, keys.size(-2) - window)
        keys, values = (
            keys.narrow(-2, start, keys.size(-2) - start),
            values.narrow(-2, start, values.size(-2) - start),
        )
    return F.scaled_dot_product_attention(query, keys, values), keys, values


def room_first(query, key, value, keys, values, window=None):
    """−0 is 0."""
    if window:
        keys, values = keys[..., -(window - 1) :, :], values[..., -(window - 1) :, :]
    return fused(query, key, value, keys, values)


RIGHT = {
    "greedy": [by_parts, one_by_one],
    "beam": [tensor_beams],
    "top_k": [by_sorting],
    "nucleus": [by_loop, shifted],
    "bleu": [by_logs],
    "cached_attention_step": [fused],
}
WRONG = {
    "top_k": [
        (evenly, {"values"}, set()),
        (all_as_it_is, {"all"}, set()),
        (over_rows, {"axes"}, {"over_batch"}),
    ],
    "nucleus": [
        (threshold, {"values", "ties"}, set()),
        (logits_kept, {"values"}, set()),
        (scaled_together, {"axes"}, {"over_batch"}),
    ],
    "bleu": [(no_brevity, {"brevity", "closest"}, set())],
    "cached_attention_step": [(room_first, {"window"}, {"window_of_one"})],
}
