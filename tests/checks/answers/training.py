"""What the decoder reads and says, the rate, the smoothed loss, accumulated gradients, Adam, checkpoints."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence


def with_pad_sequence(targets, bos_id, eos_id, pad_id):
    reads = [torch.tensor([bos_id, *y]) for y in targets]
    says = [torch.tensor([*y, eos_id]) for y in targets]
    return tuple(pad_sequence(side, batch_first=True, padding_value=pad_id) for side in (reads, says))


def filled_in(targets, bos_id, eos_id, pad_id):
    shape = len(targets), max(len(y) for y in targets) + 1
    tgt_in, tgt_out = torch.full(shape, pad_id), torch.full(shape, pad_id)
    for row, y in enumerate(targets):
        tgt_in[row, : len(y) + 1] = torch.tensor([bos_id, *y])
        tgt_out[row, : len(y) + 1] = torch.tensor([*y, eos_id])
    return [tgt_in, tgt_out]


def one_whole_row(targets, bos_id, eos_id, pad_id):
    """[bos, y, eos] padded and cut on both sides; the end marks that stay in the input are painted over."""
    rows = [torch.tensor([bos_id, *y, eos_id]) for y in targets]
    whole = pad_sequence(rows, batch_first=True, padding_value=pad_id)
    tgt_out = whole[:, 1:]
    return whole[:, :-1].masked_fill(tgt_out == pad_id, pad_id), tgt_out


def reads_backwards(targets, bos_id, eos_id, pad_id):
    """A slip that is on no list."""
    tgt_in, _ = filled_in([y[::-1] for y in targets], bos_id, eos_id, pad_id)
    return tgt_in, filled_in(targets, bos_id, eos_id, pad_id)[1]


def as_in_the_paper(step, d_model, warmup_steps):
    """The Annotated Transformer's `rate`."""
    if step == 0:
        step = 1
    return d_model ** (-0.5) * min(step ** (-0.5), step * warmup_steps ** (-1.5))


def in_two_cases(step, d_model, warmup_steps):
    step = torch.tensor(max(step, 1.0))
    if step <= warmup_steps:
        return step / (warmup_steps * math.sqrt(d_model * warmup_steps))
    return 1 / math.sqrt(d_model * step)


def width_of_the_fall_only(step, d_model, warmup_steps):
    step = max(step, 1)
    return min(d_model**-0.5 * step**-0.5, step * warmup_steps**-1.5)


def stays_at_the_peak(step, d_model, warmup_steps):
    return d_model**-0.5 * min(max(step, 1), warmup_steps) * warmup_steps**-1.5


def one_step_longer(step, d_model, warmup_steps):
    step = max(step, 1)
    return d_model**-0.5 * min(step**-0.5, step * (warmup_steps + 1) ** -1.5)


def wide(targets, bos_id, eos_id, pad_id):
    return [F.pad(side, (0, 3), value=pad_id) for side in filled_in(targets, bos_id, eos_id, pad_id)]


def says_at_the_right(targets, bos_id, eos_id, pad_id):
    """Padding in front, in one of the two."""
    tgt_in, tgt_out = filled_in(targets, bos_id, eos_id, pad_id)
    return tgt_in, torch.stack([torch.cat([y[y == pad_id], y[y != pad_id]]) for y in tgt_out])


def filled_with_ends(targets, bos_id, eos_id, pad_id):
    return filled_in(targets, bos_id, eos_id, eos_id)


def by_the_formula(logits, targets, *, pad_id, smoothing=0.1):
    """The target in full."""
    classes = logits.size(-1)
    q = torch.full_like(logits, smoothing / (classes - 1))
    q[..., pad_id] = 0
    q = q + (1 - smoothing) * F.one_hot(targets, classes)
    loss = -(q * F.log_softmax(logits, -1)).sum(-1)
    return loss[targets != pad_id].sum(), int((targets != pad_id).sum())


def with_divergence(logits, targets, *, pad_id, smoothing=0.1):
    """The Annotated Transformer's way, with this formula's target and its entropy."""
    x, target = F.log_softmax(logits, -1).reshape(-1, logits.size(-1)), targets.reshape(-1)
    true_dist = torch.full_like(x, smoothing / (x.size(1) - 1)).detach()
    true_dist.scatter_add_(1, target[:, None], torch.full_like(x[:, :1], 1 - smoothing).detach())
    true_dist[:, pad_id] = 0
    true_dist = true_dist[target != pad_id]
    divergence = nn.KLDivLoss(reduction="sum")(x[target != pad_id], true_dist)
    return divergence - torch.special.xlogy(true_dist, true_dist).sum(), (target != pad_id).float().sum()


def in_loops(logits, targets, *, pad_id, smoothing=0.1):
    log_p = F.log_softmax(logits, dim=-1).reshape(-1, logits.size(-1))
    answers = [c for c in range(logits.size(-1)) if c != pad_id]
    total, tokens = 0.0 * log_p.detach().sum(), 0
    for row, right in zip(log_p, targets.reshape(-1).tolist(), strict=True):
        if right != pad_id:
            total = total - (1 - smoothing) * row[right] - smoothing / len(answers) * row[answers].sum()
            tokens += 1
    return total, tokens


