"""The rules by which an answer is judged, on a task small enough to follow by hand."""

import linecache
import math
import re
import sys
import time
import tomllib
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from checks.answers import MODULES
from checks.answers.attention import Stacked, scaled_first
from checks.answers.positions import divided_by_nothing
from checks.conftest import TASKS
from transformer_lessons import checks
from transformer_lessons.checks.answer import Answer
from transformer_lessons.checks.definitions import Call, Given, Remark, Task, changed
from transformer_lessons.checks.engine import judge
from transformer_lessons.checks.exam import exam_of
from transformer_lessons.checks.message import MOST_CASES, Message, write
from transformer_lessons.checks.seen import Outcome, alike, same_value
from transformer_lessons.checks.states import matchings
from transformer_lessons.checks.words import cut, literal
from transformer_lessons.masks import padding_mask

NAN, INF = math.nan, math.inf


def affine(x, shift):
    """Twice x, and a shift."""
    return 2 * x + shift


def calls(*pairs):
    return [Call((torch.tensor(x), shift)) for x, shift in pairs]


FACTOR, SHIFT = calls(([1.0, 3.0], 0.0), ([2.0], 0.0)), calls(([0.0, 0.0], 5.0), ([0.0], 7.0))
PROBES = {"factor": FACTOR, "shift": SHIFT, "gradients": FACTOR}
NOTES = """
[requirements]
factor = {points = 2, text = "x is doubled", anchor = "attention"}
shift = {points = 1, text = "shift is added", anchor = "attention"}
gradients = {points = 1, text = "gradients flow", anchor = "attention", backward = true}

[factor.halved]
you = "you halve x"
why = ""
looks = ""
symptoms = ["error"]
ways = [["2 * x", "x / 2"]]

[shift.no_shift]
you = "you never shift"
why = ""
looks = ""
symptoms = ["error"]
ways = [[" + shift", ""]]

[factor.dear]
you = "you are charged for all"
why = ""
looks = ""
also = ["shift"]
symptoms = ["error"]
ways = [["2 * x", "-x"]]
"""


def noted(notes):
    """The task with these notes, which otherwise come from a file."""
    task = Task(
        name="affine",
        solution=[affine],
        probes={name: (shown, shown) for name, shown in PROBES.items()},
        remarks=(Remark("infinity.", Call((torch.tensor([INF]), 0.0))),),
    )
    task.__dict__["notes"] = tomllib.loads(notes)
    return task


TASK = noted(NOTES)


def test_requirements_without_probes_and_unknown_costs_are_refused():
    with pytest.raises(
        ValueError, match=r"^affine: expected probes for \['factor', 'speed', 'gradients'\], got"
    ):
        _ = noted(NOTES.replace("shift = {", "speed = {")).requirements
    with pytest.raises(ValueError, match=r"^affine: no_shift costs \['speed'\], not a requirement"):
        _ = noted(NOTES.replace("[shift.no_shift]", "[speed.no_shift]")).mistakes


def answer_of(function):
    return Answer(TASK, function)


def verdict_of(function):
    return judge(answer_of(function))


@pytest.mark.parametrize(
    ("answer", "lost", "names"),
    [
        (lambda x, shift: x + x + shift, (), ()),
        (lambda x, shift: x / 2 + shift, ("factor",), ("halved",)),
        (lambda x, shift: x / 2, ("factor", "shift"), ("halved", "no_shift")),
        (lambda x, shift: 3 * x + shift, ("factor",), ()),  # unknown: each requirement counts by itself
        (lambda x, shift: -x + shift, ("factor",), ("dear",)),  # a recognised mistake never costs more
        (lambda x, shift: (2 * x + shift).detach(), ("gradients",), ()),
        (lambda x, shift: x.mul_(2) + shift, ("gradients",), ()),
        (lambda x: 2 * x, ("factor", "shift", "gradients"), ()),
    ],
)
def test_a_mistake_costs_only_what_it_breaks(answer, lost, names):
    verdict = verdict_of(answer)
    assert verdict.lost == lost
    assert tuple(mistake.name for mistake in verdict.mistakes) == names


