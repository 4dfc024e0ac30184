"""What a repetition's output and its function give as metrics, and what is said of values that are none."""

from __future__ import annotations

from typing import Any

import pytest

from hipplan.errors import Diagnostic, Problem
from hipplan.experiment.metrics import collected, numbers, output_size


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str]) -> Any:
    """printed(text, wanted={}): the metrics of a repetition that prints this."""

    def printed(text: str, wanted: dict[str, str | None] | None = None) -> dict[str, float]:
        since = output_size()
        print(text)
        return collected(wanted or {}, since, {})

    return printed


def refused(call: Any, *arguments: Any) -> Diagnostic:
    with pytest.raises(Problem) as raised:
        call(*arguments)
    diagnostic = raised.value.diagnostic()
    assert diagnostic.code == "HP462"
    return diagnostic


@pytest.mark.parametrize(("name", "written"), [("\ud800", "\\ud800"), ("a\x1b[31m", "a\\u001b[31m")])
def test_a_name_that_cannot_be_printed_is_refused(printed: Any, name: str, written: str) -> None:
    for diagnostic in (refused(numbers, {name: 1}), refused(printed, f'{{"{written}": 1}}')):
        assert diagnostic.summary.startswith("a metric's name has a character that cannot be printed: ")
        assert "\N{REPLACEMENT CHARACTER}" in diagnostic.summary and diagnostic.summary.isprintable()
    assert printed(f'{{"{written}": 1, "b": 2}}', {"b": None}) == {"b": 2}


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("x 2 x 3", r"x (\d+)", 3),
        ("x 2 x 3\nx 4 x 5\nno", r"x (\d+)", 5),
        ("5\n\n", "(.*)", 5),  # and nothing at the line's end
        ("x 2 x 3", r"(?=x (\d))", 3),
    ],
)
def test_of_several_matches_the_last_counts(printed: Any, text: str, pattern: str, expected: float) -> None:
    assert printed(text, {"x": pattern}) == {"x": expected}


def test_a_match_without_a_number_is_refused(printed: Any) -> None:
    assert refused(printed, "x 2 x", {"x": r"x(?: (\d))?"}).summary == "'x' is not a number: null"
    assert refused(printed, "y", {"x": "(z*)"}).why == "no line of the output matches (z*)"
