"""The documentation as a site: it builds without a warning, each link leads somewhere, and search finds.

Needs `pip install --group docs`; the search needs a browser, too (test_pictures_in_a_browser.py).
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import hipplan
from tests.conftest import ROOT
from tests.integrations.test_pictures_in_a_browser import PATIENCE_MS, browser  # noqa: F401
from tools.site import web_address


class Page(HTMLParser):
    """What a page links to, what it loads, and what can be linked to in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        of = {key: value or "" for key, value in attributes}
        self.anchors |= {of[key] for key in ("id", "name") if key in of}
        if tag == "a" and "href" in of:
            self.links.append(of["href"])
        elif "src" in of:
            self.loads.append(of["src"])
        elif tag == "link" and of.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(of["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("material", "mkdocstrings"):
        pytest.importorskip(needed, reason="THE SITE WAS NOT BUILT: pip install --group docs")
    folder = tmp_path_factory.mktemp("site")
    line = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(line, capture_output=True, text=True, timeout=600, cwd=ROOT, env=os.environ)

    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_every_page_of_the_docs_is_there(site: Path) -> None:
    wanted = {path.stem for path in (ROOT / "docs").glob("*.md")} | {
        "index",
        "changelog",
        "architecture",
        "contributing",
    }

    assert wanted <= {path.stem for path in site.glob("*.html")}


def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    wrong = []
    for path, page in pages.items():
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                wrong.append(f"{path.name}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                wrong.append(f"{path.name}: {link}: no such heading")

    assert wrong == []


def test_the_site_loads_nothing_from_elsewhere(pages: dict[Path, Page]) -> None:
    assert [src for page in pages.values() for src in page.loads if urlsplit(src).scheme or src.startswith("//")] == []


def test_every_public_name_is_in_the_reference(pages: dict[Path, Page]) -> None:
    (reference,) = (page for path, page in pages.items() if path.name == "api.html")
    described = {anchor.rpartition(".")[2] for anchor in reference.anchors if anchor.startswith("hipplan.")}

    assert set(hipplan.__all__) - described == {"machine"}
    assert "hipplan.machines.profiles.load_machine" in reference.anchors
    assert {f"hipplan.layout.layout.Layout.{name}" for name in ("update", "draw", "fill", "sleep")} <= reference.anchors


def test_no_block_of_code_is_broken(site: Path) -> None:
    """A fence that the site's Markdown does not understand is shown as text, and a strict build does not say so."""
    broken = [path.name for path in site.glob("*.html") if "```" in path.read_text("utf-8")]

    assert broken == []


def test_the_reference_shows_public_names_alone(site: Path) -> None:
    shown = re.sub(r"<[^>]*>", "", (site / "api.html").read_text("utf-8"))

    assert "machine(machine:" in "".join(shown.split())
    assert not re.search(r"load_machine\b(?!\.)|\b_[A-Z]{3,}", shown)


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/someone/hipplan.git", "https://github.com/someone/hipplan"),
        ("git@gitlab.example.org:group/hipplan.git", "https://gitlab.example.org/group/hipplan"),
        ("ssh://git@host.example:2222/group/hipplan", "https://host.example/group/hipplan"),
        ("/srv/git/hipplan", ""),
        ("", ""),
    ],
)
def test_the_link_to_the_repository_is_where_the_clone_is_from(remote: str, address: str) -> None:
    assert web_address(remote) == address


def test_the_pictures_are_there(pages: dict[Path, Page]) -> None:
    shown = {src for path, page in pages.items() if path.name in ("index.html", "pictures.html") for src in page.loads}

    assert {f"pictures/{name}.svg" for name in ("quickstart", "llama-3-70b", "change", "symmetric-heap")} <= shown


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_search_finds_a_key_of_the_plan(browser: Any, address: str) -> None:  # noqa: F811
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/index.html")
    results = page.locator('.md-search-result__link[href*="plan-reference.html"]')
    # The page loads its index on the first focus. It hears keys, so fill(), which presses none, is found by luck.
    page.locator(".md-search__input").focus()
    page.locator(".md-search-result__meta", has_text="Type to start searching").wait_for(state="attached")

    page.locator(".md-search__input").press_sequentially("ManagedBuffer")

    results.first.wait_for(state="attached")

    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    page.close()
