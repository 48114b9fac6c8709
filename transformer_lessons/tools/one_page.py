"""Chapter 0's large drawing: one step of the trained translator, from words to the next word, in two panels.

The decoder is causal, so a row does not change when words are added below it. Hence one run contains all
steps, and everything has a fixed place: `base` is always there, `sentence` is the encoder's part, `row` is
drawn per German word, `step` per step, and `look` shows where one row looks.
"""

from functools import cache

import torch
from matplotlib.patches import FancyBboxPatch, PathPatch, Rectangle

from transformer_lessons.data import number_words
from transformer_lessons.decoding import greedy
from transformer_lessons.tools.attention_maps import attention_maps
from transformer_lessons.tools.drawing import LINE, SMALL, Canvas, Drawing, cells, number
from transformer_lessons.trainer import checkpoints

NUMBERS = 421, 1021, 43001  # five English words and six steps each: the drawing keeps its shape
BOXES = {  # x, y, width, height in the encoder's panel and in the decoder's
    "layer 1": ((112, 232, 226, 38), (18, 232, 206, 38)),
    "self-attention": ((120, 350, 210, 178), (26, 350, 190, 178)),
    "cross-attention": (None, (26, 540, 190, 190)),
    "feed-forward": ((120, 540, 210, 66), (26, 742, 190, 66)),
}
LABELS = (  # panel, x, y, words, alignment
    (0, 106, 658, "5 × 128", "left"), (0, 252, 664, "the bridge", "center"),
    (1, 32, 569, "keys, values", "left"), (1, 208, 569, "queries", "right"), (1, 298, 928, "1 × 35", "left"),
    (1, 282, 878, "the last row · 1 × 128", "right"),
)  # fmt: skip
CHAPTERS = {"self-attention": ("03 07", "04"), "cross-attention": ("", "07"), "feed-forward": ("08", "08")}
MAPS = ("em", "encoder", "self"), ("dm", "decoder", "self"), ("cm", "decoder", "cross")
GRIDS, HEATS = ((190, 374, 19), (104, 374, 17)), ((186, 284, 635), (186, 284, 832))  # of maps, of the stream
SIDES, STEPS, CROSS, LAST = ("encoder", "decoder"), 6, 590, 940  # first rows of cross-attention, of chances
HEIGHTS = 700, 1024  # of the panels


@cache
@torch.no_grad()
def run(n: int) -> dict:
    """The numbers of one translation that the drawing shows, a row per word; maps are means over heads."""
    model, source, target = checkpoints.load_model()
    src = torch.tensor([source.encode(number_words.english_tokens(number_words.english(n)))])
    tgt = torch.tensor([[model.config.bos_id, *greedy(model, src, max_length=20)[0, :-1].tolist()]])
    stacks = (model.source_embedding, *model.encoder_layers), (model.target_embedding, *model.decoder_layers)
    parts, kept = {"logits": model.output}, {}
    for side, stack in zip("ed", stacks, strict=True):
        parts |= {side + str(place): part for place, part in enumerate(stack)}
        parts |= {side + "v": stack[0].token, side + "f": stack[2].feed_forward.W_1}
    for name, part in parts.items():
        part.register_forward_hook(lambda *given, name=name: kept.update({name: given[2][0]}))
    maps = attention_maps(model, src, tgt)
    kept |= {name: maps[f"{side}_layers.1.{kind}_attention"][0].mean(0) for name, side, kind in MAPS}
    names = ["PAD", "BOS", "EOS", *target.tokens[3:]]
    chances, order = (x.tolist() for x in kept["logits"].softmax(-1).sort(descending=True))
    best = [[(names[i], p) for i, p in zip(*row, strict=True)] for row in zip(order, chances, strict=True)]
    words = [source.tokens[i] for i in src[0]], [names[i] for i in tgt[0]]
    return kept | {"words": words, "ids": (src[0].tolist(), tgt[0].tolist()), "best": best}


