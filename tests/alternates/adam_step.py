"""One step of Adam in other words."""

import torch


def refuse(step, betas):
    if step < 1 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise ValueError("step, betas")


def lerped(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9):
    refuse(step, betas)
    first = first.lerp(gradient, 1 - betas[0])
    second = second.lerp(gradient**2, 1 - betas[1])
    size = (second / (1 - betas[1] ** step)) ** 0.5 + eps
    return parameter - rate / (1 - betas[0] ** step) * first / size, first, second


def as_torch_does(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9):
    """The corrections go into the rate and the denominator; on copies, in place."""
    refuse(step, betas)
    (beta1, beta2), parameter, first, second = betas, parameter.clone(), first.clone(), second.clone()
    first.mul_(beta1).add_(gradient, alpha=1 - beta1)
    second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    denominator = (second.sqrt() / (1 - beta2**step) ** 0.5).add_(eps)
    return parameter.addcdiv_(first, denominator, value=-rate / (1 - beta1**step)), first, second


def with_torchs_optimiser(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9):
    """torch.optim.Adam, given its state."""
    refuse(step, betas)
    moved = parameter.detach().clone().requires_grad_()
    moved.grad = gradient.detach().clone()
    optimizer = torch.optim.Adam([moved], lr=rate, betas=tuple(betas), eps=eps)
    state = {"step": torch.tensor(float(step - 1)), "exp_avg": first.clone(), "exp_avg_sq": second.clone()}
    optimizer.state[moved] = state
    optimizer.step()
    return moved.detach(), state["exp_avg"], state["exp_avg_sq"]


def epsilon_scaled(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9):
    """The paper's faster form, with the ε that makes it exact."""
    refuse(step, betas)
    beta1, beta2 = betas
    m = beta1 * first + (1 - beta1) * gradient
    v = beta2 * second + (1 - beta2) * gradient * gradient
    root = (1 - beta2**step) ** 0.5
    return parameter - rate * root / (1 - beta1**step) * m / (v.sqrt() + eps * root), m, v


ALTERNATES = [lerped, as_torch_does, with_torchs_optimiser, epsilon_scaled]
