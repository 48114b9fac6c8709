"""Puts a learner's part in place of the package's in a model, where the package's code (the canon) allows it.

A class computes with the package's parameters, under their names: a trained model's weights fit it, and a
model of own parts is saved like any other. A function replaces the canon's only for as long as it is needed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch import Tensor, nn
from torch.func import functional_call

from transformer_lessons import attention as canon
from transformer_lessons import masks, model, training
from transformer_lessons.attention import MultiHeadAttention
from transformer_lessons.checks.definitions import Task
from transformer_lessons.checks.states import matchings
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data import batches
from transformer_lessons.data.batches import Batch
from transformer_lessons.data.vocabulary import Vocabulary, pad
from transformer_lessons.embeddings import TokenEmbedding
from transformer_lessons.encodings import SinusoidalEncoding
from transformer_lessons.feed_forward import FeedForward
from transformer_lessons.layers import AddAndNorm, DecoderLayer, EncoderLayer
from transformer_lessons.norms import LayerNorm
from transformer_lessons.trainer import config as settings


class Own(nn.Module):
    """A learner's module, called with the parameters of the package's module that it replaces.

    Args:
        wrapped: the learner's module; its own parameters are never used.
        replaced: the package's module.
        roles: the words that a learner may use for its parameters (`Task.roles`).

    Raises:
        ValueError: if the learner's parameters cannot be matched with the package's.
    """

    def __init__(self, wrapped: nn.Module, replaced: nn.Module, roles: dict[str, str]):
        super().__init__()
        for name, child in replaced.named_children():
            self.add_module(name, child)
        for name, parameter in replaced.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        self.wrapped = [wrapped]  # in a list, so that it is not a submodule
        own, wanted = wrapped.state_dict(), self.state_dict()
        parameters = [name for name, _ in wrapped.named_parameters()]
        self.links = next(matchings(own, wanted, roles, parameters), [])
        if wanted and not self.links:
            raise ValueError(f"parameters: expected matches for {list(wanted)}, got {parameters}")
        self.train(replaced.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The output of the learner's module with the package's parameters."""
        [wrapped], wanted = self.wrapped, self.state_dict(keep_vars=True)
        own = wrapped.state_dict(keep_vars=True)
        state = {name: x for link in self.links for name, x in link.load(own, wanted).items()}
        loaded = {id(own[name]): x for name, x in state.items()}
        also = {name: loaded[id(x)] for name, x in own.items() if id(x) in loaded}  # tied names
        return functional_call(wrapped, also | state, args, kwargs, tie_weights=False)

    def train(self, mode: bool = True) -> "Own":
        """Switch the mode of both modules."""
        self.wrapped[0].train(mode)
        return super().train(mode)


class OwnAttention(Own):
    """A learner's multi-head attention; the canon hides later positions by a flag, exercises by a mask."""

    def forward(self, query: Tensor, key=None, value=None, mask=None, *, is_causal: bool = False) -> Tensor:
        """Attend from the query to itself, or to `key` and `value`."""
        key = query if key is None else key
        if is_causal:
            mask = masks.combine(mask, masks.causal_mask(query.size(1)))
        output = super().forward(query, key, key if value is None else value, mask)
        return output[0] if isinstance(output, tuple) else output


class OwnLayer(Own):
    """A learner's layer, for encoder or decoder; the canon's encoder passes it a mask and no memory."""

    def forward(self, x: Tensor, *given: Tensor) -> Tensor:
        """The output; a decoder layer gets memory second, an encoder layer only the mask."""
        has_memory = "cross_attention" in self._modules
        return super().forward(x, *given) if has_memory else super().forward(x, mask=given[0])


def layer_arguments(part: nn.Module, config: TransformerConfig) -> tuple:
    """The constructor arguments of the exercise's class, for an encoder layer or a decoder layer."""
    return (config,) if isinstance(part, EncoderLayer) else (config, True, True)


# From the outside in, for each task: the classes replaced, the answer's arguments, and its wrapper.
CLASSES: dict[str, tuple[Any, Callable[[Any, TransformerConfig], tuple], type[Own]]] = {
    "layer": ((EncoderLayer, DecoderLayer), layer_arguments, OwnLayer),
    "residual": (AddAndNorm, lambda part, config: (config,), Own),
    "multi_head": (MultiHeadAttention, lambda part, config: (config.d_model, config.num_heads), OwnAttention),
    "feed_forward": (FeedForward, lambda part, config: (config.d_model, config.d_ff), Own),
    "layer_norm": (LayerNorm, lambda part, config: (config.d_model,), Own),
    "token_embedding": (TokenEmbedding, lambda part, config: tuple(part.weight.shape), Own),
}


