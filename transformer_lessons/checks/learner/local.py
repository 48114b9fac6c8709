"""The adapter for a learner's code in this process, as in a notebook."""

import io
import linecache
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import transformer_lessons
from transformer_lessons.checks.given import BUILDERS
from transformer_lessons.checks.learner.adapter import Reply, is_handle, leaves
from transformer_lessons.checks.learner.memory import Meter
from transformer_lessons.checks.learner.transfer import copied, edits, kind, mapped, outgoing

PACKAGE = str(Path(transformer_lessons.__file__).parent)
LIBRARIES = {"site-packages", "dist-packages"}  # the latter on Debian and Colab
TEXT = 400  # the most characters of an error message that are passed on


class _NotAFunctionError(Exception):
    """Raised if a learner's name cannot be called, is an object instead of its class, or makes no module."""


class Local:
    """The adapter for code in this process, as in a notebook.

    Arguments are copied in and results copied out, random state and gradient mode are restored, and what the
    code prints or warns about is dropped.

    Args:
        names: what the learner defined, by name.
    """

    def __init__(self, names: dict[str, Any]):
        self._names = dict(names)
        self._given = {f"given.{kind}": make for kind, make in BUILDERS.items()}
        self._built = 0

    def build(self, target: str, args: list, kwargs: dict) -> Reply:
        """Make an object; the reply's value is its handle."""

        def make() -> str:
            make = self._given.get(target) or self._function(target, "class")
            made = make(*self._objects(copied(args)), **copied(kwargs))
            self._built += 1
            handle = f"{target.replace('.', ' ')}#{self._built}"
            self._names[handle] = made
            return handle

        return self._guard(make)

    def call(self, target: str, args: list, kwargs: dict, *, meter: bool = False) -> Reply:
        """Call with copies of the arguments."""
        return self._ask(target, (args, kwargs), (copied(args), copied(kwargs)), None, meter)

    def vjp(
        self, target: str, args: list, kwargs: dict, cotangents: list | None = None, *, meter: bool = False
    ) -> Reply:
        """Call and run the backward pass."""
        roots: dict[str, Tensor] = {}

        def tracked(path: str, tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                return tensor.clone()
            roots[path] = tensor.clone().requires_grad_()
            return roots[path].clone()  # not the leaf itself, which must not be edited in place

        def backward(result: Any, parameters: dict[str, Tensor]) -> dict[str, Any]:
            both = {("gradients", path): root for path, root in roots.items()}
            both |= {("parameters", name): parameter for name, parameter in parameters.items()}
            fields: dict[str, Any] = {"gradients": {}, "parameters": {}}
            for (field, name), gradient in _gradients(result, cotangents, both).items():
                fields[field][name] = gradient
            return fields | {"attached": [tensor.requires_grad for tensor in leaves(result).values()]}

        with torch.enable_grad():  # a cell may have turned it off
            given = mapped(args, tracked, ""), mapped(kwargs, tracked, "")
        return self._ask(target, (args, kwargs), given, backward, meter)

    def _ask(self, target: str, before: tuple, given: tuple, backward: Callable | None, meter: bool) -> Reply:
        """Call with `given` (args, kwargs), made from `before`; run `backward`, if any; note edits and memory."""
        seen: dict[str, Any] = {}

        def action() -> Any:
            found, counted = self._function(target), Meter() if meter else None
            parameters = _parameters(found) if backward else {}
            with counted or nullcontext():
                result = found(*self._objects(given[0]), **given[1])
                if counted:
                    counted.count_saved(result)
                if backward:
                    seen.update(backward(result, parameters))
            seen["memory"] = counted.memory if counted else {}
            return result

        reply = self._guard(action)
        edited = [*edits(before[0], given[0]), *edits(before[1], given[1])]
        return replace(reply, mutated=edited, **seen)

    def load_state(self, handle: str, state: dict[str, Tensor]) -> Reply:
        """Load weights into a module; other names of tied weights get them, too; the rest stays."""
        return self._guard(lambda: _load(self.find(handle), copied(state)))

    def state(self, handle: str) -> Reply:
        """The weights and buffers of a module, by name; `parameters` has each weight's name once."""
        names: list[str] = []

        def action() -> dict[str, Tensor]:
            of = _module(self.find(handle))
            names.extend(name for name, _ in nn.Module.named_parameters(of))
            return dict(nn.Module.state_dict(of))  # its own methods may list something else

        return replace(self._guard(action), parameters=dict.fromkeys(names))

    def train(self, handle: str, mode: bool = True) -> Reply:
        """Put a module into training or evaluation mode."""
        return self._guard(lambda: (self.find(handle).train(mode), None)[1])  # an object may not be a bool

    def _objects(self, args: list) -> list:
        """The arguments, with handles replaced by their objects."""
        return [self._names[arg["handle"]] if is_handle(arg) else arg for arg in args]

    def find(self, target: str) -> Any:
        """The object that a target names; NameError if the learner has not defined it."""
        name, *attributes = target.split(".")
        if name not in self._names:
            raise NameError(f"name '{name}' is not defined")
        found = self._names[name]
        for attribute in attributes:
            found = getattr(found, attribute)
        return found

    def _function(self, target: str, wanted: str = "function") -> Callable:
        found = self.find(target)
        if not callable(found) or (wanted == "class" and isinstance(found, nn.Module)):
            is_now = f"not an object of type {type(found).__name__}"
            raise _NotAFunctionError(f"pass the {wanted} itself, {is_now}")
        return found

    def _guard(self, action: Callable[[], Any]) -> Reply:
        """Run the learner's code so that nothing escapes: no exception, output, seed or gradient mode."""
        with plain_session():
            torch.default_generator.manual_seed(0x5EED_0000)  # a seed that nobody sets by hand
            try:
                result = action()
                return Reply(value=outgoing(result), kind=kind(result))
            except (Exception, SystemExit) as error:
                return Reply(error=_described(error))


def _gradients(result: Any, cotangents: list | None, roots: dict) -> dict[Any, Tensor | None]:
    """Gradients of the sum of results times cotangents, or times cosines where none has the right shape."""
    outputs = leaves(result).values()
    cotangents = [None] * len(outputs) if cotangents is None else cotangents
    pairs = zip(outputs, cotangents, strict=False)
    terms = [(tensor * _fitting(one, tensor)).sum() for tensor, one in pairs if tensor.requires_grad]
    trainable = {name: root for name, root in roots.items() if root.requires_grad}
    if not terms or not trainable:
        return dict.fromkeys(roots)
    for root in trainable.values():
        root.grad = None
    # Of a single number: given the cotangents instead, torch imports sympy, which takes seconds. Not by
    # torch.autograd.grad, which refuses checkpoints with use_reentrant=True.
    sum(terms).backward()
    found = {name: root.grad for name, root in trainable.items()}
    # An embedding's gradient may be sparse on request, which is as good.
    dense = {n: g if g is None or g.layout is torch.strided else g.to_dense() for n, g in found.items()}
    return dict.fromkeys(roots) | dense


def _fitting(cotangent: Tensor | None, tensor: Tensor) -> Tensor:
    if cotangent is not None and tensor.shape == cotangent.shape:
        return cotangent.to(tensor.dtype)
    return torch.arange(1.0, 1 + tensor.numel()).cos().view(tensor.shape).to(tensor.dtype)


def _module(made: Any) -> nn.Module:
    if not isinstance(made, nn.Module):
        raise _NotAFunctionError(f"make it a subclass of nn.Module; it makes a {type(made).__name__}")
    return made


def _load(module: nn.Module, state: dict[str, Tensor]) -> None:
    own = _module(module).state_dict()
    places = {name: (tensor.data_ptr(), tensor.shape) for name, tensor in own.items()}
    known = {places[name]: tensor for name, tensor in state.items() if name in places}
    tied = {name: known[place] for name, place in places.items() if place in known and place[0]}
    module.load_state_dict({**own, **tied, **state})


def _parameters(found: Any) -> dict[str, Tensor]:
    """The parameters of a module, or of the module whose method this is; {} for anything else."""
    of = getattr(found, "__self__", found)
    return dict(nn.Module.named_parameters(of, remove_duplicate=False)) if isinstance(of, nn.Module) else {}


def _described(error: BaseException) -> dict[str, str]:
    try:
        message = str(error)
    except Exception:
        message = "(no readable message)"
    # Subclasses of ValueError are as good as ValueError itself.
    type_ = "ValueError" if isinstance(error, ValueError) else type(error).__name__.removeprefix("_")
    return {"type": type_, "message": message[:TEXT], "line": _line(error)}


def _line(error: BaseException) -> str:
    """The line of the learner's code where the error arose, not one deep inside torch or this package."""
    places = [(frame.f_code.co_filename, number) for frame, number in traceback.walk_tb(error.__traceback__)]
    theirs = [place for place in places if not place[0].startswith(PACKAGE)]
    own = [place for place in theirs if LIBRARIES.isdisjoint(Path(place[0]).parts)]
    name, number = own[-1] if own else ("", 0)
    linecache.checkcache(name)  # a file may have been edited since it was read
    return linecache.getline(name, number or 0).strip()


@contextmanager
def plain_session() -> Iterator[None]:
    """What the exercises assume, whatever a session has set; afterwards all is as before, its seed included.

    One thread: on such small tensors, threads that wait for each other cost ten times the work.
    """
    threads, dtype, numbers = torch.get_num_threads(), torch.get_default_dtype(), torch.get_rng_state()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)
    try:
        with (
            nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu"),  # slow
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else nullcontext(),
            warnings.catch_warnings(action="ignore"),
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
        ):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_rng_state(numbers)
