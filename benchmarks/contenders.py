"""Other implementations and ours at the same sizes, each with a training step as its users write it."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons import export
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data.batches import Batch, Batches
from transformer_lessons.data.vocabulary import Vocabulary
from transformer_lessons.fast import products
from transformer_lessons.fast.cpu_steps import product
from transformer_lessons.fast.products import linear, weight_gradient
from transformer_lessons.masks import padding_mask
from transformer_lessons.model import Transformer
from transformer_lessons.oracles.names import marian_settings
from transformer_lessons.trainer import Trainer, TrainingConfig

SMOOTHING, CLIP = 0.1, 1.0
Step = Callable[[], int]  # returns how many tokens were not padding


# --- The others: modules that map source and target prefix to logits


class PyTorch(nn.Transformer):
    """An nn.Transformer with what it lacks, from the chapters: embeddings, positions, a tied projection."""

    def __init__(self, config: TransformerConfig):
        layers = config.num_encoder_layers, config.num_decoder_layers
        sizes = config.d_model, config.num_heads, *layers, config.d_ff
        super().__init__(*sizes, config.dropout, batch_first=True)
        self.embedding = Transformer(config).target_embedding

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """The logits, as from `Transformer`."""
        hidden = src == 0
        causal_mask = self.generate_square_subsequent_mask(tgt_in.size(1), device=src.device)
        masks = {"tgt_mask": causal_mask, "src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
        y = super().forward(self.embedding(src), self.embedding(tgt_in), **masks, tgt_is_causal=True)
        return y @ self.embedding.token.weight.T


class Marian(nn.Module):
    """The translation model of Hugging Face's transformers."""

    def __init__(self, attention: str, config: TransformerConfig):
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        self.model = MarianMTModel(MarianConfig(**marian_settings(config), attn_implementation=attention))

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """The logits, as from `Transformer`."""
        return self.model(input_ids=src, attention_mask=src != 0, decoder_input_ids=tgt_in).logits


class XTransformers(nn.Module):
    """The encoder-decoder of x-transformers, with fused attention."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        from x_transformers import XTransformer

        side = {"num_tokens": config.target_vocab_size, "max_seq_len": config.max_length, "attn_flash": True}
        side |= {"heads": config.num_heads, "attn_dim_head": config.d_model // config.num_heads}
        side |= {"ff_dropout": config.dropout, "emb_dropout": config.dropout}
        sides = {f"{name}_{key}": value for name in ("enc", "dec") for key, value in side.items()}
        depths = {"enc_depth": config.num_encoder_layers, "dec_depth": config.num_decoder_layers}
        self.model = XTransformer(dim=config.d_model, tie_token_emb=True, **sides, **depths)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """The logits, as from `Transformer`."""
        shown = src != 0
        memory = self.model.encoder(src, mask=shown, return_embeddings=True)
        return self.model.decoder.net(tgt_in, context=memory, context_mask=shown)


PEERS: dict[str, Callable[[TransformerConfig], nn.Module]] = {
    "torch.nn.Transformer": PyTorch,
    "Marian, SDPA": partial(Marian, "sdpa"),
    "Marian, eager": partial(Marian, "eager"),
    "x-transformers": XTransformers,
}


# --- Steps of training


def peer_steps(model: nn.Module, batches: Batches, *, device: str = "cpu") -> Step:
    """A training step as users write it; on a GPU compiled, in bfloat16, and with the fused optimiser.

    With ``mode="reduce-overhead"``, in CUDA graphs, x-transformers took just as long (46 ms on an H200).
    """
    on_gpu = device != "cpu"
    optimizer = torch.optim.AdamW(model.to(device).parameters(), lr=1e-4, fused=on_gpu)
    logits_of = torch.compile(model) if on_gpu else model
    numbers = count()

    def step() -> int:
        batch = batches[next(numbers)].to(device)
        model.train()
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=on_gpu):
            logits, goal = logits_of(batch.src, batch.tgt_in).flatten(0, 1), batch.tgt_out.flatten()
            loss = F.cross_entropy(logits, goal, ignore_index=0, label_smoothing=SMOOTHING)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return real_tokens(batch)

    return step


def our_steps(batches: Batches, config: TransformerConfig, *, device: str = "cpu") -> Step:
    """A training step of the package's own trainer, on a GPU with the same options as the others."""
    on_gpu = device != "cpu"
    options = {"compile": on_gpu, "precision": "bfloat16" if on_gpu else "float32", "clip_norm": CLIP}
    training = TrainingConfig(steps=10**6, smoothing=SMOOTHING, peak_learning_rate=1e-4, **options)
    trainer = Trainer(Transformer(config), batches, training, device=torch.device(device))

    def step() -> int:
        tokens = real_tokens(batches[trainer.step])
        trainer.train_step()
        return tokens

    return step


