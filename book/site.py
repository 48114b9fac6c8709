"""A small Sphinx extension: what the site needs beyond the settings of `_config.yml`."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from book.finish import finish
from transformer_lessons import __version__

STATIC = Path(__file__).parent / "_static"
# What the explorable of a page needs: `explorable: translator` at its top. The last of each is its own.
EXPLORABLES = {
    "translator": ("page.js", "model.js", "numbers.js", "number_words.js", "translator.js"),
}
# What readers search for, where the title says it differently: that page comes first, and the index has it.
SOUGHT = {
    "chapters/04_masks": ["mask"],
    "chapters/05_positions": ["positional encoding"],
    "chapters/07_heads_and_cross_attention": ["multi-head", "multi-head attention", "cross-attention"],
}
EQUATIONS = nodes.math | nodes.math_block
TRAINED = "number_words"  # the model that comes with the package, as a script
MADE = ("one_page", "heads")  # live figures that show what the build computes


def configure(app, config):
    """Jupyter Book puts all below `_static` on every page; MathJax is for equations, figures for theirs.

    At the foot of each page stands which release of the package its notebooks install.
    """
    own = ("vendor/", "explorables/", "live/")
    config.html_js_files = [path for path in config.html_js_files if not str(path).startswith(own)]
    config.html_css_files = [path for path in config.html_css_files if not str(path).startswith(own)]
    config.html_theme_options["extra_footer"] += f" · Version {__version__}"


def compute_data(app):
    """The weights that the live translator runs, and what live figures show of the model."""
    if app.builder.format != "html":
        return
    from book import live_data  # torch takes seconds to import
    from transformer_lessons.export import web
    from transformer_lessons.trainer import checkpoints

    path = Path(app.outdir) / "_static" / "explorables" / f"{TRAINED}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(web.script(TRAINED, web.exported(*checkpoints.load_model())), encoding="utf-8")
    live_data.write(Path(app.outdir))


def add_explorable(app, pagename, templatename, context, doctree):
    """The scripts and the style of a page's explorable, on this page only."""
    if name := (context.get("meta") or {}).get("explorable"):
        for style in ("heights.css", "explorables.css"):
            app.add_css_file(f"explorables/{style}")
        for script in EXPLORABLES[name]:
            app.add_js_file(f"explorables/{script}", loading_method="defer")


def add_live_figures(app, pagename, templatename, context, doctree):
    """The scripts and the style of a page's figures like ``<div class="lessons-live" data-live="masks">``."""
    if names := re.findall(r'class="lessons-live" data-live="([\w-]+)"', context.get("body", "")):
        app.add_css_file("live/live.css")
        own = [script for name in dict.fromkeys(names) for script in live_scripts(name)]
        for script in ("explorables/page.js", "live/live.js", *own):
            app.add_js_file(script, loading_method="defer")


def live_scripts(name: str) -> list[str]:
    """A live figure's own scripts: what it shows, if that is in a file of its own, and what it does."""
    if not (STATIC / "live" / f"{name}.js").exists():
        raise ValueError(f"data-live: expected a script _static/live/{name}.js, found none")
    return [f"live/{name}.data.js", f"live/{name}.js"] if name in MADE else [f"live/{name}.js"]


class Anchors(SphinxTransform):
    """``<a id="attention-scale"></a>``, one or more in a paragraph, become anchors of what follows.

    In a notebook that line is invisible everywhere, while MyST's own ``(attention-scale)=`` is shown as text in
    Colab. As a target that Sphinx knows, a link to it from any page is checked by the build.
    """

    # Before PropagateTargets (260), which gives the name to the next heading or equation.
    default_priority = 200

    def apply(self):
        """Replace each such paragraph by a target."""
        for paragraph in list(self.document.findall(nodes.paragraph)):
            if not all(isinstance(child, nodes.raw) for child in paragraph.children):
                continue
            if not re.fullmatch(r'(<a id="[\w:-]+"></a>)+', text := paragraph.astext()):
                continue
            after = paragraph.next_node(descend=False, siblings=True)
            # A fold that is HTML takes no name; an empty box does.
            kind = nodes.container if isinstance(after, nodes.raw) else nodes.target
            targets = []
            for name in re.findall(r'id="([^"]+)"', text):
                targets.append(kind("", ids=[name], names=[name]))
                self.document.note_explicit_target(targets[-1])
                # MyST looks here when it follows a link from another page: `04_masks.ipynb#masks-causal`.
                metadata = self.env.metadata[self.env.docname]
                metadata.setdefault("myst_slugs", {})[name] = (paragraph.line, name, name)
            paragraph.replace_self(targets)


