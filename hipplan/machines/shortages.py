"""Finds what is really short when a driver reports "out of memory": it is not always device memory."""

from __future__ import annotations

import mmap
import os
import resource

from hipplan.machines.family import Family

_SPARE_FILES = 4
"""Files that one driver call may open."""
_ON_HOST = ("hipHostMalloc", "hipHostRegister", "hipMallocManaged")


def shortage(call: str, size: int, family: Family, *, is_placed: bool = False) -> str:
    """The hint for a call that just returned "out of memory". Must be called before anything is freed.

    size: bytes that it asked for. is_placed: it asked for an address or an alignment.
    """
    if not _files_can_be_opened():
        return "this process is out of file descriptors, and memory needs one here: raise `ulimit -n`"
    if _is_limited(resource.RLIMIT_AS) and not _addresses_can_be_had(size):
        return "this process is out of address space: raise `ulimit -v`"
    if family == "sim" and resource.getrlimit(resource.RLIMIT_FSIZE)[0] in range(size):
        return "simulated memory is a file, and this process has a file size limit: raise `ulimit -f`"
    if call == "hipMemAddressReserve":
        other = ", or remove address and alignment" if is_placed else ""
        return f"this is address space, not memory: reserve less{other}"
    where = "of the host" if call in _ON_HOST else "on the device"
    return f"free memory {where}, or make the plan smaller"


def _is_limited(what: int) -> bool:
    return resource.getrlimit(what)[0] != resource.RLIM_INFINITY


def _files_can_be_opened() -> bool:
    opened = []
    try:
        opened += [os.eventfd(0) for _ in range(_SPARE_FILES)]
    except OSError:
        return False
    finally:
        for reason in opened:
            os.close(reason)
    return True


def _addresses_can_be_had(size: int) -> bool:
    try:
        mmap.mmap(-1, max(size, mmap.PAGESIZE), mmap.MAP_PRIVATE, 0).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True
