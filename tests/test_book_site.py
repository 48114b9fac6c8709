"""The built site: what a reader's browser gets, page by page."""

import inspect
import re
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from functools import cached_property, partial
from hashlib import sha256
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from threading import Thread
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import nbformat
import pytest
import yaml
from fontTools.ttLib import TTFont
from lxml import html
from PIL import Image

from book import browser
from book.build import pages
from book.site import FIGURE, figure_scripts
from transformer_lessons import __version__

ROOT = Path(__file__).parents[1]
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
HOME = CONFIG["sphinx"]["config"]["html_baseurl"]
COLAB = CONFIG["repository"]["url"].replace("github.com", "colab.research.google.com/github") + "/blob/main/"
CHAPTERS = sorted(path.stem for path in (ROOT / "book" / "chapters").glob("*.ipynb"))
MADE = ["exercises", "mistakes"]  # pages that the build writes
PAGES = {path.stem for path in (ROOT / "book").glob("*.md")}.union(MADE)
EXPLORABLES = {path.stem for path in (ROOT / "book" / "explorables").glob("*.md")}
# By which a page makes the browser fetch something (an <a href> waits for a click).
FETCHED = "//@src | //@srcset | //link/@href | //object/@data | //use/@href | //image/@href"


class Page:
    """A page's text, and what is in it by XPath."""

    def __init__(self, path: Path):
        self.path, self.text = path, path.read_text(encoding="utf-8")
        self.find = html.document_fromstring(self.text).xpath
        self.ids = self.find("//@id")


class Site:
    """A built site, its pages parsed once."""

    def __init__(self, folder: Path):
        self.html = folder
        self.pages = {path.relative_to(folder).as_posix(): Page(path) for path in pages(folder)}

    def chapters(self) -> dict[str, Page]:
        return {name: self.pages[f"chapters/{name}.html"] for name in CHAPTERS}


def digest_of_sources() -> str:
    """Of all that a build reads, and of the versions that build it."""
    paths = [path for folder in ("book", "transformer_lessons") for path in (ROOT / folder).rglob("*")]
    paths = [path for path in paths if path.is_file() and path.suffix != ".pyc" and path.stem not in MADE]
    found = sha256()
    for path in sorted([*paths, ROOT / "_config.yml", ROOT / "requirements.txt"]):
        found.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest()


@pytest.fixture(scope="session")
def site(pytestconfig):
    """Built from nothing, as only then Sphinx says all that it has to say; or before, from the same sources."""
    output, digest = pytestconfig.cache.mkdir("site"), digest_of_sources()
    known = output / "built_from"
    if not known.is_file() or known.read_text() != digest:
        known.unlink(missing_ok=True)
        shutil.rmtree(output / "_build", ignore_errors=True)
        build = [sys.executable, "-m", "book.build", str(output)]
        # Warnings of the tools themselves are theirs; Sphinx's own warnings about the book end the build.
        done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        known.write_text(digest)
    return Site(output / "_build" / "html")


# ---- What is there


def test_every_page_is_built_and_says_its_language_and_of_which_version_it_is(site):
    wanted = {
        *PAGES,
        *(f"chapters/{name}" for name in CHAPTERS),
        *(f"explorables/{name}" for name in EXPLORABLES),
    }
    assert {f"{name}.html" for name in wanted} <= set(site.pages)
    for name, page in site.pages.items():
        assert page.find("/html/@lang") == ["zh-CN" if name == "zh.html" else "en"], name
        assert f"Report a problem</a> · Version {__version__}" in page.text, name


def test_the_colab_button_opens_the_chapter(site):
    for name, page in site.chapters().items():
        button, *others = [url for url in page.find("//a/@href") if "colab" in url]
        assert button == f"{COLAB}book/chapters/{name}.ipynb"
        assert "Open in Colab" in page.text
        assert all((ROOT / url.removeprefix(COLAB)).is_file() for url in others)  # a chapter's exercise
    assert "colab.research" not in site.pages["notation.html"].text


def test_every_page_says_where_it_is_at_home_and_shows_a_picture_when_it_is_shared(site):
    addresses = set()
    for name, page in site.pages.items():
        assert page.find("//*[@rel='canonical']/@href") == [f"{HOME}{name}"]
        about = {tag.get("property"): tag.get("content") for tag in page.find("//*[@property]")}
        if name not in ("404.html", "genindex.html", "search.html"):
            assert (site.html / about["og:image"].removeprefix(HOME)).is_file()
            assert (about["og:url"], about["og:site_name"]) == (f"{HOME}{name}", CONFIG["title"])
            addresses.add(f"{HOME}{name}")
    listed = ElementTree.parse(site.html / "sitemap.xml").getroot()
    assert {entry[0].text for entry in listed} == addresses


