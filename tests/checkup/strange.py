"""The process of a checkup with a part of strange questions: what a driver may do to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hipplan.checkup import answering, parts
from hipplan.checkup.driver import NotHere
from hipplan.checkup.question import Bench, Question, Seen


def right(_: Bench) -> Seen:
    return {"value": 1}


def dies(_: Bench) -> Seen:
    os.kill(os.getpid(), signal.SIGABRT)
    return {}


def leaves_a_process_and_hangs(_: Bench) -> Seen:
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(os.environ["STRANGE_PIDS"]).write_text(f"{left.pid}")
    time.sleep(600)
    return {}


def fails(_: Bench) -> Seen:
    raise RuntimeError("the first line\nand a second one")


def makes_no_sense(_: Bench) -> Seen:
    raise NotHere("there is one device")


def says_too_much(_: Bench) -> Seen:
    print("what a library prints" * 1000)
    return {"value": 2}


STRANGE = [
    Question("right", right, lambda _: {"value": 1}),
    Question("dies", dies),
    Question("dies as declared", dies, lambda _: {"code": "ended by SIGABRT"}),
    Question("hangs", leaves_a_process_and_hangs, limit_s=0.5),
    Question("fails", fails),
    Question("makes no sense", makes_no_sense),
    Question("differs", says_too_much, lambda _: {"value": (1, 3)}),
    Question("seen", right, lambda _: {"another": 1}),
]


def main() -> None:
    parts.PARTS["strange"] = STRANGE  # type: ignore[index]
    answering.main()
