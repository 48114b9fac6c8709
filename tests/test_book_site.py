"""The built site: what a reader's browser gets, page by page."""

import inspect
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name, walk_packages
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest
import yaml
from fontTools.ttLib import TTFont
from lxml import html
from passes import fingerprint
from PIL import Image

from book import browser
from book.build import pages
from book.site import FIGURE, STYLES, figure_scripts
from transformer_lessons import __path__ as PACKAGE
from transformer_lessons import __version__

ROOT = Path(__file__).parents[1]
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
HOME = CONFIG["sphinx"]["config"]["html_baseurl"]
COLAB = CONFIG["repository"]["url"].replace("github.com", "colab.research.google.com/github") + "/blob/main/"
SOME = "index.html", "notation.html", "chapters/04_masks.html", "explorables/translator.html"
SHEETS = "//link[@rel='stylesheet']/@href"
# Attributes that make a browser fetch something (an <a href> waits for a click).
FETCHED = "//@src | //@srcset | //link/@href | //object/@data | //use/@href | //image/@href"
REFERENCE = "reference.html", "reference_rooms.html"


class Page:
    """A page's text, and its elements by XPath."""

    def __init__(self, path: Path):
        self.path, self.text = path, path.read_text(encoding="utf-8")
        self.find = html.document_fromstring(self.text).xpath
        self.ids = self.find("//@id")


# Everything that a build reads.
SOURCES = "book", "transformer_lessons", "exercises/release", "_config.yml", "requirements.txt"


@pytest.fixture(scope="session")
def site(pytestconfig):
    """Built from scratch, as only then Sphinx reports all warnings; or reused if the sources are the same."""
    output, state = pytestconfig.cache.mkdir("site"), fingerprint(ROOT, *SOURCES)
    known = output / "built_from"
    if not (state and known.is_file() and known.read_text() == state):
        known.unlink(missing_ok=True)
        shutil.rmtree(output / "_build", ignore_errors=True)
        build = [sys.executable, "-m", "book.build", str(output)]
        # The tools may warn about themselves; a warning of Sphinx about the book ends the build.
        done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        known.write_text(state)
    folder = output / "_build" / "html"
    built = {path.relative_to(folder).as_posix(): Page(path) for path in pages(folder)}
    # The sources of the pages, some of which the build writes.
    found = (path for kind in ("*.md", "*/*.md", "*/*.ipynb") for path in (ROOT / "book").glob(kind))
    sources = {path.relative_to(ROOT / "book") for path in found}
    own = sorted(path.with_suffix(".html").as_posix() for path in sources)
    return SimpleNamespace(html=folder, pages=built, sources=sources, own=own)


# ---- What is there


def test_every_page_is_whole_and_says_what_it_is_and_loads_nothing_from_elsewhere(site):
    for name, page in site.pages.items():
        assert page.find("/html/@lang") == ["zh-CN" if name == "zh.html" else "en"], name
        assert f"Report a problem</a> · Version {__version__}" in page.text, name
        assert len(page.ids) == len(set(page.ids)), name
        elsewhere = [url for url in page.find(FETCHED) if re.search(r"(?:^|\s)(?:https?:)?//", url)]
        for body in page.find("//script/text() | //style/text()"):  # they name what a click would load
            elsewhere += re.findall(r"https?://[^\s\"')]+", body)
        assert [url for url in elsewhere if not url.startswith(HOME)] == [], name  # except its own address
    for name in site.own:
        page = site.pages[name]
        assert page.find("//*[@rel='canonical']/@href") == [f"{HOME}{name}"]
        about = {tag.get("property"): tag.get("content") for tag in page.find("//*[@property]")}
        assert (site.html / about["og:image"].removeprefix(HOME)).is_file()
        assert (about["og:url"], about["og:site_name"]) == (f"{HOME}{name}", CONFIG["title"])
    listed = ElementTree.parse(site.html / "sitemap.xml").getroot()
    assert {entry[0].text for entry in listed} == {f"{HOME}{name}" for name in site.own}


