"""The built site: what a reader's browser gets, page by page."""

import inspect
import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from html import unescape
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import nbformat
import pytest
import yaml
from fontTools.ttLib import TTFont
from PIL import Image

from book import browser, built, serve
from transformer_lessons import __version__

ROOT = Path(__file__).parents[1]
REPOSITORY = re.search(
    r'^Repository = "https://github\.com/(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M
)[1]
HOME = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]["html_baseurl"]
CHAPTERS = sorted(path.stem for path in (ROOT / "book" / "chapters").glob("*.ipynb"))
PAGES = {path.stem for path in (ROOT / "book").glob("*.md")} | {"mistakes"}  # which the build writes
EXPLORABLES = {path.stem for path in (ROOT / "book" / "explorables").glob("*.md")}
# Attributes by which a page makes the browser fetch something (an <a href> waits for a click).
FETCHED = {("link", "href"), ("object", "data"), ("use", "href"), ("image", "href")} | {
    (tag, "src") for tag in ("script", "img", "iframe", "source", "audio", "video", "embed", "track")
}


@dataclass
class Page:
    path: Path
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def __post_init__(self):
        parser = HTMLParser()
        parser.handle_starttag = lambda tag, attributes: self.tags.append(
            (tag, {name: value or "" for name, value in attributes})
        )
        parser.feed(self.text)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def ids(self) -> set[str]:
        return {attributes["id"] for _, attributes in self.tags if "id" in attributes}

    def values(self, tag: str, name: str) -> list[str]:
        return [attributes[name] for found, attributes in self.tags if found == tag and name in attributes]


class Site:
    """A built site, its pages parsed once."""

    def __init__(self, html: Path):
        self.html = html
        paths = (path for path in html.rglob("*.html") if "_static" not in path.relative_to(html).parts)
        self.pages = {path.relative_to(html).as_posix(): Page(path) for path in sorted(paths)}

    def chapters(self) -> dict[str, Page]:
        return {name: self.pages[f"chapters/{name}.html"] for name in CHAPTERS}


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    output = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "book.build", str(output)]
    # Warnings of the tools themselves are theirs; Sphinx's own warnings about the book end the build.
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return Site(output / "_build" / "html")


# ---- What is there


def test_every_chapter_and_page_is_built(site):
    wanted = {f"{name}.html" for name in {"index", *PAGES}} | {f"chapters/{name}.html" for name in CHAPTERS}
    assert wanted | {f"explorables/{name}.html" for name in EXPLORABLES} <= set(site.pages)


def test_pages_say_their_language_and_of_which_version_they_are(site):
    for name, page in site.pages.items():
        assert page.values("html", "lang") == ["zh-CN" if name == "zh.html" else "en"], name
        assert f"Report a problem</a> · Version {__version__}" in page.text, name


def test_the_colab_button_opens_the_chapter(site):
    for name, page in site.chapters().items():
        start = f"https://colab.research.google.com/github/{REPOSITORY}/blob/main/"
        button, *others = [url for url in page.values("a", "href") if "colab" in url]
        assert button == f"{start}book/chapters/{name}.ipynb"
        assert "Open in Colab" in page.text
        for url in others:  # a chapter also links its exercise
            assert url.startswith(start)
            assert (ROOT / url.removeprefix(start)).is_file(), url
    assert "colab.research" not in site.pages["notation.html"].text


def test_every_page_says_where_it_is_at_home_and_shows_a_picture_when_it_is_shared(site):
    addresses = set()
    for name, page in site.pages.items():
        [canonical] = [tag["href"] for kind, tag in page.tags if tag.get("rel") == "canonical"]
        assert canonical == f"{HOME}{name}"
        pictures = [tag["content"] for kind, tag in page.tags if tag.get("property") == "og:image"]
        assert all((site.html / url.removeprefix(HOME)).is_file() for url in pictures)
        if name not in ("404.html", "genindex.html", "search.html"):
            assert len(pictures) == 1, name
            addresses.add(canonical)
    listed = ElementTree.parse(site.html / "sitemap.xml").getroot()
    assert {entry[0].text for entry in listed} == addresses


