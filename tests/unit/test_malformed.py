"""Text that is no YAML: what is said of it stands at a place of the text."""

from __future__ import annotations

import pytest

from hipplan.errors import PlanError
from hipplan.language.source import load_yaml

TABS = "indent with spaces: YAML does not allow tabs there"


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        (" \n\t\n", (2, 1), TABS),
        ("\n\n\t \n", (3, 1), TABS),
        ("a: 1\n\t\n", (2, 1), TABS),
        ("a: [1\n", (1, 4), ""),
        ("\n&\n", (2, 1), ""),
    ],
)
def test_the_place_of_what_is_wrong_begins_with_column_one(text: str, place: tuple[int, int], hint: str) -> None:
    """A file of spaces and a tab was wrong in column 0 of its first line, which SARIF and GitHub do not know."""
    with pytest.raises(PlanError) as raised:
        load_yaml(text)

    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "HP004"
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.column) == place
    assert diagnostic.hint == hint


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("plan", "a plan begins with `hipplan: 1`"),
        ("lock", "`hipplan lock PLAN -o FILE` writes one"),
        ("profile", "`hipplan machine > FILE` writes one"),
    ],
)
def test_the_hint_for_an_empty_or_large_file_is_about_what_was_wanted(wanted: str, hint: str) -> None:
    with pytest.raises(PlanError, match="HP010") as raised:
        load_yaml("\n", wanted=wanted)
    assert raised.value.diagnostics[0].hint == hint

    large = "#" * (64 << 20) + "\n"
    with pytest.raises(PlanError, match="HP009") as raised:
        load_yaml(large, wanted=wanted)
    assert raised.value.diagnostics[0].hint == ("use each: or count: to repeat" if wanted == "plan" else hint)
