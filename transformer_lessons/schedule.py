"""The learning rate (§5.3)."""


def warmup_inverse_sqrt(step: int, d_model: int, warmup_steps: int) -> float:
    """The paper's learning rate: linear warm-up, then the inverse square root of the step (§5.3, equation 3).

    ``lr = d_model^(−1/2) · min(step^(−1/2), step · warmup_steps^(−3/2))``

    The peak, ``(d_model · warmup_steps)^(−1/2)``, is reached at `warmup_steps`. A pitfall: step 0 would divide
    by zero (or train with rate 0); it counts as step 1.
    """
    step = max(step, 1)
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
