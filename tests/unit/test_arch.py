"""Instruction sets: of a plan and of a machine that may not name its features."""

from __future__ import annotations

import pytest

from hipplan.errors import PlanError
from hipplan.language.arch import has_arch
from hipplan.language.loader import load

FULL = "gfx942:sramecc+:xnack-"


@pytest.mark.parametrize(
    ("have", "xnack", "wanted", "expected"),
    [
        ("gfx942", None, "gfx942", True),
        ("gfx942", None, FULL, True),
        ("gfx942", False, FULL, True),
        ("gfx942", True, FULL, False),
        ("gfx942", False, "gfx942:xnack+", False),
        ("gfx942", True, "gfx942:xnack+", True),
        ("gfx942", False, "gfx942:sramecc-", True),
        (FULL, False, "gfx942", True),
        (FULL, False, "gfx942:xnack-:sramecc+", True),
        (FULL, False, "gfx942:xnack+", False),
        (FULL, False, "gfx942:sramecc-", False),
        (FULL, None, "gfx90a", False),
        ("gfx90a", None, "gfx942", False),
        ("gfx942", None, "gfx90a:xnack-", False),
        ("gfx94", None, "gfx942", False),
        ("sm_90", False, "sm_90", True),
    ],
)
def test_a_feature_is_compared_where_the_machine_says_whether_it_is_on(
    have: str, xnack: bool | None, wanted: str, expected: bool
) -> None:
    assert has_arch(have, wanted, xnack=xnack) is expected


@pytest.mark.parametrize(
    ("arch", "summary", "hint"),
    [
        ("GFX942", "'GFX942' is not an instruction set", "write gfx942"),
        ("SM_90", "'SM_90' is not an instruction set", "write sm_90"),
        ("GFX942:XNACK-", "'GFX942:XNACK-' is not an instruction set", "write gfx942:xnack-"),
        ("gfx942:xnack", "'gfx942:xnack' is not an instruction set", "write it as gfx942, or gfx942:xnack-"),
        ("", "'' is not an instruction set", "write it as gfx942, or gfx942:xnack-"),
        ("gfx942:xnack+:xnack-", "'gfx942:xnack+:xnack-' names xnack twice", "keep one"),
    ],
)
def test_a_misspelt_instruction_set_is_refused_with_the_right_one(arch: str, summary: str, hint: str) -> None:
    with pytest.raises(PlanError) as caught:
        load({"hipplan": 1, "devices": {"gpu": {"arch": arch}}})
    (diagnostic,) = caught.value.diagnostics

    assert (diagnostic.code, diagnostic.summary, diagnostic.hint) == ("HP105", summary, hint)