# ---- Nothing from elsewhere


def foreign(page: Page) -> list[str]:
    """Addresses on other servers that the page makes the browser fetch or that its scripts and styles name."""
    fetched = [value for value in page.find(FETCHED) if re.search(r"(?:^|\s)(?:https?:)?//", value)]
    inline = page.find("//script/text() | //style/text()")
    named = [url for body in inline for url in re.findall(r"https?://[^\s\"')]+", body)]
    # Its own address says where the page is at home.
    return [url for url in fetched + named if not url.startswith(HOME)]


def test_neither_pages_nor_their_style_sheets_fetch_from_another_server(site):
    sheets = set()
    for name, page in site.pages.items():
        assert foreign(page) == [], name
        links = page.find("//link[@rel='stylesheet']/@href")
        sheets |= {(page.path.parent / urlsplit(link).path).resolve() for link in links}
    assert {sheet.name for sheet in sheets} == {"site.css", "explorables.css", "live.css"}
    for sheet in sheets:
        text = sheet.read_text(encoding="utf-8")
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)]*", text), sheet.name


def test_fonts_of_icons_hold_those_that_pages_show(site):
    fonts = sorted((site.html / "_static").rglob("fa-*.woff2"))
    held = {chr(code) for path in fonts for code in TTFont(path).getBestCmap()}
    assert sum(path.stat().st_size for path in fonts) < 20_000
    style = (site.html / "_static" / "styles" / "pydata-sphinx-theme.css").read_text(encoding="utf-8")
    rules = re.findall(r'\.(fa-[\w-]+):before[^}]*content:"\\(\w+)', style)
    names = {
        name for page in site.pages.values() for names in page.find("//@class") for name in names.split()
    }
    icons = {chr(int(code, 16)) for name, code in rules if name in names}
    assert len(icons) >= 8
    # Of notes and warnings, by the theme's own rules.
    icons |= {*re.findall(r'--pst-icon-(?:info-circle|exclamation-triangle):"(.)"', style)}
    assert icons <= held


def test_a_figures_scripts_are_where_it_stands(site):
    for name, page in site.pages.items():
        figures = set(FIGURE.findall(page.text))
        wanted = {path for figure in figures for path in figure_scripts(*figure)}
        scripts = {urlsplit(src).path.partition("_static/")[2] for src in page.find("//script/@src")}
        assert {path for path in scripts if path.startswith(("live/", "explorables/"))} == wanted, name


# ---- The reference


# What commands run.
UNLISTED = """
__main__ oracles checks.catalogue
tools.cli tools.doctor tools.submission trainer.runs trainer.configs data.libraries
""".split()


def public_modules() -> set[str]:
    """The package's modules with something for readers; of a folder that says what is, the folder."""
    found = set()
    for path in (ROOT / "transformer_lessons").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if f"{name.partition('.')[2]}.".startswith(tuple(f"{unlisted}." for unlisted in UNLISTED)):
            continue
        module, *folders = (import_module(name.rsplit(".", n)[0]) for n in range(name.count(".") + 1))
        own = [thing for thing in vars(module).values() if getattr(thing, "__module__", "") == name]
        if (own or hasattr(module, "__all__")) and not any(hasattr(folder, "__all__") for folder in folders):
            found.add(name)
    return found


REFERENCE = "reference", "reference_rooms"
PROPERTIES = property, cached_property


def entries(site) -> dict[str, object]:
    """What the reference has an entry for, by its anchor; fields are told in their class's docstring."""
    ids = [name for page in REFERENCE for name in site.pages[f"{page}.html"].ids]
    anchors = [name for name in ids if name.startswith("transformer_lessons.")]
    found = {name: resolve_name(name) for name in anchors}
    return {name: thing for name, thing in found.items() if callable(thing) or isinstance(thing, PROPERTIES)}


def letters(text: str) -> str:
    """Text without what typesetting changes: spaces, quotation marks, backticks."""
    return re.sub(r"[^\w√·Σ=+]+", "", text)


def test_every_module_with_something_public_is_in_the_reference():
    """And no other; that a name has two entries, the build says."""
    pages = [(ROOT / "book" / f"{page}.md").read_text(encoding="utf-8") for page in REFERENCE]
    listed = re.findall(r"automodule:: (\S+)", "".join(pages))
    assert len(listed) > 30
    assert sorted(listed) == sorted(public_modules()), (
        "give a new module its place in book/reference_rooms.md"
    )


