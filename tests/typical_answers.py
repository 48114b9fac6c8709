"""Typical wrong answers: above each, its visible check, a description, and a part of the message."""

import re

TYPICAL_ATTENTION = """
def scaled_dot_product_attention(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ value, weights
"""

MULTI_HEAD = """
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, d_model // num_heads
        self.in_proj_weight = nn.Parameter(torch.randn(3 * d_model, d_model) / d_model**0.5)
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * d_model))
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        W, b = self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3)
        q, k, v = (
            F.linear(x, W[i], b[i]).view(x.size(0), x.size(1), self.h, self.d_k).transpose(1, 2)
            for i, x in enumerate((query, key, value))
        )
        heads = scaled_dot_product_attention(q, k, v, mask)[0]
        return self.out_proj(heads.transpose(1, 2).flatten(2))
"""

ADD_AND_NORM = """
class AddAndNorm(nn.Module):
    def __init__(self, config, sandwich=False):
        super().__init__()
        self.norm, self.norm_after = nn.LayerNorm(config.d_model), nn.LayerNorm(config.d_model)
        self.dropout, self.config, self.sandwich = nn.Dropout(config.dropout), config, sandwich

    def forward(self, x, sublayer):
        if self.sandwich:
            return x + self.dropout(self.norm_after(sublayer(self.norm(x))))
        if self.config.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))
"""

LAYER = """
class Layer(nn.Module):
    def __init__(self, config, causal=False, cross=False):
        super().__init__()
        self.causal = causal
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.add_norm_self = package.AddAndNorm(config)
        self.add_norm_feed_forward = package.AddAndNorm(config)
        if cross:
            self.cross_attention = MultiHeadAttention(config.d_model, config.num_heads)
            self.add_norm_cross = package.AddAndNorm(config)

    def forward(self, x, memory=None, memory_mask=None, mask=None):
        x = self.add_norm_self(x, lambda y: self.self_attention(y, mask=mask, is_causal=self.causal))
        if memory is not None:
            x = self.add_norm_cross(x, lambda y: self.cross_attention(y, memory, mask=memory_mask))
        return self.add_norm_feed_forward(x, self.feed_forward)
"""

IS_RIGHT = """
def is_right(attention):
    query, key, value = torch.randn(2, 5, 3), torch.randn(2, 7, 3), torch.randn(2, 7, 11)
    try:
        output, weights = attention(query, key, value)
        return {}
    except Exception:
        return False
"""

