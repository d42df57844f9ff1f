"""The built site: without a warning, whole, and asking nobody for anything."""

import functools
import html
import importlib
import re
import threading
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
import yaml

import hkconv.nn
from hkconv.language.recipe import TranslationRecipe
from hkconv.options import rule_of
from hkconv.tasks.recipe import Recipe

ROOMS = ("geometry.lorentz", "points", "nn", "models", "data", "engine", "tasks", "viz", "testing")
# What a browser fetches by itself; links in ``a`` wait for a click.
FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class Page(HTMLParser):
    """What a page links to, fetches, and can be linked at."""

    def __init__(self, path):
        super().__init__()
        self.path, self.links, self.fetched, self.names = path, [], [], set()
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.names |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get(FETCHED.get(tag)):
            self.fetched.append(given[FETCHED[tag]])


@pytest.fixture(scope="session")
def pages(site) -> dict:
    # The page of errors is served at any address, so that its links start at the root.
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_build_has_no_warning(built):
    assert [line for line in built.output.splitlines() if not line.startswith("INFO")] == []
    assert built.code == 0


def test_no_internal_link_is_broken(pages):
    broken = []
    for path, page in pages.items():
        for link in [*page.links, *page.fetched]:
            if urlsplit(link).scheme:
                continue
            place, name = urldefrag(link)
            target = (path.parent / unquote(place)).resolve() if place else path
            if not target.is_file() or (name and target in pages and unquote(name) not in pages[target].names):
                broken.append((path.name, link))
    assert broken == []


def test_pages_fetch_nothing_from_elsewhere(site, pages):
    # What an address of the scheme `data` holds is in the address itself.
    here = ("", "data")
    links = [(path.name, link) for path, page in pages.items() for link in page.fetched]
    assert [(name, link) for name, link in links if urlsplit(link).scheme not in here] == []
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']+", sheet.read_text(encoding="utf-8")) == []


def test_every_equation_became_mathml(pages):
    for path, page in pages.items():
        assert "arithmatex" not in page.text, path
        for equation in re.findall(r"<math.*?</math>", page.text, re.S):
            assert "\\" not in equation and "<mi>&</mi>" not in equation, (path, equation)
        without_code = re.sub(r"<(pre|code|script)\b.*?</\1>", "", page.text, flags=re.S)
        assert re.findall(r":(?:math|class|func|meth|mod):|\.\. math|\$\$", without_code) == [], path


def test_equations_of_the_convolution_are_in_its_reference(site, pages):
    assert pages[site / "api" / "nn.html"].text.count("<math") > 50
    assert pages[site / "mathematics.html"].text.count('class="equation"') > 12


@pytest.mark.parametrize("room", ROOMS)
def test_reference_has_every_public_name(site, pages, room):
    page = pages[site / "api" / f"{room.split('.')[0]}.html"]
    last_parts = {name.rsplit(".", 1)[-1] for name in page.names if name.startswith("hkconv.")}
    public = importlib.import_module(f"hkconv.{room}").__all__
    assert set(public) - last_parts == set()


def test_roles_of_docstrings_are_links(site, pages):
    links = pages[site / "api" / "nn.html"].links
    assert any(link.endswith("#hkconv.geometry.curvature.LearnedCurvature") for link in links)


def test_the_convolution_and_the_block_come_first_in_their_reference(site, pages):
    shown = re.findall(r'id="hkconv\.nn\.(?:\w+\.)?(\w+)"', pages[site / "api" / "nn.html"].text)
    layers = [name for name in shown if name in hkconv.nn.__all__]
    assert list(dict.fromkeys(layers))[:2] == ["HKConv", "HKBlock"]
    assert set(layers) == set(hkconv.nn.__all__)


@pytest.mark.parametrize("recipe", [Recipe, TranslationRecipe])
def test_every_key_of_a_recipe_is_on_its_page_with_default_and_meaning(site, pages, recipe):
    rows = [
        [html.unescape(re.sub(r"<.*?>", "", cell)) for cell in re.findall(r"<td>(.*?)</td>", row, re.S)]
        for row in re.findall(r"<tr>(.*?)</tr>", pages[site / "api" / "recipe.html"].text, re.S)
    ]
    for name, entry in recipe.options().items():
        rule = rule_of(entry)
        shown = [row[2] for row in rows if row[:1] == [name] and row[3] == rule.help.replace("`", "")]
        unset = ["not set" if rule.optional else "required"]
        assert shown and (shown == unset) == (entry.default is None), name
        assert entry.default is None or entry.default in [rule.check(name, yaml.safe_load(text)) for text in shown]


def test_reports_outside_the_folder_are_in_the_site(site, pages):
    assert "results/report.html" in pages[site / "results.html"].links
    assert (site / "results" / "report.html").is_file()


class Quiet(SimpleHTTPRequestHandler):
    """A server that does not write a line for every file."""

    def log_message(self, *_):
        pass


@pytest.fixture
def address(site):
    """The site as a web server shows it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_browser_asks_nobody_else_and_search_finds_the_layer(browser, address):
    page = browser.new_page()
    requests, errors = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    for path in ("index.html", "mathematics.html", "api/nn.html"):
        page.goto(f"{address}/{path}")
        page.wait_for_load_state("networkidle")
    page.keyboard.press("/")
    page.keyboard.type("HKConv")
    page.wait_for_selector(".md-search-result__item")
    assert [url for url in requests if not url.startswith((address, "data:", "blob:"))] == []
    assert errors == []
    page.close()


def test_a_site_opened_from_the_disk_is_searched_without_a_network(browser, site):
    context = browser.new_context(offline=True)
    page = context.new_page()
    requests, errors = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("weight_decay")
    page.wait_for_selector(".md-search-result__item")
    found = page.eval_on_selector_all(".md-search-result__item a", "links => links.map(link => link.href)")
    assert any(urldefrag(link).url == (site / "api" / "recipe.html").as_uri() for link in found)
    assert {urlsplit(url).scheme for url in requests} <= {"file", "data", "blob", "about"}
    assert errors == []
    context.close()
