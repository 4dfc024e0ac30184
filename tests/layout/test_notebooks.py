"""Objects show themselves in a notebook as the command shows them."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

import hipplan
from tests.conftest import ROOT, Simulator

PLAN = {
    "hipplan": 1,
    "regions": {
        "kv": {
            "size": "4MiB",
            "chunk": "2MiB",
            "reserve": "64MiB",
            "tensors": {"pages": {"dtype": "f32", "shape": [4]}},
        }
    },
}


def shown(thing: Any) -> str:
    """What IPython takes for text; the HTML has the same."""
    bundle: dict[str, str] = thing._repr_mimebundle_()
    inner = re.fullmatch(r"<pre[^>]*>(.*)</pre>", bundle["text/html"], re.S)
    assert inner is not None
    assert unescape(inner[1]) == bundle["text/plain"]
    assert thing._repr_html_() == bundle["text/html"]
    return bundle["text/plain"]


def test_a_layout_its_pieces_changes_and_checks_are_shown(sim: Simulator) -> None:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        whole = shown(layout)
        assert re.search(rf"^kv\.pages +tensor +gpu\.0 .* {layout['kv.pages'].address:#x} ", whole, re.M)
        assert whole.endswith("device memory: gpu.0 4MiB")
        piece = shown(layout["kv.pages"])
        assert piece.startswith(f"tensor 'kv.pages' on gpu.0: f32 4 at {layout['kv.pages'].address:#x}\nsize: 16B")
        change = shown(layout.grow("kv", by="2MiB"))
        assert re.search(r"^~ +region +kv +grows, 4MiB -> 6MiB$", change, re.M)
        assert shown(layout.checks).endswith("all match the plan")
    assert shown(layout).endswith("closed")


def test_names_are_completed_after_a_bracket(sim: Simulator) -> None:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        assert layout._ipython_key_completions_() == ["kv", "kv.pages", "kv[0]", "kv[1]"]
    assert layout._ipython_key_completions_() == []


def test_a_program_and_a_machine_are_shown() -> None:
    program = hipplan.compile(ROOT / "plans" / "quickstart.yaml", hipplan.machine("sim-2"))
    text = shown(program)

    assert text.startswith("quickstart on sim-2: 16 steps, nothing done\n")
    assert re.search(r"^weights +allocation +gpu\.0 +6MiB", text, re.M)
    machine = shown(hipplan.machine("mi300x-8"))
    assert len(re.findall(r"^ +\d  AMD Instinct MI300X +gfx942 +192.0GiB", machine, re.M)) == 8


def test_very_much_is_grouped() -> None:
    plan = {"hipplan": 1, "allocations": {"a": {"size": "4KiB", "count": 5000}}}
    text = shown(hipplan.compile(plan, hipplan.machine("sim-2")))

    assert len(text) < 5000
    assert re.search(r"^ *5000  hipMemCreate", text, re.M)


@pytest.mark.parametrize("name", ["<b>&", "\x1b[31m"])
def test_a_name_is_no_markup(name: str) -> None:
    program = hipplan.compile({"hipplan": 1, "name": name}, hipplan.machine("sim-2"))
    html = program._repr_html_()

    assert "<b>" not in html
    assert "\x1b" not in html
