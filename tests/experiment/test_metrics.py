"""What a repetition's output and its function give as metrics, and what is said of values that are none."""

from __future__ import annotations

import json
from fractions import Fraction
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


def test_lines_of_json_may_be_long_and_have_any_text(printed: Any) -> None:
    samples = [0.123456789] * 20_000
    assert printed(json.dumps({"x": 1.5, "samples": samples})) == {"x": 1.5}
    for end in ("\u2028", "\x85", "\x1c"):
        assert printed(json.dumps({"note": f"a{end}b", "x": 2}, ensure_ascii=False), {"x": None}) == {"x": 2}
    assert printed("step 1\rstep 2\r\n", {"step": r"^step (\d)$"}) == {"step": 2}


def test_a_match_without_a_number_is_refused(printed: Any) -> None:
    assert refused(printed, "x 2 x", {"x": r"x(?: (\d))?"}).summary == "'x' is not a number: null"
    assert refused(printed, "y", {"x": "(z*)"}).why == "no line of the output matches (z*)"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (10**400, "'a' is too large for a floating-point number"),
        (Fraction(-(10**5000)), "'a' is too large for a floating-point number"),
        (float("inf"), "'a' is not a finite number: inf"),
        ("1.5", "'a' must be a number, not text: 1.5"),
        ([1], "'a' must be a number, not a list"),
        (None, "'a' must be a number, not nothing: null"),
        (True, "'a' must be a number, not true or false: true"),
    ],
)
def test_it_is_said_what_is_wrong_with_a_value(value: object, said: str) -> None:
    assert refused(numbers, {"a": value}).summary == said


@pytest.mark.parametrize("wanted", [{"a": None}, {}])
@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("NaN", "'a' is not a finite number: nan"),
        ("-Infinity", "'a' is not a finite number: -inf"),
        ("1e999", "'a' is not a finite number: inf"),
        ("1" * 5000, "'a' is not a finite number: inf"),
    ],
)
def test_a_line_of_json_has_numbers_that_are_none(
    printed: Any, written: str, said: str, wanted: dict[str, str | None]
) -> None:
    text = f'{{"a": 1}}\n{{"a": {written}, "b": 2}}'

    assert refused(printed, text, wanted).summary == said
    assert printed(text, {"b": None}) == {"b": 2}


def test_what_is_no_number_in_a_line_of_json_counts_where_it_is_wanted(printed: Any) -> None:
    assert printed('{"a": "x", "b": 2}') == {"b": 2}
    assert printed('{"a": "x"}\n{"a": 1}\n{"a": [2]}', {"a": None}) == {"a": 1}
    assert refused(printed, '{"a": "1.5"}', {"a": None}).summary == "'a' must be a number, not text: 1.5"
    assert refused(printed, '{"c": 1}', {"a": None}).summary == "there is no metric 'a'"