class Panel(Canvas):
    """One of the two panels, with the shapes that only this drawing needs."""

    def small(self, x, y, words, align="left", role="soft", **more):
        """Write an annotation."""
        self.text(x, y, words, role, SMALL, align, **more)

    def chip(self, right, y, *chapters):
        """Draw the chapters that build a part, as outlined numbers that end at `right`."""
        for place, chapter in enumerate(reversed(chapters)):
            self.box(right - 24 * place - 19, y - 7.5, 19, 15, "", "soft", 3, 0)
            self.small(right - 24 * place - 9.5, y, chapter, "center")

    def heat(self, x, y, rows, role, cell=6, negative="mask"):
        """Draw numbers as cells: opaque from ±2 on, `negative` below 0. Cells that look alike are one path."""
        alike = {}
        for i, j in ((i, j) for i, row in enumerate(rows) for j in range(len(row))):
            look = (role if rows[i][j] > 0 else negative, round(4 * min(abs(float(rows[i][j])), 2)) / 8)
            alike.setdefault(look, []).append((x + cell * (j + 0.5), y + cell * (i + 0.5)))
        for look, middles in sorted(alike.items()):
            self._add(PathPatch, cells(middles, cell, cell), fc=look, ec="none")

    def edge(self, x, y, width, height, role="rule", radius=0, line=LINE):
        """Draw the outline of cells or of a pill, dashed for a place that is still free."""
        shape = f"round,pad=0,rounding_size={radius}" if radius else "square,pad=0"
        dashes = {"lw": 0.8, "ls": (0, (3, 2.5))} if role == "rule" else {"lw": line}
        self._add(FancyBboxPatch, (x, y), width, height, boxstyle=shape, fc="none", ec=role, **dashes)

    def weights(self, x, y, values, cell, mask=None):
        """Draw a part of an attention map on a background in the colour of paper."""
        self._add(Rectangle, (x, y), cell * len(values[0]), cell * len(values), fc="paper", ec="none")
        self.matrix(x, y, values, "rule", cell=(cell, cell), weights=True, mask=mask)

    def entry(self, row, one, side):
        """Draw a token, its id, the first numbers of its vector and position, and its labels in the map."""
        first, y, role, key, word = 18 * side, 58 + 21 * row, SIDES[side], "ed"[side], one["words"][side][row]
        self.token(first, y, word, role, 60, SMALL, 18)
        self.small(first + 72, y, str(one["ids"][side][row]), "center", "ink")
        vector = one[key + "v"][row]
        for at, values in ((86, vector), (202, one[key + "0"][row] - vector)):
            self.vector(first + at, y, values[:3].tolist(), role, cell=(29, 18), digits=1, tint=0.08)
            self.small(first + at + 94, y, "…", "center")
        self.text(first + 193, y, "+", bold=True)
        x, y, cell = GRIDS[side]
        self.small(x - 5, y + cell * (row + 0.5), word, "right", "ink")
        self.small(x + cell * (row + 0.5), y + (100, 107)[side], word, "right", turn=90)

    def units(self, side, hidden, word):
        """Draw which of the first 32 hidden feed-forward units are active for a word; count all that are."""
        x, y, width, _ = BOXES["feed-forward"][side]
        cell = (width - 16) / 32
        self.heat(x + 8, y + 36, [(0.8 * hidden[:32]).relu().tolist()], SIDES[side], cell)
        self.edge(x + 8, y + 36, width - 16, cell, SIDES[side])
        self.small(x + 8, y + 54, f"{word}: {int((hidden > 0).sum())} of 512 units answer", role="ink")

    def wires(self, one, k, role, alpha):
        """Draw lines from a German word to the English ones, as thick as the weights."""
        for j, weight in enumerate(one["cm"][k].tolist()):
            if weight > 0.02:
                ends = (156, CROSS + 24 * k), (121, CROSS + 12 + 24 * j)
                self.line(*ends, role=role, width=5 * weight, alpha=alpha)


