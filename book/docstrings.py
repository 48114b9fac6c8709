"""A small Sphinx extension that makes the reference from docstrings, beyond autodoc and napoleon."""

import inspect
import re
from textwrap import indent

from docutils import nodes
from sphinx.util.nodes import make_refnode

# From "A pitfall:" to the end of the paragraph; an indented line belongs to an argument.
PITFALL = re.compile(r"^(?! )(.*?)(\b(?:(?:A|Two|Three)\s+p|P)itfalls?:(?:.|\n)*?)(?=\n\n|\Z)", re.MULTILINE)
NAME = re.compile(r"(?<!`)`(\w+)`(?!`)")
NAMED = {"module", "function", "class", "exception"}


def set_pitfalls_apart(app, what, name, obj, options, lines):
    """Turn the text from "A pitfall:" to the end of the paragraph into a note of its own."""
    note = "{}\n\n.. container:: pitfall\n\n{}".format
    text = PITFALL.sub(lambda found: note(found[1], indent(found[2], "   ")), "\n".join(lines))
    lines[:] = text.split("\n")


def leave_parameters_alone(app, what, name, obj, options, lines):
    """Show a function's own arguments, such as `mask`, as code, even if something else has that name."""
    try:
        own = set(inspect.signature(obj).parameters)
    except (TypeError, ValueError):
        return  # a module has no signature
    lines[:] = [NAME.sub(lambda one: f"`{one[0]}`" if one[1] in own else one[0], line) for line in lines]


SHORT_NAMES = {"~torch.nn.modules.module.": "torch.nn.", "~torch.d": "torch.d", "<factory>": "..."}


def write_types(app, what, name, obj, options, signature, returned):
    """Write ``torch.device`` and "...", not "device" and <factory>; drop signatures without ``__init__``."""
    if signature and signature.startswith("(*args") and what == "class":
        return "", None
    for full, short in SHORT_NAMES.items():
        signature, returned = (text and text.replace(full, short) for text in (signature, returned))
    return signature, returned


def leave_out_tuple_fields(app, what, name, obj, skip, options):
    """Skip a named tuple's fields, whose docstring "Alias for field number 0" is Python's own."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field") else None


def link_or_code(app, env, node, contnode):
    """Link `padding_mask` in another module's docstring, or a type in a signature, to its entry, if any.

    Explicit roles (``{py:func}``) do not get here: their targets must exist, or the build fails.
    """
    if node.get("refdomain") != "py" or node.get("reftype") not in ("obj", "class"):
        return None
    target = node["reftarget"]
    ours = target.startswith("transformer_lessons.")  # a type, by its full name where it is defined
    ending = "." + (target.rpartition(".")[2] if ours else target)
    entries = [entry for name, entry in env.get_domain("py").objects.items() if name.endswith(ending)]
    found = [entry for entry in entries if entry.objtype in NAMED or "." in target]
    if len(found) != 1:
        return nodes.literal("", contnode.astext()) if isinstance(contnode, nodes.literal) else contnode
    return make_refnode(app.builder, node["refdoc"], found[0].docname, found[0].node_id, contnode)


def setup(app):
    """Register the extension; Sphinx calls this once, because `_config.yml` lists `book.docstrings`."""
    app.connect("autodoc-process-docstring", set_pitfalls_apart, priority=400)  # before napoleon's 500
    app.connect("autodoc-process-docstring", leave_parameters_alone, priority=401)
    app.connect("autodoc-process-signature", write_types)
    app.connect("autodoc-skip-member", leave_out_tuple_fields)
    app.connect("missing-reference", link_or_code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
