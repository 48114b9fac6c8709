"""Learning rates: a warm-up, then a decay."""

import math

from transformer_lessons import expect


def warmup_inverse_sqrt(step: int, d_model: int, warmup_steps: int) -> float:
    """The paper's learning rate: linear warm-up, then the inverse square root of the step (§5.3, equation 3).

    ``lr = d_model^(−1/2) · min(step^(−1/2), step · warmup_steps^(−3/2))``

    The peak, ``(d_model · warmup_steps)^(−1/2)``, is reached at `warmup_steps`. A pitfall: step 0 would divide
    by zero (or train with rate 0); it counts as step 1.

    Raises:
        ValueError: for a negative step, a d_model or warmup_steps below 1, or one that is no integer.
    """
    expect.lengths(step=step)
    expect.sizes(d_model=d_model, warmup_steps=warmup_steps)
    step = max(step, 1)
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def warmup_cosine(step: int, peak: float, warmup_steps: int, total_steps: int) -> float:
    """Linear warm-up to `peak`, then half a cosine down to zero at `total_steps` (Loshchilov and Hutter 2017).

    ``lr = peak · step / warmup_steps`` up to there, then
    ``peak · (1 + cos(π · (step − warmup_steps) / (total_steps − warmup_steps))) / 2``

    A pitfall: it must know the end; a run that is to be prolonged later wants `warmup_inverse_sqrt`.

    Raises:
        ValueError: for a negative step or peak, unless 0 ≤ warmup_steps < total_steps, or for steps that are no
            integers.
    """
    expect.lengths(step=step, warmup_steps=warmup_steps)
    expect.sizes(total_steps=total_steps)
    expect.number(peak=peak)
    if warmup_steps >= total_steps:
        raise ValueError(
            f"warmup_steps: expected 0 to {total_steps - 1}, below total_steps, got {warmup_steps}"
        )
    if step < warmup_steps:
        return peak * max(step, 1) / warmup_steps
    progress = min((step - warmup_steps) / (total_steps - warmup_steps), 1.0)
    return peak * (1 + math.cos(math.pi * progress)) / 2
