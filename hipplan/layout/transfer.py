"""Bytes on their way while their caller does something else: what layout.copy, load and fill return with `stream=`.

Work that the stream's device can do alone stands in the stream, with an event behind it. What the host has a part in,
such as reading a file, is done by threads, which begin when the stream has done what it had.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

from hipplan import _core
from hipplan.errors import ApplyError, Diagnostic
from hipplan.plain import seconds

log = logging.getLogger("hipplan")

Failure = Callable[[str, Exception], ApplyError]
"""Makes the error for what a name's bytes were to be."""

_FIRST_PAUSE_S = 2e-5
_LONGEST_PAUSE_S = 1e-3


class Transfer:
    """A copy, load or fill that is under way: wait() for it, `await` it in asyncio, or ask whether it is done.

    It holds leases on its memory until it is done, as a view does. One that is dropped is waited for.
    """

    def __init__(
        self,
        name: str,
        native: _core.QueuedWork | _core.Background,
        leases: Sequence[_core.Lease],
        close: Callable[[], None],
        failure: Failure,
    ) -> None:
        """close: of the files, once it is done."""
        self._native: _core.QueuedWork | _core.Background | None = native  # first: it is destroyed before the leases
        self._leases = list(leases)
        self._close = close
        self._to_error = failure
        self._failed: Exception | None = None
        self._is_told = False
        self._process = os.getpid()
        self.name = name
        """Where the bytes go."""
        self.ordered = isinstance(native, _core.QueuedWork)
        """Whether it stands in the stream, so that what is enqueued there later begins after it. Where it is False,
        threads of the host have a part in it: wait for it before you enqueue what needs its bytes."""

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not; wait() says which. Never waits. Raises ValueError in a forked child."""
        if self._native is None:
            return True
        if self._process != os.getpid():
            raise ValueError("a transfer of the parent process: a forked child cannot wait for it")
        try:
            if not self._native.done():
                return False
        except (_core.HipError, OSError, ValueError, RuntimeError) as error:
            self._failed = error.with_traceback(None)
        self._end()
        return True

    def wait(self, timeout: float | None = None) -> None:
        """Returns when the bytes are there. timeout: seconds, after which TimeoutError is raised; it goes on then.

        Raises ApplyError, each time it is called, if it failed (HP401, HP405): the bytes are undefined then.
        """
        timeout = None if timeout is None else seconds(timeout, "timeout", zero=True)
        end = None if timeout is None else time.monotonic() + timeout
        pause_s = _FIRST_PAUSE_S
        while not self.done:
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"the bytes of '{self.name}' are still on their way after {timeout:g} s")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._result()

    def __await__(self) -> Generator[Any, None, None]:
        """As wait(), for asyncio: others run meanwhile."""
        import asyncio  # which is slow to import; code that awaits has it already

        pause_s = _FIRST_PAUSE_S
        while not self.done:
            yield from asyncio.sleep(pause_s).__await__()
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._result()

    def __repr__(self) -> str:
        state = "under way" if not self.done else "failed" if self._failed is not None else "done"
        return f"<hipplan.Transfer to '{self.name}': {state}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a transfer is one of its kind: it cannot be copied or pickled")

    def stop(self) -> None:
        """Threads of the host end early; it has failed then. A device cannot be stopped."""
        if isinstance(self._native, _core.Background):
            self._native.stop()

    def _end(self) -> None:
        self._native = None
        self._leases.clear()
        self._close()

    def _result(self) -> None:
        if self._failed is not None:
            self._is_told = True
            raise self._to_error(self.name, self._failed) from self._failed

    def __del__(self) -> None:
        if getattr(self, "_native", None) is not None:
            self.stop()
            self._end()  # waits
        elif getattr(self, "_failed", None) is not None and not self._is_told:
            log.error(
                "the bytes of '%s' did not arrive, and the transfer was never awaited: %s", self.name, self._failed
            )


class UnderWay:
    """The transfers of one layout that are not done."""

    def __init__(self) -> None:
        self._all: list[Transfer] = []
        self._process = os.getpid()

    def add(self, transfer: Transfer) -> None:
        self.settle()
        self._all.append(transfer)

    def settle(self) -> Sequence[Transfer]:
        """Lets go of those that are done; gives the others. A forked child has none."""
        if self._process != os.getpid():
            return ()
        for transfer in list(self._all):
            if transfer.done:
                self._remove(transfer)
        return tuple(self._all)

    def explained(self, in_use: Diagnostic) -> Diagnostic:
        """Why memory is in use, with what is under way in it."""
        names = ", ".join(dict.fromkeys(f"'{transfer.name}'" for transfer in self.settle()))
        if not names:
            return in_use
        summary = f"the layout is in use: bytes are on their way to {names}"
        return replace(
            in_use, summary=summary, hint="wait() for the transfer first; then delete views, if there are any"
        )

    def wait_for_threads(self) -> None:
        """Until no thread of the host moves bytes. What a signal's handler raises goes on: nothing is lost by it."""
        self._wait(None, lambda transfer: not transfer.ordered)

    def wait(self, patience_s: float, *, stop: bool = False) -> None:
        """Until all are done, but no longer than so many seconds. stop: threads of the host end early."""
        for transfer in self.settle():
            if stop:
                transfer.stop()
        self._wait(patience_s, lambda transfer: True)

    def _wait(self, patience_s: float | None, which: Callable[[Transfer], bool]) -> None:
        end = None if patience_s is None else time.monotonic() + patience_s
        pause_s = _FIRST_PAUSE_S
        while any(which(transfer) for transfer in self.settle()):
            if end is not None and time.monotonic() >= end:
                return
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _remove(self, transfer: Transfer) -> None:
        if transfer in self._all:  # another thread may have been quicker
            self._all.remove(transfer)
