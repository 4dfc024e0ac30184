"""The command without the start of Python: a fork of a process that has imported all of hipplan and run none of it.

The fork has descriptors, variables, a folder and an end of its own, as a process that was started has; only what
Python, the imports and the validators of models cost, most of a short command, is paid once. What is about the start
itself needs `command`.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hipplan.cli import main
from tests.forked import LINE_MAX, STREAMS

OURS = (
    "CUDA_VISIBLE_DEVICES",
    "HIPPLAN_",
    "HIPSIM_",
    "HIP_",
    "ROCR_",
    "ROCM_",
    "XDG_RUNTIME_DIR",
    "COLUMNS",
    "LINES",
    "TERM",
    "NO_COLOR",
    "FORCE_COLOR",
)
"""Variables that are read when a command runs. With others that differ Python itself may start differently."""

_ENVIRONMENT = dict(os.environ)
"""Before a test changes a variable."""


class Ended(NamedTuple):
    """How a command ended, and what it took, with what its start would have taken."""

    code: int
    seconds: float
    """Of the processor."""
    mib: float
    """The most that was resident."""

    FORMAT = "<idd"


class Started:
    """The process that is forked."""

    def __init__(self) -> None:
        self._socket, peer = socket.socketpair()
        line = [sys.executable, "-m", "tests.fork_server", str(peer.fileno()), " " * LINE_MAX]
        self._process = subprocess.Popen(
            line, pass_fds=[peer.fileno()], cwd=Path(__file__).parents[1], env=_ENVIRONMENT
        )
        peer.close()

    def fits(self, variables: dict[str, str]) -> bool:
        return _not_ours(variables) == _not_ours(_ENVIRONMENT)

    def run(
        self, arguments: list[str], stdin: str, variables: dict[str, str], cwd: Path | None
    ) -> subprocess.CompletedProcess[str]:
        """With pipes as its standard streams."""
        pipes = [os.pipe() for _ in STREAMS]
        child_ends = [pipes[0][0], pipes[1][1], pipes[2][1]]
        answers = ["", ""]

        def write() -> None:
            try:
                with open(pipes[0][1], "w", encoding="utf-8") as file:  # noqa: PTH123
                    file.write(stdin)
            except BrokenPipeError:  # it wants no more
                pass

        def read(number: int) -> None:
            with open(pipes[number][0], encoding="utf-8") as file:  # noqa: PTH123
                answers[number - 1] = file.read()

        threads = [threading.Thread(target=write), *(threading.Thread(target=read, args=(n,)) for n in (1, 2))]
        for thread in threads:
            thread.start()
        self._ask(arguments, variables, cwd, child_ends)
        for descriptor in child_ends:
            os.close(descriptor)
        code = self._answer().code
        for thread in threads:
            thread.join()
        return subprocess.CompletedProcess(arguments, code, *answers)

    def run_on(
        self, arguments: list[str], streams: Sequence[int | None], variables: dict[str, str], cwd: Path | None = None
    ) -> Ended:
        """With these descriptors as its standard streams; None: that one is closed."""
        assert self.fits(variables)
        self._ask(arguments, variables, cwd, streams)
        return self._answer()

    def _ask(
        self, arguments: list[str], variables: dict[str, str], cwd: Path | None, streams: Sequence[int | None]
    ) -> None:
        request = json.dumps({
            "arguments": arguments, "variables": variables, "cwd": str(cwd or Path.cwd()),
            "open": [number for number, descriptor in enumerate(streams) if descriptor is not None],
        })  # fmt: skip
        given = [descriptor for descriptor in streams if descriptor is not None]
        socket.send_fds(self._socket, [len(request.encode()).to_bytes(8, "big")], given)
        self._socket.sendall(request.encode())

    def _answer(self) -> Ended:
        return Ended(*struct.unpack(Ended.FORMAT, self._socket.recv(struct.calcsize(Ended.FORMAT))))

    def end(self) -> None:
        self._socket.close()
        self._process.wait()


def _not_ours(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.startswith((*OURS, "PYTEST_"))}


@functools.cache
def started() -> Started:
    """The one of this process."""
    process = Started()
    atexit.register(process.end)
    return process


def run(arguments: list[str]) -> int:
    """`hipplan.cli.main.run` in a process of its own. Prints what that printed.

    With other variables that Python itself may read, PYTHONPATH for one, it runs in this process, and what it starts
    is started.
    """
    variables = dict(os.environ)
    if not started().fits(variables):
        return main.run(arguments)
    ended = started().run(arguments, "", variables, None)
    print(ended.stdout, end="")
    print(ended.stderr, end="", file=sys.stderr)
    return ended.returncode