class FigureNumbers(SphinxTransform):
    """``[Figure 3.4](#fig-3-4)`` leads to the cell whose output is that drawing, from other pages too.

    Sphinx does not look into outputs: the cell takes the drawing's id, and the drawing has none on the site. Of
    the rules that each drawing brings for notebooks, a page needs one copy.
    """

    default_priority = Anchors.default_priority
    ID = re.compile(r'(<figure class="drawing[^"]*") id="(fig-[\w-]+)"')
    STYLE = re.compile(r"<style>\.drawing\{.*?</style>", re.DOTALL)

    def apply(self):
        """Find drawings in the outputs of cells."""
        slugs = self.env.metadata[self.env.docname].setdefault("myst_slugs", {})
        containers = self.document.findall(nodes.container)
        has_style = False
        for cell in [one for one in containers if one.get("nb_element") == "cell_code"]:
            for output in cell.findall(nodes.raw):
                text = output.astext()
                for name in (found[2] for found in self.ID.finditer(text)):
                    cell["ids"].append(name)
                    cell["names"].append(name)
                    self.document.note_explicit_target(cell)
                    slugs[name] = (cell.line or 0, name, f"Figure {'.'.join(name.split('-')[1:])}")
                text = self.STYLE.sub("", text) if has_style else text
                has_style = has_style or self.STYLE.search(text) is not None
                output.rawsource = self.ID.sub(r"\1", text)
                output[:] = [nodes.Text(output.rawsource)]


class BorrowedDrawings(SphinxTransform):
    """``<div data-drawing="chapters/00_on_one_page#fig-0-1"></div>`` is that drawing, on a page without code."""

    default_priority = Anchors.default_priority
    PLACE = re.compile(r'<div data-drawing="([\w/]+)#([\w-]+)"></div>')

    def apply(self):
        """Put the stored output of the chapter's cell into each such place."""
        for place in list(self.document.findall(nodes.raw)):
            if found := self.PLACE.fullmatch(place.astext().strip()):
                self.env.note_dependency(path := f"{self.env.srcdir}/{found[1]}.ipynb")
                place[:] = [nodes.Text(drawing(path, found[2]))]


def drawing(path: str, name: str) -> str:
    """The drawing with the id `name` among the outputs of a chapter."""
    cells = nbformat.read(path, as_version=4).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [output.get("data", {}).get("text/html", "") for output in outputs]
    [found] = [html for html in shown if f'<figure class="drawing" id="{name}"' in html]
    return found


class Sought(SphinxTransform):
    """Entries of the index for `SOUGHT`, which Sphinx's search ranks above words of the text."""

    default_priority = Anchors.default_priority

    def apply(self):
        """Add them to the page's first section."""
        section = self.document.next_node(nodes.section)
        entries = [
            ("single", words, section["ids"][0], "main", None) for words in SOUGHT.get(self.env.docname, [])
        ]
        if entries:
            section.insert(1, addnodes.index(entries=entries))


def load_mathjax_when_needed(app, pagename, templatename, context, doctree):
    """A script of ours loads MathJax when an equation comes near the screen; pages without any need neither."""
    left_out = ["mathjax"]
    if doctree is None or not any(doctree.findall(lambda node: isinstance(node, EQUATIONS))):
        left_out.append("equations.js")
    context["script_files"] = [
        script
        for script in context["script_files"]
        if not any(name in str(script.filename) for name in left_out)
    ]


def unfold_launch_button(app, pagename, templatename, context, doctree):
    """The theme hides launch buttons in a menu behind a rocket; of a single one, a reader should see the name."""
    buttons = context.get("header_buttons", [])
    for number, button in enumerate(buttons):
        if button.get("label") == "launch-buttons" and len(button["buttons"]) == 1:
            buttons[number] = {
                **button["buttons"][0],
                "text": "Open in Colab",
                "tooltip": "Run this page as a notebook",
                "icon": "fas fa-play",  # the theme's picture weighs as much as a live figure
            }


def tell_the_template(app, pagename, templatename, context, doctree):
    """The page's language, and where the site lies."""
    if lang := (context.get("meta") or {}).get("lang"):  # screen readers and browsers ask
        context["language"] = lang
    if pagename == "404":  # it is shown at addresses of any depth: what it loads starts at the site's root
        context["base"] = urlsplit(app.config.html_baseurl).path


def setup(app):
    """Sphinx calls this once, because `_config.yml` lists `book.site`."""
    app.connect("config-inited", configure)
    app.connect("builder-inited", compute_data)
    for transform in (Anchors, FigureNumbers, BorrowedDrawings, Sought):
        app.add_transform(transform)
    app.connect("html-page-context", add_explorable)
    app.connect("html-page-context", add_live_figures)
    app.connect("html-page-context", tell_the_template)
    app.connect("html-page-context", load_mathjax_when_needed, priority=501)  # after Sphinx's, 500
    app.connect("html-page-context", unfold_launch_button, priority=502)  # after the theme's 501
    app.connect("build-finished", finish, priority=900)  # when the theme has written its styles
    return {"parallel_read_safe": True, "parallel_write_safe": True}