def base(a: Panel, b: Panel) -> None:
    """Draw what is always there: boxes, names, arrows, chapters, and the places that are still free."""
    for side, c in enumerate((a, b)):
        role, into, stream, first = SIDES[side], 1 - 2 * side, (50, 290)[side], 18 * side
        title = ("The encoder reads, once", "The decoder writes, word by word")[side]
        c.text(0, 9, title, align="left", bold=True, size=12.5)
        for x, head in ((30, "token"), (72, "id"), (105, "vector"), (223, "position")):
            c.small(first + x, 36, head, "center")
        c.chip(first + 146, 36, "02")
        c.chip(first + 268, 36, "05")
        c.arrow((stream, (160, 176)[side]), (stream, 184), role="residual")
        c.stream((stream, 186), (stream, HEATS[side][2]))
        x, y, w, h = BOXES["layer 1"][side]
        c.box(x, y, w, h, "", role, 9, 0.05)
        c.text(x + 10, y + h / 2, "layer 1", align="left", bold=True)
        c.small(x + 60, y + h / 2, "the same parts as layer 2")
        c.arrow((stream, y + 10), (x + w * side, y + 10), role="residual")
        c.arrow((x + w * side, y + 28), (stream + 5 * into, y + 28), role="residual")
        c.box(x, 330, w, BOXES["feed-forward"][side][1] - 256, "", role, 9, 0.05)
        c.text(x + 10, 341, "layer 2", align="left", bold=True)
        c.chip(x + w - 8, 340, "11")
        for name, chapters in CHAPTERS.items():
            if not chapters[side]:
                continue
            x, y, w, h = BOXES[name][side]
            c.box(x, y, w, h, "", role, tint=0.08)
            c.text(x + 8, y + 12, "masked " * (side and name[0] == "s") + name, align="left", bold=True)
            c.chip(x + w - 6, y + 12, *chapters[side].split())
            near, reads, adds = x + w * side, y + (14 if name[0] == "f" else 20), y + h - 34
            c.arrow((stream, reads), (near, reads), role="query" if name[0] == "c" else "residual")
            c.arrow((near, adds), (stream + 8 * into, adds), role="residual")
            c.plus(stream, adds)
            c.box(stream - 20, adds + 16, 40, 16, "norm", role, 4, 0.2, SMALL)
        c.small(x + 8, y + 27, "128 → 512 → 128 numbers")
        c.small(stream - 14 * into, 420, "residual stream", "center", turn=90)
        for y, words in ((504, "average of"), (516, "4 heads")):
            c.small(x + 8, y, words)
        c.chip((38, 338)[side], 494, "10")
        c.chip((24, 338)[side], 518, "09")
    b.edge(104, 374, 102, 102)
    for top in HEATS[1]:
        b.edge(242, top, 96, 36)
    for k in range(STEPS):
        b.edge(18, 49 + 21 * k, 60, 18, radius=9)
        b.edge(156, CROSS - 9 + 24 * k, 54, 18, radius=9)
    for panel, x, y, words, align in LABELS:
        (a, b)[panel].text(x, y, words, "soft", SMALL, align)
    a.line((164, 650), (340, 650), role="encoder", width=2.2)
    b.arrow((0, 650), (31, 650), role="encoder", width=2.2)
    b.arrow((290, 870), (290, 886), role="residual")
    b.box(238, 888, 100, 26, "linear, softmax", "decoder", size=SMALL)
    b.arrow((290, 914), (290, LAST), (262, LAST), role="residual")
    b.chip(230, 901, "12")
    b.chip(150, 918, "14")
    for c, x, y, words in ((a, 106, 644, "memory"), (b, 26, 918, "the next token")):
        c.text(x, y, words, align="left", bold=True)


def sentence(a: Panel, b: Panel, one: dict) -> None:
    """Draw what the encoder computed from its words, and the words that cross-attention looks at."""
    words, (x, y, cell) = one["words"][0], GRIDS[0]
    n = len(words)
    a.weights(x, y, one["em"].tolist(), cell)
    a.edge(x, y, n * cell, n * cell, "query")
    a.small(x - 62, y + n * cell / 2, f"queries · {n}", "center", turn=90)
    a.small(x - 8, y + 108, f"keys · {n}", "right")
    for k, word in enumerate(words):
        a.entry(k, one, 0)
        b.token(32, CROSS + 12 + 24 * k, word, "encoder", 54, SMALL, 18)
    for place, top in enumerate(HEATS[0]):
        a.heat(2, top, one[f"e{place}"][:, :16].tolist(), "encoder")
        a.edge(2, top, 96, 6 * n, "encoder")
    a.small(106, 194, f"their sum · {n} × 128")
    a.small(106, 208, "a row for each word, 16 of its numbers")
    a.small(106, 299, f"after layer 1 · {n} × 128")
    a.units(0, one["ef"][-1], words[-1])


