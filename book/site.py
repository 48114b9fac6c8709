"""A small Sphinx extension with what the site needs beyond the settings of `_config.yml`."""

import re
from pathlib import Path

import nbformat
from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from book import live_data
from book.finish import defer_scripts, finish
from transformer_lessons import __version__
from transformer_lessons.data.files import write_text
from transformer_lessons.export import web
from transformer_lessons.trainer import checkpoints

FIGURE = re.compile(r'data-(live|explorable)="([\w-]+)"')
STYLES = {"live": "live/live.css", "explorable": "explorables/explorables.css"}
TRAINED = "number_words"  # the model that comes with the package, as a script
EXPLORABLES = {"translator": ("page", "model", "numbers", TRAINED, "translator")}
# A row of the glossary: the term, what else it is called, and the page that explains it.
TERM = re.compile(r"^\| ([^|]+?) \|.*?(?:; also ([^.]+))?\. \(\[\d+\]\((\w+/\w+)\.ipynb", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([\w:-]+)"></a>')
FIGURE_ID = re.compile(r'(<figure class="drawing[^"]*") id="(fig-[\w-]+)"')
BORROWED = re.compile(r'<div data-drawing="([\w/]+)#([\w-]+)"></div>')


def configure(app, config):
    """Take figures' files and MathJax off every page, where Jupyter Book puts all of `_static`.

    The footer of each page says which release of the package its notebooks install.
    """
    own = ("vendor/", "explorables/", "live/", config.mathjax_path)
    config.html_js_files = [path for path in config.html_js_files if not str(path).startswith(own)]
    config.html_css_files = [path for path in config.html_css_files if not str(path).startswith(own)]
    config.html_theme_options["extra_footer"] += f" · Version {__version__}"


def compute_data(app):
    """Write the weights that the live translator runs, and the data of the live figures."""
    if app.builder.format != "html":
        return
    static, model = Path(app.outdir) / "_static", web.exported(*checkpoints.load_model())
    write_text(static / "explorables" / f"{TRAINED}.js", web.script(TRAINED, model))
    for name in live_data.DATA:
        write_text(static / "live" / f"{name}.data.js", live_data.script(name))


def add_figures(app, pagename, templatename, context, doctree):
    """Add the scripts and styles of a page's figures, such as ``<div data-live="masks">``, to this page only.

    On paper, an explorable is a still picture.
    """
    for kind, name in dict.fromkeys(FIGURE.findall(context.get("body", ""))):
        if kind == "explorable" and app.builder.name == "singlehtml":
            continue
        app.add_css_file(STYLES[kind])
        for script in figure_scripts(kind, name):
            app.add_js_file(script, loading_method="defer")


def figure_scripts(kind: str, name: str) -> list[str]:
    """Return the scripts of a figure, in order; the data of a live one may be in a file of its own."""
    if kind == "explorable":
        return [f"explorables/{script}.js" for script in EXPLORABLES[name]]
    data = [f"live/{name}.data.js"] if name in live_data.DATA else []
    return ["explorables/page.js", "live/live.js", *data, f"live/{name}.js"]


class Notebooks(SphinxTransform):
    """A transform for what MyST has its own notation for, which Colab would show as text."""

    default_priority = 200  # before PropagateTargets (260), which names the next heading or equation

    def apply(self):
        """Change the document of a page."""
        for change in (self.set_anchors, self.number_figures, self.borrow_drawings, self.add_to_index):
            change()

    def set_anchors(self) -> None:
        """Turn a paragraph of one or more ``<a id="attention-scale"></a>`` into anchors of what follows.

        They become targets that Sphinx knows, so the build checks links to them from any page.
        """
        for paragraph in list(self.document.findall(nodes.paragraph)):
            if not all(isinstance(child, nodes.raw) for child in paragraph.children):
                continue
            names = ANCHOR.findall(text := paragraph.astext())
            if not names or ANCHOR.sub("", text):
                continue
            after = paragraph.next_node(descend=False, siblings=True)
            # A fold that is HTML takes no name; an empty container does.
            kind = nodes.container if isinstance(after, nodes.raw) else nodes.target
            targets = [self.name(kind(), name, name, paragraph.line) for name in names]
            paragraph.replace_self(targets)

    def number_figures(self) -> None:
        """Let ``[Figure 3.4](#fig-3-4)`` lead to the cell whose output is that drawing, from any page.

        Sphinx does not look into outputs: the cell takes the drawing's id; the drawing has none on the site.
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
        """Make a node the target of links, from other pages too: MyST looks for those in the metadata."""
        node["ids"].append(name)
        node["names"].append(name)
        self.document.note_explicit_target(node)
        self.env.metadata[self.env.docname].setdefault("myst_slugs", {})[name] = (line, name, title)
        return node

    def borrow_drawings(self) -> None:
        """Replace ``<div data-drawing="chapters/00_on_one_page#fig-0-1"></div>`` by that drawing."""
        for place in list(self.document.findall(nodes.raw)):
            if found := BORROWED.fullmatch(place.astext().strip()):
                self.env.note_dependency(path := f"{self.env.srcdir}/{found[1]}.ipynb")
                place[:] = [nodes.Text(drawing(path, found[2]))]

    def add_to_index(self) -> None:
        """Add index entries for the terms that a chapter explains: Sphinx's search ranks them above the text."""
        section, page = self.document.next_node(nodes.section), self.env.docname
        words = re.findall(r"chapters/\d+_(\w+)", page)  # "masks", like the module
        for term, others, chapter in TERM.findall(Path(self.env.srcdir, "glossary.md").read_text("utf-8")):
            words += [term, *others.split(" or ")] * (chapter == page)
        for word in filter(None, words):
            entry = "single", word.replace("_", " "), section["ids"][0], "main", None
            section.insert(1, addnodes.index(entries=[entry]))


def drawing(path: str, name: str) -> str:
    """Return the drawing with the id `name` among the outputs of a chapter."""
    cells = nbformat.read(path, as_version=4).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [output.get("data", {}).get("text/html", "") for output in outputs]
    [found] = [html for html in shown if f'<figure class="drawing" id="{name}"' in html]
    return found


def unfold_launch_button(app, pagename, templatename, context, doctree):
    """Show a single launch button by its name; the theme hides launch buttons in a menu behind a rocket."""
    own = {"text": "Open in Colab", "tooltip": "Run this page as a notebook"}
    own["icon"] = "fas fa-play"  # the theme's picture weighs as much as a live figure
    buttons = context.get("header_buttons", [])
    for number, button in enumerate(buttons):
        if button.get("label") == "launch-buttons" and len(button["buttons"]) == 1:
            buttons[number] = button["buttons"][0] | own


def setup(app):
    """Register the extension; Sphinx calls this once, because `_config.yml` lists `book.site`."""
    app.connect("config-inited", configure)
    app.connect("builder-inited", compute_data)
    app.add_transform(Notebooks)
    app.connect("html-page-context", add_figures)
    app.connect("html-page-context", unfold_launch_button, priority=502)  # after the theme's 501
    app.connect("html-page-context", defer_scripts, priority=900)  # after all that add scripts and styles
    app.connect("build-finished", finish, priority=900)  # when the theme has written its styles
    return {"parallel_read_safe": True, "parallel_write_safe": True}
