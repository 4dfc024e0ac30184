"""A repetition that runs a command: a holder keeps the plan's memory meanwhile, and the command attaches to it."""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hipplan.errors import Diagnostic, ExitCode, HeldError, Problem
from hipplan.experiment.document import as_option, text_of
from hipplan.experiment.job import Job, Report
from hipplan.experiment.metrics import collected
from hipplan.experiment.provenance import note
from hipplan.experiment.targets import command_path
from hipplan.holders import names
from hipplan.holders.attaching import held_program
from hipplan.language.loader import load
from hipplan.layout.assembly import target
from hipplan.processes.command import this_command
from hipplan.program.program import Program

OBJECTS_MAX = 1000
"""Objects whose places are in the environment: it has a limited size."""
_SAID_MAX = 1 << 20


def run(job: Job, report: Report) -> int:
    """Fills the report. Raises HipplanError: the memory cannot be made; Problem (HP462, HP463): the command failed."""
    assert job.run is not None
    program_of_command = command_path(job.run[0], Path(job.folder))
    digest = load(job.plan, job.variables).digest
    report.times["start"] = time.monotonic() - job.began
    began = time.perf_counter()
    with _held(job):
        report.times["apply"] = time.perf_counter() - began
        program = held_program(job.holder)
        note(report, job, digest, program, target(job.runtime, job.machine).chosen.runtime, None)
        environment = os.environ | variables(job, program)
        arguments = [program_of_command, *job.run[1:]]
        for _ in range(job.warmup):
            _require_success(_run(arguments, environment, quiet=True))
        began = time.perf_counter()
        report.command_code = _run(arguments, environment)
        report.times["work"] = time.perf_counter() - began
        _require_success(report.command_code)
        report.metrics = collected(job.metrics, 0, {})
    return ExitCode.OK


def variables(job: Job, program: Program) -> dict[str, str]:
    """What the environment of the command has: the holder, the values of the plan, and where its objects are."""
    given = {f"HIPPLAN_VAR_{name}": text_of(value) for name, value in job.variables.items()}
    objects: dict[str, str] = {}
    addresses = {name: step.address for name, step in program.reservations.items()}
    for resource in program.resources[:OBJECTS_MAX]:
        base = addresses.get(resource.inside or resource.name)
        if base is not None:
            name = re.sub(r"\W", "_", resource.name, flags=re.ASCII)
            objects[f"HIPPLAN_ADDRESS_{name}"] = hex(base + resource.offset)
            objects[f"HIPPLAN_SIZE_{name}"] = str(resource.size)
    return {**given, **objects, names.VARIABLE: job.holder}


def _run(arguments: list[str], environment: dict[str, str], *, quiet: bool = False) -> int:
    """The exit code. Raises Problem (HP463)."""
    try:
        output = subprocess.DEVNULL if quiet else None
        return subprocess.run(
            arguments, stdin=subprocess.DEVNULL, stdout=output, env=environment, check=False
        ).returncode
    except (OSError, ValueError) as error:
        raise Problem("HP463", f"'{arguments[0]}' cannot be run", why=str(error)) from None


def _require_success(code: int) -> None:
    if code:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise Problem("HP462", f"the command {how}")


@contextmanager
def _held(job: Job) -> Iterator[None]:
    """A holder in this process group with the plan's memory, made and read back. It is gone at the end."""
    options = [f"--var={name}={as_option(value)}" for name, value in job.variables.items()]
    for option, value in (("runtime", job.runtime), ("machine", job.machine), ("locked", job.locked)):
        options += [f"--{option}={value}"] * (value is not None)
    address = f"\0hipplan-experiment-{job.holder}"
    arguments = [f"--name={job.holder}", "--foreground", "--quiet", *options, "--", job.plan]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, tempfile.TemporaryFile() as said:
        ready.bind(address)
        environment = os.environ | {"NOTIFY_SOCKET": f"@{address[1:]}"}
        holder = subprocess.Popen(this_command("up", arguments), stdout=2, stderr=said, env=environment)
        try:
            if not _is_filled(holder, ready):
                raise _failure(said, holder.wait())
            yield
        finally:
            holder.terminate()
            holder.wait()


def _is_filled(holder: subprocess.Popen[bytes], ready: socket.socket) -> bool:
    """Waits until all memory is filled, or the holder has ended."""
    ended = os.pidfd_open(holder.pid)
    try:
        wait = select.poll()
        wait.register(ready, select.POLLIN)
        wait.register(ended, select.POLLIN)
        return ready.fileno() in dict(wait.poll())
    finally:
        os.close(ended)


def _failure(said: IO[bytes], code: int) -> HeldError:
    """The first error that the holder wrote."""
    said.seek(0)
    text = said.read(_SAID_MAX).decode(errors="replace")
    sys.stderr.write(text)
    first = re.search(r"error\[(HP\d{3})\]: (.*)", text)
    error, summary = (first[1], first[2]) if first else ("HP455", "the holder of the plan's memory ended")
    return HeldError(Diagnostic(error, summary, why=f"hipplan up ended with exit code {code}"))
