"""Kills a holder or a filler before one of its messages: HOLDERS_KILL is holder:3 or filler:3, or file.

With file that stands in the file `kill` beside the plan; fillers read it when they start, holders at SIGUSR1.
A folder for PYTHONPATH: Python imports this first in every process that it starts.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

wanted = os.environ.get("HOLDERS_KILL", "")
me = "filler" if "--filler" in sys.orig_argv else "holder" if "--starter" in sys.orig_argv else ""
left = 0


def count(*_: Any) -> None:
    """From now on."""
    global left
    told = wanted
    if told == "file":
        plan = sys.orig_argv[sys.orig_argv.index("--") + 1]
        file = Path(plan).parent / "kill"
        told = file.read_text() if file.exists() else ""
    role, _, number = told.partition(":")
    left = int(number) if role == me else 0


def counting(method: Any) -> Any:
    def counted(talk: Any, *arguments: Any) -> None:
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            method(talk, *arguments)
        except BlockingIOError:  # nothing was there
            left += 1
            raise

    return counted


if wanted and me:
    from hipplan.processes import packets

    for name in ("_send", "_receive"):
        setattr(packets.Talk, name, counting(getattr(packets.Talk, name)))
    signal.signal(signal.SIGUSR1, count)
    count()
