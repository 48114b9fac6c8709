"""What a docstring of the package must tell: formula, place in the paper, shapes, errors and a pitfall.

The reference is made of them, and a reader has nothing else. Which of it a module owes is in `OWED`.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "transformer_lessons"

MATHEMATICS = (
    "masks encodings embeddings dropout attention feed_forward norms losses schedule layers model "
    "decoding".split()
)
INFRASTRUCTURE = (
    "config cache data files checkpoints training training_config training_loss interruption distributed "
    "evaluation web_export costs decoding_steps parallel sharding resuming checkpoint_folder "
    "prefetching optimizer".split()
)
ELSEWHERE = (
    "expect checks oracles runs submission clone tasks text_tasks doctor cli records configs plotting "
    "__main__ __init__".split()
)  # owe a docstring, no more
OWED = dict.fromkeys(MATHEMATICS, ("formula", "source", "shapes", "errors", "pitfall"))
OWED |= dict.fromkeys(INFRASTRUCTURE, ("errors", "pitfall"))
OWED["attention.inputs"] = ("errors",)  # the package's own door: no reader calls it
OWED["costs.sizes"] = ("errors",)  # what the cost model's modules share

# What has nothing to tell of that kind, and why.
EXEMPT = {
    ("layers.LayerCache", "formula"): "a record of two caches",
    ("layers.LayerCache", "source"): "the paper has no cache",
    ("decoding.evaluating", "formula"): "switches a mode and computes nothing",
    ("decoding.evaluating", "source"): "the paper has no modes",
    ("model.attention_maps", "formula"): "runs a model and computes nothing itself",
    ("model.attention_maps", "source"): "a tool for looking, not a part of the model",
}

FORMULA = re.compile(r"[≠≤·√Σ∘⊙]|\S (?:[=+−</-]|[!=]=) \S")
SOURCE = re.compile(
    r"§\d|\b(?:Table|Figure|equation|Equation) \d|\b[A-Z][\w’-]+(?: and [A-Z]\w+| et al\.)? \d{4}\b"
)
PITFALL = re.compile(r"\b(?:(?:A|Two|Three) p|P)itfalls?:\s+\S")


def literals(text: str) -> list[str]:
    """What stands in double backticks, or indented after two colons."""
    found = re.findall(r"``(.+?)``|::\n\n((?: +[^\n]+\n)+)", text, re.S)
    return [" ".join("".join(parts).split()) for parts in found]


def raised(node: ast.AST) -> set[str]:
    """The exceptions that the code of a definition raises by name (a bare `raise` passes on what came)."""
    calls = [found.exc for found in ast.walk(node) if isinstance(found, ast.Raise) and found.exc]
    names = [call.func if isinstance(call, ast.Call) else call for call in calls]
    return {name.id for name in names if isinstance(name, ast.Name)}


def called(node: ast.AST) -> set[str]:
    """The functions and own methods that a definition calls, and those of `expect`, which only refuse."""
    calls = [found.func for found in ast.walk(node) if isinstance(found, ast.Call)]
    return {call.id for call in calls if isinstance(call, ast.Name)} | {
        call.attr
        for call in calls
        if isinstance(call, ast.Attribute)
        and isinstance(call.value, ast.Name)
        and call.value.id in ("self", "expect")
    }


def is_class(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef)


def definitions(body: list[ast.stmt]) -> dict[str, ast.AST]:
    """Functions and classes of a module or class, by name."""
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def documentation(node: ast.AST) -> str:
    """The docstring, for a class with those of its public methods."""
    texts = [ast.get_docstring(node) or ""]
    if is_class(node):
        methods = definitions(node.body).items()
        texts += [ast.get_docstring(method) or "" for name, method in methods if not name.startswith("_")]
    return "\n".join(texts)


def unshaped(node: ast.AST) -> list[str]:
    """Parameters that are tensors and do not say of which shape."""
    methods = definitions(node.body) if is_class(node) else {node.name: node}
    found = []
    for method in (method for name, method in methods.items() if not name.startswith("_")):
        for argument in (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs):
            # In Float[Tensor, "..."] the tensor stands within an index; in Tensor | None it does not.
            outside = [argument.annotation] if argument.annotation else []
            while outside:
                part = outside.pop()
                if isinstance(part, ast.Name) and part.id == "Tensor":
                    found.append(argument.arg)
                if isinstance(part, ast.BinOp):
                    outside += [part.left, part.right]
    return found


def lacks(node: ast.AST, owed: tuple[str, ...], neighbours: dict[str, ast.AST]) -> list[str]:
    """Which of what it owes a definition does not say; `neighbours` are the other definitions of its module."""
    text, everything = ast.get_docstring(node) or "", documentation(node)
    own = definitions(node.body) if is_class(node) else {}
    helpers = [neighbours[name] for name in called(node) & neighbours.keys() if name not in own]
    errors = set.union(raised(node), *map(raised, helpers))
    stated = everything.partition("Raises:")[2]
    says = {
        "formula": any(FORMULA.search(literal) for literal in literals(text)),
        "source": bool(SOURCE.search(text)),
        "shapes": "Shapes:" in text or not unshaped(node),
        "errors": all(re.search(rf"\b{error}:", stated) for error in errors),
        "pitfall": bool(PITFALL.search(everything)),
    }
    return [item for item in owed if not says[item]]


def parsed(path: Path) -> dict[str, ast.AST]:
    return definitions(ast.parse(path.read_text(encoding="utf-8")).body)


@cache
def canon() -> dict[str, Path]:
    """Where each public function and class that owes something is written: `losses.label_smoothed_loss`."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if module.partition(".")[0] in OWED:
            found |= {f"{module}.{name}": path for name in parsed(path) if not name.startswith("_")}
    return found


