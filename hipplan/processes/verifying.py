"""Processes that hold layouts answer other processes of the same user: `hipplan verify` requests a read-back.

The command `apply` answers in its main thread, a program that uses the library in a thread of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import logging
import os
import shlex
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

from hipplan import _core
from hipplan.errors import Diagnostic, HeldError
from hipplan.files import strict_json
from hipplan.layout.layout import Layout
from hipplan.processes import messages
from hipplan.processes.messages import Caller, Message, Server

log = logging.getLogger("hipplan")

ANSWER_S = 30.0
"""How long an answer may take; reading back waits for the driver."""
LIST_S = 2.0
"""How long all processes together may take to list their layouts."""
DIFFERENCES = 1000
"""How many differences a reply describes, over all layouts of a process."""
_LAYOUTS = 1000
_COMMAND = 2000
_MEMORY = ("allocation", "device", "pinned", "registered", "managed")
_AT_ONCE = 100
"""How many processes are asked together: each costs a descriptor."""

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

_held: weakref.WeakKeyDictionary[Layout, float] = weakref.WeakKeyDictionary()
"""The layouts that other processes may verify, and when each was added."""
_lock = threading.RLock()
_thread: _Thread | None = None
_was_started = False


def hold(layout: Layout) -> None:
    """Lets other processes verify a layout, while it is open and this process serves requests."""
    with _lock:
        _held[layout] = time.time()


def answer_in_thread(layout: Layout) -> None:
    """As hold(), and serves in a thread of this process until its end. Logs once if it cannot."""
    global _thread, _was_started
    hold(layout)
    with _lock:
        if not _was_started:
            _was_started = True
            try:
                _thread = _Thread()
            except (OSError, RuntimeError) as error:
                _cannot_answer(error)


def _cannot_answer(error: Exception) -> None:
    log.warning("`hipplan verify` cannot ask this process: %s", getattr(error, "strerror", None) or error)


def answer(request: Message) -> Message:
    """The reply about the layouts of this process. request: {"ask": "list" or "verify"}."""
    with _lock:
        held = [(layout, since) for layout, since in _held.items() if not layout.closed]
    reply: Message = {
        "format_version": strict_json.FORMAT_VERSION,
        "process": os.getpid(),
        "command": shlex.join(sys.orig_argv)[:_COMMAND],
        "layouts": [_described(layout, since) for layout, since in held[:_LAYOUTS]],
    }
    if request.get("ask") == "verify":
        left = DIFFERENCES
        for (layout, _), description in zip(held, reply["layouts"], strict=False):
            description |= _read_back(layout, left)
            left -= len(description.get("differences", ()))
    return reply


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
def answers() -> Iterator[Server | None]:
    """A server for the layouts of this process; None if it cannot start, which does not prevent the apply."""
    with contextlib.ExitStack() as undo:
        try:
            server: Server | None = undo.enter_context(Server(answer))
        except OSError as error:
            server = None
            _cannot_answer(error)
        yield server


class _Thread:
    """Serves until the process ends."""

    def __init__(self) -> None:
        """Raises OSError, RuntimeError."""
        with contextlib.ExitStack() as undo:
            self._server = undo.enter_context(Server(answer))
            self._stopped, self._stop = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            undo.callback(os.close, self._stopped)
            undo.callback(os.close, self._stop)
            serve = partial(messages.serve_until, self._stopped, self._server)
            self._thread = threading.Thread(target=serve, name="hipplan verify", daemon=True)
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OWN_FAULTS)
            try:
                self._thread.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._open = undo.pop_all()

    def stop(self) -> None:
        """Stops serving, after the reply under way, which needs the runtime."""
        os.write(self._stop, b"x")
        self._thread.join(ANSWER_S)
        self._open.close()

    def forget(self) -> None:
        """Called in a forked child, which does not have the thread."""
        self._open.pop_all()
        self._server.forget()
        os.close(self._stopped)
        os.close(self._stop)


@atexit.register
def _stop() -> None:
    if _thread is not None:
        _thread.stop()


def _forget() -> None:
    global _lock, _thread, _was_started
    _was_started = False
    _lock = threading.RLock()
    _held.clear()
    thread, _thread = _thread, None
    if thread is not None:
        thread.forget()


os.register_at_fork(after_in_child=_forget)


def holders() -> list[Message]:
    """The replies of all processes of this user that hold a layout, by process id; `error` if one does not answer."""
    replies: dict[int, Message] = {}
    sockets = messages.servers()
    while callers := _connected(sockets, time.monotonic() + LIST_S):
        for process, caller in callers:  # all are preparing their replies by now
            with caller if isinstance(caller, Caller) else contextlib.nullcontext():
                reply = _reply_of(caller)
            if "error" in reply or reply["layouts"]:
                replies[process] = reply | {"process": process}
    return [replies[process] for process in sorted(replies)]


def _connected(sockets: Iterator[tuple[int, str]], until: float) -> list[tuple[int, Caller | Exception]]:
    """Sends the request to the next processes. Returns each with its connection, or the error."""
    callers: list[tuple[int, Caller | Exception]] = []
    for folder, name in sockets:
        process = name.partition("-")[0]
        if not process.isdecimal():
            continue
        try:
            caller = Caller(folder, name, until)
            callers.append((int(process), caller))
            caller.send({"ask": "list"})
        except ConnectionRefusedError:
            messages.remove_stale(folder, name)
        except TimeoutError as error:
            callers.append((int(process), error))
        except OSError:  # the process has ended
            continue
        if len(callers) == _AT_ONCE:
            break
    return callers


def _reply_of(caller: Caller | Exception) -> Message:
    try:
        if isinstance(caller, Exception):
            raise caller
        return _checked(caller.receive())
    except (OSError, ValueError, RecursionError) as error:
        return {"command": "", "layouts": [], "error": _why(error, LIST_S)}


def _why(error: Exception, limit_s: float) -> str:
    return f"it did not answer within {limit_s:g} s" if isinstance(error, TimeoutError) else str(error)


def ask(process: int | None = None) -> Message:
    """Reads back the layouts of another process. process: its id; None: the only process that holds a layout.

    `layouts` has an entry for each; checks, differ and differences are totals, the other keys are those of the first
    layout. Raises HeldError (HP412): no process holds one, several do, or it does not answer.
    """
    if process is None:
        holding = [holder["process"] for holder in holders()]
        if len(holding) != 1:
            raise HeldError(_none_or_many(holding))
        (process,) = holding
    until = time.monotonic() + ANSWER_S
    for folder, name in messages.servers():
        if not name.startswith(f"{process}-"):
            continue
        try:
            with Caller(folder, name, until) as caller:
                caller.send({"ask": "verify"})
                reply = _checked(caller.receive())
        except ConnectionRefusedError:
            continue
        except (OSError, ValueError, RecursionError) as error:
            why = _why(error, ANSWER_S)
            raise HeldError(Diagnostic("HP412", f"process {process} does not answer", why=why)) from None
        if reply["layouts"]:
            return _summed(reply, process)
    others = ", ".join(str(holder["process"]) for holder in holders()) or "none"
    hint = f"processes that hold a layout: {others}"
    raise HeldError(Diagnostic("HP412", f"process {process} holds no layout of this user", hint=hint))


def _summed(reply: Message, process: int) -> Message:
    layouts = reply["layouts"]
    for layout in layouts:
        if "error" in layout:
            summary = f"process {process} cannot read its layout '{layout['plan']}' back"
            raise HeldError(Diagnostic("HP412", summary, why=str(layout["error"])))
    first = {key: layouts[0][key] for key in ("plan", "digest", "machine", "runtime")}
    totals = {key: sum(layout[key] for layout in layouts) for key in ("checks", "differ")}
    return (
        reply
        | first
        | totals
        | {"differences": [difference for layout in layouts for difference in layout["differences"]]}
    )


def _none_or_many(holding: list[int]) -> Diagnostic:
    if not holding:
        hint = "`hipplan apply plan.yaml` holds one until ^C, and so does a program while its layout is open"
        return Diagnostic("HP412", "no process of this user holds a layout", hint=hint)
    which = ", ".join(map(str, holding))
    return Diagnostic(
        "HP412", f"{len(holding)} processes hold a layout", why=which, hint=f"name one: hipplan verify {holding[0]}"
    )


_LAYOUT: dict[str, type] = {
    "plan": str,
    "digest": str,
    "machine": str,
    "runtime": str,
    "since": str,
    "bytes": int,
    "asleep": dict,
}
_READ_BACK: dict[str, type] = {"checks": int, "differ": int, "differences": list}


def _checked(reply: Message) -> Message:
    """Raises ValueError for an invalid reply: the other process may run another version of hipplan."""
    layouts: Any = reply.get("layouts")
    if (
        reply.get("format_version") == strict_json.FORMAT_VERSION
        and _has(reply, {"process": int, "command": str, "layouts": list})
        and all(_has(layout, _LAYOUT) and _is_read_back(layout) for layout in layouts)
    ):
        return reply
    raise ValueError("the answer is from another version of hipplan")


def _is_read_back(layout: Message) -> bool:
    if "error" in layout or not any(key in layout for key in _READ_BACK):
        return isinstance(layout.get("error", ""), str)
    return _has(layout, _READ_BACK) and all(
        _has(difference, dict.fromkeys(("name", "what", "desired", "current"), str))
        for difference in layout["differences"]
    )


def _has(given: Any, wanted: dict[str, type]) -> bool:
    return isinstance(given, dict) and all(isinstance(given.get(key), kind) for key, kind in wanted.items())
