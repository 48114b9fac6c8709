"""A small Sphinx extension: what the site needs beyond the settings of `_config.yml`."""

import re
from pathlib import Path

import nbformat
from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from book import live_data
from book.finish import finish, wait_for_less
from transformer_lessons import __version__
from transformer_lessons.export import web
from transformer_lessons.trainer import checkpoints

FIGURE = re.compile(r'data-(live|explorable)="([\w-]+)"')
STYLES = {"live": "live/live.css", "explorable": "explorables/explorables.css"}
TRAINED = "number_words"  # the model that comes with the package, as a script
EXPLORABLES = {"translator": ("page", "model", "numbers", TRAINED, "translator")}
# What readers search for, where the title says it differently: that page comes first, and the index has it.
SOUGHT = {
    "chapters/04_masks": ["mask"],
    "chapters/05_positions": ["positional encoding"],
    "chapters/07_heads_and_cross_attention": ["multi-head", "multi-head attention", "cross-attention"],
}
ANCHOR = re.compile(r'<a id="([\w:-]+)"></a>')
FIGURE_ID = re.compile(r'(<figure class="drawing[^"]*") id="(fig-[\w-]+)"')
BORROWED = re.compile(r'<div data-drawing="([\w/]+)#([\w-]+)"></div>')


def configure(app, config):
    """Jupyter Book puts all below `_static` on every page; a figure's is for its page, MathJax for equations.

    At the foot of each page stands which release of the package its notebooks install.
    """
    own = ("vendor/", "explorables/", "live/", config.mathjax_path)
    config.html_js_files = [path for path in config.html_js_files if not str(path).startswith(own)]
    config.html_css_files = [path for path in config.html_css_files if not str(path).startswith(own)]
    config.html_theme_options["extra_footer"] += f" · Version {__version__}"


def compute_data(app):
    """The weights that the live translator runs, and what live figures show of the model."""
    if app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    for folder in ("explorables", "live"):
        (static / folder).mkdir(parents=True, exist_ok=True)
    script = web.script(TRAINED, web.exported(*checkpoints.load_model()))
    (static / "explorables" / f"{TRAINED}.js").write_text(script, encoding="utf-8")
    for name in live_data.DATA:
        (static / "live" / f"{name}.data.js").write_text(live_data.script(name), encoding="utf-8")


def add_figures(app, pagename, templatename, context, doctree):
    """The scripts and styles of a page's figures, ``<div data-live="masks">`` and the like, on this page only.

    On paper, an explorable is its still.
    """
    for kind, name in dict.fromkeys(FIGURE.findall(context.get("body", ""))):
        if kind == "explorable" and app.builder.name == "singlehtml":
            continue
        app.add_css_file(STYLES[kind])
        for script in figure_scripts(kind, name):
            app.add_js_file(script, loading_method="defer")


def figure_scripts(kind: str, name: str) -> list[str]:
    """What a figure needs, in order; of a live one, what it shows may be in a file of its own."""
    if kind == "explorable":
        return [f"explorables/{script}.js" for script in EXPLORABLES[name]]
    data = [f"live/{name}.data.js"] if name in live_data.DATA else []
    return ["explorables/page.js", "live/live.js", *data, f"live/{name}.js"]


