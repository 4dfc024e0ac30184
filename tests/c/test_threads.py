"""A C program attaches and detaches in several threads at once; ThreadSanitizer runs this, too."""

from __future__ import annotations

from hipplan.holders import requests
from tests.c.programs import Program
from tests.holders.test_holders import Held


def test_many_threads_attach_at_once(held: Held, program: Program) -> None:
    held()
    assert program.do("threads", "w") == ["0"]
    assert requests.status("w")["attached"] == []
