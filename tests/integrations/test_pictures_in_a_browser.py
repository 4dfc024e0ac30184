"""A picture in a browser: it is seen, it zooms, it finds, and it asks no network.

Needs Debian's package chromium, or what HIPPLAN_BROWSER names, and playwright (`pip install --group integrations`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import hipplan
from tests.conftest import ROOT

BROWSER = os.environ.get("HIPPLAN_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
LLAMA = ROOT / "plans" / "mi300x-8" / "llama-3-70b.yaml"
PATIENCE_MS = 300_000
"""For a machine that is busy; only a page that hangs takes so long."""
LIGHT, DARK = (255, 255, 255), (13, 17, 23)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if BROWSER is None:
        pytest.skip("NO PICTURE WAS LOOKED AT: there is no browser; install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="NO PICTURE WAS LOOKED AT: playwright is not installed")
    with api.sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"], timeout=PATIENCE_MS
        )
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """The picture of a large plan; the test fails if the page has an error or asks for anything."""
    program = hipplan.compile(hipplan.load(LLAMA), hipplan.machine("mi300x-8"))
    hipplan.draw(program).save(tmp_path / "plan.html")
    opened = browser.new_page(viewport={"width": 1200, "height": 800})
    opened.set_default_timeout(PATIENCE_MS)
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda line: wrong.append(line.text))
    opened.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith("file:") else None)
    opened.goto(f"file://{tmp_path}/plan.html")
    yield opened
    opened.close()

    assert wrong == []


def view(page: Any) -> list[float]:
    return [float(number) for number in page.get_attribute("svg", "viewBox").split()]


def screenshot(page: Any) -> Any:
    image = pytest.importorskip("PIL.Image")
    return image.open(BytesIO(page.screenshot())).convert("RGB")


@pytest.mark.parametrize(("scheme", "paper"), [("light", LIGHT), ("dark", DARK)])
def test_the_picture_is_seen_in_the_light_and_in_the_dark(scheme: str, paper: tuple[int, ...], page: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 1200, "height": 1600})  # gpu.1 lies below the edge of a lower window
    seen = {colour: count for count, colour in screenshot(page).getcolors(1 << 20)}

    assert max(seen, key=lambda colour: seen[colour]) == paper
    for owner in ((0x77, 0xAA, 0xDD), (0xEE, 0x88, 0x66)):  # gpu.0's weights, and gpu.1's below them
        assert seen.get(owner, 0) > 1000, owner


def test_search_finds_a_tensor_and_goes_there(page: Any) -> None:
    page.fill("#search", "layers.7.mlp.down gpu.3")
    assert page.inner_text("#count") == "1 found"
    page.keyboard.press("Enter")

    assert page.inner_text("#panel").splitlines()[0] == "rank.3.model.layers.7.mlp.down_proj.weight"
    result = page.locator("path.hit").bounding_box()
    assert result["width"] > 8
    assert 0 < result["x"] < 1200 - result["width"]
    assert 0 < result["y"] < 800 - result["height"]


def test_matches_can_be_stepped_through_and_cleared(page: Any) -> None:
    page.fill("#search", "layers.7. gpu.3")
    for wanted in ("1 of 9", "2 of 9"):
        page.keyboard.press("Enter")
        assert page.inner_text("#count") == wanted
    page.keyboard.press("Shift+Enter")
    assert page.inner_text("#count") == "1 of 9"
    page.keyboard.press("Escape")
    assert (page.inner_text("#count"), page.locator("path.hit").count()) == ("", 0)
    page.fill("#search", "no such thing")
    assert page.inner_text("#count") == "0 found"


def test_wheel_drag_and_buttons_move_the_view(page: Any) -> None:
    began = view(page)
    page.mouse.move(600, 400)
    page.mouse.wheel(0, -600)
    page.wait_for_function("before => document.querySelector('svg').viewBox.baseVal.width < before / 2", arg=began[2])
    zoomed = view(page)
    page.mouse.down()
    page.mouse.move(500, 350)
    page.mouse.up()
    moved = view(page)
    page.keyboard.press("-")
    smaller = view(page)
    page.click("#fit")

    middle = began[0] + began[2] / 2
    assert zoomed[0] < middle < zoomed[0] + zoomed[2]  # what is under the pointer stays there
    assert moved[0] - zoomed[0] == pytest.approx(100 * zoomed[2] / 1200, rel=0.02)
    assert smaller[2] == pytest.approx(moved[2] * 1.5)
    assert view(page) == began


def test_the_panel_reports_what_is_under_the_pointer(page: Any) -> None:
    box = page.locator("main svg g.o0 > path").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function("document.getElementById('panel').querySelector('b')")

    assert "gpu.0" in page.inner_text("#panel")


def test_names_come_with_zoom(page: Any) -> None:
    assert page.locator("text:has-text('layers.40.mlp.up_proj')").count() == 0
    page.fill("#search", "rank.0.model.layers.40.mlp.up_proj")
    page.keyboard.press("Enter")
    page.wait_for_selector("text:has-text('layers.40.mlp.up_proj')", state="attached")


def test_a_notebook_shows_the_same_page(browser: Any) -> None:
    program = hipplan.compile(hipplan.load(ROOT / "plans" / "quickstart.yaml"), hipplan.machine("sim-2"))
    notebook = browser.new_page()
    notebook.set_default_timeout(PATIENCE_MS)
    notebook.set_content(f"<p>a cell</p>{hipplan.draw(program)._repr_html_()}")
    frame = notebook.frame_locator("iframe")
    frame.locator("#search").fill("cache")

    assert frame.locator("#count").inner_text() == "2 found"  # the piece, and its share of gpu.1
    notebook.close()
