"""The command without the start of Python: a fork of a process that has imported all of hipplan and run none of it.

The fork has descriptors, variables, a folder and an end of its own, as a process that was started has; only what
Python, the imports and the validators of models cost, most of a short command, is paid once. What is about the start
itself needs `command`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import io
import json
import os
import pkgutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple, TextIO

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

STREAMS = ("stdin", "stdout", "stderr")


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
        self._variables = _not_ours(os.environ)
        self._socket, peer = socket.socketpair()
        line = [sys.executable, "-m", "tests.cli.started", str(peer.fileno())]
        self._process = subprocess.Popen(line, pass_fds=[peer.fileno()], cwd=Path(__file__).parents[2])
        peer.close()

    def fits(self, variables: dict[str, str]) -> bool:
        return _not_ours(variables) == self._variables

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


def _not_ours(variables: os._Environ[str] | dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.startswith((*OURS, "PYTEST_"))}


def serve(connection: socket.socket) -> bool:
    """Forks for each request until there are no more. True in a fork, which is to run the command."""
    start_s = process_time()  # of Python and the imports
    while True:
        head, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
        if not head:
            return False
        text = b""
        while len(text) < int.from_bytes(head, "big"):
            text += connection.recv(1 << 20)
        request: dict[str, Any] = json.loads(text)
        child = os.fork()
        if child == 0:
            connection.close()
            _become(request, descriptors)
            return True
        for descriptor in descriptors:
            os.close(descriptor)
        _, status, used = os.wait4(child, 0)
        ended = (os.waitstatus_to_exitcode(status), start_s + used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
        connection.sendall(struct.pack(Ended.FORMAT, *ended))


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    for number, name in enumerate(STREAMS):
        if number in request["open"]:
            descriptor = descriptors.pop(0)
            os.dup2(descriptor, number)
            os.close(descriptor)
            stream = _stream(number, name, getattr(sys, name))
        else:
            os.close(number)
            stream = None
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["cwd"])
    sys.argv = ["hipplan", *request["arguments"]]


def _stream(number: int, name: str, like: TextIO) -> TextIO:
    """A standard stream as the interpreter makes them when it starts."""
    raw = io.FileIO(number, "rb" if number == 0 else "wb", closefd=False)
    raw.name = f"<{name}>"
    buffer = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
    newline, at_line_ends = (None, False) if number == 0 else ("\n", number == 2)
    return io.TextIOWrapper(buffer, like.encoding, like.errors, newline, at_line_ends)


def _import_all() -> None:
    import hipplan

    for module in pkgutil.walk_packages(hipplan.__path__, "hipplan."):
        if not module.name.endswith("__main__") and not module.name.startswith("hipplan.lib"):  # which are runtimes
            __import__(module.name)


def _build_validators() -> None:
    """Those of all models. Pydantic builds them when they are first used."""
    from pydantic import BaseModel

    models = [*BaseModel.__subclasses__()]
    for model in models:
        models += model.__subclasses__()
        if model.__module__.startswith("hipplan."):
            model.model_rebuild()


def main() -> None:
    _import_all()
    _build_validators()
    gc.freeze()  # what is shared stays shared
    from hipplan.cli import command

    if serve(socket.socket(fileno=int(sys.argv[1]))):
        try:
            command()
        except SystemExit as end:
            _end(end)


def _end(end: SystemExit) -> None:
    """As Python does it, exit handlers first; only the modules are not cleared, which takes as long as the command."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    assert isinstance(end.code, int)
    ctypes.CDLL(None).exit(end.code)


if __name__ == "__main__":
    main()