def test_only_the_books_own_sources_are_published(site):
    """Above all no master with its solutions and hidden tests."""
    folder = site.html / "_sources"
    assert {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()} == site.sources


def test_the_colab_button_opens_the_chapter(site):
    for source in site.sources:
        page = site.pages[source.with_suffix(".html").as_posix()]
        buttons = page.find("//a[contains(@class, 'btn') and contains(., 'Open in Colab')]/@href")
        assert buttons == [f"{COLAB}book/{source.as_posix()}"] * (source.suffix == ".ipynb"), source
        links = page.find(f"//a[starts-with(@href, '{COLAB}')]/@href")  # a chapter's exercise, too
        assert all((ROOT / url.removeprefix(COLAB)).is_file() for url in links)


def test_each_page_loads_only_the_scripts_and_styles_it_needs_and_ours_come_last(site):
    for name, page in site.pages.items():
        figures = set(FIGURE.findall(page.text))
        wanted = {path for figure in figures for path in figure_scripts(*figure)}
        sheets = {urlsplit(link).path.partition("_static/")[2] for link in page.find(SHEETS)}
        assert sheets == {"site.css", *(STYLES[kind] for kind, _ in figures)}, name
        scripts = {urlsplit(src).path.partition("_static/")[2] for src in page.find("//script/@src")}
        assert {path for path in scripts if path.startswith(("live/", "explorables/"))} == wanted, name
    style = (site.html / "_static" / "site.css").read_text(encoding="utf-8")
    # Rules of Sphinx, which the theme imports, of the theme, and for code.
    rules = "div.related", "--pst-font-size-base", ".highlight .k ", ".lessons-forget"
    assert sorted(rules, key=style.index) == list(rules)


def test_icon_fonts_contain_the_icons_on_pages(site):
    fonts = [*(site.html / "_static").rglob("fa-*.woff2")]
    held = {chr(code) for path in fonts for code in TTFont(path).getBestCmap()}
    assert sum(path.stat().st_size for path in fonts) < 20_000
    style = (site.html / "_static" / "styles" / "pydata-sphinx-theme.css").read_text(encoding="utf-8")
    rules = re.findall(r'\.(fa-[\w-]+):before[^}]*content:"\\(\w+)', style)
    names = {name for page in site.pages.values() for name in re.findall(r"\bfa-[\w-]+", page.text)}
    # The icons of notes and warnings are in the theme's own rules.
    noted = re.findall(r'--pst-icon-(?:info-circle|exclamation-triangle):"(.)"', style)
    icons = {*noted, *(chr(int(code, 16)) for name, code in rules if name in names)}
    assert len(icons) >= 10
    assert icons <= held


# ---- The reference


# Modules that commands run.
UNLISTED = """
__main__ oracles checks.catalogue
tools.cli tools.submission trainer.runs trainer.configs data.libraries
""".split()


def test_every_module_with_something_public_is_in_the_reference():
    """And no other module; the build reports a name with two entries."""
    found, told = [], [f"transformer_lessons.{name}." for name in UNLISTED]
    for _, name, _ in walk_packages(PACKAGE, "transformer_lessons."):
        if f"{name}.".startswith(tuple(told)):
            continue
        module = import_module(name)
        if hasattr(module, "__all__"):
            told.append(f"{name}.")  # the subpackage says what is public
        elif not any(getattr(thing, "__module__", "") == name for thing in vars(module).values()):
            continue
        found.append(name)
    texts = [(ROOT / "book" / page).with_suffix(".md").read_text(encoding="utf-8") for page in REFERENCE]
    listed = re.findall(r"automodule:: (\S+)", "".join(texts))
    assert sorted(listed) == sorted(found), "give a new module its place in book/reference_rooms.md"


def in_reference(site, path: str) -> list:
    return [one for name in REFERENCE for one in site.pages[name].find(path)]