def test_a_slow_machine_finds_as_much(monkeypatch):
    for clock in ("process_time", "perf_counter", "monotonic"):
        monkeypatch.setattr(time, clock, count(0, 60).__next__)
    verdict = verdict_of(lambda x, shift: x / 2)
    assert len(verdict.mistakes) == 2
    assert write(answer_of(lambda x, shift: x / 2), verdict).case


def test_gradients_of_wrong_values_need_only_arrive():
    assert verdict_of(lambda x, shift: 3 * x + shift).lost == ("factor",)
    assert verdict_of(lambda x, shift: 3 * x.detach() + shift).lost == ("factor", "gradients")


def test_what_raises_everywhere_says_so_in_the_first_line():
    verdict = verdict_of(lambda x, shift: x.missing)
    assert verdict.error.error == "AttributeError"
    message = write(answer_of(lambda x, shift: x.missing), verdict)
    assert message.head.startswith(
        "affine: it raises AttributeError: 'Tensor' object has no attribute 'missing', at “"
    )
    assert message.head.endswith("(0 of 4 points).")


def failing(error):
    def answer(*args, **kwargs):
        raise error

    return answer


@pytest.mark.parametrize("error", [AssertionError(), NotImplementedError("\n")])
def test_an_error_without_a_message_has_no_colon(error):
    report = checks.check("causal_mask", failing(error))
    raised = f"raises {type(error).__name__}, at “raise error”"
    assert report.message.startswith(f"causal_mask: it {raised} (0 of ")
    assert f"# {raised}" in report.message.splitlines()[-3]


@pytest.mark.parametrize("name", ["layer", "token_embedding"])
def test_an_unimplemented_forward_is_named_in_the_first_line(name):
    answer = checks.task(name).define(checks.task(name).source)
    answer.forward = failing(NotImplementedError())
    report = checks.check(name, answer)
    assert "it raises NotImplementedError, at" in report.message.splitlines()[0]
    assert 0 < report.score() <= 1  # for a new object's weights


@pytest.mark.parametrize("folder", ["dist-packages", "site-packages"])
def test_the_quoted_line_of_an_error_is_the_learners(folder):
    file = f"/usr/local/lib/python3.12/{folder}/torch/nn/functional.py"
    text = "def theirs():\n    raise ValueError('no')\n"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    space = {}
    exec(compile(text, file, "exec"), space)

    def mine(*args, **kwargs):
        return space["theirs"]()

    assert 'at “return space["theirs"]()”' in checks.check("causal_mask", mine).message


@pytest.mark.parametrize(
    ("name", "answer", "told"),
    [
        ("causal_mask", torch.ones(2), "pass the function itself, not an object of type Tensor"),
        ("causal_mask", None, "pass the function itself, not an object of type NoneType"),
        ("layer_norm", nn.LayerNorm(5), "pass the class itself, not an object of type LayerNorm"),
    ],
)
def test_an_object_in_place_of_a_function_or_class_is_named_in_the_first_line(name, answer, told):
    lines = checks.check(name, answer).message.splitlines()
    assert lines[0].startswith(f"{checks.task(name).public_name}: {told} (0 of ")
    assert lines[2].startswith("  Read: ")


@pytest.mark.parametrize("base", [object, list])
def test_a_class_that_is_no_module_is_named_in_the_first_line(base):
    report = checks.check("layer_norm", type("Norm", (base,), {"__init__": lambda self, d_model: None}))
    assert report.message.startswith("LayerNorm: make it a subclass of nn.Module; it makes a Norm (0 of ")


SESSIONS = {
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "device": lambda: torch.device("meta"),
    "no gradients": torch.no_grad,
}


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("name", ["scaled_dot_product_attention", "batch_norm", "tiled_attention"])
def test_what_a_session_has_set_changes_nothing_then_or_later(session, name):
    right = checks.task(name).define(checks.task(name).source)
    exam_of.cache_clear()  # arguments that are drawn in this session are kept
    numbers = torch.get_rng_state()
    with SESSIONS[session]():
        assert checks.check(name, right).passed
    assert checks.check(name, right).passed
    assert torch.equal(torch.get_rng_state(), numbers)


