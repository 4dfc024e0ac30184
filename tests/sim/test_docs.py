"""The manual's Python examples run."""

import re

import pytest

from ..conformance.sim import library_path
from .conftest import ROOT

MANUAL = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", MANUAL, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("source", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_example_runs(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPSIM_LIBRARY", library_path())
    exec(compile(source, "docs/simulator.md", "exec"), {})
