"""Queries a driver in a process of its own: the doctor neither hangs nor crashes with it, nor loads it twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hipplan.files import strict_json
from hipplan.machines.doctor.asked import SIGN
from hipplan.machines.machine import Machine

TIMEOUT_S = 30.0
_KILLED_S = 2.0
_MOST_BYTES = 2**22


class RuntimeAnswer(NamedTuple):
    """The result of querying one runtime."""

    machine: Machine | None = None
    runtime: Mapping[str, str] = {}
    """Its library and versions."""
    summary: str = ""
    """If there is no machine: the reason."""
    why: str = ""
    hint: str = ""
    is_broken: bool = False
    """The runtime crashed or did not answer."""


def ask(kind: str, timeout_s: float = TIMEOUT_S, environ: Mapping[str, str] | None = None) -> RuntimeAnswer:
    """Query a runtime. kind: amd or cuda."""
    command = [sys.executable, "-m", "hipplan.machines.doctor.asked", kind]
    package = str(Path(__file__).parents[3])
    given = dict(os.environ if environ is None else environ)
    given["PYTHONPATH"] = os.pathsep.join(filter(None, (package, given.get("PYTHONPATH"))))
    child = subprocess.Popen(
        command, env=given, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        output, _ = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return _silent(kind, timeout_s)
    finally:
        _end(child)
    return _read(kind, output[-_MOST_BYTES:].decode(errors="replace"), child.returncode)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the child. A process that hangs inside a driver may survive that: it is then left alone."""
    if child.poll() is None:
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_KILLED_S)
    if child.stdout is not None:
        child.stdout.close()


def _silent(kind: str, timeout_s: float) -> RuntimeAnswer:
    hint = "look at dmesg; another process may hold the GPU, or it needs a reset"
    return RuntimeAnswer(summary=f"the {kind} driver did not answer within {timeout_s:g} s", hint=hint, is_broken=True)


def _read(kind: str, output: str, code: int) -> RuntimeAnswer:
    line = next((line for line in reversed(output.splitlines()) if line.startswith(SIGN)), None)
    if line is None:
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        summary = f"the {kind} driver ended the process that asked it ({how})"
        hint = f"look at `{sys.executable} -m hipplan.machines.doctor.asked {kind}`, and at dmesg"
        return RuntimeAnswer(summary=summary, hint=hint, is_broken=True)
    data: dict[str, Any] = strict_json.loads(line.removeprefix(SIGN))
    if "refused" in data:
        return RuntimeAnswer(**data["refused"])
    return RuntimeAnswer(Machine.model_validate(data["machine"]), data["runtime"])
