"""Memory that two processes use: by hipIpcMemHandle, and by a file descriptor."""

from __future__ import annotations

import os
import subprocess
from ctypes import byref, c_int, c_ulonglong, c_void_p
from functools import partial

from hipplan.checkup.driver import POSIX_FD, CallFailed, IpcHandle, properties
from hipplan.checkup.partner import FIRST, SECOND, SIZE
from hipplan.checkup.question import Bench, Question, Release, Seen
from hipplan.processes.command import main_of

_PARTNER_S = 20.0
_LINE_MAX = 200


def _partner(bench: Bench, how: str, given: str, *descriptors: int) -> str:
    """What the other process says: right, or what went wrong."""
    command = main_of("hipplan.checkup.partner", [bench.chosen.runtime.path, how, given])
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PARTNER_S, pass_fds=descriptors
        )
    except subprocess.TimeoutExpired:
        return f"did not answer within {_PARTNER_S:g} s"
    if done.returncode < 0:
        return f"ended by signal {-done.returncode}"
    lines = done.stdout.decode(errors="replace").splitlines()
    return lines[-1][:_LINE_MAX] if lines else f"ended with {done.returncode}"


def _by_handle(bench: Bench) -> Seen:
    driver = bench.driver
    with driver.buffer(SIZE) as address:
        _write_first(bench, address)
        handle = IpcHandle()
        driver.must("hipIpcGetMemHandle", byref(handle), c_void_p(address))
        seen = Seen({"the other process reads": _partner(bench, "ipc", bytes(handle).hex())})
        seen["this process reads"] = "right" if driver.read(address, SIZE) == SECOND else "wrong"
        return seen


def _by_descriptor(bench: Bench) -> Seen:
    driver = bench.driver
    with (
        driver.reservation(SIZE) as address,
        driver.allocation(SIZE, properties(handle_type=POSIX_FD)) as handle,
        driver.mapping(address, SIZE, handle),
    ):
        driver.must_grant(address, SIZE, 0)
        _write_first(bench, address)
        descriptor = _exported(bench, handle)
        try:
            seen = Seen({"the other process reads": _partner(bench, "posix_fd", str(descriptor), descriptor)})
        finally:
            os.close(descriptor)
        seen["this process reads"] = "right" if driver.read(address, SIZE) == SECOND else "wrong"
        return seen


def _write_first(bench: Bench, address: int) -> None:
    if (code := bench.driver.write(address, FIRST)) != "Success":
        raise CallFailed(f"hipMemcpy: {code}")


def _exported(bench: Bench, handle: int) -> int:
    arguments = c_void_p(handle), c_int(POSIX_FD), c_ulonglong(0)
    return bench.driver.number("hipMemExportToShareableHandle", c_int, *arguments)


def _imported(bench: Bench, *, by_value: bool) -> Seen:
    """hipMemImportFromShareableHandle in the process that exported."""
    driver = bench.driver
    with driver.allocation(SIZE, properties(handle_type=POSIX_FD)) as handle:
        descriptor = c_int(_exported(bench, handle))
        try:
            imported = c_void_p()
            given = c_void_p(descriptor.value) if by_value else byref(descriptor)
            code = driver.code("hipMemImportFromShareableHandle", byref(imported), given, c_int(POSIX_FD))
            if code == "Success":
                driver.code("hipMemRelease", imported)
        finally:
            os.close(descriptor.value)
        return {"code": code}


def _by_pointer(bench: Bench) -> Seen:
    return _imported(bench, by_value=False)


def _by_value(bench: Bench) -> Seen:
    return _imported(bench, by_value=True)


def _declared(_: Release) -> Seen:
    return {"the other process reads": "right", "this process reads": "right"}


def _declared_import(release: Release, *, by_value: bool) -> Seen:
    """AMD's library takes the descriptor from 7.1 on; before, a pointer to it, and it follows any number as one."""
    if release.kind != "amd":
        return {}
    if by_value == (release.version >= (7, 1)):
        return {"code": "Success"}
    return {"code": "ended by SIGSEGV" if by_value else ("InvalidValue", "Success")}


QUESTIONS = (
    Question("memory of hipMalloc by a handle", _by_handle, _declared),
    Question("an allocation by a descriptor", _by_descriptor, _declared),
    Question("import of a pointer to the descriptor", _by_pointer, partial(_declared_import, by_value=False)),
    Question("import of the descriptor itself", _by_value, partial(_declared_import, by_value=True)),
)