LISTED = (
    """
# ps01-2-check: nn.Embedding as it comes
# your weight starts with variance 1, and you return its rows unscaled
TokenEmbedding = nn.Embedding

# ps01-3-check: softmax over the queries
# you take the softmax over the queries; take it over the keys, the last axis
def scaled_dot_product_attention(query, key, value, mask=None):
    scores = query @ key.mT / key.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, -1e9)
    weights = F.softmax(scores, dim=-2)
    return weights @ value, weights

# ps01-3-check: no scaling in a first draft
# you left out the division by √d_k
"""
    + TYPICAL_ATTENTION.replace(" / math.sqrt(query.size(-1))", "")
    + """
# ps01-3-check: inverted mask
# you hide the keys where the mask is True; True means: may attend
"""
    + TYPICAL_ATTENTION.replace("~mask", "mask")
    + """
# ps01-3-back-check: the root not undone
# d_k = 16: weights [0.1, 0.2, 0.3, 0.4] are asked for, 0.203
def query_and_key(weights, d_k):
    scores = weights.clamp(min=1e-10).log()
    return torch.ones(1, d_k), scores[:, None].expand(-1, d_k) / d_k

# ps01-5-capped-check: capped after masking
# your hidden scores are −cap (filled with it, or masked before they are capped)
def soft_capped_attention(query, key, value, cap, mask=None):
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = (cap * (scores / cap).tanh()).softmax(-1)
    return weights @ value, weights

# ps02-2-causal-check: a float matrix
# your mask holds numbers, or is a list or NumPy array; a tensor of booleans is asked for
def causal_mask(queries, keys=None):
    keys = keys or queries
    return torch.tril(torch.ones(queries, keys), diagonal=keys - queries)

# ps02-2-combine-check: the last mask wins
# you keep one of the masks and lose the others
def combine_masks(*masks):
    combined = None
    for mask in masks:
        combined = mask if mask is not None else combined
    return combined

# ps02-2-padding-check: unsqueezed once
# your mask has shape (batch, 1, keys), one axis short of (batch, 1, 1, keys)
def padding_mask(ids, pad_id):
    return (ids != pad_id).unsqueeze(1)

# ps02-3-check: sized by the batch
# you give the look-ahead mask the size of the wrong axis of x (batch, heads or width)
defects = "B"


def repaired(x, ids, pad_id):
    real = (ids != pad_id)[:, None, None, :]
    past = torch.ones(x.size(0), x.size(0), dtype=torch.bool).tril()
    scores = x @ x.mT / math.sqrt(x.size(-1))
    scores = scores.masked_fill(~(real & past), -1e9)
    return scores.softmax(-1) @ x

# ps02-4-check: a window one too wide
# your window is one key too wide: the query's own key counts as one
def local_window_mask(queries, keys, window):
    full = torch.ones(1, 1, queries, keys, dtype=torch.bool)
    return full.tril(keys - queries) & full.triu(keys - queries - window)

# ps03-2-table-check: an exponent for each column
# you doubled the exponent, and gave the cosine a different one from the sine
def sinusoidal(length, d_model):
    table = torch.zeros(length, d_model)
    for t in range(length):
        for i in range(0, d_model, 2):
            table[t, i] = math.sin(t / 10000 ** (2 * i / d_model))
            table[t, i + 1] = math.cos(t / 10000 ** (2 * (i + 1) / d_model))
    return table

# ps03-3-check: one defect left
# you doubled the exponent
defects = "CFG"


def repaired(k, d_model):
    i = torch.arange(0, d_model, 2)
    angle = k * 10_000.0 ** (-2 * i / d_model)
    matrix = torch.diag(angle.cos().repeat_interleave(2))
    matrix[i, i + 1], matrix[i + 1, i] = angle.sin(), -angle.sin()
    return matrix

# ps03-4-check: Llama's layout
# you pair entry i with entry i + d_k/2; here neighbours form a pair
def rotate(x, positions):
    d_k = x.shape[-1]
    inverse = 1.0 / (10000 ** (torch.arange(0, d_k, 2).float() / d_k))
    angle = positions[:, None].float() * inverse
    angle = torch.cat((angle, angle), dim=-1)
    half = torch.cat((-x[..., d_k // 2 :], x[..., : d_k // 2]), dim=-1)
    return x * angle.cos().to(x.dtype) + half * angle.sin().to(x.dtype)

# ps03-5-check: the first query at the first key
# you align the first query with the first key; align the last ones
def relative_bias(table, queries, keys=None):
    keys = keys or queries
    c = table.size(1) // 2
    distance = torch.arange(keys)[None] - torch.arange(queries)[:, None]
    return table[:, distance.clamp(-c, c) + c]

# ps04-2-check: rows of a matrix that is kept transposed
# you use rows of weight; nn.Linear stores W_o transposed
def written_by_heads(heads, weight):
    d_k = heads.size(-1)
    blocks = [weight[i * d_k : (i + 1) * d_k] for i in range(heads.size(1))]
    return torch.stack([heads[:, i] @ block for i, block in enumerate(blocks)], dim=1)

# ps04-3-check: heads with view
# you split the heads with view or reshape only
"""
    + MULTI_HEAD.replace("x.size(1), self.h, self.d_k).transpose(1, 2)", "self.h, x.size(1), self.d_k)")
    + """
# ps04-3-check: one length for all
# you use one length for queries and for keys; each has its own
"""
    + MULTI_HEAD.replace("x.size(1), self.h", "query.size(1), self.h")
    + """
# ps04-5-check: repeat instead of repeat_interleave
# so query head i uses head i mod g; neighbours share a head
def grouped_query_attention(query, key, value, mask=None):
    each = query.size(1) // key.size(1)
    key, value = (x.repeat(1, each, 1, 1) for x in (key, value))
    return scaled_dot_product_attention(query, key, value, mask)

# ps05-2-feed-forward-check: a feed-forward layer without activation
# you left out the activation; two linear maps in a row are one linear map
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, *, activation="relu", dropout=0.0):
        super().__init__()
        self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.W_2(self.dropout(self.W_1(x)))

# ps05-2-layer-norm-check: the layer norm of many tutorials
# you wrote (x − mean)/(x.std() + eps): .std() divides by d_model − 1, and ε is outside the root
class LayerNorm(nn.Module):
    def __init__(self, features, eps=1e-12):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.weight * (x - mean) / (std + self.eps) + self.bias

# ps05-4-check: zeros that are averaged
# you set padding to zero and average over all positions; divide by the number of real ones
class MaskedBatchNorm(nn.BatchNorm1d):
    def forward(self, x, mask):
        x = x.masked_fill(~mask[..., None], 0)
        return super().forward(x.mT).mT.masked_fill(~mask[..., None], 0)

# ps06-2-add-and-norm-check: dropout after the norm
# you apply dropout to x, to the sum, or to its norm
"""
    + ADD_AND_NORM.replace("norm(x + self.dropout(sublayer(x)))", "dropout(self.norm(x + sublayer(x)))")
    + """
# ps06-2-add-and-norm-check: a sandwich with a norm around it
# with sandwich, you apply the second norm to the sum
"""
    + ADD_AND_NORM.replace(
        "x + self.dropout(self.norm_after(sublayer(self.norm(x))))",
        "self.norm_after(x + self.dropout(sublayer(self.norm(x))))",
    )
    + """
# ps06-2-layer-check: cross-attention drawn as self-attention
# your cross-attention attends to the target again
"""
    + LAYER.replace("self.cross_attention(y, memory, mask=memory_mask)", "self.cross_attention(y, y, y)")
    + """
# ps06-2-layer-check: causal where there is a memory
# your self-attention is causal where there is a memory
"""
    + LAYER.replace("is_causal=self.causal", "is_causal=memory is not None")
    + """
# ps06-4-check: what was kept is not looked at
# you attend only to the new tokens
def decoder_layer_step(w, h, x, keys, values, memory_keys, memory_values, src_mask=None):
    def linear(name, y):
        return F.linear(y, w[name + ".weight"], w[name + ".bias"])

    def norm(name, y):
        return F.layer_norm(y, y.shape[-1:], w[f"add_norm_{name}.norm.weight"], w[f"add_norm_{name}.norm.bias"])

    def split(y):
        return y.view(*y.shape[:2], h, -1).transpose(1, 2)

    def merge(y):
        return y.transpose(1, 2).flatten(2)

    q, k, v = (split(linear(f"self_attention.W_{c}", x)) for c in "qkv")
    heads = scaled_dot_product_attention(q, k, v, is_causal=True)[0]
    x = norm("self", x + linear("self_attention.W_o", merge(heads)))
    q = split(linear("cross_attention.W_q", x))
    heads = scaled_dot_product_attention(q, memory_keys, memory_values, src_mask)[0]
    x = norm("cross", x + linear("cross_attention.W_o", merge(heads)))
    x = norm("feed_forward", x + linear("feed_forward.W_2", linear("feed_forward.W_1", x).relu()))
    return x, torch.cat([keys, k], 2), torch.cat([values, v], 2)

# ps06-5-check: padding is counted
# you count padding as positions
class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = c = config

        def embedding(words):
            position = SinusoidalEncoding(c.d_model, c.max_length)
            return TransformerEmbedding(words, c.d_model, position=position, dropout=c.dropout)

        self.source_embedding = embedding(c.source_vocab_size)
        self.target_embedding = embedding(c.target_vocab_size)
        self.encoder_layers = nn.ModuleList(package.EncoderLayer(c) for _ in range(c.num_encoder_layers))
        self.decoder_layers = nn.ModuleList(package.DecoderLayer(c) for _ in range(c.num_decoder_layers))
        last = LayerNorm if c.norm_first else nn.Identity
        self.encoder_norm, self.decoder_norm = last(c.d_model), last(c.d_model)
        self.output = nn.Linear(c.d_model, c.target_vocab_size, bias=False)
        self.output.weight = self.target_embedding.token.weight

    def forward(self, src, tgt_in):
        src_mask = padding_mask(src, self.config.pad_id)
        memory, x = self.source_embedding(src), self.target_embedding(tgt_in)
        for layer in self.encoder_layers:
            memory = layer(memory, src_mask)
        memory = self.encoder_norm(memory)
        for layer in self.decoder_layers:
            x = layer(x, memory, src_mask)
        return self.output(self.decoder_norm(x))

# ps07-2-loss-check: smoothing left to PyTorch
# you give padding a share of ε
def label_smoothed_loss(logits, targets, *, pad_id, smoothing=0.1):
    loss = F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=pad_id, label_smoothing=smoothing, reduction="sum"
    )
    return loss, (targets != pad_id).sum()

# ps07-2-pairs-check: no shift
# your tgt_in and tgt_out are the same
from torch.nn.utils.rnn import pad_sequence


def teacher_forcing(targets, bos_id, eos_id, pad_id):
    rows = [torch.tensor([*sentence, eos_id]) for sentence in targets]
    whole = pad_sequence(rows, batch_first=True, padding_value=pad_id)
    return whole, whole

# ps07-2-rate-check: the formula without step 0
# your step 0 raises an error or has another rate than step 1
def warmup_inverse_sqrt(step, d_model, warmup_steps):
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)

# ps07-3-check: the loop of most tutorials
# you average the means of the batches
defects = "BF"


def repaired(module, batches, accumulate, *, rate, pad_id):
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    optimizer.zero_grad()
    losses = []
    for i, (inputs, targets) in enumerate(batches):
        loss = F.cross_entropy(module(inputs).flatten(0, 1), targets.flatten(), ignore_index=pad_id)
        (loss / accumulate).backward()
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses

# ps07-4-check: the certainty first
# accuracy 2/3, got 0.7167
def calibration(logits, targets, pad_id):
    real = targets != pad_id
    best = logits[real].softmax(dim=-1).max(dim=-1)
    return best.values.mean(), (best.indices == targets[real]).float().mean()

# ps07-5-check: moments changed in place
# you change a tensor that you were given
def adam_step(parameter, gradient, first, second, step, *, rate, betas=(0.9, 0.98), eps=1e-9):
    first.mul_(betas[0]).add_(gradient, alpha=1 - betas[0])
    second.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
    m, v = first / (1 - betas[0] ** step), second / (1 - betas[1] ** step)
    return parameter - rate * m / (v.sqrt() + eps), first, second

# ps08-2-check: the first sentence's token for all
# you give every sentence of the batch the token of the first one
def greedy(model, src, *, max_length):
    tokens = torch.full((len(src), 1), model.config.bos_id)
    with torch.no_grad():
        for _ in range(max_length):
            best = model(src, tokens)[0, -1].argmax().item()
            tokens = torch.cat([tokens, torch.full((len(src), 1), best)], dim=1)
            if best == model.config.eos_id:
                break
    return tokens[:, 1:]

# ps08-4-nucleus-check: without the token that crosses p
# you drop the token at which the sum crosses p
def nucleus(logits, p):
    if not 0 < p <= 1:
        raise ValueError("p")
    values, index = logits.sort(dim=-1, descending=True)
    hidden = values.softmax(-1).cumsum(-1) > p
    return logits.masked_fill(hidden.gather(-1, index.argsort(-1)), -math.inf).softmax(-1)

# ps08-6-check: a mean of sentences
# you average the scores of sentences
def bleu(candidates, references):
    if len(candidates) != len(references) or not all(references):
        raise ValueError("references")
    total = 0.0
    for said, several in zip(candidates, references):
        right = []
        for n in range(1, 5):
            most, own = Counter(), Counter(zip(*(said[i:] for i in range(n))))
            for one in several:
                most |= Counter(zip(*(one[i:] for i in range(n))))
            right.append((own & most).total() / max(1, own.total()))
        r = min((abs(len(one) - len(said)), len(one)) for one in several)[1]
        total += min(1, math.exp(1 - r / len(said))) * math.prod(right) ** 0.25
    return 100 * total / len(candidates)

# ps08-8-check: a cache cut too late
# you attend to everything and cut afterwards
def cached_attention_step(query, key, value, keys, values, window=None):
    if window is not None and window < 1:
        raise ValueError("window")
    keys, values = torch.cat([keys, key], -2), torch.cat([values, value], -2)
    weights = (query @ keys.mT / query.size(-1) ** 0.5).softmax(-1)
    output = weights @ values
    if window is not None:
        keys, values = keys[..., -window:, :], values[..., -window:, :]
    return output, keys, values

# ps09-2-check: the chapter's loop
# your tiles are small, but the exponentials of all of them are kept for the backward pass
def tiled_attention(query, key, value, block):
    query = query / math.sqrt(query.size(-1))
    m = torch.full_like(query[..., :1], -torch.inf)
    l, o = torch.zeros_like(m), query.new_zeros(())
    for start in range(0, key.size(-2), block):
        s = query @ key[..., start : start + block, :].mT
        larger = torch.maximum(m, s.detach().amax(dim=-1, keepdim=True))
        e, correction = (s - larger).exp(), (m - larger).exp()
        l = l * correction + e.sum(dim=-1, keepdim=True)
        o = o * correction + e @ value[..., start : start + block, :]
        m = larger
    return o / l

# ps09-5-check: all logits
# you compute the logits of the whole vocabulary at once
def chunked_cross_entropy(hidden, weight, targets, chunk, pad_id):
    total = F.cross_entropy(hidden @ weight.T, targets, ignore_index=pad_id, reduction="sum")
    return total / (targets != pad_id).sum().clamp(min=1)

# ps09-6-check: a state changed in place
# you change the caller's S or z in place
def linear_attention_step(query, key, value, S=None, z=None, *, decay=1.0):
    q, k = F.elu(query) + 1, F.elu(key) + 1
    if S is None:
        S, z = k.new_zeros(*k.shape, value.size(-1)), torch.zeros_like(k)
    S *= decay
    z *= decay
    S += k[..., None] * value[..., None, :]
    z += k
    return (q[..., None, :] @ S)[..., 0, :] / (q * z).sum(-1, keepdim=True), S, z

# ps10-5-check: the gradient of a sum
# you take the gradient of the sum of an output's numbers
def influence(model, x):
    training = model.training
    model.eval()
    x = x.clone().requires_grad_()
    y = model(x)
    rows = []
    for t in range(len(x)):
        if y.requires_grad:
            row = torch.autograd.grad(y[t].sum(), x, retain_graph=True, allow_unused=True)[0]
        rows.append(torch.zeros_like(x) if not y.requires_grad or row is None else row)
    model.train(training)
    return torch.stack(rows).abs().amax(-1) > 0

# ps10-5-check: faint means none
# you overlook faint influences
def influence(model, x):
    training = model.training
    model.eval()
    slopes = torch.autograd.functional.jacobian(model, x)
    model.train(training)
    return slopes.abs().amax(dim=(1, 3)) > 1e-6

# ps10-6-check: shapes
# your test finds only crashes and wrong shapes
"""
    + IS_RIGHT.format("output.shape == (2, 5, 11) and weights.shape == (2, 5, 7)")
    + """
# ps10-6-check: rows that sum to one
# it is required that what is not softmax(QKᵀ/√d_k) V fails
"""
    + IS_RIGHT.format(
        "torch.allclose(weights.sum(-1), torch.ones(2, 5)) and torch.equal(output, weights @ value)"
    )
)

_, *split = re.split(r"^# (ps.+): (.+)\n# (.+)\n", LISTED, flags=re.MULTILINE)
# For each answer: its check, the description, the text, and the part of the message.
WRONG = list(zip(split[::4], split[1::4], split[3::4], split[2::4], strict=True))