def docstrings(site) -> list[str]:
    """The docstrings of all entries; fields are described in their class's docstring."""
    anchors = in_reference(site, "//@id[starts-with(., 'transformer_lessons.')]")
    things = [thing for thing in map(resolve_name, anchors) if callable(thing) or hasattr(thing, "__get__")]
    assert len(things) > 200
    return [inspect.getdoc(thing) for thing in things]


def test_the_reference_says_what_the_docstrings_say(site):
    """Write a property's docstring without a colon: napoleon would take the words before it for a type."""

    def letters(text: str) -> str:  # without what typesetting changes: spaces, quotation marks, backticks
        return re.sub(r"[^\w√·Σ=+]+", "", text)

    page = letters("".join(in_reference(site, "//article//text()")))
    for doc in docstrings(site):
        assert letters(re.split(r"\n\w+:\n", doc)[0]) in page, doc


def test_the_reference_reads_like_the_code(site):
    """`book.docstrings` rewrites what autodoc and napoleon produce."""
    # A name links to its entry: the entry's own permalink does, and a docstring of another module.
    assert in_reference(site, "//@href").count("#transformer_lessons.masks.padding_mask") > 1
    assert in_reference(site, "//dt[starts-with(@class, 'sig')]//code") == []
    # Shapes have short names, a default factory is shown as "...", classes are without torch's arguments, and
    # fields of named tuples without Python's default docstring.
    said = [one.text_content() for one in in_reference(site, "//dt[starts-with(@class, 'sig')] | //dd")]
    foreign = re.compile(r"jaxtyping|<factory>|class .*\(\*args|torch\.nn\.modules|Alias for field")
    assert [*filter(foreign.search, said)] == []
    # A pitfall is a note of its own, from its first word to the end of the paragraph.
    wanted = re.findall(r"^(?! ).*itfalls?:", "\n".join(docstrings(site)), re.MULTILINE)
    notes = [one.text_content() for one in in_reference(site, "//div[starts-with(@class, 'pitfall')]")]
    assert len(notes) >= len(wanted) > 20
    assert all(re.match(r"\s*(\w+\s)?pitfalls?:", note, re.IGNORECASE) for note in notes)


# ---- Figures and links


def test_pictures_have_alt_texts_and_their_true_sizes(site):
    """Including the picture that each explorable shows without JavaScript."""
    for page in site.pages.values():
        for shown in page.find("//img[@width and not(contains(@src, '.svg'))]"):
            with Image.open(page.path.parent / shown.get("src")) as picture:
                assert picture.size == (int(shown.get("width")), int(shown.get("height"))), page.path
            assert len(shown.get("alt").split()) >= 15
    explorables = [page for name, page in site.pages.items() if name.startswith("explorables/")]
    assert all(page.find("//noscript/img[@width]") for page in explorables)


def test_every_link_leads_somewhere(site):
    for name, page in site.pages.items():
        for url in page.find("//*[not(self::base)]/@href | //@src"):
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path.resolve()
            aimed = site.pages.get(target.relative_to(site.html.resolve()).as_posix())
            assert target.is_file(), (name, url)
            assert not (aimed and parts.fragment) or unquote(parts.fragment) in aimed.ids, (name, url)


# ---- In a browser


HOST = "http://127.0.0.1/"


def serve(view: browser.Browser, site, prefix: str = "") -> None:
    """Serve the site to the browser from a made-up host, below this prefix; what is missing is 404.html's."""

    def answer(route) -> None:
        path = site.html / urlsplit(route.request.url).path.removeprefix(f"/{prefix}")
        anyone = {"Access-Control-Allow-Origin": "*"}  # may read it, as on GitHub: a frame needs the fonts
        route.fulfill(path=path if path.is_file() else site.html / "404.html", headers=anyone)

    view.page.route(f"{HOST}**", answer)


@pytest.fixture
def view(chromium):
    """A browser on a laptop, in which pages must report no problems."""
    with browser.browser() as view:
        yield view
        assert view.problems == []


