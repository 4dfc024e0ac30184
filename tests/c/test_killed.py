"""A C program is killed before each packet that it sends or receives: the holder and the other clients go on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hipplan
from hipplan.holders import requests
from tests.c.programs import Program
from tests.conftest import not_under_tsan
from tests.pauses import wait_until

pytestmark = not_under_tsan


def opened(process: int) -> int:
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{process}/fd"))  # noqa: PTH208


def attached() -> int:
    clients: list[object] = requests.status("w")["attached"]
    return len(clients)


def killed_before(path: Path, number: int) -> bool:
    """Whether a program attached and detached with fewer packets than would have killed it."""
    program = Program(path)
    program.do("kill", str(number))
    _, errors = program.process.communicate("attach w\ndetach\n", timeout=120)  # it may end before it has read all
    assert program.process.returncode in (0, -signal.SIGKILL), errors
    return program.process.returncode != 0


def test_a_program_that_is_killed_before_any_packet_changes_nothing_for_others(kept: int, path: Path) -> None:
    with hipplan.attach("w") as layout:
        expected = layout.read("model.b").tobytes()
        wait_until(lambda: attached() == 1, "this process alone")
        descriptors = min(opened(kept) for _ in range(20))
        number = 1
        while killed_before(path, number):
            wait_until(lambda: attached() == 1, "the end of the program that was killed")
            wait_until(lambda: opened(kept) <= descriptors, "as few descriptors as before")
            number += 1
        assert number > 5
        assert (layout.read("model.b").tobytes(), layout.lost, layout.drift()) == (expected, {}, [])
    with Program(path) as program:
        program.attach()
        assert program.do("read", "model.b")[2].split()[0] == "0"
        program.do("detach")
