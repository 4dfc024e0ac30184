"""What CI systems read of `hipplan validate`, and the policy of the docs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Run, hipplan, started  # noqa: F401
from tests.conftest import ROOT

GOOD = "hipplan: 1\nbuffers: {a: {kind: pinned, size: 1MiB}}\n"
INVALID = "hipplan: 1\nbuffers:\n  a: {kind: pinned, sise: 1MiB}\n  b: {kind: pinnd, size: 1MiB}\n"
UNUSED = "hipplan: 1\nallocations:\n  a: {size: 1MiB}\n"


@pytest.fixture
def plans(tmp_path: Path) -> Path:
    for name, text in {"good": GOOD, "invalid": INVALID, "unused": UNUSED}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def test_junit_has_a_test_for_each_plan(plans: Path, hipplan: Run) -> None:  # noqa: F811
    done = hipplan("validate", ".", "--format", "junit", cwd=plans)
    suite = ElementTree.fromstring(done.stdout)
    cases = {Path(case.attrib["name"]).name: case for case in suite}

    assert (done.returncode, suite.tag, suite.attrib["tests"], suite.attrib["failures"]) == (2, "testsuite", "3", "1")
    assert [*cases] == ["good.yaml", "invalid.yaml", "unused.yaml"]
    assert [child.tag for case in cases.values() for child in case] == ["failure", "system-out"]
    (failure,) = cases["invalid.yaml"]
    assert failure.attrib["type"] == "HP102"
    assert failure.attrib["message"] == "'a' needs the key 'size' (and 2 more)"
    assert "invalid.yaml:4:13: error[HP104]: 'kind' cannot be 'pinnd'" in (failure.text or "")
    assert "warning[HP25" in (cases["unused.yaml"].findtext("system-out") or "")


def test_what_xml_cannot_have_is_replaced(tmp_path: Path, hipplan: Run) -> None:  # noqa: F811
    (tmp_path / '<a>&"b".yaml').write_text('hipplan: 1\nbuffers: {"\\x01<&>": {kind: pinned, size: 1MiB}}\n')
    suite = ElementTree.fromstring(hipplan("validate", ".", "--format", "junit", cwd=tmp_path).stdout)
    (case,) = suite

    assert case.attrib["name"].endswith('<a>&"b".yaml')
    assert "'\N{REPLACEMENT CHARACTER}<&>' cannot be a name" in case[0].attrib["message"]


def quality(hipplan: Run, *arguments: object, cwd: Path) -> list[dict[str, Any]]:  # noqa: F811
    entries: list[dict[str, Any]] = json.loads(hipplan("validate", *arguments, "--format", "gitlab", cwd=cwd).stdout)
    return entries


def test_gitlab_has_what_its_format_needs(plans: Path, hipplan: Run) -> None:  # noqa: F811
    entries = quality(hipplan, ".", cwd=plans)
    first = entries[0]

    assert {tuple(entry) for entry in entries} == {("description", "check_name", "fingerprint", "severity", "location")}
    assert first["description"] == "'a' needs the key 'size'\nhint: add size: 1MiB"
    assert (first["check_name"], first["severity"]) == ("HP102", "major")
    assert first["location"] == {"path": "invalid.yaml", "lines": {"begin": 3}}
    assert [entry["severity"] for entry in entries if entry["location"]["path"] == "unused.yaml"] == ["minor"]
    assert len({entry["fingerprint"] for entry in entries}) == len(entries)
    assert quality(hipplan, "good.yaml", cwd=plans) == []


def test_a_fingerprint_stays_when_its_error_moves(plans: Path, hipplan: Run) -> None:  # noqa: F811
    before = [entry["fingerprint"] for entry in quality(hipplan, "invalid.yaml", cwd=plans)]
    (plans / "invalid.yaml").write_text(f"# a line more\n{INVALID}")
    after = [entry["fingerprint"] for entry in quality(hipplan, "invalid.yaml", cwd=plans)]

    assert before == after


def test_plans_for_editors_are_found_in_folders(tmp_path: Path, hipplan: Run) -> None:  # noqa: F811
    (tmp_path / "model.hipplan.yaml").write_text(GOOD)

    assert hipplan("validate", ".", cwd=tmp_path).stdout == "model.hipplan.yaml: good\n"


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("buffers: {a: {kind: device, size: 100GiB}}", []),
        ("buffers: {a: {kind: device, size: 180GiB}}", ["gpu.0 is filled to 94%"]),
        ("allocations: {a: {device: host, size: 1MiB}}\nreservations: {r: {mappings: [{allocation: a}]}}",
         ["a is on the host"]),
    ],
    ids=["allowed", "full", "host"],
)  # fmt: skip
def test_the_policy_of_the_docs_finds_what_it_is_for(plan: str, said: list[str], tmp_path: Path) -> None:
    text = (ROOT / "docs" / "checking.md").read_text()
    (policy,) = re.findall(r"```python\n(# policy\.py\n.*?)```", text, re.S)
    (tmp_path / "policy.py").write_text(policy)
    (tmp_path / "plan.yaml").write_text(f"hipplan: 1\n{plan}\n")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "policy.py", "plan.yaml", "mi300x-8"],
        cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip

    assert (done.returncode, done.stdout.split("\n")[:-1]) == (bool(said), said or [""])
