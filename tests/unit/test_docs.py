"""The examples of docs/regions.md, docs/contents.md and docs/sharing.md, as they stand: plans are valid, code runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hipplan
from tests.conftest import ROOT, Simulator

BLOCK = re.compile(r"```(yaml|python)\n(.*?)```", re.S)


@pytest.mark.parametrize(
    ("page", "plan"), [("regions", "model.yaml"), ("contents", "plan.yaml"), ("sharing", "weights.yaml")]
)
def test_the_examples_run(
    page: str, plan: str, sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text())
    (written,) = [text for kind, text in blocks if kind == "yaml"]
    (tmp_path / plan).write_text(written)
    hipplan.compile(hipplan.load(tmp_path / plan), hipplan.machine("sim-2"))
    names: dict[str, object] = {}
    ran = 0
    for kind, text in blocks:
        if kind == "python" and not text.startswith("# on a GPU"):
            exec(compile(text, page, "exec"), names)
            ran += 1

    assert ran
