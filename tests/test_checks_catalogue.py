"""Every catalogued mistake fails and is named as itself: any two differ in something that a check sees."""

import inspect
import re
from pathlib import Path

import pytest

from transformer_lessons import checks
from transformer_lessons.checks.old.core import exam

ATTENTION = "scaled_dot_product_attention"
TASKS = [checks.task(name) for name in checks.tasks()]


def catalogue():
    """Every way to make every mistake."""
    for task in TASKS:
        for mistake in task.mistakes:
            for number, variant in enumerate(mistake.variants, start=1):
                yield pytest.param(task, mistake, variant, id=f"{task.name}-{mistake.id}-{number}")


CATALOGUE = list(catalogue())
SOURCE = {
    line.strip()
    for task in TASKS
    for line in inspect.getsource(task.reference).splitlines()
    if len(line.strip()) > 25 and line.strip() not in (task.reference.__doc__ or "")
}


@pytest.fixture(autouse=True)
def as_users_run_it(no_shape_checks):
    """Learners do not run under the import hook, which takes most of the time here."""


@pytest.mark.sampled(5, by="task")
@pytest.mark.parametrize(("task", "mistake", "variant"), CATALOGUE)
def test_a_known_mistake_fails_and_is_named(task, mistake, variant):
    report = checks.check(task.name, task.mistaken(variant))
    assert not report.passed
    assert (report.misconception, report.also) == (mistake.id, ())
    assert mistake.name in " ".join(report.message.split())
    assert report.link == mistake.anchor
    assert report.message.endswith(mistake.anchor)
    assert not any(line in report.message for line in SOURCE), "this gives the answer away"


@pytest.mark.full
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_known_mistakes_are_named_on_every_seed(task, every_seed):
    wrong = {}
    for mistake in task.mistakes:
        for number, variant in enumerate(mistake.variants, start=1):
            report = checks.check(task.name, task.mistaken(variant), seed=every_seed)
            named = "right" if report.passed else (report.misconception, *report.also)
            if named != (mistake.id,):
                wrong[f"{mistake.id}-{number}"] = named
    exam.cache_clear()  # of a seed that nobody asks for again; a hundred of them are a gigabyte
    assert wrong == {}


@pytest.mark.parametrize(
    ("name", "seed", "id_", "variant"),
    [
        ("greedy", 17, "argmax_over_batch", 1),
        ("decoder_layer", 89, "target_mask_ignored", 0),
        ("multi_head", 36, "two_axes_as_padding", 0),
        ("accumulated_gradients", 65, "gradient_clipped", 2),
    ],
)
def test_no_draw_hides_a_mistake(name, seed, id_, variant):
    """On these seeds the loudest sentence would be the first, the mask hide nothing that causality shows, all
    queries have the same row of the mask, and the gradient be shorter than what it is clipped to.
    """
    task = checks.task(name)
    (mistake,) = (mistake for mistake in task.mistakes if mistake.id == id_)
    report = checks.check(name, task.mistaken(mistake.variants[variant]), seed=seed)
    assert (report.passed, report.misconception, report.also) == (False, id_, ())


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_steps_without_a_mistake_are_right(task):
    for seed in range(3):
        assert checks.check(task.name, task.assemble(task.steps), seed=seed).passed


def test_the_catalogue_addresses_the_learner():
    for task in TASKS:
        ids = [mistake.id for mistake in task.mistakes]
        assert len(set(ids)) == len(ids)
        for mistake in task.mistakes:
            assert mistake.name[0].islower()
            assert not mistake.name.endswith(".")
            assert mistake.why.endswith(".")
            assert mistake.symptom.endswith(".")
            assert re.match(r"#ch\d\d-", mistake.anchor)


