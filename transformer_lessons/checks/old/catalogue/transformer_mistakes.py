"""The known mistakes of the whole model, and the steps that they change."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons.checks.old.core import Mistake
from transformer_lessons.checks.old.guarded import (
    DecoderLayer,
    EncoderLayer,
    LayerNorm,
    TransformerConfig,
    sinusoidal,
)

__all__ = ["MISTAKES", "Steps", "assemble"]

ENDS, LINES, PROPERTIES, WRONG = "#ch13-both-ends", "#ch13-hundred-lines", "#ch13-properties", "#ch13-wrong"
START = "#ch13-start"


def _accept(src: Tensor, tgt: Tensor) -> None:
    if tgt.size(1) < 2 or len(src) != len(tgt):
        raise ValueError("tgt: expected two tokens or more, and as many sentences as src")


def _embed(weight: Tensor, ids: Tensor) -> Tensor:
    return weight[ids] * weight.size(1) ** 0.5


def _drop(dropout: nn.Dropout, x: Tensor, place: Callable) -> Tensor:
    return dropout(place(x))


def _in_turn(layers: nn.ModuleList, x: Tensor, *given: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x, *given)
    return x


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    shift: Callable = lambda tgt: tgt[:, :-1]
    mask: Callable = lambda src, pad_id: (src != pad_id)[:, None, None, :]
    embed: Callable = _embed
    place: Callable = lambda x: x + sinusoidal(*x.shape[1:]).to(x)
    place_target: Callable = lambda x: x + sinusoidal(*x.shape[1:]).to(x)
    drop: Callable = _drop
    drop_target: Callable = _drop
    encoder_config: Callable = lambda config: config  # of the layers
    decoder_config: Callable = lambda config: config
    encoder_stack: Callable = lambda layers, norm: layers
    decoder_stack: Callable = lambda layers, norm: layers
    encode: Callable = _in_turn
    decode: Callable = _in_turn
    memory: Callable = lambda memory, x: memory
    drop_memory: Callable = lambda dropout, memory: memory
    recall: Callable = lambda model, mask: mask
    encoder_mask: Callable = lambda mask: mask
    cross_mask: Callable = lambda mask: mask
    finish_memory: Callable = lambda norm, x: norm(x)
    finish: Callable = lambda norm, x: norm(x)
    project: Callable = lambda hidden, weight: hidden @ weight.T
    result: Callable = lambda logits: logits
    start: Callable = lambda weight: nn.init.normal_(weight, std=weight.size(1) ** -0.5)


def assemble(steps: Steps) -> type[nn.Module]:
    """The model in these steps."""

    class Model(nn.Module):
        def __init__(self, settings):
            super().__init__()
            v, n = settings["vocab_size"], settings["num_layers"]
            sizes = {
                name: settings[name] for name in ("d_model", "num_heads", "d_ff", "dropout", "norm_first")
            }
            config = TransformerConfig(v, v, **sizes)
            encoder, decoder = steps.encoder_config(config), steps.decoder_config(config)
            d_model = config.d_model
            self.pad_id = settings["pad_id"]
            self.embedding = nn.Embedding(v, d_model)
            steps.start(self.embedding.weight)
            self.encoder_layers = nn.ModuleList(EncoderLayer(encoder) for _ in range(n))
            self.decoder_layers = nn.ModuleList(DecoderLayer(decoder) for _ in range(n))
            last = LayerNorm if config.norm_first else nn.Identity
            self.encoder_norm, self.decoder_norm = last(d_model), last(d_model)
            self.dropout = nn.Dropout(config.dropout)

        def forward(self, src, tgt):
            steps.accept(src, tgt)
            weight, mask = self.embedding.weight, steps.recall(self, steps.mask(src, self.pad_id))
            encoder = steps.encoder_stack(self.encoder_layers, self.encoder_norm)
            decoder = steps.decoder_stack(self.decoder_layers, self.decoder_norm)
            x = steps.drop(self.dropout, steps.embed(weight, src), steps.place)
            memory = steps.encode(encoder, x, steps.encoder_mask(mask))
            memory = steps.memory(steps.finish_memory(self.encoder_norm, memory), x)
            memory = steps.drop_memory(self.dropout, memory)
            y = steps.embed(weight, steps.shift(tgt))
            y = steps.drop_target(self.dropout, y, steps.place_target)
            y = steps.decode(decoder, y, memory, steps.cross_mask(mask))
            return steps.result(steps.project(steps.finish(self.decoder_norm, y), weight))

    return Model


def _all_read_the_input(layers: nn.ModuleList, x: Tensor, *given: Tensor) -> Tensor:
    return [layer(x, *given) for layer in layers][-1]


def _first_alone(layers: nn.ModuleList, x: Tensor, *given: Tensor) -> Tensor:
    return layers[0](x, *given)


def _first_again(layers: nn.ModuleList, x: Tensor, *given: Tensor) -> Tensor:
    for _ in layers:
        x = layers[0](x, *given)
    return x


def _turned_round(layers: nn.ModuleList, x: Tensor, *given: Tensor) -> Tensor:
    return _in_turn(list(layers)[::-1], x, *given)


def _normed_each(layers: nn.ModuleList, norm: nn.Module) -> list[Callable]:
    return [lambda x, *given, layer=layer: norm(layer(x, *given)) for layer in layers]


def _only_placed(dropout: nn.Dropout, x: Tensor, place: Callable) -> Tensor:
    return place(x)


def _always_dropped(dropout: nn.Dropout, x: Tensor, place: Callable) -> Tensor:
    return F.dropout(place(x), dropout.p)


def _dropped_then_placed(dropout: nn.Dropout, x: Tensor, place: Callable) -> Tensor:
    return place(dropout(x))


def _dropped_twice(dropout: nn.Dropout, x: Tensor, place: Callable) -> Tensor:
    return dropout(dropout(place(x)))


def _with_dropout(rate: float) -> Callable:
    return lambda config: replace(config, dropout=rate)


def _kept(model: nn.Module, mask: Tensor) -> Tensor:
    if not hasattr(model, "kept"):
        model.kept = mask
    return model.kept


def _not_one(src: Tensor, tgt: Tensor) -> None:
    if tgt.size(1) == 1 or len(src) != len(tgt):
        _accept(src, tgt[:, :1])


def _nowhere(x: Tensor) -> Tensor:
    return x


MISTAKES = (
    Mistake(
        "not_shifted",
        "you feed the decoder the whole target; its last token has nothing after it to be predicted",
        "Target in, target out.",
        "One row of logits too many, and the answers do not line up.",
        ENDS,
        ({"shift": lambda tgt: tgt},),
    ),
    Mistake(
        "shifted_the_wrong_way",
        "you feed the decoder what it is to predict: all but the first token instead of all but the last",
        "The two slices are easily exchanged.",
        "Copying is enough, so the training loss becomes nearly zero, and translations are nonsense.",
        ENDS,
        ({"shift": lambda tgt: tgt[:, 1:]},),
    ),
    Mistake(
        "embedding_not_scaled",
        "you left out the factor √d_model on the embeddings",
        "nn.Embedding has none.",
        "Positions drown the tokens, and tied logits have another size than planned.",
        ENDS,
        ({"embed": lambda weight, ids: weight[ids]},),
    ),
    Mistake(
        "no_positions",
        "you add no positions on one side or both",
        "Everything has the right shape without them.",
        "The order of the words makes no difference.",
        PROPERTIES,
        (
            {"place": _nowhere, "place_target": _nowhere},
            {"place": _nowhere},
            {"place_target": _nowhere},
        ),
    ),
    Mistake(
        "source_mask_missing",
        "you do not hide the source's padding in the encoder, in cross-attention, or in both",
        "One of the two places was forgotten.",
        "A sentence's logits depend on how long the others of its batch are.",
        PROPERTIES,
        (
            {"mask": lambda src, pad_id: None},
            {"encoder_mask": lambda mask: None},
            {"cross_mask": lambda mask: None},
        ),
    ),
    Mistake(
        "mask_inverted",
        "your mask is True at the padding; here and in the package True means “may attend”",
        "PyTorch's src_key_padding_mask is the other way round.",
        "Where there is padding, nothing else is seen.",
        PROPERTIES,
        ({"mask": lambda src, pad_id: (src == pad_id)[:, None, None, :]},),
    ),
    Mistake(
        "pad_id_zero",
        "you take 0 for the padding, whatever pad_id is",
        "It is 0 in most examples.",
        "With another vocabulary padding is read, and a real token hidden.",
        PROPERTIES,
        ({"mask": lambda src, pad_id: (src != 0)[:, None, None, :]},),
    ),
    Mistake(
        "memory_is_the_embedding",
        "the decoder reads the source's embeddings; it should read what the encoder makes of them",
        "The wrong one of two variables was handed on.",
        "The encoder gets no gradient, and source tokens know nothing of each other.",
        "#ch12-wrong",
        ({"memory": lambda memory, x: x},),
    ),
    Mistake(
        "layers_read_the_input",
        "every layer is given the stack's input, so all but the last layer are lost",
        "In the loop the result has another name than what is passed on.",
        "Most of the parameters get no gradient.",
        "#ch12-wrong",
        (
            {"encode": _all_read_the_input},
            {"decode": _all_read_the_input},
            {"encode": _all_read_the_input, "decode": _all_read_the_input},
        ),
    ),
    Mistake(
        "first_layer_alone",
        "you use the first layer's output; the stack has more layers",
        "A return inside the loop.",
        "Later layers get no gradient.",
        "#ch12-wrong",
        (
            {"encode": _first_alone},
            {"decode": _first_alone},
            {"encode": _first_alone, "decode": _first_alone},
        ),
    ),
    Mistake(
        "one_layer_again_and_again",
        "you call the first layer num_layers times; each call should be another layer's",
        "[layer] * 6 makes six references to one object.",
        "It trains, with a fraction of the parameters.",
        "#ch12-wrong",
        (
            {"encode": _first_again, "decode": _first_again},
            {"encode": _first_again},
            {"decode": _first_again},
        ),
    ),
    Mistake(
        "layers_turned_round",
        "you call the layers from the last to the first",
        "A stack is drawn from the bottom to the top.",
        "With fresh weights nothing shows; trained ones do not fit.",
        LINES,
        ({"encode": _turned_round, "decode": _turned_round}, {"decode": _turned_round}),
    ),
    Mistake(
        "final_norm_missing",
        "you left out a final norm; pre-norm stacks end with a sum, which it normalises",
        "Post-norm stacks need none.",
        "Logits grow with the number of layers.",
        LINES,
        (
            {"finish_memory": lambda norm, x: x, "finish": lambda norm, x: x},
            {"finish_memory": lambda norm, x: x},
            {"finish": lambda norm, x: x},
        ),
    ),
    Mistake(
        "norm_after_each_layer",
        "you apply the final norm after every layer; it belongs behind the last one alone",
        "The norm slipped into the loop.",
        "With one layer all is right; with more, every layer's sum is normalised, and nothing is pre-norm.",
        LINES,
        (
            {
                "encoder_stack": _normed_each,
                "decoder_stack": _normed_each,
                "finish_memory": lambda norm, x: x,
                "finish": lambda norm, x: x,
            },
            {"encoder_stack": _normed_each, "finish_memory": lambda norm, x: x},
            {"decoder_stack": _normed_each, "finish": lambda norm, x: x},
        ),
    ),
    Mistake(
        "no_dropout",
        "you do not drop embedded tokens, of the source, the target or both",
        "The layers have dropout of their own, and in evaluation nothing shows.",
        "In training the model overfits sooner.",
        LINES,
        (
            {"drop": _only_placed, "drop_target": _only_placed},
            {"drop": _only_placed},
            {"drop_target": _only_placed},
        ),
    ),
    Mistake(
        "dropout_in_evaluation",
        "you drop embedded tokens in evaluation as well",
        "F.dropout is on unless it is told whether the module trains.",
        "The same input gives other logits each time, at translation too.",
        LINES,
        ({"drop": _always_dropped, "drop_target": _always_dropped},),
    ),
    Mistake(
        "dropout_before_positions",
        "you drop the embeddings before positions are added; it belongs on the sum of both",
        "Dropout was put into the line of the embedding.",
        "Nothing shows in evaluation; in training positions are never dropped.",
        LINES,
        ({"drop": _dropped_then_placed, "drop_target": _dropped_then_placed},),
    ),
    Mistake(
        "dropped_again",
        "you drop once too often: the embedded tokens a second time, or the memory",
        "Dropout is put between any two parts, whether one of them drops already or not.",
        "Nothing shows in evaluation; in training more is missing than was asked for.",
        LINES,
        (
            {"drop": _dropped_twice, "drop_target": _dropped_twice},
            {"drop": _dropped_twice},
            {"drop_target": _dropped_twice},
            {"drop_memory": lambda dropout, memory: dropout(memory)},
        ),
    ),
    Mistake(
        "layers_with_other_dropout",
        "your layers, all or those of one side, do not get the dropout of the settings",
        "It was left at a default, or set to 0 for a test.",
        "Nothing shows in evaluation; in training the layers drop more or less than is asked for.",
        LINES,
        tuple(
            dict.fromkeys(sides, _with_dropout(rate))
            for rate in (0.0, 0.1)
            for sides in (("encoder_config", "decoder_config"), ("encoder_config",), ("decoder_config",))
        ),
    ),
    Mistake(
        "softmax_at_the_end",
        "you end with a softmax; logits are asked for, and cross-entropy applies its own",
        "A model should put out probabilities, one thinks.",
        "The loss can fall by little more than 1 and then stays there.",
        WRONG,
        (
            {"result": lambda logits: logits.softmax(-1)},
            {"result": lambda logits: logits.log_softmax(-1)},
        ),
    ),
    Mistake(
        "tied_by_copying",
        "no gradient reaches the embedding through the projection: equal numbers are not one parameter",
        "copy_, .data and .detach() give the right logits at once.",
        "After the first step the two matrices part.",
        WRONG,
        ({"project": lambda hidden, weight: hidden @ weight.detach().T},),
    ),
    Mistake(
        "projection_scaled",
        "you scale the matrix in the projection too; √d_model belongs to the embeddings alone",
        "One scaled matrix was kept and used on both ends.",
        "Logits are √d_model times too large, and the first loss is far above ln V.",
        ENDS,
        ({"project": lambda hidden, weight: hidden @ weight.T * weight.size(1) ** 0.5},),
    ),
    Mistake(
        "logits_divided",
        "you divide the logits by √d_model; the projection takes the matrix as it is",
        "Attention divides its scores by a root, and some models with one matrix at both ends do so here.",
        "Logits are √d_model times too small: probabilities stay too close to each other.",
        ENDS,
        ({"project": lambda hidden, weight: hidden @ weight.T / weight.size(1) ** 0.5},),
    ),
    Mistake(
        "input_unchecked",
        "you do not check that there is a token to predict and that both batches are of one size",
        "Empty tensors and batches of one sentence broadcast.",
        "Logits without rows, or sentences paired with the wrong source, and no error.",
        PROPERTIES,
        ({"accept": lambda src, tgt: None},),
    ),
    Mistake(
        "empty_target_accepted",
        "you refuse a target of one token, but not one of none",
        "The check is for exactly one token, where it should be for fewer than two.",
        "Logits without rows, and a loss that is NaN.",
        PROPERTIES,
        ({"accept": _not_one},),
    ),
    Mistake(
        "mask_kept",
        "you keep the mask of the first call; each source has padding of its own",
        "The mask was made an attribute of the model.",
        "From the second batch on, padding is seen and words are hidden, or it fails.",
        PROPERTIES,
        ({"recall": _kept},),
    ),
    Mistake(
        "starts_at_one",
        "your matrix starts with a standard deviation of 1, as nn.Embedding leaves it",
        "The factor √d_model is in the paper, the initial scale is not.",
        "The first loss is four or five times ln V: the model begins by being certain.",
        START,
        ({"start": lambda weight: None}, {"start": lambda weight: nn.init.normal_(weight)}),
    ),
    Mistake(
        "starts_small",
        "your matrix starts with a standard deviation of 0.02, which fits another model",
        "The number is that of BERT and GPT-2, which do not multiply by √d_model.",
        "Positions drown the tokens at first.",
        START,
        ({"start": lambda weight: nn.init.normal_(weight, std=0.02)},),
    ),
)