@pytest.mark.full
@pytest.mark.parametrize("prefix", ["", urlsplit(HOME).path[1:]])
def test_page_of_a_missing_address_links_to_the_site_below_any_prefix(site, chromium, prefix):
    with browser.browser() as view:
        serve(view, site, prefix)
        view.open(f"{HOST}{prefix}chapters/deep/er/no_such_chapter.html")
        hrefs = view.page.evaluate("[...document.querySelectorAll('article a')].map((link) => link.href)")
        colour = view.page.evaluate("getComputedStyle(document.body).getPropertyValue('--pst-color-primary')")
        assert hrefs == [f"{HOST}{prefix}{name}.html" for name in ("index", "topics", "glossary", "search")]
        assert colour  # set by the style sheet
        assert view.problems == [] or not prefix  # at the site's own prefix, no request fails
        view.page.keyboard.press("Tab")
        view.page.keyboard.press("Enter")  # “Skip to main content”
        view.page.wait_for_url(f"{HOST}{prefix}chapters/deep/er/no_such_chapter.html#main-content")


@pytest.mark.parametrize(
    ("width", "names"),
    [
        pytest.param(375, SOME, id="some"),
        *(pytest.param(width, (), id=f"all-{width}", marks=pytest.mark.full) for width in (320, 375, 1280)),
    ],
)
def test_pages_in_a_browser_without_network(site, chromium, width, names):
    """Equations are typeset, nothing fails or is asked of a server, and no page is wider than the screen."""
    typeset = "document.querySelectorAll('.math > mjx-container').length"
    # An error in the TeX is a box; a command that does not exist is shown in red.
    bad = "mjx-merror, [data-mjx-error], mjx-container [style*='color: red']"
    with browser.browser(width=width) as view:
        for name in names or site.own:
            page = site.pages[name]
            view.open(page.path)
            assert view.problems == [], name
            assert {urlsplit(url).scheme for url in view.requests} <= {"file", "data"}, name
            equations = len(re.findall(r'<(?:span|div) class="math', page.text))
            assert view.page.evaluate(typeset) == equations, name
            assert equations or name not in ("notation.html", "chapters/04_masks.html")
            assert view.page.locator(bad).all_text_contents() == [], name
            assert view.page.evaluate("document.documentElement.scrollWidth") == width, name
            if width == 375:
                check_large_letters(view, name)


def check_large_letters(view: browser.Browser, name: str) -> None:
    """A page is no wider than the screen where the reader has set the browser's letters to “Very large”."""
    session = view.page.context.new_cdp_session(view.page)
    for size in (24, 16):
        session.send("Page.setFontSizes", {"fontSizes": {"standard": size}})
        assert view.page.evaluate("document.documentElement.scrollWidth") == 375, (name, size)


def test_the_dark_mode_button_darkens_the_page_and_its_drawings(site, view):
    colours = """[document.body, ...document.querySelectorAll(".drawing")].map((one) =>
      [getComputedStyle(one).color, getComputedStyle(document.body).backgroundColor].join())"""
    view.open(site.pages["chapters/03_scaled_dot_product_attention.html"].path)
    light = view.page.evaluate(colours)
    for _ in range(3):  # a click goes to the next mode: as the system says, light, dark
        view.page.locator(".theme-switch-button").first.click()
        if view.page.evaluate("document.documentElement.dataset.theme") == "dark":
            break
    dark = view.page.evaluate(colours)
    assert len(light) == len(dark) > 1
    assert not set(light) & set(dark)


@pytest.mark.full
def test_equations_are_typeset_as_they_come_near(site, view):
    view.page.goto(site.pages["chapters/01_why_attention.html"].path.as_uri())
    equations, typeset = view.page.locator(".math"), view.page.locator(".math > mjx-container")
    view.page.wait_for_timeout(1000)  # enough time to load MathJax, which must not happen
    assert view.page.evaluate("typeof MathJax.version") == "undefined"
    view.page.wait_for_function("'typeset' in MathJax", timeout=6000)  # it happens later, for printing
    assert typeset.count() == 0
    assert equations.count() > 100
    equations.nth(50).scroll_into_view_if_needed()
    typeset.first.wait_for()
    assert typeset.count() < 100
    view.page.evaluate("dispatchEvent(new Event('beforeprint'))")  # as a browser does before it prints
    assert typeset.count() == equations.count()


