"""The mean of several checkpoints in other words."""

import torch


def refuse(states):
    shapes = [{name: tuple(tensor.shape) for name, tensor in state.items()} for state in states]
    if not states or any(those != shapes[0] for those in shapes):
        raise ValueError("states")


def stacked(states):
    refuse(states)
    result = dict(states[-1])
    for name, tensor in result.items():
        if tensor.is_floating_point():
            every = torch.stack([state[name].double() for state in states])
            result[name] = every.mean(dim=0).to(tensor.dtype)
    return result


def step_by_step(states):
    """A running mean: each checkpoint moves it by its share."""
    refuse(states)
    mean = {name: tensor.to(torch.float64) for name, tensor in states[0].items()}
    for number, state in enumerate(states[1:], start=2):
        for name in mean:
            mean[name] = mean[name] + (state[name].to(torch.float64) - mean[name]) / number
    last = states[-1]
    return {
        name: mean[name].to(last[name].dtype) if last[name].dtype.is_floating_point else last[name].clone()
        for name in reversed(last)
    }


def divided_first(states):
    """Each divided before it is added; float32 is wide enough for half precision."""
    refuse(states)
    result = {}
    for name, last in states[-1].items():
        if last.dtype in (torch.int64, torch.bool):
            result[name] = last
            continue
        wide = torch.float32 if last.dtype is torch.float16 else torch.float64
        total = torch.zeros(last.shape, dtype=wide)
        for state in states:
            total += state[name].to(wide) / len(states)
        result[name] = total.to(last.dtype)
    return result


ALTERNATES = [stacked, step_by_step, divided_first]
