"""The optimiser beside its formula, and clipped gradients beside torch's own clipping."""

import math

import pytest
import torch
from conftest import assert_close
from torch import nn

from transformer_lessons.trainer.optimizer import adamw, clip_gradients


def small_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3, bias=False)).double()


def fill_gradients(net: nn.Module, size: float = 1.0) -> None:
    for parameter in net.parameters():
        parameter.grad = size * torch.randn_like(parameter)


def test_updates_are_those_of_the_formula():
    net, decay = small_net(), 0.3
    optimizer = adamw(net, decay)
    by_hand = [parameter.detach().clone() for parameter in net.parameters()]
    m, v = ([torch.zeros_like(theta) for theta in by_hand] for _ in "mv")
    for step, rate in enumerate((0.2, 0.5, 0.1), start=1):
        fill_gradients(net)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        for i, parameter in enumerate(net.parameters()):
            m[i] = 0.9 * m[i] + 0.1 * parameter.grad
            v[i] = 0.98 * v[i] + 0.02 * parameter.grad**2
            m_hat, v_hat = m[i] / (1 - 0.9**step), v[i] / (1 - 0.98**step)
            by_hand[i] -= rate * (m_hat / (v_hat.sqrt() + 1e-9) + decay * by_hand[i])
            assert_close(parameter, by_hand[i], tolerance=1e-12)


def test_epsilon_is_the_papers():
    # A gradient as small as ε moves a weight by half the rate: m̂ / (√v̂ + ε) = ε / 2ε.
    net = nn.Linear(1, 1, bias=False).double()
    optimizer = adamw(net, 0.0)
    optimizer.param_groups[0]["lr"] = 0.1
    before = net.weight.item()
    net.weight.grad = torch.full_like(net.weight, 1e-9)
    optimizer.step()
    assert math.isclose(before - net.weight.item(), 0.05, rel_tol=1e-9)


def test_without_a_schedule_nothing_moves():
    net = small_net()
    fill_gradients(net)
    adamw(net, 0.3).step()
    for parameter, before in zip(net.parameters(), small_net().parameters(), strict=True):
        assert torch.equal(parameter, before)


@pytest.mark.parametrize(("device", "fused"), [("cpu", True), ("meta", False)])
def test_an_update_is_one_pass_where_torch_has_it(device, fused):
    """That it is AdamW's all the same: above."""
    assert adamw(nn.Linear(2, 3, device=device), 0.0).defaults["fused"] == fused


@pytest.mark.parametrize("largest_norm", [0.0, 0.7, 1e9])
def test_gradients_are_clipped_as_torch_does(largest_norm):
    ours, theirs = small_net(), small_net()
    for net in (ours, theirs):
        torch.manual_seed(1)
        fill_gradients(net)
    ours[0].bias.grad = theirs[0].bias.grad = None  # a parameter that was not used
    norm = nn.utils.clip_grad_norm_(theirs.parameters(), largest_norm)
    assert clip_gradients(ours, largest_norm) == norm.item()
    assert ours[0].bias.grad is None
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert a.grad is b.grad is None or torch.equal(a.grad, b.grad)


def test_without_a_limit_gradients_stay_as_they_are():
    net = small_net()
    fill_gradients(net, size=1e6)
    before = [parameter.grad.clone() for parameter in net.parameters()]
    norm = clip_gradients(net, None)
    assert math.isclose(norm, torch.cat([g.flatten() for g in before]).norm().item(), rel_tol=1e-12)
    for parameter, gradient in zip(net.parameters(), before, strict=True):
        assert torch.equal(parameter.grad, gradient)
