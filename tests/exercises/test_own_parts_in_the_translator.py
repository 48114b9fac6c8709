"""Answers in the trained translator: right ones change no translation, known mistakes change some."""

import math
import re
from pathlib import Path

import pytest
import torch

from transformer_lessons import checks
from transformer_lessons.checks import definitions
from transformer_lessons.checks.translator import reading
from transformer_lessons.checks.translator.reading import PARTS, compare

ROOT = Path(__file__).parents[2]


def translates_as_before(task, own) -> bool:
    return all(said.own == said.before for said in compare(task, own))


@pytest.mark.parametrize("name", PARTS)
def test_a_right_part_keeps_the_translations_and_a_known_mistake_changes_them(name):
    task = checks.task(name)
    assert translates_as_before(task, task.define(task.source))

    def changes_translations(way):
        try:
            return not translates_as_before(task, task.define(definitions.changed(task.source, way)))
        except Exception:  # the learner would see the error
            return True

    # The costliest mistakes change most; in the listed order, many would be tried in vain.
    costly = sorted(task.mistakes, key=lambda mistake: task.points(mistake.costs), reverse=True)
    assert any(changes_translations(way) for mistake in costly for way in mistake.ways)


def unscaled_attention(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1)
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return weights @ value, weights


def test_a_missing_scale_shows_in_the_translations(capsys):
    checks.try_in_translator("scaled_dot_product_attention", unscaled_attention)
    said = capsys.readouterr().out
    assert (
        "   94,790  vier und neunzig tausend sieben hundert sieben und neunzig\n   before  vier und" in said
    )
    assert said.endswith("3 of 5 are the same as before.\n")
    beginning = "\n".join(said.splitlines()[2:6])
    for page in "README.md", "book/_templates/exercises.md.jinja":
        assert beginning in (ROOT / page).read_text(encoding="utf-8")


def test_names_of_parameters_are_open():
    class Norm(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.gamma, self.beta = (
                torch.nn.Parameter(torch.ones(width)),
                torch.nn.Parameter(torch.zeros(width)),
            )

        def forward(self, x):
            return torch.nn.functional.layer_norm(x, x.shape[-1:], self.gamma, self.beta)

    assert translates_as_before(checks.task("layer_norm"), Norm)


def test_parameters_that_do_not_match_the_translators_are_refused():
    task = checks.task("layer_norm")
    with pytest.raises(ValueError, match=r"expected matches for \['weight', 'bias'\], got \[\]"):
        compare(task, lambda width: torch.nn.Identity())


def test_a_part_that_does_not_fit_is_reported_with_its_error(capsys):
    checks.try_in_translator("padding_mask", lambda ids, pad_id: ids != pad_id)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "The trained translator breaks down with your padding_mask."
    assert "Error: " in second


def test_a_part_that_the_translator_has_not_is_refused():
    with pytest.raises(ValueError, match=r"expected a part of the translator, one of .*, got 'rotary'"):
        checks.try_in_translator("rotary", None)


def test_maps_show_attention_to_padding_only_where_nothing_masks_it():
    """If the mask hides nothing, the last token attends to padding."""

    def on_padding(table):
        last = table.split("</tr>")[-2]  # zwanzig
        return sum(map(float, re.findall(r'title="([0-9.]+)"', last)[5:]))

    everything = reading.attention_html(
        checks.task("padding_mask"), lambda ids, pad_id: torch.ones(2, 1, 1, ids.size(1)).bool()
    )
    yours, before = everything.split("<caption>before")
    assert on_padding(yours) > 0.4
    assert on_padding(before) == 0


def test_attention_that_returns_no_weights_has_no_map():
    task = checks.task("scaled_dot_product_attention")
    alone = reading.attention_html(task, lambda *given: unscaled_attention(*given)[0])
    assert alone.count("<caption>") == 1