@pytest.mark.full
@pytest.mark.parametrize("prefix", ["/", built.site_path()])
def test_an_address_that_does_not_exist_shows_the_way_wherever_the_site_lies(site, chromium, prefix):
    with serve.serving(site.html, prefix) as root, browser.Browser() as opened:
        opened.open(f"{root}chapters/deep/er/no_such_chapter.html")
        hrefs = opened.evaluate("[...document.querySelectorAll('article a')].map((link) => link.href)")
        colour = opened.evaluate("getComputedStyle(document.body).getPropertyValue('--pst-color-primary')")
        problems = opened.problems[:]
    assert hrefs == [f"{root}{name}.html" for name in ("index", "topics", "glossary", "search")]
    assert colour  # by the style sheet
    if prefix != "/":  # where it is at home, nothing is asked for in vain but the page itself
        assert len(problems) == 1


# ---- Nothing from elsewhere


def foreign(page: Page) -> list[str]:
    """Addresses on other servers that the page makes the browser fetch or that its scripts and styles name."""
    fetched = [
        tag[name]
        for kind, tag in page.tags
        for name in tag
        if (kind, name) in FETCHED
        and tag.get("rel") != "canonical"  # says where the page is at home
        and re.match(r"(https?:)?//", tag[name])
    ]
    fetched += [
        entry for kind, tag in page.tags for entry in re.findall(r"(?:https?:)?//\S+", tag.get("srcset", ""))
    ]
    inline = re.findall(r"<(?:script|style)\b[^>]*>(.*?)</(?:script|style)>", page.text, re.S)
    return fetched + [url for body in inline for url in re.findall(r"https?://[^\s\"')]+", body)]


def test_no_page_fetches_from_another_server(site):
    assert {name: found for name, page in site.pages.items() if (found := foreign(page))} == {}


def test_no_style_sheet_of_a_page_fetches_from_another_server(site):
    sheets = set()
    for page in site.pages.values():
        links = [tag for kind, tag in page.tags if kind == "link" and tag.get("rel") == "stylesheet"]
        sheets |= {(page.path.parent / urlsplit(tag["href"]).path).resolve() for tag in links}
    assert {sheet.name for sheet in sheets} == {"site.css", "heights.css", "explorables.css", "live.css"}
    for sheet in sheets:
        text = sheet.read_text(encoding="utf-8")
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)]*", text), sheet.name


def test_fonts_of_icons_hold_those_that_pages_show(site):
    fonts = sorted((site.html / "_static").rglob("fa-*.woff2"))
    held = {code for path in fonts for code in TTFont(path).getBestCmap()}
    assert sum(path.stat().st_size for path in fonts) < 20_000
    style = (site.html / "_static" / "styles" / "pydata-sphinx-theme.css").read_text(encoding="utf-8")
    classes = {
        name
        for page in site.pages.values()
        for _, about in page.tags
        for name in about.get("class", "").split()
    }
    icons = {name for name in classes if name.startswith("fa-") and f".{name}:before" in style}
    assert len(icons) >= 8
    for name in icons:
        code = style[style.index(f".{name}:before") :].partition('content:"\\')[2].partition('"')[0]
        assert int(code, 16) in held, name
    for name in ("info-circle", "exclamation-triangle"):  # of notes and warnings, by the theme's own rules
        sign = style.partition(f"--pst-icon-{name}:")[2].strip('"')[0]
        assert ord(sign) in held, name


def test_all_parts_of_mathjax_that_pages_load_are_there(site):
    """As published: see tests/test_book_vendor.py."""
    parts = re.search(r"\.MathJax = (.+?)</script>", site.pages["notation.html"].text)[1].rstrip("; ")
    for part in ("startup", *json.loads(parts)["loader"]["load"]):
        assert (site.html / "_static" / "vendor" / "mathjax" / f"{part}.js").is_file(), part


