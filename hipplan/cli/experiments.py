"""Which files are experiments."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hipplan.language.kinds import says

if TYPE_CHECKING:
    from hipplan.language.loader import PlanSource

_LOOKED_AT = 1 << 20
"""Bytes of a file: its comments may be long."""


def is_experiment(source: PlanSource) -> bool:
    """Whether a file, or what comes from standard input, seems to be an experiment. source: of read_again()."""
    text = b""
    with suppress(OSError, ValueError):  # reading it reports why
        if hasattr(source, "getvalue"):
            text = source.getvalue()
        elif isinstance(source, str) and Path(source).is_file():
            with Path(source).open("rb") as file:
                text = file.read(_LOOKED_AT)
    return says(text, b"hipplan_experiment")