def row(b: Panel, one: dict, k: int) -> None:
    """Draw a German word: its entry, its rows of the stream, its cells, and faint lines to where it looks."""
    x, y, cell = GRIDS[1]
    b.entry(k, one, 1)
    for place, top in enumerate(HEATS[1]):
        b.heat(242, top + 6 * k, one[f"d{place}"][k : k + 1, :16].tolist(), "decoder")
    b.weights(x, y + cell * k, one["dm"][k : k + 1, : k + 1].tolist(), cell)
    if k:
        b.weights(x + cell * k, y, k * [[0]], cell, mask=k * [[False]])
    b.wires(one, k, "soft", 0.22)
    b.token(156, CROSS + 24 * k, one["words"][1][k], "decoder", 54, SMALL, 18)


def step(b: Panel, one: dict, k: int) -> None:
    """Draw the step with rows 0 to k: sizes, the likeliest tokens, and how it goes on."""
    m, (x, y, cell) = k + 1, GRIDS[1]
    for top, name in zip(HEATS[1], ("their sum", "after layer 1", "after layer 2"), strict=True):
        b.edge(242, top, 96, 6 * m, "decoder")
        b.small(234, top + 18, f"{name} · {m} × 128", "right")
    b.frame(242, HEATS[1][2] + 6 * k, 96, 6, "query")
    b.edge(x, y, m * cell, m * cell, "query")
    b.small(x - 64, y + 51, f"queries · {m}", "center", turn=90)
    b.small(x - 8, y + 113, f"keys · {m}", "right")
    for place, (word, p) in enumerate(one["best"][k][:5]):
        at = LAST + 18 * place
        b.token(26, at, word, "decoder", 66, SMALL, 16)
        b.bar(98, at, max(118 * p, 1), 12)
        b.small(102 + 118 * p, at, f"{100 * p:.1f}%", role="ink", bold=not place)
    if m < STEPS:  # then another step follows
        at = 58 + 21 * m
        b.arrow((24, LAST), (6, LAST), (6, at), (17, at), role="decoder", dashed=True)
        b.token(18, at, one["best"][k][0][0], "decoder", 60, SMALL, 18)
        b.small(84, at, "comes next, and goes back in")


def look(b: Panel, one: dict, k: int) -> None:
    """Draw where one row looks: its weights on English words, its row of the map, the units active for it."""
    weights, (x, y, cell) = one["cm"][k].tolist(), GRIDS[1]
    b.wires(one, k, "weight", 1.0)
    for j, weight in enumerate(weights):
        best = weight == max(weights)
        b.small(117, CROSS + 12 + 24 * j, number(weight), "right", "ink", bold=best)
        if best:
            b.edge(30, CROSS + 1 + 24 * j, 58, 22, "query", 11, 2.2)
    b.edge(154, CROSS + 24 * k - 11, 58, 22, "query", 11, 2.2)
    b.edge(16, 47 + 21 * k, 64, 22, "query", 11, 2.2)
    b.frame(x, y + cell * k, (k + 1) * cell, cell, "query")
    b.units(1, one["df"][k], one["words"][1][k])


class OnePage(Drawing):
    """A drawing whose caption is under the shorter panel if there is room for both side by side."""

    def _repr_html_(self):
        html = super()._repr_html_().replace('"><svg', '" data-one-page><svg', 1)
        return html.replace("</style>", STYLE, 1)


STYLE = """
[data-one-page]{container:one-page/inline-size;column-gap:0!important}[data-one-page] svg{align-self:flex-start}
@container one-page (min-width:640px){[data-one-page]>figcaption{flex:0 0 46%!important;
padding:0!important;margin:-45% auto 0 0!important}}</style>"""


def figure(n: int, at: int, **words: str) -> Drawing:
    """The static drawing of one step; `words` are number, caption and alt."""
    (a, b), one = map(Panel, HEIGHTS), run(n)
    base(a, b)
    sentence(a, b, one)
    for k in range(at + 1):
        row(b, one, k)
    step(b, one, at)
    look(b, one, at)
    return OnePage([a, b], **words)