# ---- The reference


# What commands run.
UNLISTED = """
__main__ oracles checks.catalogue
tools.cli tools.doctor tools.submission trainer.runs trainer.configs data.libraries
""".split()


def public_names() -> dict[str, object]:
    """Everything that a reader can import from the package, by each of the paths that its modules offer."""
    found = {}
    for path in sorted((ROOT / "transformer_lessons").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if f"{name.partition('.')[2]}.".startswith(tuple(f"{unlisted}." for unlisted in UNLISTED)):
            continue
        module, folder = import_module(name), import_module(name.rpartition(".")[0] or name)
        if hasattr(folder, "__all__"):  # the folder says what of its modules is for readers
            continue
        own = [name for name, thing in vars(module).items() if is_own(thing, module) and name[0] != "_"]
        for name in getattr(module, "__all__", own):
            found[f"{module.__name__}.{name}"] = getattr(module, name)
    return found


def is_own(thing: object, module: object) -> bool:
    return callable(thing) and getattr(thing, "__module__", "") == module.__name__


def entries(site) -> dict[str, object]:
    """What the reference has an entry for, by its anchor; fields are told in their class's docstring."""
    anchors = [name for name in site.pages["reference.html"].ids if name.startswith("transformer_lessons.")]
    found = {name: resolve_name(name) for name in anchors}
    return {name: thing for name, thing in found.items() if callable(thing) or isinstance(thing, property)}


def holder(name: str) -> object:
    """The module or class that an entry stands in."""
    return resolve_name(name.rpartition(".")[0])


def letters(text: str) -> str:
    """Text without what typesetting changes: spaces, quotation marks, backticks."""
    return re.sub(r"[^\w√·Σ=+]+", "", text)


def test_every_public_name_has_one_entry_in_the_reference(site):
    # A class may have one of them as an attribute, too.
    listed = Counter(id(thing) for name, thing in entries(site).items() if not inspect.isclass(holder(name)))
    counts = {name: listed[id(thing)] for name, thing in public_names().items()}
    assert len(counts) > 50
    odd = {name: count for name, count in counts.items() if count != 1}
    assert odd == {}, "give a new module its place in book/reference.md"


def test_the_reference_lists_nothing_private_and_nothing_else(site):
    public = set(map(id, public_names().values()))
    for name, thing in entries(site).items():
        assert not re.search(r"\._", name)
        assert id(thing) in public or id(holder(name)) in public, name


def test_the_reference_says_what_the_docstrings_say(site):
    page = letters(unescape(re.sub(r"<[^>]*>", "", site.pages["reference.html"].text)))
    for name, thing in entries(site).items():
        prose = re.split(r"\n\w+:\n", inspect.getdoc(thing))[0]
        assert letters(prose) in page, name


def test_the_reference_shows_formulas_signatures_and_links(site):
    page = site.pages["reference.html"]
    text = unescape(re.sub(r"<[^>]*>", "", page.text))
    assert "Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V" in text
    assert 'ids: Int[Tensor, "batch keys"]' in text
    hrefs = page.values("a", "href")
    assert hrefs.count("#transformer_lessons.masks.padding_mask") > 1  # its own, and one from another module
    assert "reference.html#transformer_lessons.masks.causal_mask" in site.pages["notation.html"].text


def test_the_reference_reads_like_the_code(site):
    """What `book.docstrings` makes of autodoc's and napoleon's words."""
    page = site.pages["reference.html"].text
    signatures = re.findall(r'<dt class="sig.*?</dt>', page, re.DOTALL)
    assert len(signatures) > 50
    for signature in signatures:
        assert "<code" not in signature
        text = unescape(re.sub(r"<[^>]*>", "", signature))
        # Short names of shapes, "..." for a default that is made anew, classes without the arguments of torch.
        assert not re.search(r"jaxtyping|<factory>|class .*\(\*args|torch\.nn\.modules", text), text
    assert "Alias for field" not in page  # Python's own words on a named tuple's fields
    # A pitfall is a note of its own, from its first word to the end of the paragraph.
    docs = [inspect.getdoc(thing) for thing in entries(site).values()]
    wanted = sum(
        len(re.findall(r"^(?! ).*\b(?:(?:A|Two|Three) p|P)itfalls?:", doc, re.MULTILINE)) for doc in docs
    )
    notes = re.findall(r'<div class="pitfall[^>]*>(.*?)</div>', page, re.DOTALL)
    assert len(notes) >= wanted > 20
    assert all(re.match(r"\s*<p>\S* ?\S*pitfalls?:", note) for note in notes)


# ---- Figures and links


def test_the_front_page_shows_the_drawing_of_chapter_0(site):
    shown = [site.pages[name].text for name in ("index.html", "chapters/00_on_one_page.html")]
    front, chapter = [re.search(r'<figure class="drawing".*?</figure>', page, re.DOTALL)[0] for page in shown]
    assert re.findall(r"<svg.*?</svg>", front, re.DOTALL) == re.findall(r"<svg.*?</svg>", chapter, re.DOTALL)
    assert "live/one_page.js" in shown[0]


def test_who_has_no_javascript_sees_how_each_explorable_starts(site):
    for name in EXPLORABLES:
        page = site.pages[f"explorables/{name}.html"]
        [still] = re.findall(r"<noscript>(<img [^>]+>)</noscript>", page.text)
        about = dict(re.findall(r'(\w+)="([^"]*)"', still))
        with Image.open(page.path.parent / about["src"]) as picture:
            assert picture.size == (int(about["width"]), int(about["height"]))
        assert len(about["alt"].split()) >= 15


def test_every_link_leads_somewhere(site):
    dead = []
    for name, page in site.pages.items():
        urls = [
            url
            for kind, tag in page.tags
            for key in ("href", "src")
            if kind != "base" and (url := tag.get(key))
        ]
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path.resolve()
            if not target.is_file():
                dead.append(f"{name}: {url}: no such file")
            elif parts.fragment and target.suffix == ".html":
                aimed = site.pages[target.relative_to(site.html.resolve()).as_posix()]
                if unquote(parts.fragment) not in aimed.ids:
                    dead.append(f"{name}: {url}: no such anchor")
    # Two that only scripts use: the theme's hidden buttons, and the search page's own empty link.
    assert [problem for problem in dead if not problem.endswith(": #: no such anchor")] == []


def test_no_id_occurs_twice_in_a_page(site):
    for name, page in site.pages.items():
        ids = [tag["id"] for kind, tag in page.tags if "id" in tag]
        assert len(ids) == len(set(ids)), (name, [found for found in ids if ids.count(found) > 1])


def secrets() -> list[str]:
    """What masters hold and nobody else may: solutions, written answers and hidden tests, by words."""
    found = []
    for master in sorted((ROOT / "exercises" / "source").glob("*/*.ipynb")):
        cells = nbformat.read(master, as_version=4).cells
        shown = words(" ".join(cell.source for cell in cells if not HIDDEN.search(cell.source)))
        for cell in cells:
            blocks = HIDDEN.findall(cell.source)
            if cell.cell_type == "markdown" and cell.metadata.nbgrader.solution:
                blocks, shown = [cell.source], shown.replace(words(cell.source), "")
            # A short one, `x = 3`, may stand anywhere, and the lines of a broken program that are right in it.
            found += [secret for secret in map(words, blocks) if len(secret) > 60 and secret not in shown]
    return found


HIDDEN = re.compile(r"### BEGIN (?:SOLUTION|HIDDEN TESTS)\n(.*?)### END", re.DOTALL)


def words(text: str) -> str:
    """A text with one space between words."""
    return " ".join(text.split())


def test_masters_and_hidden_tests_are_not_published(site):
    """Neither on the pages nor beside them, nor among the files that make up the wheel or that students open."""
    published = [path.relative_to(site.html) for path in site.html.rglob("*") if path.is_file()]
    sources = {path.name for path in published if path.parts[0] == "_sources"}
    assert sources == {f"{name}.md" for name in PAGES | EXPLORABLES} | {f"{name}.ipynb" for name in CHAPTERS}
    assert not any("exercises" in path.parts for path in published)
    folders = site.html, ROOT / "transformer_lessons", ROOT / "exercises" / "release"
    kinds = {".html", ".ipynb", ".md", ".js", ".txt", ".py", ".json"}
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in kinds]
    hidden = secrets()
    assert len(hidden) > 100
    for path in files:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            text = " ".join(cell.source for cell in nbformat.reads(text, as_version=4).cells)
        elif path.suffix == ".html":
            text = unescape(re.sub(r"<[^>]*>", "", text))
        assert "BEGIN HIDDEN TESTS" not in text, path
        text = words(text)
        assert not [secret for secret in hidden if secret in text], path


