"""The table of comparisons: our implementation, theirs, and the inputs of both.

Most functions return the arguments of `measure.compare`. Sizes are different primes where possible, so that a
swapped axis cannot hide. Functions import `transformers` themselves, since the package does not require it.
"""

import math
import warnings
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons import decoding, norms, variants
from transformer_lessons.attention import MultiHeadAttention, scaled_dot_product_attention
from transformer_lessons.config import TransformerConfig
from transformer_lessons.embeddings import TokenEmbedding
from transformer_lessons.encodings import LearnedEncoding, sinusoidal
from transformer_lessons.fast.kernels import fused_attention
from transformer_lessons.feed_forward import FeedForward
from transformer_lessons.layers import DecoderLayer, EncoderLayer
from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.masks import additive, causal_mask, padding_mask
from transformer_lessons.model import Transformer
from transformer_lessons.oracles import names
from transformer_lessons.schedule import warmup_inverse_sqrt

# ruff: noqa: E731
BATCH, HEADS, QUERIES, KEYS, D_K, D_V, D_FF, VOCAB = 2, 3, 7, 11, 5, 13, 23, 19
D_MODEL = HEADS * D_K
IDS = (torch.arange(KEYS) < torch.tensor([[11], [7]])).long()  # 1 for a token, 0 for padding
SOURCE, CAUSAL = padding_mask(IDS, 0), causal_mask(QUERIES)
ANGLES = torch.arange(KEYS)[:, None] * 10_000.0 ** (-torch.arange(0, 14, 2).double() / 14)  # for d_k = 14
SIZES = {"d_model": D_MODEL, "num_heads": HEADS, "d_ff": D_FF, "dropout": 0.0, "max_length": 13}
STACKS = {"num_encoder_layers": 2, "num_decoder_layers": 3}
MODERN_SIZES = SIZES | {"d_model": 84, "num_heads": 6, "norm_first": True}
# For modern models. Their own softmax computes in float32 whatever the dtype, so PyTorch's kernel is used.
MODERN = {"hidden_size": 84, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": D_FF}
MODERN |= {"attention_bias": True, "attn_implementation": "sdpa"}


def vectors(length: int = KEYS, width: int = D_MODEL) -> Tensor:
    """A batch of random vectors, the input of every layer."""
    return torch.randn(BATCH, length, width)


def qkv(queries: int = QUERIES) -> list[Tensor]:
    """Random Q, K and V, split into heads."""
    return [torch.randn(BATCH, HEADS, *size) for size in ((queries, D_K), (KEYS, D_K), (KEYS, D_V))]


def some_mask() -> Tensor:
    """A random mask in which every query sees at least the first key."""
    mask = torch.rand(BATCH, HEADS, QUERIES, KEYS) < 0.6
    mask[..., 0] = True
    return mask


def output_of(attend: Callable) -> Callable:
    """A function that returns only the first of `attend`'s results."""
    return lambda *given, **options: attend(*given, **options)[0]


# --- Attention


def attention(attend: Callable, mask: str) -> tuple:
    """One form of attention under one kind of mask."""
    theirs = F.scaled_dot_product_attention
    if mask == "causal":
        return partial(attend, is_causal=True), partial(theirs, is_causal=True), qkv(KEYS)
    given = some_mask() if mask == "boolean" else None
    return (lambda *x: attend(*x, given)), (lambda *x: theirs(*x, given)), qkv()


def attention_gradients() -> tuple:
    """The hand-written backward pass and autograd's; the values compared are gradients."""
    mask, cotangent = some_mask(), torch.randn(BATCH, HEADS, QUERIES, D_V)
    ours = lambda *x: [g.detach() for g in variants.attention_backward(*x, cotangent, mask)]
    theirs = lambda *x: torch.autograd.grad(F.scaled_dot_product_attention(*x, mask), x, cotangent)
    return ours, theirs, qkv()


def hard() -> tuple:
    """Argmax attention, and softmax attention with scores 10¹² times as large."""
    mask = some_mask()
    theirs = lambda q, k, v: F.scaled_dot_product_attention(1e12 * q.detach(), k.detach(), v, mask)
    return (lambda *x: variants.hard_attention(*x, mask)[0]), theirs, qkv()


def quadratic(is_causal: bool, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Linear attention computed with its weights, φ(q)·φ(k) divided by their sums."""
    weights = ((F.elu(query) + 1) @ (F.elu(key) + 1).mT).masked_fill(~SOURCE, 0.0)
    weights = weights.tril(KEYS - query.size(-2)) if is_causal else weights
    return F.normalize(weights, p=1, dim=-1) @ value


def linear(is_causal: bool) -> tuple:
    """Linear attention without weights, and its quadratic form."""
    ours = partial(variants.linear_attention, is_causal=is_causal, key_mask=SOURCE[..., 0, :])
    return ours, partial(quadratic, is_causal), qkv()


def recurrent() -> tuple:
    """Linear attention one position after another, and its quadratic form."""
    ours = partial(output_of(variants.recurrent_linear_attention), key_mask=SOURCE[..., 0, :])
    return ours, partial(quadratic, True), qkv(KEYS)


def rotary() -> tuple:
    """Rotary positions, and pairs of entries as complex numbers multiplied by e^(i t ω)."""
    turn = torch.polar(torch.ones(KEYS, 7).double(), ANGLES)
    numbers = lambda x: torch.view_as_complex(x.double().unflatten(-1, (-1, 2)))
    theirs = lambda x: torch.view_as_real(numbers(x) * turn).flatten(-2).to(x.dtype)
    return (lambda x: variants.rotate(x, torch.arange(KEYS))), theirs, [torch.randn(2, 3, KEYS, 14)]


def multi_head(inputs: str) -> tuple:
    """Cross-attention, or self-attention under a mask, whose polarity is reversed in PyTorch's module."""
    ours, theirs = MultiHeadAttention(D_MODEL, HEADS), nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True)
    rest = (ours, theirs), names.layer_to_torch
    if inputs == "cross":
        return ours, output_of(theirs), [vectors(QUERIES), vectors(), vectors()], *rest
    visible = SOURCE & causal_mask(KEYS)
    hidden = ~visible.expand(-1, HEADS, -1, -1).flatten(0, 1)
    return partial(ours, mask=visible), lambda x: theirs(x, x, x, attn_mask=hidden)[0], [vectors()], *rest


def grouped() -> tuple:
    """Grouped queries, and the kernel's own grouping with the same projections."""
    ours, theirs = (variants.GroupedQueryAttention(30, 6, 2) for _ in range(2))

    def by_kernel(x: Tensor) -> Tensor:
        parts = (theirs.W_q, 6), (theirs.W_k, 2), (theirs.W_v, 2)
        q, k, v = (W(x).unflatten(-1, (heads, D_K)).transpose(1, 2) for W, heads in parts)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return theirs.W_o(heads.transpose(1, 2).flatten(-2))

    return partial(ours, is_causal=True), by_kernel, [vectors(width=30)], (ours, theirs)


# --- Other parts of a layer, and the loss


def learned_encoding() -> tuple:
    """Learned positions, and rows of nn.Embedding that are added."""
    ours, theirs = LearnedEncoding(D_MODEL, 13), nn.Embedding(13, D_MODEL)
    rest = [vectors()], (ours, theirs), {"table": "weight"}
    return (lambda x: ours(x, 2)), (lambda x: x + theirs(torch.arange(2, 2 + KEYS))), *rest


def token_embedding() -> tuple:
    """Token embeddings, and nn.Embedding scaled by √d_model."""
    ids, modules = torch.randint(17, (BATCH, KEYS)), (TokenEmbedding(17, D_MODEL), nn.Embedding(17, D_MODEL))
    return (lambda: modules[0](ids)), (lambda: modules[1](ids) * math.sqrt(D_MODEL)), [], modules


def norm(ours: type, theirs: type) -> tuple:
    """A norm over features, with an ε so large that a misplaced one shows."""
    modules = ours(D_MODEL, 0.5), theirs(D_MODEL, 0.5)
    return *modules, [3 * vectors() + 2], modules


def batch_norm(training: bool) -> tuple:
    """Batch norm of three batches, the last in either mode; running statistics after two are values too."""
    ours, theirs = norms.BatchNorm(D_MODEL, 0.5, 0.3), nn.BatchNorm1d(D_MODEL, 0.5, 0.3)

    def outputs(norm: nn.Module, call: Callable, *batches: Tensor) -> list[Tensor]:
        found = [call(batch) for batch in batches[:2]] + [x.clone() for x in norm.buffers()]
        norm.train(training)
        return [*found, call(batches[2])]

    calls = partial(outputs, ours, ours), partial(outputs, theirs, lambda x: theirs(x.mT).mT)
    return *calls, [3 * vectors() + 2 for _ in range(3)], (ours, theirs)


def feed_forward(activation: str) -> tuple:
    """The feed-forward network, and a sequence of PyTorch's modules."""
    middle = {"relu": nn.ReLU(), "gelu": nn.GELU()}[activation]
    theirs = nn.Sequential(nn.Linear(D_MODEL, D_FF), middle, nn.Linear(D_FF, D_MODEL))
    ours = FeedForward(D_MODEL, D_FF, activation=activation)
    return ours, theirs, [vectors()], (ours, theirs), {"W_1": "0", "W_2": "2"}


def loss(smoothing: float) -> tuple:
    """The loss, and cross-entropy with ε shared among all classes but padding, plus 1 − ε for the target."""
    targets = torch.randint(1, 17, (BATCH, KEYS)) * IDS
    goal, classes = targets.view(-1, 1), torch.arange(17)
    q = smoothing / 16 * (classes > 0) + (1 - smoothing) * (classes == goal)
    ours = lambda x: label_smoothed_loss(x, targets, pad_id=0, smoothing=smoothing)[0]
    theirs = lambda x: F.cross_entropy(x.flatten(0, 1), q * (goal != 0), reduction="sum")
    return ours, theirs, [3 * torch.randn(BATCH, KEYS, 17)]


def paper_schedule() -> tuple:
    """The learning rates of 60 steps."""
    from transformers import get_inverse_sqrt_schedule

    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    (factor,) = get_inverse_sqrt_schedule(optimizer, num_warmup_steps=11, timescale=11).lr_lambdas
    ours = lambda: 1000 * torch.tensor([warmup_inverse_sqrt(step, 512, 11) for step in range(1, 61)])
    return ours, lambda: 1000 * (512 * 11) ** -0.5 * torch.tensor([factor(step) for step in range(1, 61)])


# --- Layers


def torch_layer(decoder: bool, **options) -> tuple:
    """A layer, and PyTorch's, whose masks have the opposite polarity. The source has padding."""
    kind = nn.TransformerDecoderLayer if decoder else nn.TransformerEncoderLayer
    theirs = kind(D_MODEL, HEADS, D_FF, 0.0, batch_first=True, **options)
    ours = (DecoderLayer if decoder else EncoderLayer)(TransformerConfig(17, VOCAB, **SIZES, **options))
    rest = (ours, theirs), names.layer_to_torch
    if not decoder:
        return partial(ours, mask=SOURCE), partial(theirs, src_key_padding_mask=IDS == 0), [vectors()], *rest
    hidden = {"tgt_mask": ~CAUSAL[0, 0], "memory_key_padding_mask": IDS == 0}
    return partial(ours, src_mask=SOURCE), partial(theirs, **hidden), [vectors(QUERIES), vectors()], *rest


def in_one_dtype(theirs: nn.Module) -> nn.Module:
    """The module with nn.RMSNorm in place of norms that compute in float32 whatever the dtype."""
    for module in [*theirs.modules()]:
        for name, part in [*module.named_children()]:
            if type(part).__name__.endswith("RMSNorm"):
                setattr(module, name, nn.RMSNorm(len(part.weight), 1e-6))
    return theirs


def rotary_tables() -> tuple[Tensor, Tensor]:
    """The cosines and sines of all angles in the default dtype; libraries compute them in float32."""
    twice = torch.cat([ANGLES, ANGLES], dim=-1)[None].to(torch.get_default_dtype())
    return twice.cos(), twice.sin()


def llama_layer() -> tuple:
    """A causal layer with pre-norm, RMSNorm, SwiGLU, rotary positions and grouped queries."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    ours = variants.modern(EncoderLayer(TransformerConfig(17, VOCAB, **MODERN_SIZES)), 2)
    theirs = in_one_dtype(LlamaDecoderLayer(LlamaConfig(**MODERN), layer_idx=0))
    seen = causal_mask(KEYS)
    hidden = additive(seen, torch.get_default_dtype())
    call = partial(theirs, attention_mask=hidden, position_embeddings=rotary_tables())
    rest = (ours, theirs), partial(names.layer_to_llama, d_k=14)
    return partial(ours, mask=seen), call, [vectors(width=84)], *rest


# --- The whole model


def qwen() -> tuple:
    """A language model with QK-norm; Qwen3's embeddings are scaled here, as ours are."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"num_hidden_layers": 2, "head_dim": 14, "vocab_size": VOCAB, "tie_word_embeddings": True}
    theirs = in_one_dtype(Qwen3ForCausalLM(Qwen3Config(**MODERN, **sizes)))
    cosines_and_sines = rotary_tables()
    theirs.model.rotary_emb.forward = lambda *_: cosines_and_sines
    config = TransformerConfig(VOCAB, VOCAB, **MODERN_SIZES, num_decoder_layers=2)
    ours, ids = variants.LanguageModel(config, num_key_value_heads=2), sentences(VOCAB, KEYS, KEYS)
    call = lambda: theirs(inputs_embeds=84**0.5 * theirs.model.embed_tokens(ids), use_cache=False).logits
    return lambda: ours(ids), call, [], (ours, theirs), partial(names.layer_to_llama, d_k=14)


def sentences(vocab: int, *lengths: int) -> Tensor:
    """Random ids of at least 3, padded with 0."""
    ids = torch.randint(3, vocab, (len(lengths), max(lengths)))
    return ids * (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


class TorchModel(nn.Transformer):
    """An nn.Transformer with nn.Embedding before it and nn.Linear after it, under our names."""

    def __init__(self, config: TransformerConfig):
        options = {"dropout": 0.0, "norm_first": config.norm_first, "batch_first": True}
        with warnings.catch_warnings(action="ignore"):  # about a fast path that is not taken
            super().__init__(D_MODEL, HEADS, **STACKS, dim_feedforward=D_FF, **options)
        if not config.norm_first:  # the paper has no final norms
            self.encoder.norm = self.decoder.norm = None
        source, target = (nn.Embedding(n, D_MODEL) for n in (config.source_vocab_size, VOCAB))
        self.source_embedding = nn.ModuleDict({"token": target if config.shared_vocabulary else source})
        self.target_embedding = nn.ModuleDict({"token": target})
        self.output = nn.Linear(D_MODEL, VOCAB, bias=False)
        if config.tie_embeddings:
            self.output.weight = target.weight

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """The logits."""
        hidden = {"src_key_padding_mask": src == 0, "memory_key_padding_mask": src == 0}
        hidden |= {"tgt_key_padding_mask": tgt == 0, "tgt_mask": ~causal_mask(tgt.size(1))[0, 0]}
        both = (self.source_embedding["token"], src), (self.target_embedding["token"], tgt)
        x, y = (table(ids) * math.sqrt(D_MODEL) + sinusoidal(ids.size(1), D_MODEL) for table, ids in both)
        return self.output(super().forward(x, y, **hidden))


def whole_model(norm_first: bool, tying: str) -> tuple:
    """The whole model and PyTorch's; logits are compared at positions with a token."""
    shared = tying == "three-way"
    options = {"norm_first": norm_first, "tie_embeddings": tying != "none", "shared_vocabulary": shared}
    config = TransformerConfig(VOCAB if shared else 17, VOCAB, **SIZES, **STACKS, **options)
    ours, theirs = Transformer(config), TorchModel(config)
    src, tgt = sentences(config.source_vocab_size, 7, 3, 5), sentences(VOCAB, 4, 11, 1)
    calls = (lambda: ours(src, tgt)[tgt != 0]), (lambda: theirs(src, tgt)[tgt != 0])
    return *calls, [], (ours, theirs), names.layer_to_torch


def marian_pair() -> tuple[Transformer, nn.Module, Callable]:
    """Our post-norm model, a Marian of the same size, and a function from our state dict to Marian's.

    Marian has a bias on the logits, here 0, and gets our positions; its own would have all sines first.
    """
    from transformers import MarianConfig, MarianMTModel

    ours = Transformer(TransformerConfig.base(VOCAB, **SIZES, **STACKS))
    settings = names.marian_settings(ours.config)
    theirs = MarianMTModel(MarianConfig(**settings, attn_implementation="eager"))
    places = [f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder")]
    fixed = {**dict.fromkeys(places, sinusoidal(13, D_MODEL)), "final_logits_bias": torch.zeros(1, VOCAB)}

    def translate(state: dict) -> dict:
        return names.renamed(state, names.MARIAN) | {"model.shared.weight": state["output.weight"]} | fixed

    return ours, theirs, translate


def marian() -> tuple:
    """The whole model, three-way tied; logits are compared at positions with a token."""
    ours, theirs, translate = marian_pair()
    src, tgt = sentences(VOCAB, 7, 3, 5), sentences(VOCAB, 4, 11, 1)
    options = {"attention_mask": (src != 0).long(), "decoder_input_ids": tgt, "use_cache": False}
    calls = (lambda: ours(src, tgt)[tgt != 0]), (lambda: theirs(src, **options).logits[tgt != 0])
    return *calls, [], (ours, theirs), translate


def generated(beams: int) -> tuple:
    """The generated tokens of a model with large random weights, so that sentences differ.

    Both agree on length penalties only at 0; ``early_stopping="never"`` is our rule for when to stop.
    """
    ours, theirs, translate = marian_pair()
    for parameter in ours.requires_grad_(False).parameters():
        if parameter.dim() == 2:
            parameter.normal_(std=2 / parameter.size(1) ** 0.5)
    theirs.to(ours.output.weight.dtype).load_state_dict(translate(ours.state_dict()))
    src = sentences(VOCAB, 7, 3, 5, 1, 2, 7, 6)
    options = {"num_beams": beams, "do_sample": False, "max_new_tokens": 12}
    options |= {"attention_mask": (src != 0).long()}
    search = partial(decoding.greedy, ours, src, max_length=12)
    if beams > 1:
        options |= {"length_penalty": 0.0, "early_stopping": "never"}
        search = partial(decoding.beam, ours, src, beam_size=beams, length_penalty=0.0, max_length=12)
    return (lambda: until_end(search())), lambda: until_end(theirs.eval().generate(src, **options)[:, 1:])


def until_end(ids: Tensor) -> Tensor:
    """Ids in twelve columns, with zeros after a sentence's end, where `generate` may have another id."""
    ids = F.pad(ids, (0, 12 - ids.size(1)))
    return ids.masked_fill((ids == 2).cumsum(1) > (ids == 2).long(), 0).double()


INPUTS = {"inputs": ("mask", "cross")}
MASKS = {"mask": ("none", "boolean", "causal")}
MODELS = {"norm_first": (False, True), "tying": ("none", "target", "three-way")}
LAYERS = {"norm_first": (False, True), "activation": ("relu", "gelu")}
KERNEL, GENERATE = "F.scaled_dot_product_attention", "transformers MarianMTModel.generate"
PLAIN, FUSED = output_of(scaled_dot_product_attention), output_of(fused_attention)
TILED = partial(variants.tiled_attention, tile=3)
# Our component, their implementation, the function that makes the pair, and the choices for its options.
TABLE = [
    ("encodings.LearnedEncoding", "nn.Embedding", learned_encoding, {}),
    ("embeddings.TokenEmbedding", "nn.Embedding", token_embedding, {}),
    ("norms.LayerNorm", "nn.LayerNorm", partial(norm, norms.LayerNorm, nn.LayerNorm), {}),
    ("norms.BatchNorm", "nn.BatchNorm1d", batch_norm, {"training": (True, False)}),
    ("feed_forward.FeedForward", "nn.Sequential", feed_forward, {"activation": ("relu", "gelu")}),
    ("attention.scaled_dot_product_attention", KERNEL, partial(attention, PLAIN), MASKS),
    ("fast.kernels.fused_attention", KERNEL, partial(attention, FUSED), MASKS),
    ("attention.MultiHeadAttention", "nn.MultiheadAttention", multi_head, INPUTS),
    ("layers.EncoderLayer", "nn.TransformerEncoderLayer", partial(torch_layer, False), LAYERS),
    ("layers.DecoderLayer", "nn.TransformerDecoderLayer", partial(torch_layer, True), LAYERS),
    ("model.Transformer", "nn.Transformer", whole_model, MODELS),
    ("losses.label_smoothed_loss", "F.cross_entropy", loss, {"smoothing": (0.0, 0.3)}),
    ("variants.tiled_attention", KERNEL, partial(attention, TILED), MASKS),
    ("variants.attention_backward", f"autograd of {KERNEL}", attention_gradients, {}),
    ("variants.hard_attention", f"{KERNEL} of large scores", hard, {}),
    ("variants.linear_attention", "its quadratic form", linear, {"is_causal": (False, True)}),
    ("variants.recurrent_linear_attention", "its quadratic form", recurrent, {}),
    ("variants.rotate", "complex numbers, torch.polar", rotary, {}),
    ("variants.RMSNorm", "nn.RMSNorm", partial(norm, variants.RMSNorm, nn.RMSNorm), {}),
    ("variants.GroupedQueryAttention", f"{KERNEL}(enable_gqa)", grouped, {}),
    ("variants.modern", "transformers LlamaDecoderLayer", llama_layer, {}),
    ("variants.LanguageModel", "transformers Qwen3ForCausalLM", qwen, {}),
    ("schedule.warmup_inverse_sqrt", "transformers get_inverse_sqrt_schedule", paper_schedule, {}),
    ("model.Transformer", "transformers MarianMTModel", marian, {}),
    ("decoding.greedy", GENERATE, generated, {"beams": (1,)}),
    ("decoding.beam", GENERATE, generated, {"beams": (2, 5)}),
]