def adapt_causal_mask(own: Callable) -> Callable:
    """Adapt a mask: the canon passes a device, which the task leaves out, and expects four axes."""
    return lambda queries, keys=None, device=None: own(queries, keys or queries).expand(1, 1, -1, -1)


def adapt_attention(own: Callable) -> Callable:
    """Adapt attention: the canon hides later positions by a flag, the task by a mask."""

    def attention(query, key, value, mask=None, *, is_causal=False):
        if is_causal:
            mask = masks.combine(mask, canon.causal_mask(query.size(-2), key.size(-2)))
        found = own(query, key, value, mask)
        return found if isinstance(found, tuple) else (found, None)

    return staticmethod(attention)


def adapt_head_outputs(own: Callable) -> Callable:
    """A `MultiHeadAttention.look` that ends with the sum of what the heads write."""

    def look(self, query, k, v, mask=None, is_causal=False):
        heads, _ = self.attention(self.split(self.W_q(query)), k, v, mask, is_causal=is_causal)
        return own(heads, self.W_o.weight).sum(dim=1) + self.W_o.bias

    return look


def adapt_make_batch(own: Callable) -> Callable:
    """A `make_batch` whose targets the answer shifts."""

    def make_batch(pairs):
        sources, targets = zip(*pairs, strict=True)
        shifted = own(list(targets), Vocabulary.bos_id, Vocabulary.eos_id, Vocabulary.pad_id)
        return Batch(pad(sources, Vocabulary.pad_id), *shifted)

    return make_batch


# For each task: the object patched, the name of its attribute, and what makes the replacement.
FUNCTIONS: dict[str, tuple[Any, str, Callable[[Callable], Any]]] = {
    "padding_mask": (model, "padding_mask", lambda own: own),
    "causal_mask": (canon, "causal_mask", adapt_causal_mask),
    "combine_masks": (canon, "combine", lambda own: own),
    "scaled_dot_product_attention": (MultiHeadAttention, "attention", adapt_attention),
    "written_by_heads": (MultiHeadAttention, "look", adapt_head_outputs),
    "teacher_forcing": (batches, "make_batch", adapt_make_batch),
    "label_smoothing": (training, "label_smoothed_loss", lambda own: own),
    "warmup": (settings, "warmup_inverse_sqrt", lambda own: own),
}
TRAINING = ("teacher_forcing", "label_smoothing", "warmup")  # parts that a trained model no longer needs


@contextmanager
def installed(translator: nn.Module, task: Task, own: Any) -> Iterator[None]:
    """Install a learner's part: a class stays in the model, a function for as long as the context lasts.

    A pitfall: install classes from the outside in, so that a learner's layer gets the learner's attention.

    Args:
        translator: a `Transformer`, or an `Own` one.
        task: the task that `own` answers.
        own: the answer.

    Raises:
        ValueError: if the learner's parameters cannot be matched with the translator's.
    """
    if task.name in CLASSES:
        kind, arguments, wrapper = CLASSES[task.name]
        config = translator.config
        replace(translator, kind, lambda part: wrapper(own(*arguments(part, config)), part, task.roles))
    elif task.name == "sinusoidal":
        for part in computing_modules(translator):
            if isinstance(part, SinusoidalEncoding):
                part.table = own(*part.table.shape).to(part.table.dtype)
    if task.name not in FUNCTIONS:
        yield
        return
    place, name, stand_in = FUNCTIONS[task.name]
    with patch.object(place, name, stand_in(own)):
        yield


def replace(root: nn.Module, kind: Any, make: Callable[[nn.Module], nn.Module]) -> None:
    """Replace each part of a kind, or of several kinds, by what `make` makes of it."""
    for part in list(computing_modules(root)):
        for name, child in part.named_children():
            if isinstance(child, kind):
                setattr(part, name, make(child))


def computing_modules(root: nn.Module) -> Iterator[nn.Module]:
    """All modules that compute; in place of an `Own` module, the learner's module and its parts."""
    [root] = root.wrapped if isinstance(root, Own) else [root]
    yield root
    for part in root.children():
        yield from computing_modules(part)


def cached(own: Callable) -> Callable:
    """Attention that continues from the keys and values that the answer returned at earlier positions."""
    past: list[Tensor] = []

    def attention(query, key, value, mask=None, *, is_causal=False):
        if key.size(-2) == 1:
            past[:] = key[..., :0, :], value[..., :0, :]
        output, *past[:] = own(query, key[..., -1:, :], value[..., -1:, :], *past)
        return output, None

    return attention
