"""hipIpcGetMemHandle and hipIpcOpenMemHandle between processes, as RCCL, UCX and PyTorch use them.

6.4 asks the driver for a name of the memory, with an ioctl of AMD's own kernel module; 7.2 passes a descriptor over a
socket, and a token in the memory's metadata.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conftest import ROOT

HEAD = """
import ctypes, os, sys
hip = ctypes.CDLL(os.environ["HIPPLAN_RUNTIME"])
Handle = type("Handle", (ctypes.Structure,), {"_fields_": [("bytes", ctypes.c_char * 64)]})
hip.hipIpcOpenMemHandle.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
address, back = ctypes.c_void_p(), ctypes.create_string_buffer(8)
def read(at):
    assert hip.hipMemcpy(back, ctypes.c_void_p(at), ctypes.c_size_t(8), 2) == 0
    return back.raw
def write(at, text):
    assert hip.hipMemcpy(ctypes.c_void_p(at), text, ctypes.c_size_t(len(text)), 1) == 0
    assert hip.hipDeviceSynchronize() == 0
def say(*words): print(*words, flush=True)
"""
EXPORTER = """
size, device = int(sys.argv[1]), int(sys.argv[2])
assert hip.hipSetDevice(device) == 0
assert hip.hipMalloc(ctypes.byref(address), ctypes.c_size_t(size)) == 0
write(address.value + size - 8, b"exported")
handle = Handle()
assert hip.hipIpcGetMemHandle(ctypes.byref(handle), address) == 0
say(ctypes.string_at(ctypes.byref(handle), 64).hex())
assert input() == "written"
say(read(address.value))
assert input() == "closed"
say("free", hip.hipFree(address))
"""
IMPORTER = """
size, device = int(sys.argv[1]), int(sys.argv[2])
assert hip.hipSetDevice(device) == 0
handle = Handle.from_buffer_copy(bytes.fromhex(input()))
say(hip.hipIpcOpenMemHandle(ctypes.byref(address), handle, 1), read(address.value + size - 8))
write(address.value, b"imported")
say("written")
assert input() == "close"
say(hip.hipIpcCloseMemHandle(address), hip.hipIpcCloseMemHandle(address))
"""


@contextmanager
def started(source: str, *arguments: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HEAD + source, *map(str, arguments)]
    piped = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=piped, stdout=piped, stderr=piped, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout.readline().strip() or process.stderr.read()


def tell(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdin is not None
    process.stdin.write(words + "\n")
    process.stdin.flush()


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("size", [4096, 65536, 2**21, 3 * 2**20 + 4096])
def test_another_process_sees_the_bytes_and_writes_its_own(release: str, size: int, device: int) -> None:
    """Small memory is part of a larger block of AMD's library."""
    with started(EXPORTER, size, device) as exporter, started(IMPORTER, size, 0) as importer:
        tell(importer, line(exporter))
        assert line(importer) == "0 b'exported'"
        assert line(importer) == "written"
        tell(exporter, "written")
        assert line(exporter) == "b'imported'"
        tell(importer, "close")
        assert line(importer) == "0 1"
        tell(exporter, "closed")
        assert line(exporter) == "free 0"
        assert (exporter.wait(), importer.wait()) == (0, 0)


def test_memory_stays_with_the_process_that_opened_it(release: str) -> None:
    with started(EXPORTER, 2**21, 0) as exporter, started(IMPORTER, 2**21, 0) as importer:
        tell(importer, line(exporter))
        assert line(importer) == "0 b'exported'"
        exporter.kill()
        exporter.wait()
        assert line(importer) == "written"
        tell(importer, "close")
        assert line(importer) == "0 1"
        assert importer.wait() == 0
