"""Training with accumulated gradients in other words."""

import itertools

import torch
import torch.nn.functional as F


def refuse(accumulate):
    if accumulate <= 0:
        raise ValueError("accumulate")


def with_sgd(module, batches, accumulate, *, rate, pad_id):
    """Tokens counted beforehand, torch's optimiser."""
    refuse(accumulate)
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=rate), []
    for start in range(0, len(batches), accumulate):
        group = batches[start : start + accumulate]
        tokens = sum((targets != pad_id).sum() for _, targets in group)
        optimizer.zero_grad()
        loss = 0.0
        for inputs, targets in group:
            logits = module(inputs).transpose(1, 2)
            part = F.cross_entropy(logits, targets, ignore_index=pad_id, reduction="sum") / tokens
            part.backward()
            loss += part.item()
        optimizer.step()
        losses.append(loss)
    return losses


def divided_at_the_end(module, batches, accumulate, *, rate, pad_id):
    """Gradients of sums add up, and are divided before the step."""
    refuse(accumulate)
    module.zero_grad()
    losses, total, tokens = [], 0.0, 0
    for number, (inputs, targets) in enumerate(batches, start=1):
        real = targets != pad_id
        log_p = module(inputs)[real].log_softmax(-1)
        loss = -log_p.gather(-1, targets[real][:, None]).sum()
        loss.backward()
        total, tokens = total + loss.item(), tokens + int(real.sum())
        if number % accumulate == 0 or number == len(batches):
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter -= rate * parameter.grad / tokens
            module.zero_grad()
            losses.append(total / tokens)
            total, tokens = 0.0, 0
    return losses


def with_autograd(module, batches, accumulate, *, rate, pad_id):
    """Gradients are asked for, and nothing is left in .grad."""
    refuse(accumulate)
    parameters, losses, remaining = list(module.parameters()), [], iter(batches)
    while group := list(itertools.islice(remaining, accumulate)):
        sums = [torch.zeros_like(parameter) for parameter in parameters]
        loss, tokens = torch.tensor(0.0), 0
        for inputs, targets in group:
            each = F.cross_entropy(module(inputs).flatten(0, -2), targets.flatten(), reduction="none")
            part = each[targets.flatten() != pad_id].sum()
            sums = [a + b for a, b in zip(sums, torch.autograd.grad(part, parameters), strict=True)]
            loss, tokens = loss + part.detach(), tokens + targets.ne(pad_id).sum()
        for parameter, gradient in zip(parameters, sums, strict=True):
            parameter.data.add_(gradient / tokens, alpha=-rate)
        losses.append(loss / tokens)
    return losses


ALTERNATES = [with_sgd, divided_at_the_end, with_autograd]