PAIRS = [
    (ATTENTION, "no_scaling", "softmax_over_queries"),
    (ATTENTION, "no_scaling", "mask_ignored"),
    (ATTENTION, "scaled_by_d_k", "empty_rows_nan"),
    (ATTENTION, "key_reshaped", "softmax_dim_1"),
    (ATTENTION, "mask_inverted", "causal_ignored"),
    (ATTENTION, "empty_rows_uniform", "mask_type_unchecked"),
    (ATTENTION, "weights_detached", "dropout_ignored"),
    ("padding_mask", "inverted", "unsqueezed_once"),
    ("padding_mask", "pad_id_zero", "not_boolean"),
    ("causal_mask", "hides_itself", "no_axes"),
    ("causal_mask", "first_to_first", "device_ignored"),
    ("additive_mask", "finite_fill", "dtype_ignored"),
    ("combine_masks", "or_for_and", "not_boolean"),
    ("masked_self_attention", "padding_overwritten", "shows_next"),
    ("local_window_mask", "one_too_many", "first_to_first"),
    ("limit_lengths", "end_lost", "numbers_from_one"),
    ("soft_capped_attention", "cap_not_multiplied", "no_scaling"),
    ("feed_forward", "no_activation", "dropout_in_evaluation"),
    ("swiglu", "sigmoid_gate", "bias_ignored"),
    ("layer_norm", "unbiased_eps_outside", "other_default"),
    ("rms_norm", "summed", "half_statistics"),
    ("batch_norm", "unbiased", "momentum_reversed"),
    ("masked_batch_norm", "zeros_averaged", "few_accepted"),
    ("scaled_step", "nan_only", "not_doubled"),
    ("tiled_attention", "no_scaling", "kept_for_backward"),
    ("chunked_cross_entropy", "padding_counted", "all_logits"),
    ("grouped_query", "softmax_over_queries", "empty_rows_uniform"),
    ("grouped_query", "softmax_over_queries", "mask_filled_too_small"),
    ("influence", "transposed", "threshold"),
    ("influence", "positive_only", "left_in_evaluation"),
    ("attention_test", "mask_overlooked", "gradients_overlooked"),
    ("attention_test", "scale_overlooked", "crashes"),
]


@pytest.mark.parametrize(("name", "first", "second"), PAIRS)
def test_two_mistakes_at_once_are_both_named(name, first, second):
    task = checks.task(name)
    chosen = {mistake.id: mistake.variants[0] for mistake in task.mistakes}
    report = checks.check(name, task.mistaken(chosen[first], chosen[second]))
    assert {report.misconception, *report.also} == {first, second}


def test_a_second_mistake_that_could_be_another_one_is_not_named():
    """Where log p is divided by the length, either of two mistakes makes float32 of float16, and no more."""
    task = checks.task("length_penalty")
    chosen = {mistake.id: mistake.variants[0] for mistake in task.mistakes}
    for second in ("half_widened", "in_float32"):
        report = checks.check(task.name, task.mistaken(chosen["plain_mean"], chosen[second]))
        assert (report.misconception, report.also) == ("plain_mean", ())


def test_partial_credit_counts_the_requirements_met():
    task = checks.task(ATTENTION)
    nan_rows = next(mistake for mistake in task.mistakes if mistake.id == "empty_rows_nan")
    report = checks.check(ATTENTION, task.mistaken(nan_rows.variants[0]))
    # The same rows are empty where a mask and causality together leave no key; no points hang on those.
    assert [name for name, met in report.requirements.items() if not met] == ["empty_rows", "causal_rows"]
    assert report.score(values=2, mask=1, empty_rows=1) == 3
    with pytest.raises(ValueError, match="points: expected requirements"):
        report.score(speed=1)


def test_a_notebook_shows_the_message_and_not_the_workings():
    with pytest.raises(AssertionError) as failure:
        checks.require("causal_mask", lambda queries, keys=None, *, device=None: None)
    assert failure.value._render_traceback_() == [f"AssertionError: {failure.value}"]  # IPython asks for it


def test_the_report_reads_well():
    task = checks.task(ATTENTION)
    report = checks.check(ATTENTION, task.mistaken(task.mistakes[1].variants[0]))
    lines = str(report).splitlines()
    assert lines[:4] == [
        "scaled_dot_product_attention: not there yet.",
        "Required: weights = softmax(QKᵀ/√d_k), output = weights V.",
        f"What happened: output is off by up to {report.deviation:.2g}, at {report.where}.",
        "Known mistake: you divided by d_k, not √d_k. All weights are too close to each other.",
    ]
    assert lines[4] == "Smallest case found:"
    assert lines[5].startswith("  query = [[[[")
    assert lines[-1] == "Read: chapter 5, #ch05-wrong"
    assert report.counterexample.splitlines()[0] in lines[5]
    assert max(map(len, lines)) <= 100


CHAPTERS = Path(__file__).parent.parent / "book" / "chapters"


def test_messages_point_at_places_in_the_book_that_exist():
    anchors = {requirement.anchor for task in TASKS for requirement in task.requirements}
    anchors |= {mistake.anchor for task in TASKS for mistake in task.mistakes}
    for anchor in anchors:
        for chapter in CHAPTERS.glob(f"{anchor[3:5]}_*.ipynb"):
            assert f'<a id=\\"{anchor[1:]}\\"></a>' in chapter.read_text(encoding="utf-8"), anchor
