"""Answers as people write them: RIGHT, by task, and WRONG, by task, each with what it costs and its name.

The right ones are first of all the plain forms of textbooks and tutorials; then loops, einsum and other
roundabout ways. The wrong ones are written by hand: they are not changes of the package's text.
"""

import importlib
import pkgutil

MODULES = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
