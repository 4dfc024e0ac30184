"""hipIpcGetMemHandle, hipIpcOpenMemHandle, hipIpcCloseMemHandle, and the same for events: between processes.

HIP's reference: a handle is of memory of hipMalloc, is opened with the flag hipIpcMemLazyEnablePeerAccess in another
process, and is closed there. What it says nothing of is as AMD's 6.4.3 and 7.2.4 have it.
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
from collections.abc import Iterator
from ctypes import c_void_p

import pytest

from ..conftest import ROOT
from .hip import (
    DANGLING,
    INVALID_CONFIGURATION,
    INVALID_CONTEXT,
    INVALID_DEVICE_POINTER,
    INVALID_VALUE,
    KIB,
    MIB,
    PIECE,
    SUCCESS,
    Hip,
    IpcHandle,
    PointerAttributes,
)
from .sim import machine_of

pytestmark = [pytest.mark.function("hipIpcGetMemHandle"), pytest.mark.needs("memory handles")]

LAZY_PEER_ACCESS = 1
UNTIMED, INTERPROCESS = 2, 4

HEAD = """
import ctypes, sys
from ctypes import c_size_t, c_void_p
from tests.conformance.hip import *
from tests.conformance.sim import Simulator
hip, size, device = Hip(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if sys.argv[4]: Simulator(hip).configure(sys.argv[4])
hip.hipSetDevice(device)
def say(*words): print(*words, flush=True)
"""
EXPORTER = """
address = hip.get("hipMalloc", c_void_p, size)
assert hip.write(address + size - 8, b"exported") == 0
handle = IpcHandle()
assert hip.hipIpcGetMemHandle(ctypes.byref(handle), address) == 0
say(bytes(handle).hex())
assert input() == "read"
say(hip.read(address, 8))
assert input() == "free"
say(hip.hipFree(address))
input()
"""
IMPORTER = """
handle = IpcHandle.from_buffer_copy(bytes.fromhex(input()))
before = hip.free_memory()
def opened():
    address = c_void_p()
    return hip.hipIpcOpenMemHandle(ctypes.byref(address), handle, 1), address.value
code, address = opened()
say(code)
assert input() == "write"
say(hip.read(address + size - 8, 8))
assert hip.write(address, b"imported") == 0
assert hip.hipDeviceSynchronize() == 0
say("written")
for what in sys.stdin: say(eval(what))
"""


@contextlib.contextmanager
def started(hip: Hip, source: str, size: int = PIECE, device: int = 0) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HEAD + source, hip.path, str(size), str(device), machine_of(hip)]
    piped = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=piped, stdout=piped, stderr=piped, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str], words: str | None = None) -> str:
    """A line of a process; the last line of its errors if it ended. words: what it is told before."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    if words is not None:
        process.stdin.write(words + "\n")
        process.stdin.flush()
    return process.stdout.readline().strip() or process.stderr.read()


def handle_of(hip: Hip, address: int) -> IpcHandle:
    handle = IpcHandle()
    assert hip.hipIpcGetMemHandle(ctypes.byref(handle), address) == SUCCESS
    return handle


def open_here(hip: Hip, handle: IpcHandle, flags: int = LAZY_PEER_ACCESS) -> int:
    return hip.hipIpcOpenMemHandle(ctypes.byref(c_void_p()), handle, flags)


def test_bad_arguments_are_invalid(hip: Hip) -> None:
    handle = IpcHandle()
    here = ctypes.create_string_buffer(8192)
    with hip.buffer(PIECE) as address:
        assert hip.hipIpcGetMemHandle(None, address) == INVALID_VALUE
        for unknown in (0, DANGLING, ctypes.addressof(here)):
            assert hip.hipIpcGetMemHandle(ctypes.byref(handle), unknown) == INVALID_VALUE
        shared = handle_of(hip, address)
        assert hip.hipIpcOpenMemHandle(None, shared, LAZY_PEER_ACCESS) == INVALID_VALUE
        for flags in (0, 2, 3):
            assert open_here(hip, shared, flags) == INVALID_VALUE
        assert open_here(hip, IpcHandle()) == INVALID_VALUE
        for unknown in (0, DANGLING, address):
            assert hip.hipIpcCloseMemHandle(unknown) == INVALID_VALUE


@pytest.mark.needs("managed")
def test_managed_memory_is_invalid(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipIpcGetMemHandle(ctypes.byref(IpcHandle()), address) == INVALID_VALUE


def test_memory_has_one_handle(hip: Hip) -> None:
    with hip.buffer(PIECE) as address, hip.buffer(PIECE) as other:
        assert bytes(handle_of(hip, address)) == bytes(handle_of(hip, address)) != bytes(handle_of(hip, other))


def test_memory_is_not_opened_in_its_own_process(hip: Hip) -> None:
    with hip.buffer(PIECE) as address:
        assert open_here(hip, handle_of(hip, address)) == INVALID_CONTEXT


@pytest.mark.parametrize("device", [0, pytest.param(1, marks=pytest.mark.needs("two devices"))])
@pytest.mark.parametrize("size", [4 * KIB, 64 * KIB, PIECE, 3 * MIB + 4 * KIB])
def test_another_process_sees_the_bytes_and_writes_its_own(hip: Hip, size: int, device: int) -> None:
    """Small memory is part of a larger block of AMD's library."""
    with started(hip, EXPORTER, size, device) as exporter, started(hip, IMPORTER, size) as importer:
        assert said(importer, said(exporter)) == "0"
        assert said(importer, "write") == "b'exported'"
        assert said(importer) == "written"
        assert said(exporter, "read") == "b'imported'"
        assert said(importer, "hip.hipIpcCloseMemHandle(address)") == "0"
        assert said(importer, "hip.hipIpcCloseMemHandle(address)") == f"{INVALID_VALUE}"
        assert said(exporter, "free") == "0"


def test_opened_memory_is_device_memory_and_is_closed_by_any_address_in_it(hip: Hip) -> None:
    with started(hip, EXPORTER) as exporter, started(hip, IMPORTER) as importer:
        assert said(importer, said(exporter)) == "0"
        assert said(importer, "write") == "b'exported'"
        said(importer)
        about = f"hip.get('hipPointerGetAttributes', {PointerAttributes.__name__}, address).type"
        assert said(importer, about) == "2"
        assert said(importer, "hip.hipIpcGetMemHandle(ctypes.byref(IpcHandle()), address)") == "0"
        assert said(importer, "hip.hipIpcCloseMemHandle(address + 16)") == "0"


def test_memory_is_opened_once_or_twice(hip: Hip) -> None:
    """From 7.0 on the second time returns the same address, and counts."""
    with started(hip, EXPORTER) as exporter, started(hip, IMPORTER) as importer:
        assert said(importer, said(exporter)) == "0"
        said(importer, "write")
        said(importer)
        same = said(importer, "opened()[1] == address")
        assert same == str(hip.version >= (7, 0))
        closed = [said(importer, "hip.hipIpcCloseMemHandle(address)") for _ in range(3)]
        assert closed == (["0", "0", "1"] if hip.version >= (7, 0) else ["0", "1", "1"])


def test_memory_stays_with_the_process_that_opened_it(hip: Hip) -> None:
    with started(hip, EXPORTER) as exporter, started(hip, IMPORTER) as importer:
        assert said(importer, said(exporter)) == "0"
        exporter.kill()
        exporter.wait()
        assert said(importer, "write") == "b'exported'"
        assert said(importer) == "written"
        assert said(importer, "hip.read(address, 8)") == "b'imported'"
        assert said(importer, "hip.hipIpcCloseMemHandle(address)") == "0"


def test_memory_that_was_freed_is_not_opened(hip: Hip) -> None:
    """AMD's 7.2 waits for ever: its process answers with an end of file, which it does not see as one."""
    if hip.version >= (7, 0) and not hasattr(hip.library, "hipsim_configure"):
        pytest.skip("AMD's library waits for ever")
    large = 4 * PIECE  # which AMD's library frees at once
    with started(hip, EXPORTER, large) as exporter, started(hip, IMPORTER, large) as importer:
        handle = said(exporter)
        said(exporter, "read")
        assert said(exporter, "free") == "0"
        assert said(importer, handle) == f"{INVALID_DEVICE_POINTER}"


def test_events_are_opened_in_another_process(hip: Hip) -> None:
    handle = IpcHandle()
    assert hip.hipIpcOpenEventHandle(ctypes.byref(c_void_p()), IpcHandle()) == INVALID_VALUE
    with hip.event(UNTIMED) as own:
        assert hip.hipIpcGetEventHandle(ctypes.byref(handle), own) == INVALID_CONFIGURATION
    with hip.event(UNTIMED | INTERPROCESS) as event:
        assert hip.hipIpcGetEventHandle(None, event) == INVALID_VALUE
        assert hip.hipIpcGetEventHandle(ctypes.byref(handle), event) == SUCCESS
        assert hip.hipIpcOpenEventHandle(None, handle) == INVALID_VALUE
        assert hip.hipIpcOpenEventHandle(ctypes.byref(c_void_p()), handle) == INVALID_CONTEXT
        source = """
event = hip.get("hipIpcOpenEventHandle", c_void_p, IpcHandle.from_buffer_copy(bytes.fromhex(input())))
say([hip.hipEventQuery(event), hip.hipEventRecord(event, None), hip.hipEventSynchronize(event)])
say(hip.hipEventDestroy(event))
"""
        with started(hip, source) as other:
            assert said(other, bytes(handle).hex()) == "[0, 0, 0]"
            assert said(other) == "0"
