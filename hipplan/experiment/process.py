"""A repetition's process: started, given its job, and killed with all that it started when it ends, or is late.

The job is a line on its standard input, which then stays open: when this process is gone, however it ended, the cell
reads the end of it and kills its process group (hipplan/experiment/cell.py).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hipplan.errors import ExitCode
from hipplan.experiment import descendants
from hipplan.files import strict_json
from hipplan.processes.command import main_of

_READ_MAX = 16 << 20
"""Bytes of a report, and of what was written to standard error, that are read: the last ones."""
WRITTEN_MAX = 1 << 30
"""Bytes of output with which a repetition is killed, before it fills the disk."""
_LOOK_S = 1.0
_PLANS_VARIABLES = "HIPPLAN_VAR_"
"""Prefix of variables of this process that would change a plan behind the experiment's back."""


@dataclass(frozen=True)
class Ended:
    """How a repetition's process ended."""

    exit_code: int
    """128 + the number of a signal that ended it."""
    killed: str
    """Why it was killed; empty if it ended by itself."""
    errors: str
    """What it wrote to standard error."""
    report: dict[str, Any]
    """What the cell reports; empty if it was killed before it could."""
    seconds: float


class CellProcess:
    """One running repetition."""

    def __init__(self, job: Mapping[str, Any], environment: Mapping[str, str], folder: Path) -> None:
        """folder: the working folder. Raises OSError."""
        with contextlib.ExitStack() as undo:
            self._output, self._errors, self._report = (undo.enter_context(_scratch()) for _ in range(3))
            self._began = time.monotonic()
            self._mark = secrets.token_hex(8)
            self._process = subprocess.Popen(
                main_of("hipplan.experiment.cell", [str(self._report.fileno())]),
                stdin=subprocess.PIPE, stdout=self._output, stderr=self._errors, pass_fds=(self._report.fileno(),),
                cwd=folder, env={**_environment(environment), descendants.VARIABLE: self._mark},
                start_new_session=True,
            )  # fmt: skip
            assert self._process.stdin is not None
            undo.callback(self._process.wait)
            undo.enter_context(contextlib.closing(self._process.stdin))
            undo.callback(self.kill)
            self._exit = os.pidfd_open(self._process.pid)
            undo.callback(os.close, self._exit)
            with contextlib.suppress(BrokenPipeError):  # it has ended already
                self._process.stdin.write(strict_json.dumps(job).encode() + b"\n")
                self._process.stdin.flush()
            self._undo = undo.pop_all()

    def wait(self, timeout_s: float) -> Ended:
        """Waits until it has ended, or kills it after so many seconds; all that it started is gone afterwards."""
        with self._undo:
            killed = self._watched(self._began + timeout_s, timeout_s)
            seconds = time.monotonic() - self._began
            self.kill()  # also what is still in its group; before wait(), or the number could be another's
            code = self._process.wait()
            return Ended(
                code if code >= 0 else 128 - code, killed, _read(self._errors),
                _saved(_read(self._report)), seconds,
            )  # fmt: skip

    def _watched(self, deadline: float, timeout_s: float) -> str:
        """Waits until it has ended; or why it has to be killed."""
        ready = select.poll()
        ready.register(self._exit, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            if ready.poll(max(1, 1000 * min(left, _LOOK_S))):
                return ""
            if max(os.fstat(file.fileno()).st_size for file in (self._output, self._errors)) > WRITTEN_MAX:
                return f"it wrote more than {WRITTEN_MAX >> 20} MiB"
        return f"it took longer than {timeout_s:g} s"

    def kill(self) -> None:
        """Kills it with all that it has started."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            descendants.kill_all(self._mark)


def failure(ended: Ended) -> str:
    """Why a repetition failed whose cell reported no reason; empty if it did not."""
    if ended.killed:
        return ended.killed
    if ended.exit_code > 128:
        return f"it was ended by {_signal(ended.exit_code - 128)}"
    if not ended.report.get("complete"):
        return f"it ended with exit code {ended.exit_code}, before its measurement was done"
    return f"it ended with exit code {ended.exit_code}" if ended.exit_code != ExitCode.OK else ""


def _saved(text: str) -> dict[str, Any]:
    """A report; empty if the cell was killed while it saved it."""
    try:
        return dict(strict_json.loads(text))
    except ValueError:
        return {}


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(_PLANS_VARIABLES)}
    return {**own, **more}


def _signal(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _scratch() -> IO[bytes]:
    """A file without a name: a process that outlives the cell can go on writing to it, and blocks nobody."""
    return tempfile.TemporaryFile()


def _read(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _READ_MAX))
    return file.read(_READ_MAX).decode(errors="replace")
