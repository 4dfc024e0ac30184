"""Processes of hipplan that a forked command starts are forks, too: holders, fillers, repetitions of experiments.

`fork_exec` stands for the function of C with which subprocess makes a process. The fork has what a program that was
started would have: its own descriptors, session, folder, variables, signals and standard streams; it lacks the start of
Python, the imports and the validators of models, nearly all of what these processes cost in a test. So a test with such
forks cannot find a mistake in the order of imports or in the command line of these processes; and /proc shows the
variables of the process that was forked. tests/holders/test_killed.py, test_interrupts.py, test_docs.py and
test_shell.py start real ones.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import io
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

from hipplan.processes.command import main_of

STREAMS = ("stdin", "stdout", "stderr")
LINE_MAX = 4096
"""Of a command line that /proc can show. The process that is forked was started with room for it."""
_FORKED = ("hipplan.cli.main", "hipplan.experiment.cell")
"""Modules whose main() is forked."""


def fork_what_commands_start() -> None:
    """In this process and its forks."""
    import _posixsubprocess

    owner: Any = subprocess if hasattr(subprocess, "_fork_exec") else _posixsubprocess  # Python 3.10
    name = "_fork_exec" if owner is subprocess else "fork_exec"
    start_program = getattr(owner, name)

    def fork_exec(*given: Any) -> int:
        line, folder = [os.fsdecode(argument) for argument in given[0]], given[4]
        if folder is None or Path(os.fsdecode(folder)).is_dir():
            for module in _FORKED:
                if line[:3] == main_of(module, []):
                    return _fork(module, line, given)
        process: int = start_program(*given)
        return process

    setattr(owner, name, fork_exec)


def _fork(module: str, line: list[str], given: Sequence[Any]) -> int:
    """line: the command line. given: the arguments of fork_exec, in whose order they are read here."""
    kept, folder, variables = given[3:6]
    stdin, _, _, stdout, _, stderr, _, failure = given[6:14]
    new_session = given[15]
    own = [number if number != -1 else usual for usual, number in enumerate((stdin, stdout, stderr))]
    streams = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 64) for number in own]  # a fork closes those of its clients
    process = os.fork()
    if process == 0:
        _run(module, line, folder, variables, streams, {*kept} - {failure}, new_session=new_session)
    for number in streams:
        os.close(number)
    return process


def _run(
    module: str,
    line: list[str],
    folder: bytes | None,
    variables: Sequence[bytes] | None,
    streams: Sequence[int],
    kept: Collection[int],
    *,
    new_session: bool,
) -> NoReturn:
    """In the fork, which never returns into what the other process was doing."""
    try:
        gc.freeze()  # a file of the other process that is collected here would close a descriptor of this one
        _take_signals()
        _take_descriptors(streams, kept)
        if new_session:
            os.setsid()
        if folder is not None:
            os.chdir(folder)
        if variables is not None:
            os.environ.clear()
            os.environ.update({name: value for name, _, value in (os.fsdecode(v).partition("=") for v in variables)})
        sys.argv = ["-c", *line[3:]]
        _show(line)
        importlib.import_module(module).main()
    except SystemExit as code:
        end(code)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _take_signals() -> None:
    """As the starts of a program and of Python leave the signals."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def _take_descriptors(streams: Sequence[int], kept: Iterable[int]) -> None:
    """All others are closed."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    last = 2
    for descriptor in sorted(kept):
        os.closerange(last + 1, descriptor)
        os.set_inheritable(descriptor, True)
        last = descriptor
    os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))
    for number, name in enumerate(STREAMS):
        set_stream(name, stream(number, name, getattr(sys, name)))


def _show(line: Sequence[str]) -> None:
    """Makes /proc show this as the command line, by which some tests find the processes of a plan."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end_of_line = map(int, fields[45:47])
    text = os.fsencode("\0".join(line))
    assert len(text) < LINE_MAX < end_of_line - begin
    ctypes.memmove(begin, text.ljust(end_of_line - begin, b"\0"), end_of_line - begin)


def stream(number: int, name: str, like: TextIO) -> TextIO:
    """A standard stream as the interpreter makes them when it starts."""
    raw = io.FileIO(number, "rb" if number == 0 else "wb", closefd=False)
    raw.name = f"<{name}>"
    buffer = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
    newline, at_line_ends = (None, False) if number == 0 else ("\n", number == 2)
    return io.TextIOWrapper(buffer, like.encoding, like.errors, newline, at_line_ends)


def set_stream(name: str, opened: TextIO | None) -> None:
    """opened: None if the descriptor is closed."""
    setattr(sys, name, opened)
    setattr(sys, f"__{name}__", opened)


def end(last: SystemExit) -> None:
    """As Python does it, exit handlers first; only the modules are not cleared, which takes as long as the command."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for output in (sys.stdout, sys.stderr):
        if output is not None:
            output.flush()
    assert isinstance(last.code, int)
    ctypes.CDLL(None).exit(last.code)
