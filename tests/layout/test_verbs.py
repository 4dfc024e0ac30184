"""The table of verbs is the one place that says which calls change a layout: its methods and the table agree."""

from __future__ import annotations

from typing import get_args

import pytest

from hipplan.layout.changing import ChangesInPlace
from hipplan.layout.verbs import VERBS, Wanted

CALLS = {verb.call for verb in VERBS.values() if verb.call}


def test_each_value_has_a_row() -> None:
    assert {*get_args(Wanted)} == {*VERBS}


def test_the_methods_that_change_a_layout_are_the_verbs() -> None:
    methods = {name: method for name, method in vars(ChangesInPlace).items() if callable(method)}

    assert {name for name, method in methods.items() if method.__annotations__.get("return") == "Difference"} == CALLS


@pytest.mark.parametrize("call", sorted(CALLS))
def test_a_verb_is_documented_by_its_method(call: str) -> None:
    assert getattr(ChangesInPlace, call).__doc__.partition("\n")[0].endswith(".")