class Notebooks(SphinxTransform):
    """What MyST's own notation would say, but that Colab would show as text."""

    default_priority = (
        200  # before PropagateTargets (260), which gives a name to the next heading or equation
    )

    def apply(self):
        """Change the document of a page."""
        for change in (self.set_anchors, self.number_figures, self.borrow_drawings, self.add_to_index):
            change()

    def set_anchors(self) -> None:
        """``<a id="attention-scale"></a>``, one or more in a paragraph, become anchors of what follows.

        As a target that Sphinx knows, a link to it from any page is checked by the build.
        """
        for paragraph in list(self.document.findall(nodes.paragraph)):
            if not all(isinstance(child, nodes.raw) for child in paragraph.children):
                continue
            names = ANCHOR.findall(text := paragraph.astext())
            if not names or ANCHOR.sub("", text):
                continue
            after = paragraph.next_node(descend=False, siblings=True)
            # A fold that is HTML takes no name; an empty box does.
            kind = nodes.container if isinstance(after, nodes.raw) else nodes.target
            targets = [self.name(kind(), name, name, paragraph.line) for name in names]
            paragraph.replace_self(targets)

    def number_figures(self) -> None:
        """``[Figure 3.4](#fig-3-4)`` leads to the cell whose output is that drawing, from other pages too.

        Sphinx does not look into outputs: the cell takes the drawing's id, and the drawing has none on the site.
        """
        boxes = self.document.findall(nodes.container)
        for cell in [box for box in boxes if box.get("nb_element") == "cell_code"]:
            for output in cell.findall(nodes.raw):
                text = output.astext()
                for _, name in FIGURE_ID.findall(text):
                    self.name(cell, name, f"Figure {'.'.join(name.split('-')[1:])}", cell.line or 0)
                output.rawsource = FIGURE_ID.sub(r"\1", text)
                output[:] = [nodes.Text(output.rawsource)]

    def name(self, node: nodes.Element, name: str, title: str, line: int) -> nodes.Element:
        """Make a node the target of links, from other pages too: MyST looks in the metadata for these."""
        node["ids"].append(name)
        node["names"].append(name)
        self.document.note_explicit_target(node)
        self.env.metadata[self.env.docname].setdefault("myst_slugs", {})[name] = (line, name, title)
        return node

    def borrow_drawings(self) -> None:
        """``<div data-drawing="chapters/00_on_one_page#fig-0-1"></div>`` is that drawing, on a page of prose."""
        for place in list(self.document.findall(nodes.raw)):
            if found := BORROWED.fullmatch(place.astext().strip()):
                self.env.note_dependency(path := f"{self.env.srcdir}/{found[1]}.ipynb")
                place[:] = [nodes.Text(drawing(path, found[2]))]

    def add_to_index(self) -> None:
        """Entries of the index for `SOUGHT`, which Sphinx's search ranks above words of the text."""
        section = self.document.next_node(nodes.section)
        for words in SOUGHT.get(self.env.docname, []):
            section.insert(1, addnodes.index(entries=[("single", words, section["ids"][0], "main", None)]))


def drawing(path: str, name: str) -> str:
    """The drawing with the id `name` among the outputs of a chapter."""
    cells = nbformat.read(path, as_version=4).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [output.get("data", {}).get("text/html", "") for output in outputs]
    [found] = [html for html in shown if f'<figure class="drawing" id="{name}"' in html]
    return found


def unfold_launch_button(app, pagename, templatename, context, doctree):
    """The theme hides launch buttons in a menu behind a rocket; of a single one, a reader should see the name."""
    own = {"text": "Open in Colab", "tooltip": "Run this page as a notebook"}
    own["icon"] = "fas fa-play"  # the theme's picture weighs as much as a live figure
    buttons = context.get("header_buttons", [])
    for number, button in enumerate(buttons):
        if button.get("label") == "launch-buttons" and len(button["buttons"]) == 1:
            buttons[number] = button["buttons"][0] | own


def setup(app):
    """Sphinx calls this once, because `_config.yml` lists `book.site`."""
    app.connect("config-inited", configure)
    app.connect("builder-inited", compute_data)
    app.add_transform(Notebooks)
    app.connect("html-page-context", add_figures)
    app.connect("html-page-context", unfold_launch_button, priority=502)  # after the theme's 501
    app.connect("html-page-context", wait_for_less, priority=900)  # after all who add scripts and styles
    app.connect("build-finished", finish, priority=900)  # when the theme has written its styles
    return {"parallel_read_safe": True, "parallel_write_safe": True}
