"""JSON without what only Python writes and reads."""

from __future__ import annotations

import math

import pytest

from hipplan.files.strict_json import dumps, loads


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_not_written(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        dumps({"a": [number]}, indent=2)


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "1e400", "-1e309", "1" * 400, "1" * 5000, "1." + "9" * 400 + "e308"]
)
def test_a_number_that_cannot_be_held_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="is not a representable number"):
        loads(f'{{"a": [{text}]}}')


def test_all_else_is_as_ever() -> None:
    data = {"a": [1, 1.5, 1e308, 10**300, 2**64 + 1, "NaN", None, True], "ä": {}}

    assert loads(dumps(data)) == data
    assert loads(dumps(data, indent=2, sort_keys=True).encode()) == data
