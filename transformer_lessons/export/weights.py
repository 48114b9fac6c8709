"""Import into our model of weights that were trained elsewhere."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer_lessons.config import expect
from transformer_lessons.export.huggingface import to_marian
from transformer_lessons.model import Transformer
from transformer_lessons.oracles.names import layer_to_torch, marian_settings

# In transformers' models: computed positions, a second name of tied weights, a bias that is 0 unless trained.
NOT_WEIGHTS = ("embed_positions.weight", "model.shared.weight", "final_logits_bias")
WITHOUT_EFFECT = ("dropout", "max_position_embeddings", "bos_token_id", "forced_eos_token_id")


@torch.no_grad()
def import_weights(model: Transformer, theirs: nn.Module) -> None:
    """Copy the weights of a `torch.nn.Transformer`, a MarianMTModel or a PegasusForConditionalGeneration.

    `torch.nn.Transformer` has no embeddings and no output projection: ours keeps its own. A pitfall: by
    default it has a norm after each stack even with post-norm, unlike the paper's model and ours. ValueError if
    theirs has other weights or other settings than ours.
    """
    state, c = model.state_dict(), model.config
    if isinstance(theirs, nn.Transformer):
        state = {name: x for name, x in state.items() if name.startswith(("encoder_", "decoder_"))}
        translate, others = layer_to_torch, theirs.state_dict()
        layer, norm = theirs.encoder.layers[0], model.encoder_layers[0].add_norm_self.norm
        settings = {
            "norm_first": (c.norm_first, layer.norm_first),
            "num_heads": (c.num_heads, layer.self_attn.num_heads),
            "activation": (c.activation, getattr(layer.activation, "__name__", layer.activation)),
            "layer_norm_eps": (norm.eps, layer.norm1.eps),
        }
    else:
        translate, others, bias = to_marian, theirs.state_dict(), "final_logits_bias"
        known = "a torch.nn.Transformer, MarianMTModel or PegasusForConditionalGeneration"
        expect(bias in others, "theirs", known, type(theirs).__name__)
        same = {name: value for name, value in marian_settings(c).items() if name not in WITHOUT_EFFECT}
        settings = {name: (value, getattr(theirs.config, name, value)) for name, value in same.items()}
        settings["norm_first"] = c.norm_first, type(theirs).__name__.startswith("Pegasus")
        settings[bias] = 0.0, others[bias].abs().max().item()
        others = {name: x for name, x in others.items() if not name.endswith(NOT_WEIGHTS)}
    for name, (ours, other) in settings.items():
        expect(ours == other, name, f"{ours}, as in our model", other)
    model.load_state_dict(invert(translate, state, others), strict=False)


def invert(translate: Callable[[dict], dict], ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> dict:
    """The state dict that `translate`, which may only rename, permute and concatenate, turns into `theirs`.

    To find where each number goes, all numbers of ours are replaced by their indices and translated.
    """
    sizes = [x.numel() for x in ours.values()]
    places = torch.arange(sum(sizes)).split(sizes)
    where = translate({name: place.view_as(x) for (name, x), place in zip(ours.items(), places, strict=True)})
    expected, got = ({(name, tuple(x.shape)) for name, x in one.items()} for one in (where, theirs))
    missing, unexpected = sorted(expected - got), sorted(got - expected)
    expect(not missing + unexpected, "weights", str(missing[:3]), unexpected[:3])
    numbers = torch.empty(sum(sizes), dtype=next(iter(theirs.values())).dtype)
    for name, place in where.items():
        numbers[place] = theirs[name]
    return {name: numbers[place].view_as(ours[name]) for name, place in zip(ours, places, strict=True)}
