"""A holder's log: its standard error, which is a file unless it runs in the foreground."""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
import traceback


class Log:
    """Lines with the time and the holder's name."""

    def __init__(self, name: str, error_stream: int | None) -> None:
        """error_stream: of the process that waits until all memory is filled; None if none waits."""
        self._name = name
        self._error_stream = error_stream

    @property
    def is_awaited(self) -> bool:
        """Whether a process still waits until all memory is filled, and shows failures itself."""
        return self._error_stream is not None

    def write(self, text: str) -> None:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        with contextlib.suppress(OSError):
            print(f"{now} {self._name}: {text}", file=sys.stderr, flush=True)

    def bug(self, error: Exception) -> None:
        """Write the traceback of an unexpected error."""
        self.write("".join(traceback.format_exception(error)))

    def failure(self, text: str) -> None:
        """Write a failure that no filler has reported, and report it to the process that waits."""
        self.write(text)
        if self._error_stream is not None:
            with contextlib.suppress(OSError):
                os.write(self._error_stream, f"{self._name}: {text}\n".encode())

    def filled(self) -> None:
        """All memory is filled, so that no process waits for it any more."""
        self._error_stream = None
