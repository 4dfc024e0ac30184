"""Each driver call of a C program that attaches and detaches fails in turn: all or nothing, and leaks are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.c.programs import Program, alive
from tests.conftest import not_under_tsan

pytestmark = not_under_tsan

CODES = {401, 402, 404, 407, 454}
"""454: a device whose UUID cannot be read is not seen."""


def attach(program: Program, rules: str) -> tuple[int, str]:
    """Attach while calls fail: (code, text)."""
    assert program.do("fail", rules) == ["0"]
    result = program.text("attach", "w")
    assert program.do("fail") == ["0"]
    return result


@pytest.mark.parametrize("error", ["hipErrorOutOfMemory", "hipErrorInvalidValue", "999"])
def test_each_call_of_an_attach_fails(kept: int, program: Program, error: str) -> None:
    program.attach()
    program.do("detach")
    failed, number = 0, 0
    while True:
        number += 1
        assert program.do("fail", f"*@{number}={error}") == ["0"]
        code, text = program.text("attach", "w")
        fired = program.do("fired") != ["0"]
        program.do("fail")
        if code == 0:
            assert program.do("read", "model.b")[2].split()[0] == "0"
            assert program.text("detach") == (0, "")
        else:
            failed += 1
            assert code in CODES and text.startswith(f"error[HP{code}]: ")
            assert code in (407, 454) or "nothing leaked" in text
        assert alive(program) == []
        if not fired:
            break
    assert failed > 20 and code == 0


def test_the_text_has_the_call_the_step_and_what_was_undone(kept: int, program: Program) -> None:
    program.attach()
    program.do("detach")
    code, text = attach(program, "hipMemMap@3=hipErrorOutOfMemory")
    first, why, driver, step, undone = text.splitlines()
    assert (code, first) == (401, "error[HP401]: hipMemMap failed for 'model[1]'")
    assert why.startswith("  why:  ") and "hipErrorOutOfMemory (2)" in driver
    assert step.startswith("  step: ") and undone.startswith("  undone: ") and undone.endswith("nothing leaked")


def test_a_roll_back_that_fails_names_what_is_left(kept: int, program: Program) -> None:
    program.attach()
    program.do("detach")
    code, text = attach(program, "hipMemSetAccess@2=999;hipMemUnmap@1=999")
    assert code == 401 and "1 leaked" not in text.splitlines()[0]
    assert "not released: " in text and "leaked" in text and "hipMemUnmap" in text


def test_each_call_of_a_detach_fails(kept: int, path: Path) -> None:
    number, has_fired, codes = 0, True, []
    while has_fired:
        number += 1
        with Program(path) as program:
            program.attach()
            assert program.do("fail", f"*@{number}=999") == ["0"]
            code, text = program.text("detach")
            has_fired = program.do("fired") != ["0"]
            program.do("fail")
            assert code == 0 or (code == 403 and has_fired)
            assert ("not released: " in text) == (alive(program) != [])
            assert (code == 403) == ("not released: " in text or "is not idle" in text)
            codes.append(code)
    assert codes.count(403) > 5