def test_the_reference_says_what_the_docstrings_say(site):
    """Of a property's docstring, napoleon would take what stands before a colon for a type: write it without."""
    text = "".join(site.pages[f"{page}.html"].text for page in REFERENCE)
    page = letters(unescape(re.sub(r"<[^>]*>", "", text)))
    for name, thing in entries(site).items():
        prose = re.split(r"\n\w+:\n", inspect.getdoc(thing))[0]
        assert letters(prose) in page, name


def test_the_reference_reads_like_the_code(site):
    """What `book.docstrings` makes of autodoc's and napoleon's words."""
    page = "".join(site.pages[f"{page}.html"].text for page in REFERENCE)
    hrefs = site.pages["reference.html"].find("//a/@href")
    assert hrefs.count("#transformer_lessons.masks.padding_mask") > 1  # its own, and one from another module
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
        for url in page.find("//*[not(self::base)]/@href | //@src"):
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
        assert [found for found, times in Counter(page.ids).items() if times > 1] == [], name


HIDDEN = re.compile(r"### BEGIN (?:SOLUTION|HIDDEN TESTS)\n(.*?)### END", re.DOTALL)


def words(text: str) -> str:
    """A text with one space between words."""
    return " ".join(text.split())


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


def readable(path: Path) -> str:
    """What a file says to a reader, by words."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = " ".join(cell.source for cell in nbformat.reads(text, as_version=4).cells)
    return words(unescape(re.sub(r"<[^>]*>", "", text)) if path.suffix == ".html" else text)


def test_masters_and_hidden_tests_are_not_published(site):
    """Neither on the pages nor beside them, nor among the files that make up the wheel or that students open."""
    sources = {path.name for path in (site.html / "_sources").rglob("*") if path.is_file()}
    assert sources == {f"{name}.md" for name in PAGES | EXPLORABLES} | {f"{name}.ipynb" for name in CHAPTERS}
    folders = site.html, ROOT / "transformer_lessons", ROOT / "exercises" / "release"
    kinds = {".html", ".ipynb", ".md", ".js", ".txt", ".py", ".json"}
    hidden = secrets()
    assert len(hidden) > 100
    for path in [path for folder in folders for path in folder.rglob("*") if path.suffix in kinds]:
        text = readable(path)
        assert "BEGIN HIDDEN TESTS" not in text, path
        assert not [secret for secret in hidden if secret in text], path


# ---- In a browser


@contextmanager
def served(folder: Path):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.full
@pytest.mark.parametrize("prefix", ["", urlsplit(HOME).path[1:]])
def test_an_address_that_does_not_exist_shows_the_way_wherever_the_site_lies(
    site, chromium, tmp_path, prefix
):
    shutil.copytree(site.html, tmp_path / "host" / prefix, dirs_exist_ok=True)
    missing = f"{prefix}chapters/deep/er/no_such_chapter.html"
    with served(tmp_path / "host") as host, browser.browser() as view:
        # As GitHub Pages does.
        view.page.route(f"**/{missing}", lambda route: route.fulfill(path=site.html / "404.html"))
        view.open(f"{host}{missing}")
        hrefs = view.page.evaluate("[...document.querySelectorAll('article a')].map((link) => link.href)")
        colour = view.page.evaluate("getComputedStyle(document.body).getPropertyValue('--pst-color-primary')")
        assert hrefs == [f"{host}{prefix}{name}.html" for name in ("index", "topics", "glossary", "search")]
        assert colour  # by the style sheet
        assert view.problems == [] or not prefix  # at home, nothing is asked for in vain


CHAPTER_PAGES = [f"chapters/{name}.html" for name in CHAPTERS]
ALL = [*(f"{name}.html" for name in sorted(PAGES)), *CHAPTER_PAGES]
SOME = ["index.html", "notation.html", CHAPTER_PAGES[4]]


@pytest.mark.parametrize(
    ("width", "names"),
    [
        pytest.param(375, SOME, id="some"),
        *(pytest.param(width, ALL, id=f"all-{width}", marks=pytest.mark.full) for width in (320, 375, 1280)),
    ],
)
def test_pages_in_a_browser_without_network(site, chromium, width, names):
    """Equations are typeset, nothing fails or is asked of a server, and no page is wider than the screen."""
    typeset = "document.querySelectorAll('.math > mjx-container').length"
    # An error in the TeX is a box; a command that does not exist is shown in red.
    bad = "mjx-merror, [data-mjx-error], mjx-container [style*='color: red']"
    with browser.browser(width=width) as view:
        for name in names:
            page = site.pages[name]
            view.open(page.path)
            assert view.problems == [], name
            assert {urlsplit(url).scheme for url in view.requests} <= {"file", "data"}, name
            equations = len(re.findall(r'<(?:span|div) class="math', page.text))
            assert view.page.evaluate(typeset) == equations, name
            assert equations > 0 or name not in ("notation.html", *CHAPTER_PAGES[1:])  # the first has none
            assert (
                view.page.evaluate(f'[...document.querySelectorAll("{bad}")].map(e => e.textContent)') == []
            ), name
            assert view.page.evaluate("document.documentElement.scrollWidth") == width, name


def test_the_dark_mode_button_darkens_the_page_and_its_drawings(site, chromium):
    colours = """[document.body, ...document.querySelectorAll(".drawing")].map((one) =>
      [getComputedStyle(one).color, getComputedStyle(document.body).backgroundColor].join())"""
    with browser.browser() as view:
        view.open(site.chapters()["03_scaled_dot_product_attention"].path)
        light = view.page.evaluate(colours)
        for _ in range(3):  # modes follow each other: as the system says, light, dark
            view.page.locator(".theme-switch-button").first.click()
            if view.page.evaluate("document.documentElement.dataset.theme") == "dark":
                break
        dark = view.page.evaluate(colours)
        assert len(light) == len(dark) > 1
        assert not set(light) & set(dark)


@pytest.mark.full
def test_equations_are_typeset_as_they_come_near(site, chromium):
    number, all_ = (
        f"document.querySelectorAll('.math{inside}').length" for inside in (" > mjx-container", "")
    )
    with browser.browser(width=412) as view:
        view.page.goto(site.chapters()["01_why_attention"].path.as_uri())
        view.page.wait_for_timeout(1000)  # to load what should not be
        assert view.page.evaluate("typeof MathJax.version") == "undefined"
        assert view.page.evaluate(all_) > 100
        view.page.locator(".math").nth(50).scroll_into_view_if_needed()
        view.page.wait_for_function(f"{number} > 0")
        assert view.page.evaluate(number) < 100
        view.page.evaluate("dispatchEvent(new Event('beforeprint'))")  # as a browser says before it prints
        assert view.page.evaluate(number) == view.page.evaluate(all_)
        assert view.problems == []


@pytest.mark.full
@pytest.mark.parametrize("dark", [False, True])
def test_a_first_visit_is_in_the_colours_of_the_system_from_the_start(site, chromium, dark):
    watch = """window.themes = []; new MutationObserver(() => {
      window.themes.push(document.documentElement.dataset.theme);
    }).observe(document, { attributes: true, subtree: true, attributeFilter: ["data-theme"] })"""
    with browser.browser(dark=dark) as view:
        view.page.add_init_script(watch)
        view.open(site.pages["index.html"].path)
        assert set(view.page.evaluate("window.themes")) == {"dark" if dark else "light"}


def test_search_and_buttons_work_although_scripts_wait(site, chromium):
    with served(site.html) as root, browser.browser() as view:
        view.open(f"{root}search.html?q=softmax")
        view.page.wait_for_selector("#search-results a[href*='03_scaled']")
        view.open(f"{root}chapters/04_masks.html?highlight=padding")
        cells = view.page.evaluate("document.querySelectorAll('div.highlight pre').length")
        assert view.page.evaluate("document.querySelectorAll('button.copybtn').length") == cells > 0
        assert view.page.evaluate("document.querySelectorAll('span.highlighted').length") > 0
        assert view.problems == []


@pytest.mark.full
def test_what_was_read_to_the_end_is_marked_until_it_is_forgotten(site, chromium):
    page, other = (site.chapters()[name].path for name in ("04_masks", "03_scaled_dot_product_attention"))
    marks = (
        "[...document.querySelectorAll('.lessons-read')].map((one) => one.closest('a').getAttribute('href'))"
    )
    with browser.browser() as view:
        view.open(page)
        assert view.page.evaluate(marks) == []
        view.page.locator(".prev-next-footer").scroll_into_view_if_needed()
        view.page.wait_for_timeout(1500)
        assert view.page.evaluate(marks) == ["#"]  # the page itself
        view.open(other)
        assert view.page.evaluate(marks) == ["04_masks.html"]
        assert view.page.locator(".lessons-forget").inner_text().startswith("Forget the page")
        view.page.evaluate("document.querySelector('.lessons-forget').click()")
        assert view.page.evaluate(marks) == []
        view.open(page)
        assert view.page.locator(".lessons-forget").count() == 0
        assert view.problems == []
