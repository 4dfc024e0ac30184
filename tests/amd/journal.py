"""A pytest plugin: writes down each test before it begins and after it ends, so that a test that ends the process is
known, and the next process goes on behind it.

HIPPLAN_JOURNAL: the file, a JSON object a line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

RANKS = ("passed", "xfailed", "skipped", "failed", "died")
"""A test's phases are summed up by the worst of them."""


@dataclass
class Outcome:
    result: str = "died"
    """One of RANKS; died, until the test has ended."""
    why: str = ""
    numbers: dict[str, int] = field(default_factory=dict)
    """What the test counted: whole numbers that it gave to pytest's record_property."""


def read(path: Path) -> dict[str, Outcome]:
    """Every test that began, by its id."""
    tests: dict[str, Outcome] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        entry = json.loads(line)
        test = entry.pop("test")
        tests[test] = Outcome(**entry)
    return tests


def forget(path: Path, tests: Container[str]) -> None:
    """They run again."""
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if json.loads(line)["test"] not in tests))


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    done = read(_path())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = [item for item in items if item.nodeid not in done]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    item.stash[_REPORTS] = []
    _write({"test": item.nodeid})
    result = yield
    outcome = _sum_up(item.stash[_REPORTS])
    _write({"test": item.nodeid, "result": outcome.result, "why": outcome.why, "numbers": outcome.numbers})
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    item.stash[_REPORTS].append(report)
    return report


_REPORTS = pytest.StashKey[list[pytest.TestReport]]()


def _sum_up(reports: list[pytest.TestReport]) -> Outcome:
    outcome = Outcome("passed")
    for report in reports:
        result = "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
        if RANKS.index(result) > RANKS.index(outcome.result):
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            outcome.result, outcome.why = result, getattr(report, "wasxfail", "") or why[-2000:]
        outcome.numbers |= {name: n for name, n in report.user_properties if isinstance(n, int)}
    return outcome


def _write(entry: dict[str, Any]) -> None:
    with _path().open("a") as journal:
        journal.write(json.dumps(entry) + "\n")


def _path() -> Path:
    return Path(os.environ["HIPPLAN_JOURNAL"])
