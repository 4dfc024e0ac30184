"""Standard streams that commands can rely on, however they were started."""

from __future__ import annotations

import contextlib
import io
import os
import sys


def whole() -> None:
    """A closed output is ignored; what is written to standard error never fails the command."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # otherwise the next opened file would get the output
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = _Told(getattr(sys.stderr, "encoding", None) or "utf-8")


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