# ---- In a browser


@pytest.fixture(scope="module")
def chromium(request):
    if browser.find() is None:
        if request.config.getoption("--full"):
            pytest.fail("the full tests need Chromium")
        pytest.skip("needs Chromium")


CHAPTER_PAGES = [f"chapters/{name}.html" for name in CHAPTERS]
ALL = [*(f"{name}.html" for name in sorted(PAGES)), *CHAPTER_PAGES]
SOME = ["index.html", "notation.html", CHAPTER_PAGES[4]]


@pytest.mark.parametrize(
    ("width", "names"),
    [
        pytest.param(375, SOME, id="some"),
        *(pytest.param(width, ALL, id=f"all-{width}", marks=pytest.mark.full) for width in (375, 1280)),
    ],
)
def test_pages_in_a_browser_without_network(site, chromium, width, names):
    """Equations are typeset, nothing fails or is asked of a server, and no page is wider than the screen."""
    with browser.Browser(width=width) as view:
        for name in names:
            page = site.pages[name]
            view.open(page.path)
            assert view.problems == [], name
            assert {urlsplit(url).scheme for url in view.requests} <= {"file", "data"}, name
            equations = len(re.findall(r'<(?:span|div) class="math', page.text))
            assert view.evaluate("document.querySelectorAll('.math > mjx-container').length") == equations, (
                name
            )
            assert equations > 0 or name not in ("notation.html", *CHAPTER_PAGES[1:])  # the first has none
            # An error in the TeX is a box; a command that does not exist is shown in red.
            bad = "mjx-merror, [data-mjx-error], mjx-container [style*='color: red']"
            assert view.evaluate(f'[...document.querySelectorAll("{bad}")].map(e => e.textContent)') == [], (
                name
            )
            assert view.evaluate("document.documentElement.scrollWidth") == width, name


