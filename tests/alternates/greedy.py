"""Greedy decoding in other words."""

import torch

from transformer_lessons.checks import guarded


def check(model, max_length):
    if max_length < 1 or max_length > model.config.max_length:
        raise ValueError("max_length")


def without_cache(model, src, *, max_length):
    return guarded.greedy(model, src, max_length=max_length, use_cache=False)


@torch.no_grad()
def one_after_the_other(model, src, *, max_length):
    """Lists, each source without its padding, the whole model at every step."""
    check(model, max_length)
    config, was_training = model.config, model.training
    model.eval()
    sentences = []
    for row in src.tolist():
        real, tokens = [token for token in row if token != config.pad_id], [config.bos_id]
        while len(tokens) <= max_length and tokens[-1] != config.eos_id:
            logits = model(torch.tensor([real]), torch.tensor([tokens]))
            tokens.append(logits[0, -1].argmax().item())
        sentences.append(tokens[1:])
    model.train(was_training)
    longest = max(map(len, sentences))
    return torch.tensor([s + [config.pad_id] * (longest - len(s)) for s in sentences])


@torch.inference_mode()
def padded_at_the_end(model, src, *, max_length):
    """A buffer of full size; what follows an end mark is erased afterwards."""
    check(model, max_length)
    config, was_training = model.config, model.training
    model = model.eval()
    tokens = torch.full((src.size(0), max_length + 1), config.pad_id)
    tokens[:, 0] = config.bos_id
    for t in range(max_length):
        tokens[:, t + 1] = model.forward(src, tokens[:, : t + 1])[:, t].max(-1).indices
    model.train(was_training)
    tokens = tokens[:, 1:]
    ended = tokens.eq(config.eos_id).long().cumsum(1)
    tokens[(ended - tokens.eq(config.eos_id).long()) > 0] = config.pad_id
    used = int((tokens != config.pad_id).sum(1).max())
    return tokens[:, :used].clone()


ALTERNATES = [without_cache, one_after_the_other, padded_at_the_end]