def test_a_default_dtype_changes_nothing_then_or_later():
    right = next(module.RIGHT["batch_norm"][0] for module in MODULES if "batch_norm" in module.RIGHT)
    exam_of.cache_clear()
    torch.set_default_dtype(torch.float64)
    try:
        assert checks.check("batch_norm", right).passed
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert checks.check("batch_norm", right).passed


def test_a_module_without_a_truth_value_is_judged():
    right = checks.task("feed_forward").define(checks.task("feed_forward").source)
    sized = type("FeedForward", (right,), {"__len__": lambda self: len(self.W_1)})
    assert checks.check("feed_forward", sized).passed


def test_complex_results_are_judged():
    rotate = checks.task("rotary").define(checks.task("rotary").source)
    report = checks.check("rotary", lambda x, positions: rotate(x, positions) * 1j)
    assert not report.passed


def test_weights_that_are_no_tensors_are_judged():
    class Norm(nn.LayerNorm):
        def state_dict(self, *args, **kwargs):
            return {"version": 1}

    assert not checks.check("layer_norm", Norm).passed


def test_an_unexpected_vector_is_named_in_the_message():
    names = dict(W_q="asking", W_k="asked", W_v="told", W_o="out")
    right = checks.task("multi_head").source
    for name, other in names.items():
        right = right.replace(f"self.{name}", f"self.{other}")
    start = "super().__init__()\n"
    for size, told in (
        ("1", "no expected weight fits its sharpness of shape (1,)"),
        ("d_model", "it has 5 of shape (5,); expected 4"),
    ):
        more = right.replace(start, f"{start}        self.sharpness = nn.Parameter(torch.ones({size}))\n")
        message = checks.check("multi_head", checks.task("multi_head").define(more)).message
        assert told in message.splitlines()[0]


@pytest.mark.parametrize(
    ("task", "result", "told"),
    [
        ("causal_mask", None, "None: is there a return at the end?"),
        ("causal_mask", 3, "a value of type int; expected one tensor"),
        ("causal_mask", [[True]], "a list, tuple or array; expected one tensor"),
        ("scaled_dot_product_attention", torch.ones(2), "one tensor; expected several values"),
    ],
)
def test_a_result_of_the_wrong_type_is_named(task, result, told):
    public = checks.task(task).public_name
    assert checks.check(task, lambda *_, **__: result).message.startswith(
        f"{public}: it returns {told} (0 of"
    )


def test_without_a_case_the_outcome_is_told_in_a_notebook_too():
    assert "no small example" in Message("f: wrong.", outcome=("no small example shows it",)).html()


def test_what_is_long_is_cut_after_a_word_if_there_is_one():
    assert cut("a" * 111) == "a" * 108 + " …"
    assert cut("word " * 30) == "word " * 21 + "…"


def test_an_integer_beyond_all_floats_is_judged():
    assert not alike(10**400, 1.0)
    assert alike(10**400, 10**400)
    assert not checks.check("warmup", lambda *args, **kwargs: 10**5000).passed


def test_a_remark_costs_nothing():
    answer = answer_of(lambda x, shift: 2 * x.clamp(max=1e30) + shift)
    verdict = judge(answer)
    assert verdict.lost == ()
    assert write(answer, verdict).text() == "affine: right.\n\n  One thing more: infinity."


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ([1.0, NAN], [1.0, NAN], True),
        ([1.0, NAN], [1.0, 0.0], False),
        ([INF], [INF], True),
        ([INF], [-INF], False),
        ([1.0], [1.0 + 1e-6], True),
        ([1.0], [1.001], False),
        ([1e6], [1e6 + 1], True),
        ([1.0], [[1.0]], False),
        ([1], [1.0], False),
    ],
)
def test_tensors_are_alike_to_their_precision(a, b, same):
    assert alike(torch.tensor(a), torch.tensor(b)) is same
    assert alike([torch.tensor(a)], [torch.tensor(b)]) is same


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (torch.tensor(2.0), 2.0, True),
        (torch.tensor([2.0]), 2.0, False),
        (2, 2.0, True),
        (True, 1, False),
        (None, 0, False),
        ("a", "a", True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"b": 1}, False),
    ],
)
def test_numbers_are_alike_in_whatever_form(a, b, same):
    assert alike(a, b) is alike(b, a) is same