def with_cross_entropy(logits, targets, *, pad_id, smoothing=0.1):
    """torch's own, put right: padding's share is taken back and spread over the other tokens."""
    logits, targets = logits[targets != pad_id], targets[targets != pad_id]
    others = -(logits.log_softmax(-1).sum() - logits.log_softmax(-1)[:, pad_id].sum())
    sharp = F.cross_entropy(logits, targets, reduction="sum")
    return (1 - smoothing) * sharp + smoothing * others / (logits.size(-1) - 1), len(targets)


def annotated(logits, targets, *, pad_id, smoothing=0.1):
    """The Annotated Transformer's, to the letter: ε for V − 2 classes, and the divergence."""
    x, target = logits.reshape(-1, logits.size(-1)).log_softmax(-1), targets.reshape(-1)
    true_dist = torch.full_like(x, smoothing / (x.size(1) - 2)).detach()
    true_dist.scatter_(1, target[:, None], 1.0 - smoothing)
    true_dist[:, pad_id] = 0
    true_dist[target == pad_id] = 0
    return nn.KLDivLoss(reduction="sum")(x, true_dist), (target != pad_id).sum()


def twice_as_much(logits, targets, *, pad_id, smoothing=0.1):
    """A slip that is on no list."""
    loss, tokens = by_the_formula(logits, targets, pad_id=pad_id, smoothing=smoothing)
    return loss * (1 + (tokens > 1)), tokens


def with_sgd(module, batches, accumulate, *, rate, pad_id):
    """Tokens counted beforehand, torch's optimiser."""
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


def with_autograd(module, batches, accumulate, *, rate, pad_id):
    """Gradients are asked for, and nothing is left in .grad; losses are tensors."""
    parameters, losses = list(module.parameters()), []
    for start in range(0, len(batches), accumulate):
        group = batches[start : start + accumulate]
        loss = torch.zeros(())
        for inputs, targets in group:
            real = targets != pad_id
            loss = loss + F.cross_entropy(module(inputs)[real], targets[real], reduction="sum")
        loss = loss / sum(targets.ne(pad_id).sum() for _, targets in group)
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.data -= rate * gradient
        losses.append(loss.detach())
    return losses


def half_a_step(module, batches, accumulate, *, rate, pad_id):
    """A slip that is on no list."""
    return with_sgd(module, batches, accumulate, rate=rate / 2, pad_id=pad_id)


def lerped(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9):
    first = first.lerp(gradient, 1 - betas[0])
    second = second.lerp(gradient**2, 1 - betas[1])
    size = (second / (1 - betas[1] ** step)) ** 0.5 + eps
    return parameter - rate / (1 - betas[0] ** step) * first / size, first, second


def as_torch_does(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9):
    """The corrections go into the rate and the denominator; on copies, in place."""
    (beta1, beta2), parameter, first, second = betas, parameter.clone(), first.clone(), second.clone()
    first.mul_(beta1).add_(gradient, alpha=1 - beta1)
    second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    denominator = (second.sqrt() / math.sqrt(1 - beta2**step)).add_(eps)
    return [parameter.addcdiv_(first, denominator, value=-rate / (1 - beta1**step)), first, second]


def with_torchs_optimiser(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9):
    """torch.optim.Adam, given its state."""
    moved = parameter.detach().clone().requires_grad_()
    moved.grad = gradient.detach().clone()
    optimizer = torch.optim.Adam([moved], lr=rate, betas=tuple(betas), eps=eps)
    state = {"step": torch.tensor(float(step - 1)), "exp_avg": first.clone(), "exp_avg_sq": second.clone()}
    optimizer.state[moved] = state
    optimizer.step()
    return moved.detach(), state["exp_avg"], state["exp_avg_sq"]


def averages_decay_twice(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9):
    """A slip that is on no list."""
    return lerped(parameter, gradient, betas[0] * first, second, step, rate=rate, betas=betas, eps=eps)


RIGHT = {
    "teacher_forcing": [with_pad_sequence, filled_in, one_whole_row],
    "warmup": [as_in_the_paper, in_two_cases],
    "label_smoothing": [by_the_formula, with_divergence, in_loops, with_cross_entropy],
    "accumulated_gradients": [with_sgd, with_autograd],
    "adam_step": [lerped, as_torch_does, with_torchs_optimiser],
}
# Of each: the requirements that it loses, and the names that it gets.
WRONG = {
    "teacher_forcing": [
        (reads_backwards, {"shift"}, set()),
        (wide, {"padding"}, set()),
        (says_at_the_right, {"padding"}, set()),
        (filled_with_ends, {"ids"}, {"pad_fixed"}),
    ],
    "warmup": [
        (width_of_the_fall_only, {"width"}, set()),
        (stays_at_the_peak, {"fall"}, {"constant_after"}),
        (one_step_longer, {"rise"}, set()),
    ],
    "label_smoothing": [
        (annotated, {"smoothing"}, {"divergence"}),
        (twice_as_much, {"loss"}, set()),
    ],
    "accumulated_gradients": [(half_a_step, {"step", "padding", "tokens", "groups", "rest"}, set())],
    "adam_step": [(averages_decay_twice, {"moments", "defaults"}, set())],
}
