"""The examples of these pages of docs, as they stand: plans are valid, code runs. And a table of exceptions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hipplan
from tests.conftest import ROOT, Simulator

MACHINES = {"rdma": "h200-1"}
"""What a page's plan needs, if not sim-2."""

BLOCK = re.compile(r"```(yaml|python)\n(.*?)```", re.S)


@pytest.mark.parametrize(
    ("page", "plan"),
    [
        ("regions", "model.yaml"),
        ("contents", "plan.yaml"),
        ("sharing", "weights.yaml"),
        ("pictures", ""),
        ("recording", ""),
        ("updating", "server.yaml"),
        ("host-memory", "staging.yaml"),
        ("python", "plan.yaml"),
        ("transactions", ""),
        ("ranks", "ranks.yaml"),
        ("sleep", "server.yaml"),
        ("frameworks", "trainer.yaml"),
        ("streams", "plan.yaml"),
        ("rdma", "rdma.yaml"),
    ],
)
def test_the_examples_run(
    page: str,
    plan: str,
    sim: Simulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text())
    written = [text for kind, text in blocks if kind == "yaml"]
    assert len(written) == bool(plan)
    for text in written:
        (tmp_path / plan).write_text(text)
        hipplan.compile(hipplan.load(tmp_path / plan), hipplan.machine(MACHINES.get(page, "sim-2")))
    names: dict[str, object] = {}
    ran = 0
    for kind, text in blocks:
        if kind == "python" and not text.startswith("# on a GPU"):
            exec(compile(text, page, "exec"), names)
            ran += 1
            said = capsys.readouterr().out
            for shown in re.findall(r"^ *print\(.*\)\n((?: *#.*\n)+)", text, re.M):
                output = "\n".join(line.strip().removeprefix("# ").rstrip() for line in shown.splitlines())
                assert re.search(re.escape(output).replace(r"\.\.\.", ".*"), said), f"{output!r} is not in {said!r}"

    assert ran


def test_every_exception_is_reported_with_its_exit_code() -> None:
    text = (ROOT / "docs" / "python.md").read_text()
    reported = dict(re.findall(r"^\| `(\w+)`[^|]*\| (\d) \|", text, re.M)[::-1])  # the first row of a name counts
    errors = {name: kind for name in hipplan.__all__ if isinstance(kind := getattr(hipplan, name), type)
              and issubclass(kind, hipplan.HipplanError) and kind is not hipplan.HipplanError}  # fmt: skip

    assert reported == {name: str(int(kind(()).exit_code if isinstance(kind.exit_code, property) else kind.exit_code))
                    for name, kind in errors.items()}  # fmt: skip
