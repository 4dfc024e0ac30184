"""Pictures are to scale: boxes are as wide as their bytes, and what is too narrow for a name is named all the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

import hipplan
from hipplan.lowering.compiler import compile_change
from tests.conftest import PLANS, ROOT
from tests.pictures.test_pictures import SVG, program

ROUNDED = 0.051
"""Widths are written with one digit after the point."""


def widths(svg: str) -> Iterator[tuple[str, float]]:
    """(title, width in all) of each box."""
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        for path in group.iter(f"{SVG}path"):
            drawn = sum(map(float, re.findall(r"h([0-9.]+)v", path.attrib["d"])))
            yield path.findtext(f"{SVG}title") or "", drawn


def texts(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def bytes_in(title: str, drawn: hipplan.Program) -> int | None:
    """The bytes of the object that a title names, if it is one of memory with an address or a buffer."""
    name = title.partition("\n")[0]
    resource = next((r for r in drawn.resources if r.name == name and r.kind in ("tensor", "pinned", "device")), None)
    return resource.size if resource is not None else None


@pytest.mark.parametrize("plan", [*PLANS, ROOT / "plans" / "mi300x-8" / "llama-3-70b.yaml"], ids=lambda path: path.stem)
def test_boxes_side_by_side_are_as_wide_as_their_bytes(plan: object) -> None:
    drawn = program(plan, "mi300x-8" if "llama" in str(plan) else "sim-2")  # type: ignore[arg-type]
    scale: dict[str, list[tuple[int, float]]] = {}
    inside = {resource.name: resource.inside for resource in drawn.resources}
    for title, width in widths(hipplan.draw(drawn).svg):
        size = bytes_in(title, drawn)
        if size and (place := inside[title.partition("\n")[0]]):
            scale.setdefault(place, []).append((size, width))

    for boxes in scale.values():
        size, width = max(boxes)
        for other, drawn_width in boxes:
            assert drawn_width == pytest.approx(other * width / size, abs=2 * ROUNDED + 0.01 * width)


EXPERTS = """
hipplan: 1
allocations: {expert: {count: 64, device: gpu.0, size: 96MiB}}
reservations: {experts: {access: {gpu.0: rw}, mappings: [{allocation: expert.*}]}}
"""


def test_a_gauge_of_many_small_objects_shows_how_full_the_device_is() -> None:
    drawn = program(EXPERTS, "mi300x-8")
    svg = hipplan.draw(drawn).svg
    gauges = [rect for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect") if rect.attrib["class"] == "gauge"]
    whole = float(gauges[1].attrib["width"])  # the first is the host's
    taken = sum(width for title, width in widths(svg) if title.startswith("gpu.0: "))

    assert taken / whole == pytest.approx(64 * 96 / (192 * 1024), rel=0.1)


def test_padding_is_as_wide_as_it_is() -> None:
    plan = """
hipplan: 1
allocations: {a: {device: gpu.0, size: 1020MiB}, b: {device: gpu.0, size: 4MiB}, c: {device: gpu.0, size: 5000}}
reservations: {r: {access: {gpu.0: rw}, mappings: [{allocation: a}, {allocation: b}, {allocation: c}]}}
"""
    drawn = dict(widths(hipplan.draw(program(plan)).svg))
    (large,) = [width for title, width in drawn.items() if title.startswith("r[0]\n")]
    (small,) = [width for title, width in drawn.items() if title.startswith("r[1]\n")]
    (padding,) = [width for title, width in drawn.items() if title.startswith("padding:")]

    assert small == pytest.approx(large * 4 / 1020, abs=2 * ROUNDED)
    assert padding < 0.05


def test_a_family_without_room_for_names_has_one_bracket() -> None:
    svg = hipplan.draw(program(EXPERTS, "mi300x-8")).svg

    assert texts(svg).count("expert.* · 64") == 1
    assert svg.count('class="bracket"') == 1


def test_tensors_of_layers_are_named_by_layer() -> None:
    plan = """
hipplan: 1
regions:
  model:
    device: gpu.0
    tensors:
      layers.$(n).up: {each: {n: 8}, dtype: bf16, shape: [4096, 64]}
      layers.$(n).down: {each: {n: 8}, dtype: bf16, shape: [4096, 64]}
      head: {dtype: bf16, shape: [4096, 512]}
"""
    said = texts(hipplan.draw(program(plan)).svg)

    assert [text for text in said if "layers" in text] == ["layers.*.up · 8", "layers.*.down · 8"]
    assert "head" in said


def test_no_bracket_where_every_name_fits() -> None:
    assert 'class="bracket"' not in hipplan.draw(program(ROOT / "plans" / "quickstart.yaml")).svg


def test_a_buffer_below_a_pixel_is_named_below_its_ribbon() -> None:
    plan = "hipplan: 1\nbuffers: {a: {kind: pinned, size: 1GiB}, lock: {kind: pinned, size: 4KiB}}\n"
    svg = hipplan.draw(program(plan)).svg

    assert "without a label: lock" in texts(svg)
    (width,) = [width for title, width in widths(svg) if title.startswith("lock\n")]
    assert 0 <= width < 0.1


MANAGED = """
hipplan: 1
devices: {gpu: {count: 2}}
buffers:
  table:
    kind: managed
    size: 64MiB
    advice:
      - {advise: preferred_location, device: gpu.1, range: {at: 16MiB, size: 32MiB}}
      - {advise: read_mostly, range: {at: 32MiB, size: 32MiB}}
    prefetch: [{to: host, range: {at: 0, size: 16MiB}}]
  plain: {kind: managed, size: 1MiB}
"""


def test_advice_and_prefetches_are_drawn_where_they_are_for() -> None:
    svg = hipplan.draw(program(MANAGED)).svg
    drawn = {title.partition("\n")[2]: width for title, width in widths(svg) if title.startswith("table\n")}
    whole = drawn.pop(next(title for title in drawn if title.startswith("managed, 64MiB")))

    assert {title: pytest.approx(width / whole, abs=0.001) for title, width in drawn.items()} == {
        "hipMemAdvise: preferred_location (device 1), 32MiB at +16MiB": 0.5,
        "hipMemAdvise: read_mostly (device 0), 32MiB at +32MiB": 0.5,
        "hipMemPrefetchAsync: 16MiB at +0B to the host": 0.25,
    }
    assert [text for text in texts(svg) if text in ("advice", "prefetch")] == ["advice", "advice", "prefetch"]
    assert "to host" in texts(svg)


def test_advice_that_comes_does_not_make_its_buffer_new() -> None:
    before = MANAGED[: MANAGED.index("    advice:")] + MANAGED[MANAGED.index("  plain:") :]
    change = compile_change(program(before), hipplan.load(MANAGED), hipplan.machine("sim-2"))
    svg = hipplan.draw(change).svg
    said = texts(svg)

    assert not [title for title, _ in widths(svg) if title.startswith("table\nmanaged") and "came" in title]
    assert said.count("+ made") == 1  # of the legend
    assert "preferred_location · gpu.1" in said
