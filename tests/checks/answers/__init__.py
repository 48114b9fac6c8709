"""Answers as people write them: RIGHT, by task, and WRONG, by task, each with what it costs and its name.

The right ones are first of all the plain forms of textbooks and tutorials; then those that differ most from them,
in rounding, type, shape, memory or the names of weights. The wrong ones are on no list, or two of a list at once,
or reach us in a way of their own; the known mistakes are changes of the package's text.
"""

import importlib
import pkgutil

MODULES = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
