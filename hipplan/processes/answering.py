"""A process answers `hipplan verify` about its layouts: in its main thread (the command `apply`), or in a thread of its
own (a program that asked for that)."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator

from hipplan import _core
from hipplan.kinds.lives import BUFFERS
from hipplan.layout.layout import Layout
from hipplan.processes.connections import close_in_forks, new_socket
from hipplan.processes.folders import new_folder, within
from hipplan.processes.listener import CALLERS_MAX, Caller, Listener, serve_until
from hipplan.processes.packets import Message
from hipplan.processes.verifying import ANSWER_S, DIFFERENCES, answer_with

log = logging.getLogger("hipplan")

_LAYOUTS = 1000
_MEMORY = ("allocation", *BUFFERS)

_OWN_FAULTS = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGSYS,
    signal.SIGABRT,
}
"""Signals that a thread causes itself. All others are for other threads."""


class _Answers:
    """The layouts about which this process answers, and the thread that does so, if there is one."""

    def __init__(self) -> None:
        self.layouts: weakref.WeakKeyDictionary[Layout, float] = weakref.WeakKeyDictionary()
        """Layout -> when it was added."""
        self.lock = threading.RLock()
        self.thread: _Thread | None = None
        self.was_started = False

    def close_in_child(self) -> None:
        """A forked child does not have the thread, and answers about no layout of its parent."""
        self.layouts.clear()
        self.lock = threading.RLock()
        thread, self.thread, self.was_started = self.thread, None, False
        if thread is not None:
            thread.close_in_child()


_here = _Answers()
close_in_forks(_here)


def allow_verify(layout: Layout) -> None:
    """Lets other processes verify a layout, while it is open and this process answers."""
    with _here.lock:
        _here.layouts[layout] = time.time()


def answer_in_thread(layout: Layout) -> None:
    """Lets other processes verify a layout: a thread of this process answers until its end. Logs once if it cannot."""
    allow_verify(layout)
    with _here.lock:
        if not _here.was_started:
            _here.was_started = True
            try:
                _here.thread = _Thread()
            except (OSError, RuntimeError) as error:
                _report_silence(error)


def _report_silence(error: Exception) -> None:
    log.warning("`hipplan verify` cannot ask this process: %s", getattr(error, "strerror", None) or error)


def answer(request: Message) -> Message:
    """The answer about the layouts of this process. request: {"want": "layouts" or "verify"}."""
    with _here.lock:
        layouts = [(layout, since) for layout, since in _here.layouts.items() if not layout.closed][:_LAYOUTS]
    described = [_described(layout, since) for layout, since in layouts]
    if request.get("want") == "verify":
        left = DIFFERENCES
        for (layout, _), description in zip(layouts, described, strict=True):
            description |= _read_back(layout, left)
            left -= len(description.get("differences", ()))
    return answer_with(described)


def _described(layout: Layout, since: float) -> Message:
    program = layout.program
    begun = datetime.datetime.fromtimestamp(since, datetime.timezone.utc)
    return {
        "plan": program.name,
        "digest": program.digest,
        "machine": program.machine,
        "runtime": layout.runtime.path,
        "since": begun.isoformat(timespec="seconds"),
        "asleep": layout.asleep,
        "bytes": sum(
            resource.size
            for resource in program.resources
            if resource.kind in _MEMORY and not (resource.imported or resource.asleep)
        ),
    }


def _read_back(layout: Layout, most: int) -> Message:
    """checks: how many; differ: how many of them differ from the plan; differences: the first of those."""
    try:
        checks = layout.verify()
    except (_core.HipError, ValueError) as error:  # ValueError: it was closed meanwhile
        return {"error": str(error)}
    wrong = checks.mismatches()
    described = [{"name": c.name, "what": c.what, "desired": c.desired, "current": c.current} for c in wrong[:most]]
    return {"checks": len(checks), "differ": len(wrong), "differences": described}


@contextlib.contextmanager
def answers() -> Iterator[Listener[Caller] | None]:
    """A listener that answers about the layouts of this process; None if it cannot, which does not prevent the
    apply."""
    try:
        open_socket = _OpenSocket()
    except OSError as error:
        _report_silence(error)
        yield None
        return
    try:
        yield open_socket.listener
    finally:
        open_socket.close()


class _OpenSocket:
    """A socket of this process in the folder of its user, and its listener, until close()."""

    def __init__(self) -> None:
        """Raises OSError: no folder, no descriptor, or a sandbox without sockets."""
        with contextlib.ExitStack() as undo:
            listening = undo.enter_context(new_socket())
            self._folder = new_folder()
            undo.callback(os.close, self._folder)
            self._name = f"{os.getpid()}-{os.urandom(8).hex()}"
            listening.bind(within(self._folder, self._name))
            undo.callback(self._unlink)
            listening.listen(CALLERS_MAX)
            self.listener = Listener([listening], Caller, self._answer)
            undo.callback(self.listener.close)
            self._open = undo.pop_all()

    def close(self) -> None:
        self._open.close()

    def close_in_child(self) -> None:
        """Close what the listener does not close itself; the file of the socket is the parent's."""
        self._open.pop_all()
        os.close(self._folder)

    def _answer(self, caller: Caller) -> None:
        self.listener.answer(caller, answer(caller.message or {}))

    def _unlink(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._name, dir_fd=self._folder)


class _Thread:
    """A thread that answers until the process ends."""

    def __init__(self) -> None:
        """Raises OSError, RuntimeError."""
        with contextlib.ExitStack() as undo:
            self._socket = _OpenSocket()
            undo.callback(self._socket.close)
            self._stopped, self._stop = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            undo.callback(os.close, self._stopped)
            undo.callback(os.close, self._stop)
            self._thread = threading.Thread(
                target=serve_until, args=(self._stopped, self._socket.listener), name="hipplan verify", daemon=True
            )
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OWN_FAULTS)
            try:
                self._thread.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._open = undo.pop_all()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stops the thread, after the answer under way, which needs the runtime."""
        os.write(self._stop, b"x")
        self._thread.join(ANSWER_S)
        self._open.close()

    def close_in_child(self) -> None:
        """A forked child has only the descriptors."""
        atexit.unregister(self.stop)
        self._open.pop_all()
        self._socket.close_in_child()
        os.close(self._stopped)
        os.close(self._stop)
