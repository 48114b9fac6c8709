"""What other programs are told of the site: search engines, and whoever shows a preview of a link."""

import hashlib
from html import escape
from pathlib import Path
from textwrap import fill, shorten
from urllib.parse import urljoin

import matplotlib as mpl
from docutils import nodes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

__all__ = ["card", "describe", "list_pages"]

CARDS = Path("_static") / "cards"
WIDTH, HEIGHT = 1200, 630  # pixels, as Open Graph's readers expect
INK, PAPER, GREY = "#1f2328", "#ffffff", "#8a93a6"
# As in the logo: weights of four queries over four keys under a causal mask, and a colour for each query.
ROWS = ("#3f74d8", "#d9702a", "#1a9c89", "#d052b4")
WEIGHTS = ((1,), (0.45, 1), (0.3, 0.6, 0.9), (0.75, 0.3, 0.45, 0.9))


def card(title: str, about: str) -> Figure:
    """The picture that stands beside a link to a page: its title, the book's name, the logo."""
    with mpl.rc_context({"font.family": "DejaVu Serif", "text.usetex": False, "text.parse_math": False}):
        figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100, facecolor=PAPER)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(HEIGHT, 0))
        axes.set_axis_off()
        axes.text(80, 110, about, fontsize=26, color="#59626b")
        axes.text(
            80, 315, fill(title, 18), fontsize=40, color=INK, weight="bold", va="center", linespacing=1.3
        )
        side, step, left, top = 66, 88, 800, 150
        for row, weights in enumerate(WEIGHTS):
            for column in range(len(WEIGHTS)):
                is_seen = column < len(weights)
                look = {
                    "color": ROWS[row] if is_seen else GREY,
                    "alpha": weights[column] if is_seen else 0.22,
                }
                corner = (left + step * column, top + step * row)
                axes.add_patch(
                    FancyBboxPatch(corner, side, side, "round,pad=0,rounding_size=14", lw=0, **look)
                )
    return figure


def _drawable(title: str) -> str:
    """A title without what the font lacks: Chinese, beside which there may be English."""
    return "".join(letter for letter in title if ord(letter) < 0x2E80).strip(" ·")


def _draw_card(folder: Path, title: str, about: str) -> str:
    """The address of the card, drawn unless it is there; a new title gets a new one, as others keep copies."""
    digest = hashlib.sha256(f"{about}\n{title}".encode()).hexdigest()[:12]
    path = folder / CARDS / f"{digest}.png"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        card(title, about).savefig(path, metadata={"Software": None})
    return (CARDS / path.name).as_posix()


def describe(app, pagename, templatename, context, doctree):
    """The page's title, first paragraph, address and picture, for search engines and previews of links."""
    paragraph = doctree and next(doctree.findall(nodes.paragraph), None)
    if not paragraph:
        return
    site, base = app.config.html_title, app.config.html_baseurl
    description = shorten(paragraph.astext(), width=200, placeholder=" …")
    title = context.get("pagetitle") or site
    drawn = _drawable(title) or site
    shown = {
        "og:type": "article",
        "og:site_name": site,
        "og:title": title,
        "og:description": description,
        "og:url": urljoin(base, app.builder.get_target_uri(pagename)),
        "og:image": urljoin(base, _draw_card(Path(app.outdir), drawn, site)),
        "og:image:width": str(WIDTH),
        "og:image:height": str(HEIGHT),
        "og:image:alt": f"{site}: {drawn}, beside an attention matrix under a causal mask",
    }
    named = {"description": description, "twitter:card": "summary_large_image"}
    tags = [f'<meta property="{name}" content="{escape(text)}" />' for name, text in shown.items()]
    tags += [f'<meta name="{name}" content="{escape(text)}" />' for name, text in named.items()]
    context["metatags"] = "\n".join([context.get("metatags", ""), *tags])


def list_pages(app, error):
    """`sitemap.xml`: the addresses of all pages (https://www.sitemaps.org/protocol.html)."""
    if error or app.builder.format != "html":
        return
    addresses = [
        urljoin(app.config.html_baseurl, app.builder.get_target_uri(name))
        for name in sorted(app.env.found_docs)
    ]
    entries = "".join(f"<url><loc>{escape(address)}</loc></url>\n" for address in addresses)
    text = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{entries}</urlset>\n'
    (Path(app.outdir) / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="utf-8"?>\n' + text, encoding="utf-8"
    )
