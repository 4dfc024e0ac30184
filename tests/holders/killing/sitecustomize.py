"""Where HOLDERS_KILL is set, kills a holder or a filler before one of its packets: holder:3 or filler:3 is in the file
`kill` beside the plan. Both read it when they start, and at SIGUSR1.

Fillers take their environment from the file `environment` there, too: lines of NAME=VALUE, such as faults for their
driver calls. With HOLDERS_CLOCK the wall clock of holders and fillers jumps.

Its folder is in PYTHONPATH: Python imports this module first in every process that a test starts.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

is_on = "HOLDERS_KILL" in os.environ
own_role = "filler" if "--filler" in sys.orig_argv else "holder" if "--starter" in sys.orig_argv else ""
left = 0
"""Packets until this process is killed."""


def beside_plan(name: str) -> str:
    """The content of a file; empty if there is none."""
    plan = sys.orig_argv[sys.orig_argv.index("--") + 1]
    file = Path(plan).parent / name
    return file.read_text() if file.exists() else ""


def start_count(*_: Any) -> None:
    """Read how many packets are left from now on."""
    global left
    role, _, number = beside_plan("kill").partition(":")
    left = int(number) if role == own_role else 0


def counting(method: Any) -> Any:
    def counted(exchange: Any, *arguments: Any) -> None:
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            method(exchange, *arguments)
        except BlockingIOError:  # there was no packet
            left += 1
            raise

    return counted


if is_on and own_role == "filler":
    os.environ.update(line.split("=", 1) for line in beside_plan("environment").splitlines())
if "HOLDERS_CLOCK" in os.environ and own_role:
    from tests.clocks import jumping_clock

    clock = jumping_clock()
    clock.__enter__()
if is_on and own_role:
    from hipplan.processes import packets

    for name in ("_send", "_receive"):
        setattr(packets.Exchange, name, counting(getattr(packets.Exchange, name)))
    signal.signal(signal.SIGUSR1, start_count)
    start_count()