def test_the_dark_mode_button_darkens_the_page_and_its_drawings(site, chromium):
    with browser.Browser() as view:
        drawn = "[...document.querySelectorAll('.drawing')].map((one) => getComputedStyle(one).color)"
        seen = {}
        for mode in ("light", "dark"):
            view.open(site.chapters()["03_scaled_dot_product_attention"].path)
            view.evaluate(f"document.documentElement.dataset.theme = '{mode}'")
            seen[mode] = set(view.evaluate(drawn))
        assert all(len(colours) == 1 for colours in seen.values())
        assert seen["light"] != seen["dark"]
        view.open(site.chapters()["18_linear_attention"].path)
        background = "getComputedStyle(document.body).backgroundColor"
        light = view.evaluate(background)
        # Modes follow each other: as the system says, light, dark.
        for _ in range(3):
            view.evaluate("document.querySelector('.theme-switch-button').click()")
            if view.evaluate("document.documentElement.dataset.theme") == "dark":
                break
        assert view.evaluate("document.documentElement.dataset.theme") == "dark"
        assert view.evaluate(background) != light


def until(view, condition):
    """Wait for something that a page does by itself, half a minute at most."""
    pause = "await new Promise((done) => setTimeout(done, 50))"
    assert view.evaluate(
        f"(async () => {{ for (let n = 0; n < 600 && !({condition}); n++) {pause}; return {condition}; }})()"
    )


