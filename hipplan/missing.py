"""What to say when the compiled part is not there."""

from __future__ import annotations

from hipplan.errors import Diagnostic, RuntimeUnavailable


def compiled_part_missing() -> RuntimeUnavailable:
    """hipplan._core could not be imported: only what needs a driver is affected."""
    return RuntimeUnavailable(
        Diagnostic(
            "HP408",
            "the compiled part of hipplan (hipplan._core) is missing",
            why="applying a plan and measuring a machine need it; validate and preview --machine do not",
            hint="run `pip install .` in hipplan's source folder, with a C++ compiler at hand",
        )
    )