def test_half_precision_that_was_not_wanted_gives_no_leave_to_be_wrong():
    half, wrong = torch.tensor([1.0, 1.01]).bfloat16(), torch.tensor([1.0, 1.05])
    assert alike(torch.tensor([1.0, 1.0 + 1e-6]), torch.ones(2).double())
    assert alike(wrong, half)  # where half precision is wanted
    assert not alike(half, wrong)


def test_errors_that_a_wrong_shape_may_raise_are_equivalent():
    assert same_value(Outcome(error="RuntimeError"), Outcome(error="IndexError"))
    assert same_value(Outcome(error="RuntimeError"), Outcome(error="AssertionError"))  # a learner's assert
    assert not same_value(Outcome(error="RuntimeError"), Outcome(error="TypeError"))


def test_changes_are_made_all_at_once():
    assert changed("a - b", ("a", "b", "b", "a")) == "b - a"
    assert changed("a - b", ("a", "b"), ("b", "c")) == "c - c"
    assert changed("a - b", ("d", "e")) is None
    assert changed("abc", ("ab", "x", "bc", "y")) is None


WANTED = {f"W_{c}.weight": torch.randn(2, 2) for c in "qkv"}
ROLES = {"W_q": "q query qkv", "W_k": "k key qkv", "W_v": "v value qkv"}


@pytest.mark.parametrize(
    "own",
    [
        ["query.weight", "key.weight", "value.weight"],
        ["qkv.weight"],
        ["q0", "q1", "k0", "k1", "v0", "v1"],
        ["a", "b", "c"],
    ],
)
def test_weights_find_their_places_under_other_names(own):
    wide, narrow = len(own) == 1, len(own) == 6
    rows = 6 if wide else 1 if narrow else 2
    state = {name: torch.zeros(rows, 2) for name in own}
    links = next(matchings(state, WANTED, ROLES, state))
    loaded = {name: part for link in links for name, part in link.load(state, WANTED).items()}
    assert torch.equal(torch.cat(list(loaded.values())), torch.cat(list(WANTED.values())))
    back = {name: part for link in links for name, part in link.gradients(loaded, WANTED).items()}
    assert all(torch.equal(back[name], WANTED[name]) for name in WANTED)


def test_names_that_say_nothing_are_tried_in_every_order():
    own = {name: torch.zeros(2, 2) for name in "abc"}
    found = {tuple(link.wanted for link in links) for links in matchings(own, WANTED, ROLES, own)}
    assert len(found) == 6


def test_the_wanted_names_are_taken_as_they_are_so_that_exchanged_weights_show():
    assert len(list(matchings(WANTED, WANTED, ROLES, WANTED))) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.tensor([[1.0, 0.25]]), "torch.tensor([[1., 0.25]])"),
        (torch.tensor([0.1, 1e-6]), "torch.tensor([0.1, 1e-06])"),
        (torch.tensor([NAN, -INF]), "torch.tensor([float('nan'), float('-inf')])"),
        (torch.tensor([1], dtype=torch.int32), "torch.tensor([1], dtype=torch.int32)"),
        (torch.ones(10).half(), "torch.ones(10, dtype=torch.float16)"),
        (torch.full((2, 5), 0.1).double(), "torch.full((2, 5), 0.10000000149011612, dtype=torch.float64)"),
        (torch.zeros(0).half(), "torch.zeros(0, dtype=torch.float16)"),
        (torch.tensor([True]), "torch.tensor([True])"),
        (torch.zeros(1, 0, 3), "torch.zeros(1, 0, 3)"),
        (torch.ones(1).half(), "torch.tensor([1.], dtype=torch.float16)"),
        ((2,), "(2,)"),
        ({"a": [1]}, "{'a': [1]}"),
    ],
)
def test_values_are_written_in_python(value, text):
    assert literal(value) == text


def same(a, b):
    if not isinstance(a, torch.Tensor):
        return type(a) is type(b) and (all(map(same, a, b)) if isinstance(a, list | tuple) else a == b)
    return a.dtype == b.dtype and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", TASKS)
def test_the_arguments_shown_are_those_that_were_given(name):
    for requirement in checks.task(name).requirements:
        for call in requirement.cases[:MOST_CASES]:
            for arg in (*call.args, *call.kwargs.values()):
                if isinstance(arg, Given):
                    assert arg.expression
                elif not isinstance(arg, dict):
                    assert same(eval(literal(arg)), arg), literal(arg)


