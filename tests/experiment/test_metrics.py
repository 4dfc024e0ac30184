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