def products_alone(batch: Batch, config: TransformerConfig) -> Step:
    """A step's matrix products, forward and backward, and its attention, without norms, loss or optimiser.

    Both sides of the batch must have the same length.
    """
    rows, length = batch.src.shape
    weights = [one.weight.detach() for one in Transformer(config).modules() if type(one) is nn.Linear]
    vectors = {width: torch.randn(rows * length, width) for weight in weights for width in weight.shape}
    heads = rows, config.num_heads, length, config.d_model // config.num_heads
    qkv = [torch.randn(heads, requires_grad=True) for _ in range(3)]

    def step() -> int:
        for weight in weights:
            gradient, x = (vectors[width] for width in weight.shape)
            linear(x, weight)
            linear(gradient, weight.T)
            weight_gradient(gradient, x) if products.is_slow(x, weight) else gradient.T @ x
        for is_causal in config.num_encoder_layers * [False] + config.num_decoder_layers * [False, True]:
            output = F.scaled_dot_product_attention(*qkv, is_causal=is_causal)
            torch.autograd.grad(output, qkv, output.detach())
        return real_tokens(batch)

    return step


def real_tokens(batch: Batch) -> int:
    """The number of tokens on both sides that are not padding."""
    return int((batch.src != 0).sum() + (batch.tgt_out != 0).sum())


class OneBatch(Batches):
    """The same full batch at every step, without padding."""

    def __init__(self, rows: int, length: int, vocabulary: int):
        draw = torch.Generator().manual_seed(0)
        self.batch = Batch(*torch.randint(3, vocabulary, (3, rows, length), generator=draw))

    def __getitem__(self, step: int) -> Batch:
        return self.batch


# --- Decoding


def by_ctranslate2(model: Transformer, **options: object) -> Callable[..., list[list[int]]]:
    """Our model run by CTranslate2, by default in float32 and on as many threads as torch.

    It has its own process, because two pools of OpenMP threads in one process both wait by sleeping: from the
    engine's first translation on, our decoding lost a fifth of its speed, and in int8 half.
    """
    words = Vocabulary(map(str, range(3, model.config.target_vocab_size)))  # both languages'
    process = ProcessPoolExecutor(1, get_context("spawn"))
    with TemporaryDirectory() as directory:
        export.ctranslate2.save(Path(directory), model, words, words)
        usual = {"compute_type": "float32", "intra_threads": torch.get_num_threads()}
        process.submit(_load, directory, usual | options).result()

    def translate(src: list[list[int]], **options: int) -> list[list[int]]:
        tokens = [list(map(str, row)) for row in src]
        return list(map(words.encode, process.submit(_translated, tokens, options).result()))

    return translate


def _load(directory: str, options: dict) -> None:
    from ctranslate2 import Translator

    _load.engine = Translator(directory, **options)


def _translated(tokens: list[list[str]], options: dict) -> list[list[str]]:
    return [one.hypotheses[0] for one in _load.engine.translate_batch(tokens, **options)]


@torch.no_grad()
def without_cache(model: Transformer, src: Tensor, *, max_length: int) -> Tensor:
    """Greedy decoding that reads all tokens so far in each step and never stops early."""
    src_mask = padding_mask(src, model.config.pad_id)
    memory = model.encode(src, src_mask)
    tokens = src.new_full((len(src), 1), model.config.bos_id)
    for _ in range(max_length):
        logits = model.output(model.decode(tokens, memory, src_mask)[:, -1:])
        tokens = torch.cat([tokens, logits.argmax(-1)], dim=1)
    return tokens[:, 1:]


def decoding_products(model: Transformer, rows: int, length: int) -> Step:
    """The speed limit: each step only multiplies each row by every matrix of the decoder.

    It leaves out W_k and W_v of cross-attention, which are needed once, and all of attention.
    """
    parts, once = model.decoder_layers.named_modules(), ("cross_attention.W_k", "cross_attention.W_v")
    linears = [one for name, one in parts if isinstance(one, nn.Linear) and not name.endswith(once)]
    linears.append(model.output)
    vectors = {one.in_features: torch.randn(rows, one.in_features) for one in linears}
    maps = [(product(one, rows=rows), vectors[one.in_features]) for one in linears]

    @torch.no_grad()
    def multiply() -> int:
        for _ in range(length):
            for multiply_by, x in maps:
                multiply_by(x)
        return rows * length

    return multiply
