"""Static pages in which everything is text until it is shown to be markup, and whose only style is their own."""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from exercises.autograder.feedback.text import clean

__all__ = ["template"]


def template(
    path: Path, filters: Mapping[str, Callable], names: Mapping[str, Any] = {}
) -> tuple[Template, str]:
    """A template, and the hash of its style sheet: the only one that the page's policy lets in.

    Args:
        path: of the template, which has one `<style>`.
        filters, names: what it may use besides jinja's own.
    """
    source = path.read_text(encoding="utf-8")
    style = re.search("<style>(.*?)</style>", source, re.DOTALL)[1]
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else clean(str(value)),
    )
    environment.filters |= filters
    environment.globals |= names
    digest = hashlib.sha256(style.encode()).digest()
    return environment.from_string(source), f"sha256-{base64.b64encode(digest).decode('ascii')}"
