"""The parts of a sweep are all of it: no case is left to nobody."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.parts import PARTS, taken


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 117])
def test_each_case_is_in_a_part_and_each_part_has_a_case(count: int) -> None:
    cases = [f"test[{number}]" for number in range(count)]
    parts = [taken(cases, part) for part in range(PARTS)]

    assert all(parts)
    assert {*cases} == {case for part in parts for case in part}
    if count >= PARTS:
        assert {*Counter(case for part in parts for case in part).values()} == {1}
