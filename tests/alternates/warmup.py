"""The paper's learning rate in other words."""

import math


def refuse(step, d_model, warmup_steps):
    if step < 0 or d_model < 1 or warmup_steps < 1:
        raise ValueError("step, d_model, warmup_steps")


def in_two_cases(step, d_model, warmup_steps):
    refuse(step, d_model, warmup_steps)
    step = step or 1
    if step <= warmup_steps:
        return step / (warmup_steps * math.sqrt(d_model * warmup_steps))
    return 1 / math.sqrt(d_model * step)


def peak_times_shape(step, d_model, warmup_steps):
    """The peak, and how far from it."""
    refuse(step, d_model, warmup_steps)
    ratio = max(step, 1) / warmup_steps
    return (d_model * warmup_steps) ** -0.5 * min(ratio, ratio**-0.5)


def by_logarithms(step, d_model, warmup_steps):
    refuse(step, d_model, warmup_steps)
    log_step, log_warmup = math.log(max(step, 1)), math.log(warmup_steps)
    return math.exp(min(-log_step, 2 * log_step - 3 * log_warmup) / 2 - math.log(d_model) / 2)


ALTERNATES = [in_two_cases, peak_times_shape, by_logarithms]