@pytest.mark.full
def test_equations_come_although_mathjax_failed_to_load_once(site, chromium):
    with browser.browser() as view:
        view.page.route("**/mathjax/startup.js", lambda route: route.abort(), times=1)
        view.page.goto(site.pages["chapters/01_why_attention.html"].path.as_uri())
        equations, typeset = view.page.locator(".math"), view.page.locator(".math > mjx-container")
        with view.page.expect_event("requestfailed"):
            equations.nth(50).scroll_into_view_if_needed()
        equations.nth(-1).scroll_into_view_if_needed()
        typeset.first.wait_for(timeout=5000)  # before all are typeset


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


# What readers search for, and the chapter that must come first; chapters seldom or never use some of these words.
SOUGHT = "BPE 2, softmax 3, mask 4, positional encoding 5, multi-head 7, GQA 7, layer norm 9, top-p 14"
BEST = "(words) => Search._performSearch(...Search._parseQuery(words)).at(-1)?.[0]"


def test_search_and_buttons_work_although_scripts_wait(site, view):
    serve(view, site)
    view.open(f"{HOST}search.html?q=masks")
    view.page.wait_for_selector("#search-results li:first-child a[href*='04_masks']")
    for words, number in (each.rsplit(" ", 1) for each in SOUGHT.split(", ")):
        assert f"chapters/{number:>02}_" in str(view.page.evaluate(BEST, words)), words
    view.page.wait_for_load_state("networkidle")
    module = view.page.locator("#search-results li:has-text('Reference > masks') .context")
    assert "Masks: who may attend to whom" in module.text_content()
    assert view.problems == []
    view.open(f"{HOST}chapters/04_masks.html")  # with the words marked that were searched for
    cells = view.page.locator("div.highlight pre").count()
    assert view.page.locator("button.copybtn").count() == cells > 0
    assert view.page.locator("span.highlighted").count() > 0


def test_search_and_colours_work_where_pages_may_read_or_keep_nothing(site, view):
    """From disk, and in a frame as a learning platform may have it."""
    view.open(f"{site.pages['search.html'].path.as_uri()}?q=masks")
    view.page.wait_for_selector(".search-summary:has-text('found')")
    serve(view, site)
    address, may = f"{HOST}search.html?q=masks", "allow-scripts allow-forms"
    view.page.set_content(f'<iframe src="{address}" sandbox="{may}" width="1200" height="700">')
    frame = view.page.frame_locator("iframe")
    frame.locator("#search-results li:first-child a[href*='04_masks']").wait_for()
    shown = frame.locator("html").get_attribute("data-theme")
    for _ in range(2):
        frame.locator(".theme-switch-button:visible").click()
    assert frame.locator("html").get_attribute("data-theme") != shown


@pytest.mark.full
def test_pages_read_to_the_end_are_marked_until_forgotten(site, view):
    def marked() -> list[str]:
        return [link.get_attribute("href") for link in view.page.locator("a:has(.lessons-read)").all()]

    names = "03_scaled_dot_product_attention", "04_masks"
    page, other = (site.pages[f"chapters/{name}.html"].path for name in names)
    view.open(page)
    assert marked() == []
    view.page.locator(".prev-next-footer").scroll_into_view_if_needed()
    view.page.wait_for_timeout(1500)
    assert marked() == ["#"]  # the page itself
    view.open(other)
    assert marked() == ["03_scaled_dot_product_attention.html"]
    assert view.page.locator(".lessons-forget").inner_text().startswith("Forget the page")
    view.page.evaluate("document.querySelector('.lessons-forget').click()")
    assert marked() == []
    view.open(page)
    assert view.page.locator(".lessons-forget").count() == 0
