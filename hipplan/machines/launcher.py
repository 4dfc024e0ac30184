"""Runs another program with a temporary folder, returns its exit code, and passes signals on to it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

_FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}


def launch(command: Sequence[str], environment: Callable[[Path], Mapping[str, str]], prefix: str) -> int:
    """Runs a program and returns its exit code: 128 + n if signal n ended it, as a shell says.

    environment: fills a folder, which is deleted when the program ends, and returns additional environment variables.
    Signals that are sent to this process alone are passed on; ^C reaches the program by itself.
    Raises FileNotFoundError if the program is missing, PermissionError if it cannot be run.
    """
    with (
        _blocked(_FORWARDED | {signal.SIGCHLD}) as before,
        tempfile.TemporaryDirectory(prefix=prefix) as folder,
    ):
        child = subprocess.Popen(
            command,
            env={**os.environ, **environment(Path(folder))},
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        )
        code = _wait(child)
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _blocked(signals: set[signal.Signals]) -> Iterator[set[int]]:
    """Block signals, so that none arrives between the child's start and the wait for it."""
    before: set[int] = set(signal.pthread_sigmask(signal.SIG_BLOCK, signals))
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(child: subprocess.Popen[bytes]) -> int:
    while (code := child.poll()) is None:
        # A timeout, because another thread of a larger program may have taken the SIGCHLD.
        got = signal.sigtimedwait(_FORWARDED | {signal.SIGCHLD}, 1.0)
        if got is None or got.si_signo == signal.SIGCHLD:
            continue
        from_the_terminal = got.si_code > 0  # sent by the kernel: the whole process group gets it
        if not from_the_terminal:
            child.send_signal(got.si_signo)
    return code
