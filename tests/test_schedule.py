"""The learning rate at the paper's own sizes; `test_oracles` compares its steps with another library's."""

import pytest

from transformer_lessons.schedule import warmup_inverse_sqrt


@pytest.mark.parametrize(
    ("step", "share"), [(0, 1 / 4000), (1, 1 / 4000), (1000, 1 / 4), (4000, 1), (100_000, 1 / 5)]
)
def test_the_papers_own_numbers(step, share):
    # d_model 512 and 4,000 steps of warm-up: a peak of 1 / √2,048,000; step 0 counts as 1.
    assert warmup_inverse_sqrt(step, 512, 4000) == pytest.approx(share * 2_048_000**-0.5, rel=1e-12)
