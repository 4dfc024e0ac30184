"""An exported handle is the same memory in another process, however the descriptor gets there."""

import array
import ctypes
import os
import socket
import subprocess
import sys
from ctypes import c_int, c_void_p
from pathlib import Path

import pytest

from ..conformance.hip import DEVICE, HOST, INVALID_VALUE, MIB, POSIX_FD, AllocationProp, Hip, access, prop
from ..conformance.sim import Simulator, library_path
from .conftest import ROOT

SIZE = 2 * MIB

CHILD = """
import array, os, socket, sys
from ctypes import *
from tests.conformance.hip import *
from tests.conformance.sim import Simulator, library_path
hip = Hip(library_path())
how, where = sys.argv[1:]
if how == "socket":
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.connect(where)
    _, ancillary, *_ = channel.recvmsg(1, socket.CMSG_SPACE(4))
    fd = array.array("i", ancillary[0][2])[0]
else:
    fd = os.open(where, os.O_RDWR)
before = hip.free_memory()
handle = hip.get("hipMemImportFromShareableHandle", c_void_p, fd, POSIX_FD)
os.close(fd)
with hip.reservation(2 << 20) as address, hip.mapping(address, 2 << 20, handle, access(0)):
    print(hip.read(address, 11), hip.free_memory() == before)
    hip.write(address + 100, b"from the child")
hip.hipMemRelease(handle)
print(Simulator(hip).alive())
"""


@pytest.mark.parametrize("how", ["socket", "proc"])
def test_two_processes_see_each_other_s_writes(hip: Hip, tmp_path: Path, how: str) -> None:
    with (
        hip.reservation(SIZE) as address,
        hip.allocation(SIZE, prop(handle=POSIX_FD)) as handle,
        hip.mapping(address, SIZE, handle, access(0)),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        hip.write(address, b"from parent")
        fd = hip.get("hipMemExportToShareableHandle", c_int, handle, POSIX_FD, 0)
        where = str(tmp_path / "s") if how == "socket" else f"/proc/{os.getpid()}/fd/{fd}"
        if how == "socket":
            listener.bind(where)
            listener.listen()
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, how, where],
            env={**os.environ, "PYTHONPATH": str(ROOT), "HIPSIM_LIBRARY": library_path()},
            stdout=subprocess.PIPE,
            text=True,
        )
        if how == "socket":
            channel, _ = listener.accept()
            with channel:
                channel.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
        output, _ = child.communicate(timeout=600)
        os.close(fd)

        assert output.split("\n")[:2] == ["b'from parent' True", "{}"]
        assert hip.read(address + 100, 14) == b"from the child"


def test_the_memory_lives_while_only_a_descriptor_is_left(hip: Hip, simulator: Simulator) -> None:
    before = hip.free_memory()
    with hip.reservation(SIZE) as address:
        with hip.allocation(SIZE, prop(handle=POSIX_FD)) as handle:
            with hip.mapping(address, SIZE, handle, access(0)):
                hip.write(address, b"kept")
            fd = hip.get("hipMemExportToShareableHandle", c_int, handle, POSIX_FD, 0)
        assert hip.free_memory() == before - SIZE
        assert simulator.ledger()["exported"] == [{"device": 0, "size": SIZE}]
        imported = hip.get("hipMemImportFromShareableHandle", c_void_p, fd, POSIX_FD)
        assert simulator.ledger()["exported"] == []
        os.close(fd)
        with hip.mapping(address, SIZE, imported, access(0)):
            assert hip.read(address, 4) == b"kept"
        assert hip.free_memory() == before - SIZE
        hip.hipMemRelease(imported)
    assert hip.free_memory() == before


def test_memory_counts_while_another_process_has_its_descriptor(hip: Hip) -> None:
    before = hip.free_memory()
    with hip.allocation(SIZE, prop(handle=POSIX_FD)) as handle:
        fd = hip.get("hipMemExportToShareableHandle", c_int, handle, POSIX_FD, 0)
        holder = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[fd])
        os.close(fd)
    assert hip.free_memory() == before - SIZE
    holder.communicate()
    assert hip.free_memory() == before


def test_imported_host_memory_is_the_host_s_from_7_15(hip: Hip, simulator: Simulator) -> None:
    for version, location in (("7.14.0", (DEVICE, 0)), ("7.15.0", (HOST, 0))):
        simulator.configure(f"hip_version={version}\ndevice.0.name=x")
        with hip.allocation(SIZE, prop(handle=POSIX_FD, location=HOST)) as handle:
            fd = hip.get("hipMemExportToShareableHandle", c_int, handle, POSIX_FD, 0)
            imported = hip.get("hipMemImportFromShareableHandle", c_void_p, fd, POSIX_FD)
            os.close(fd)
            reported = hip.get("hipMemGetAllocationPropertiesFromHandle", AllocationProp, imported).location
            assert (reported.type, reported.id) == location
            hip.hipMemRelease(imported)


def test_a_truncated_or_foreign_file_is_refused_not_fatal(hip: Hip) -> None:
    fd = os.memfd_create("not-hip")
    os.ftruncate(fd, SIZE)
    code = hip.hipMemImportFromShareableHandle(ctypes.byref(c_void_p()), fd, POSIX_FD)
    os.close(fd)

    assert code == INVALID_VALUE
