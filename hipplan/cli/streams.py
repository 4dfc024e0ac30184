"""Standard streams that commands can rely on, however they were started."""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import sys
from typing import Any


def whole() -> None:
    """A closed output is ignored: the command does what it was asked for, and ends with its own exit code. What is
    written to standard error never fails the command."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # otherwise the next opened file would get the output
            os.open(os.devnull, os.O_RDWR)
    usual = sys.stdout or io.TextIOWrapper(io.BytesIO(), "utf-8")
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output()),
        usual.encoding,
        usual.errors,
        line_buffering=bool(usual.line_buffering),
        write_through=getattr(usual, "write_through", False),
    )
    sys.stderr = _Told(getattr(sys.stderr, "encoding", None) or "utf-8")


def output_pipe() -> int | None:
    """The descriptor of standard output, if it is a pipe."""
    return 1 if stat.S_ISFIFO(os.fstat(1).st_mode) else None


def has_reader() -> bool:
    """Whether standard output still goes anywhere: not if it is a pipe whose reader has gone."""
    output = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(output, _Output) and output.is_lost:
        return False
    ready = select.poll()
    if (pipe := output_pipe()) is not None:
        ready.register(pipe, 0)
    return not ready.poll(0)


class _Output(io.FileIO):
    """Standard output. Where its reader closes the pipe (`| head`), what is left is lost without an error: the result
    does not depend on who reads it."""

    is_lost = False

    def __init__(self) -> None:
        super().__init__(1, "wb", closefd=False)

    def write(self, text: Any) -> int | None:  # type: ignore[override]  # None: a pipe that may not block is full
        try:
            return super().write(text)
        except BrokenPipeError:
            self.is_lost = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.close(nowhere)
            return len(text)


class _Told(io.TextIOBase):
    """Standard error. On a full disk or a closed pipe its output is lost without an error."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only here
        return self._encoding

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    def write(self, text: str) -> int:
        left = memoryview(text.encode(self._encoding, "backslashreplace"))
        with contextlib.suppress(OSError):
            while left:
                left = left[os.write(2, left) :]
        return len(text)

    def fileno(self) -> int:
        return 2

    def isatty(self) -> bool:
        return os.isatty(2)

    def writable(self) -> bool:
        return True
