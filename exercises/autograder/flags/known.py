"""What is known of ways around a task: what solves it in torch and elsewhere, and what of the package is open."""

from collections.abc import Collection
from functools import lru_cache

__all__ = ["LINE", "MODULES", "MOST", "OPEN", "ORDINARY", "PACKAGE", "READY", "SOLVES", "WATCHED"]
__all__ += ["public", "sentence", "shown", "solved"]

LINE = 200  # the longest line or name in a flag or a note
MOST = 100  # flags, and notes

# What of torch's solves a task. What is not named is a part of an answer, and no answer: nn.Embedding and
# F.embedding, F.softmax, F.elu, torch.tril, nn.LayerNorm in a layer, F.kl_div, pad_sequence, clip_grad_norm_, …
ATTENTION = {
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.attention.flex_attention.flex_attention",
}
HEADS = {"torch.nn.MultiheadAttention", "torch.nn.functional.multi_head_attention_forward"}
LAYERS = HEADS | {
    "torch.nn.Transformer",
    *(f"torch.nn.Transformer{side}{what}" for side in ("Encoder", "Decoder") for what in ("", "Layer")),
}
BATCH_NORM = {
    *("torch.nn.functional.batch_norm", "torch.nn.functional.instance_norm", "torch.nn.SyncBatchNorm"),
    *(f"torch.nn.{kind}Norm{axes}d" for kind in ("Batch", "Instance") for axes in "123"),
}
# All of them, once axes are moved: over the features of one position, or in one group.
LAYER_NORM = BATCH_NORM | {
    *("torch.nn.functional.layer_norm", "torch.nn.LayerNorm"),
    *("torch.nn.functional.group_norm", "torch.nn.GroupNorm"),
}
CROSS_ENTROPY = {"torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss"}
LINEAR = {"torch.nn.functional.linear_cross_entropy", "torch.nn.LinearCrossEntropyLoss"}
SOLVES: dict[str, set[str]] = {
    "causal_mask": {"torch.nn.Transformer.generate_square_subsequent_mask"},
    "masked_self_attention": ATTENTION | HEADS,
    "scaled_dot_product_attention": ATTENTION | HEADS,
    "soft_capped_attention": {"torch.nn.attention.flex_attention.flex_attention"},
    "multi_head": LAYERS,  # the attention within it is handed over
    "grouped_query": ATTENTION | HEADS,  # enable_gqa
    "layer_norm": LAYER_NORM,
    "batch_norm": BATCH_NORM,
    "masked_batch_norm": BATCH_NORM,
    "rms_norm": {"torch.nn.functional.rms_norm", "torch.nn.RMSNorm"},
    **dict.fromkeys(("layer", "decoder_layer", "decoder_layer_step", "transformer"), LAYERS),
    "label_smoothing": CROSS_ENTROPY,
    "adam_step": {"torch.optim.Adam", "torch.optim.adam.adam", "torch.optim.AdamW"},
    "scaled_step": {"torch.amp.GradScaler"},
    "tiled_attention": ATTENTION | HEADS,
    "chunked_cross_entropy": CROSS_ENTROPY | LINEAR,
}
# What a task is about, or may well use, where it solves another task of the same assignment.
ORDINARY = {
    "cached_attention_step": ATTENTION,
    "attention_test": ATTENTION,
    "accumulated_gradients": CROSS_ENTROPY,
}
WATCHED = {name.rpartition(".")[2]: name for names in SOLVES.values() for name in names}
# Of what torch's functions and layers call in turn, a part of the name.
KERNELS = {
    "scaled_dot_product": "torch.nn.functional.scaled_dot_product_attention",
    "multi_head_attention": "torch.nn.functional.multi_head_attention_forward",
    "transformer_encoder_layer": "torch.nn.TransformerEncoderLayer",
    "layer_norm": "torch.nn.functional.layer_norm",
    "group_norm": "torch.nn.functional.group_norm",
    "batch_norm": "torch.nn.functional.batch_norm",
    "rms_norm": "torch.nn.functional.rms_norm",
    "cross_entropy_loss": "torch.nn.functional.cross_entropy",
    "fused_adam": "torch.optim.Adam",
    "_amp_": "torch.amp.GradScaler",
}
# Other people's models, layers, decoders and scores. Not einops: it moves axes.
READY = set(
    "evaluate fairseq flash_attn keras nltk rotary_embedding_torch sacrebleu tensorflow timm torchmetrics "
    "torchtext torchtune transformers x_transformers xformers".split()
)

PACKAGE = "transformer_lessons"
CHECKS = f"{PACKAGE}.checks"
MODULES = {PACKAGE, CHECKS}  # which may be imported, and of which this may be used:
OPEN = {
    f"{PACKAGE}.__version__",
    *(f"{CHECKS}.{name}" for name in ("check", "require", "tasks", "Report")),
    *(f"{CHECKS}.{name}" for name in ("try_in_translator", "my_transformer")),
}


@lru_cache(maxsize=4096)
def public(name: str) -> str:
    """What is watched that a name of torch's stands for; "" if nothing is.

    Args:
        name: with dots or without; whichever of torch's modules it was found in.
    """
    for part in reversed(name.split(".")):
        if part in WATCHED:
            return WATCHED[part]
        for fragment, whole in KERNELS.items():
            if fragment in part:
                return whole
    return ""


def solved(name: str, tasks: Collection[str]) -> list[str]:
    """Those of the tasks that something watched solves; none if one of them is about using it."""
    if any(name in ORDINARY.get(task, ()) for task in tasks):
        return []
    return sorted(task for task in tasks if name in SOLVES.get(task, ()))


def sentence(name: str, tasks: list[str]) -> str:
    """Of something watched, for a person."""
    return f"Uses {name}, which does all or most of what {', '.join(tasks)} asks for."


def shown(line: str) -> str:
    """A line for a person: without control characters, and no longer than fits."""
    line = line[: 2 * LINE].encode("utf-8", "replace").decode()
    return "".join(c if c.isprintable() else " " for c in line).strip()[:LINE]
