"""Transfers that run while the caller does something else: layout.copy, load and fill return one with `stream=`.

Work that the stream's device can do alone is enqueued in the stream, followed by an event. Work of the host, such as
reading a file, is done by threads, which begin when the stream's earlier work is done.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hipplan import _core
from hipplan.errors import ApplyError, Diagnostic
from hipplan.plain import seconds

log = logging.getLogger("hipplan")

ErrorOf = Callable[[str, Exception], ApplyError]
"""Makes the error for a failed transfer: (name, exception) -> error."""

_FIRST_PAUSE_S = 2e-5
_LONGEST_PAUSE_S = 1e-3


class Transfer:
    """A running copy, load or fill: wait() for it, `await` it in asyncio, or ask whether it is done.

    It has leases on its memory until it is done, as a view does. Dropping it waits for its end.
    """

    def __init__(
        self,
        name: str,
        native: _core.QueuedWork | _core.Background,
        leases: Sequence[_core.Lease],
        close: Callable[[], None],
        failure: ErrorOf,
    ) -> None:
        """close: closes the files when it is done."""
        self._native: _core.QueuedWork | _core.Background | None = native  # first: it is destroyed before the leases
        self._leases = list(leases)
        self._closing = [close]
        """Empty once a thread has closed them."""
        self._to_error = failure
        self._failed: Exception | None = None
        self._is_told = False
        self._process = os.getpid()
        self.name = name
        """Where the bytes go."""
        self.ordered = isinstance(native, _core.QueuedWork)
        """Whether it is enqueued in the stream, so that later work in the stream begins after it. If False, threads of
        the host work on it: wait for it before you enqueue work that needs its bytes."""

    @property
    def done(self) -> bool:
        """Whether it has ended; wait() tells with which result. Never waits. Raises ValueError in a forked child."""
        native = self._native  # another thread may end it meanwhile
        if native is None:
            return True
        if self._process != os.getpid():
            raise ValueError("a transfer of the parent process: a forked child cannot wait for it")
        try:
            if not native.done():
                return False
        except (_core.HipError, OSError, ValueError, RuntimeError) as error:
            self._failed = error.with_traceback(None)
        self._end()
        return True

    def wait(self, timeout: float | None = None) -> None:
        """Returns when the bytes have arrived. timeout: seconds until TimeoutError; the transfer continues after it.

        Raises ApplyError on each call if it failed (HP401, HP405); the bytes are then undefined.
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
        """Waits as wait() does, for asyncio: other tasks run meanwhile."""
        import asyncio  # slow to import, but a caller that awaits has imported it already

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
        """Make threads of the host end early, so that the transfer fails. A device's work cannot be stopped."""
        if isinstance(native := self._native, _core.Background):
            native.stop()

    def _end(self) -> None:
        try:
            self._leases.clear()
            close = self._closing.pop()
        except IndexError:
            pass
        else:
            close()
        finally:
            self._native = None  # the last: another thread that waits goes on now

    def _result(self) -> None:
        if self._failed is not None:
            self._is_told = True
            raise self._to_error(self.name, self._failed) from self._failed

    def __del__(self) -> None:
        if getattr(self, "_native", None) is not None:
            self.stop()
            self._native = None  # waits
            self._end()
        elif getattr(self, "_failed", None) is not None and not self._is_told:
            log.error(
                "the bytes of '%s' did not arrive, and the transfer was never awaited: %s", self.name, self._failed
            )


class UnderWay:
    """The transfers of one layout that are not done yet."""

    def __init__(self) -> None:
        self._all: list[Transfer] = []
        self._process = os.getpid()

    def add(self, transfer: Transfer) -> None:
        self.forget_done()
        self._all.append(transfer)

    def forget_done(self) -> Sequence[Transfer]:
        """Forget those that are done; return the others. A forked child has none."""
        if self._process != os.getpid():
            return ()
        for transfer in list(self._all):
            if transfer.done:
                self._remove(transfer)
        return tuple(self._all)

    def explained(self, in_use: Diagnostic) -> Diagnostic:
        """The diagnostic for memory in use, with the names of running transfers."""
        names = ", ".join(dict.fromkeys(f"'{transfer.name}'" for transfer in self.forget_done()))
        if not names:
            return in_use
        summary = f"the layout is in use: bytes are on their way to {names}"
        return replace(
            in_use, summary=summary, hint="wait() for the transfer first; then delete views, if there are any"
        )

    def wait_for_threads(self) -> None:
        """Wait until no thread of the host moves bytes. An exception of a signal handler passes through; it is safe."""
        self._wait(None, lambda transfer: not transfer.ordered)

    def wait(self, patience_s: float, *, stop: bool = False) -> None:
        """Wait until all are done, at most so many seconds. stop: end threads of the host early."""
        for transfer in self.forget_done():
            if stop:
                transfer.stop()
        self._wait(patience_s, lambda transfer: True)

    def _wait(self, patience_s: float | None, which: Callable[[Transfer], bool]) -> None:
        end = None if patience_s is None else time.monotonic() + patience_s
        pause_s = _FIRST_PAUSE_S
        while any(which(transfer) for transfer in self.forget_done()):
            if end is not None and time.monotonic() >= end:
                return
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _remove(self, transfer: Transfer) -> None:
        with suppress(ValueError):  # another thread has removed it
            self._all.remove(transfer)