def test_a_score_can_be_scaled_or_weighted_by_requirement():
    report = checks.check("causal_mask", lambda queries, keys=None: torch.ones(queries, queries).tril() > 0)
    assert report.requirements == {"triangle": True, "keys": False, "boolean": True}
    assert report.score() == 0.75
    assert report.score(8) == 6
    assert report.score(triangle=1, keys=5) == 1
    with pytest.raises(ValueError, match="points: expected requirements"):
        report.score(shape=1)


def test_an_unknown_task_is_refused_with_the_list():
    with pytest.raises(ValueError, match=r"task: expected one of \[.*'padding_mask'"):
        checks.check("padding", None)


def test_in_a_notebook_the_message_is_shown_with_differences_marked(monkeypatch):
    shown = []
    display = SimpleNamespace(display=shown.append, HTML=str)
    shell = SimpleNamespace(kernel=True)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=display))
    with pytest.raises(AssertionError) as caught:
        checks.require("causal_mask", lambda queries, keys=None: torch.ones(queries, queries).triu() > 0)
    assert "<mark>False</mark>" in shown[0]
    assert caught.value._render_traceback_() == [f"AssertionError: {str(caught.value).splitlines()[0]}"]
    assert "should be" in str(caught.value)


def test_a_right_answer_is_pointed_to_the_packages_code(capsys):
    checks.require("padding_mask", lambda ids, pad_id: (ids != pad_id)[:, None, None])
    assert capsys.readouterr().out == "Compare it with `padding_mask` in transformer_lessons/masks.py.\n"


def test_a_remark_is_printed_in_a_terminal(capsys):
    def without_zeros(query, key, value, mask=None):
        scores = query @ key.mT / query.size(-1) ** 0.5
        weights = (scores if mask is None else scores.masked_fill(~mask, -1e9)).softmax(-1)
        return weights @ value, weights

    checks.require("scaled_dot_product_attention", without_zeros)
    assert "One thing more: " in capsys.readouterr().out


def test_plural_names_take_a_plural_verb():
    def scores_for_weights(query, key, value, mask=None):
        return scaled_first(query, key, value, mask)[0], query @ key.mT

    message = checks.check("scaled_dot_product_attention", scores_for_weights).message
    assert re.search(r"# weights should be (.*)\n +# weights are {7}(?!\1)", message)


def test_a_wrong_gradient_names_the_answers_own_parameter():
    class BiasUnused(Stacked):
        def attend(self, *args):
            return super().attend(
                *(x - b for x, b in zip(args, self.in_proj_bias.chunk(3), strict=False)), args[3]
            )

    message = checks.check("multi_head", BiasUnused).message
    assert "# gradient of in_proj_bias (W_v.bias) should be [" in message


@pytest.mark.parametrize("name", ["scaled_dot_product_attention", "sinusoidal"])
def test_nan_is_taken_for_no_other_mistake(name):
    """No key is the best, as with scores cut off, and row 0 is no row of zeros and ones, as if counted from 1."""

    def divided(query, key, value, mask=None):
        weights = (query @ key.mT / (query.size(-1) // 2)).softmax(-1)
        return weights @ value, weights

    report = checks.check(name, divided if name[:2] == "sc" else divided_by_nothing)
    assert "It looks like" not in report.message
    assert "nan" in report.message


def test_the_order_of_specimens_tells_a_learners_test_nothing():
    kinds = [
        [call.args[0].args[0] for _, call in exam_of(checks.task("attention_test"), seed).calls]
        for seed in range(3)
    ]
    assert kinds[0] != kinds[1] != kinds[2]
    assert sorted(kinds[0]) == sorted(kinds[1]) == sorted(kinds[2])


def test_the_packages_own_is_no_answer():
    with pytest.raises(AssertionError, match=r"^padding_mask: this is the package's own; write yours$"):
        checks.require("padding_mask", padding_mask)


def test_a_subclass_of_pytorchs_layer_norm_passes():
    class Norm(nn.LayerNorm):
        """PyTorch's own, whose parameters have the expected names."""

    assert checks.check("layer_norm", Norm).passed
