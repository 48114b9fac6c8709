"""The learning rate against the formula, driven through torch.optim."""

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from transformer_lessons.schedule import warmup_inverse_sqrt


def rates(make_scheduler, steps: int, lr: float = 1.0) -> list[float]:
    """What a torch scheduler sets, step by step, from its step 0."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler, seen = make_scheduler(optimizer), []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return seen


def test_the_papers_schedule_in_torch_optim():
    # §5.3, equation 3, for optimiser steps counted from 1: LambdaLR counts from 0.
    def formula(index):
        return 512**-0.5 * min((index + 1) ** -0.5, (index + 1) * 101**-1.5)

    expected = rates(lambda optimizer: LambdaLR(optimizer, formula), 307)
    assert [warmup_inverse_sqrt(step, 512, 101) for step in range(1, 308)] == pytest.approx(
        expected, rel=1e-12
    )


def test_peak_at_warmup():
    values = [warmup_inverse_sqrt(step, 512, 101) for step in range(1, 1000)]
    assert max(values) == values[101 - 1] == pytest.approx((512 * 101) ** -0.5, rel=1e-12)
    assert values[:101] == sorted(values[:101])
    assert values[100:] == sorted(values[100:], reverse=True)


def test_the_papers_own_numbers():
    # d_model 512 and 4,000 steps of warm-up: a peak of 1 / √2,048,000.
    assert warmup_inverse_sqrt(4000, 512, 4000) == pytest.approx(6.987712e-4, rel=1e-6)
    assert warmup_inverse_sqrt(100_000, 512, 4000) == pytest.approx(6.987712e-4 / 5, rel=1e-6)


def test_one_of_everything_is_enough():
    assert warmup_inverse_sqrt(1, d_model=1, warmup_steps=1) == 1


def test_step_zero_counts_as_one():
    assert warmup_inverse_sqrt(0, 512, 101) == warmup_inverse_sqrt(1, 512, 101) > 0