@pytest.mark.full
def test_equations_are_typeset_as_they_come_near(site, chromium):
    number = "document.querySelectorAll('.math > mjx-container').length"
    with browser.Browser(width=412) as view:
        view.command("Page.navigate", url=site.chapters()["01_why_attention"].path.as_uri())
        until(view, "document.readyState === 'complete'")
        view.evaluate("new Promise((done) => setTimeout(done, 1000))")  # time to load what should not be
        assert view.evaluate("[typeof MathJax.version, document.querySelectorAll('.math').length > 100]") == [
            "undefined",
            True,
        ]
        view.evaluate("document.querySelectorAll('.math')[50].scrollIntoView()")
        until(view, f"{number} > 0")
        assert view.evaluate(number) < 100
        view.evaluate("dispatchEvent(new Event('beforeprint'))")  # as a browser says before it prints
        assert view.evaluate(number) == view.evaluate("document.querySelectorAll('.math').length")
        assert view.problems == []


@pytest.mark.full
@pytest.mark.parametrize("dark", [False, True])
def test_a_first_visit_is_in_the_colours_of_the_system_from_the_start(site, chromium, dark):
    watch = """window.themes = []; new MutationObserver(() => {
      window.themes.push(document.documentElement.dataset.theme);
    }).observe(document, { attributes: true, subtree: true, attributeFilter: ["data-theme"] })"""
    with browser.Browser(dark=dark) as view:
        view.command("Page.addScriptToEvaluateOnNewDocument", source=watch)
        view.open(site.pages["index.html"].path)
        assert set(view.evaluate("window.themes")) == {"dark" if dark else "light"}


def test_search_and_buttons_work_although_scripts_wait(site, chromium):
    with serve.serving(site.html, built.site_path()) as root, browser.Browser() as view:
        view.open(f"{root}search.html?q=softmax")
        until(view, "document.querySelector('#search-results a[href*=\"03_scaled\"]') !== null")
        view.open(f"{root}chapters/04_masks.html?highlight=padding")
        cells = view.evaluate("document.querySelectorAll('div.highlight pre').length")
        assert view.evaluate("document.querySelectorAll('button.copybtn').length") == cells > 0
        assert view.evaluate("document.querySelectorAll('span.highlighted').length") > 0
        assert view.problems == []


@pytest.mark.full
def test_what_was_read_to_the_end_is_marked_until_it_is_forgotten(site, chromium):
    page, other = (site.chapters()[name].path for name in ("04_masks", "03_scaled_dot_product_attention"))
    marks = """[...document.querySelectorAll(".lessons-read")]
      .map((one) => one.closest("a").getAttribute("href"))"""
    with browser.Browser() as view:
        view.open(page)
        assert view.evaluate(marks) == []
        view.evaluate("document.querySelector('.prev-next-footer').scrollIntoView()")
        view.evaluate("new Promise((done) => setTimeout(done, 1500))")
        assert view.evaluate(marks) == ["#"]  # the page itself
        view.open(other)
        assert view.evaluate(marks) == ["04_masks.html"]
        assert view.evaluate("document.querySelector('.lessons-forget').textContent").startswith(
            "Forget the page"
        )
        view.evaluate("document.querySelector('.lessons-forget').click()")
        assert view.evaluate(marks) == []
        view.open(page)
        assert view.evaluate("document.querySelector('.lessons-forget')") is None
        assert view.problems == []
