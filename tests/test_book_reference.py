"""How docstrings become the reference: a small module, built with the book's own settings."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
OURS = ("autodoc_", "napoleon_", "python_", "default_role", "add_module_names")

FRUIT = '''
"""Fruit, see `peel`."""

from dataclasses import dataclass, field
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, device, nn


def peel(apple: Float[Tensor, "batch core"], knife: device | str | None = "x", *, pits: int = 0) -> nn.Module:
    """Takes the skin off, as `Basket` does not; `knife` and `pits` matter, `worms` do not. `Tree.climb` first.

    ``skin = 2 · π · apple``. A pitfall: the knife
    is sharp.

    Args:
        apple, knife: two things. A pitfall: here it is only a word.

    Raises:
        ValueError: if it is a pear.
    """


def knife():
    """Cuts."""


def _worm():
    """Hides."""


class Pair(NamedTuple):
    """Two of `fruit.peel`."""

    left: int


@dataclass
class Basket:
    """Holds pears.

    Attributes:
        pears, plums: all of them.
    """

    pears: list[int] = field(default_factory=list)


class Tree(nn.Module):
    """Stands."""

    @property
    def rings(self):
        """Its age: one a year."""

    def climb(self):
        """Up."""
'''


def build(folder: Path) -> str:
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "-q", str(folder), str(folder / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "html" / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fruit")
    book = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]
    settings = {name: value for name, value in book.items() if name.startswith(OURS)}
    settings["extensions"] = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "book.docstrings"]
    paths = [str(folder), str(ROOT)]
    (folder / "conf.py").write_text(f"import sys\nsys.path[:0] = {paths}\nglobals().update({settings})\n")
    (folder / "index.rst").write_text("Fruit\n=====\n\n.. automodule:: fruit\n")
    (folder / "fruit.py").write_text(FRUIT)
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return build(folder)


@pytest.fixture(scope="module")
def text(page):
    return " ".join(unescape(re.sub(r"<[^>]*>", "", page)).split())


def test_a_pitfall_is_set_apart(page):
    notes = re.findall(r'<div class="pitfall[^>]*>(.*?)</div>', page, re.S)
    assert [re.sub(r"<[^>]*>|\s+", " ", note).strip() for note in notes] == ["A pitfall: the knife is sharp."]
    assert "A pitfall: here it is only a word." in page


def test_names_link_to_their_entries(page):
    links = re.findall(r'<a class="reference internal" href="#fruit\.([\w.]+)"[^>]*><code', page)
    assert links == ["peel", "Basket", "Tree.climb", "peel"]  # a knife is also an argument of `peel`


def test_other_names_are_plain_code(page):
    for name in ("knife", "pits", "worms"):
        assert re.search(rf'<code class="docutils literal notranslate"><span class="pre">{name}</span>', page)


def test_signatures_read_like_the_code(page, text):
    assert 'apple: Float[Tensor, "batch core"], knife: torch.device | str | None = ' in text
    assert "→ torch.nn.Module" in text
    assert "class Basket(pears: list[int] = ...)" in text  # dataclasses write "<factory>"
    assert "class Tree¶" in text  # torch's own __init__ takes (*args, **kwargs)
    assert "jaxtyping" not in text
    signatures = re.findall(r'<dt class="sig.*?</dt>', page, re.S)
    assert len(signatures) == 7
    assert not [signature for signature in signatures if "<code" in signature]


def test_arguments_that_are_told_together_stay_together(text):
    assert "apple, knife – two things." in text
    assert "pears, plums – all of them." in text


def test_a_colon_in_a_property_is_a_colon(text):
    assert "Its age: one a year." in text


def test_only_what_is_public_and_documented_is_listed(page):
    assert set(re.findall(r'id="fruit\.([\w.]+)"', page)) == {
        "peel",
        "knife",
        "Pair",
        "Basket",
        "Tree",
        "Tree.rings",
        "Tree.climb",
    }
    assert "Alias for field" not in page


def test_another_docstring_is_another_page(folder, page):
    assert "Takes the skin off" in page
    (folder / "fruit.py").write_text(FRUIT.replace("Takes the skin off", "Leaves the skin on"))
    changed = build(folder)
    assert "Leaves the skin on" in changed
    assert "Takes the skin off" not in changed


def test_a_wrong_explicit_link_ends_the_build(tmp_path, folder):
    (tmp_path / "conf.py").write_text((folder / "conf.py").read_text())
    (tmp_path / "index.rst").write_text("Fruit\n=====\n\n:py:func:`fruit.pell`\n")
    with pytest.raises(AssertionError, match=r"fruit\.pell"):
        build(tmp_path)