def owed(name: str) -> tuple[str, ...]:
    module = name.rpartition(".")[0]
    items = OWED.get(module) or OWED[module.partition(".")[0]]
    return tuple(item for item in items if (name, item) not in EXEMPT)


def lacking(name: str) -> list[str]:
    path, own = canon()[name], name.rpartition(".")[2]
    folder = [path] if path.parent == PACKAGE else sorted(path.parent.glob("*.py"))
    neighbours = {}
    for other in [*(PACKAGE / "expect").glob("*.py"), *folder]:
        neighbours |= {called: node for called, node in parsed(other).items() if not is_class(node)}
    neighbours |= parsed(path)
    return lacks(neighbours.pop(own), owed(name), neighbours)


@pytest.mark.parametrize("name", canon())
def test_every_public_docstring_tells_what_it_owes(name):
    assert lacking(name) == []


def test_exceptions_are_of_what_exists():
    assert canon().keys() >= {name for name, _ in EXEMPT}


def test_every_module_has_its_place():
    parts = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")}
    assert parts <= {*MATHEMATICS, *INFRASTRUCTURE, *ELSEWHERE}


# ---- The check itself

GOOD = '''
def _refuse(x):
    raise TypeError("x")

def double(x: Float[Tensor, " n"], times: int = 2) -> Float[Tensor, " n"]:
    """Twice as much (§3.2).

    ``y = 2 · x``

    A pitfall: it overflows.

    Raises:
        ValueError: for a negative `times`.
        TypeError: for words.
    """
    if times < 0:
        raise ValueError("times")
    _refuse(x)
'''
BAD = {
    "formula": ("``y = 2 · x``", "``(batch, n)``"),
    "source": ("(§3.2)", "(as in 2017)"),
    "shapes": ('x: Float[Tensor, " n"]', "x: Tensor | None"),
    "errors": ("        TypeError: for words.\n", ""),
    "pitfall": ("A pitfall:", "Careful, a pitfall,"),
}


def lacks_in(source: str) -> list[str]:
    nodes = definitions(ast.parse(source).body)
    return lacks(nodes.pop("double"), OWED["masks"], nodes)


def test_a_good_docstring_lacks_nothing():
    assert lacks_in(GOOD) == []
    assert set(BAD) == set(OWED["masks"])


def test_a_formula_may_stand_in_a_block_of_its_own():
    block = "So::\n\n        y = 2 · x\n"
    assert lacks_in(GOOD.replace("``y = 2 · x``", block)) == []
    assert lacks_in(GOOD.replace("``y = 2 · x``", block.replace("::", ":"))) == ["formula"]


@pytest.mark.parametrize("item", BAD)
def test_a_bad_docstring_is_found(item):
    good, bad = BAD[item]
    assert GOOD.count(good) == 1
    assert lacks_in(GOOD.replace(good, bad)) == [item]


def test_no_docstring_at_all_lacks_everything_it_can():
    assert lacks_in("def double(x: Tensor):\n    raise ValueError\n") == list(OWED["masks"])


METHOD = '''
class double:
    """Twice."""

    def f(self):
        """Refuse.

        Raises:
            ValueError: oh.
        """
        raise ValueError
'''


def test_an_error_of_a_method_may_be_told_by_the_method():
    assert "errors" not in lacks_in(METHOD)
    assert "errors" in lacks_in(METHOD.replace("ValueError: oh.", "TypeError: oh."))


@pytest.mark.parametrize(
    "text", ["(§5.4)", "(Ba et al. 2016, used there)", "(Zhang and Sennrich 2019)", "Table 3"]
)
def test_sources_are_recognised(text):
    assert SOURCE.search(text)


@pytest.mark.parametrize("text", ["in 2017", "the paper", "section 3", "§"])
def test_other_words_are_no_source(text):
    assert not SOURCE.search(text)
