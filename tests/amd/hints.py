"""Asks a HIP library for ranges at addresses of all kinds: python -m tests.amd.hints LIBRARY.

Prints JSON: kind of address -> whether the library took it.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import c_int, c_size_t, c_ulonglong, c_void_p
from pathlib import Path

MIB = 2**20
SIZE = 2 * MIB
FREE = 0x6ABB_0000_0000
MAP_PRIVATE, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE = 0x2, 0x20, 0x100000
READ_WRITE = 3
OWN_BYTES = 2**32
"""AMD's library reserves as much for each GPU, and uses it only for itself."""


class Library:
    def __init__(self, path: str) -> None:
        self._hip = ctypes.CDLL(path)

    def reserve(self, size: int, hint: int) -> int:
        made = c_void_p()
        code = self._hip.hipMemAddressReserve(
            ctypes.byref(made), c_size_t(size), c_size_t(0), c_void_p(hint), c_ulonglong(0)
        )
        assert code == 0, (hex(hint), code)
        return made.value or 0

    def free(self, address: int, size: int) -> None:
        assert self._hip.hipMemAddressFree(c_void_p(address), c_size_t(size)) == 0

    def takes(self, hint: int, size: int = SIZE) -> bool:
        address = self.reserve(size, hint)
        self.free(address, size)
        return address == hint

    def malloc(self, size: int) -> int:
        made = c_void_p()
        assert self._hip.hipMalloc(ctypes.byref(made), c_size_t(size)) == 0
        return made.value or 0


def map_at(address: int, rights: int) -> None:
    """Memory of the program itself."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = c_void_p
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
    got = libc.mmap(c_void_p(address), c_size_t(SIZE), c_int(rights), c_int(flags), c_int(-1), ctypes.c_long(0))
    assert got == address


def own_addresses() -> list[int]:
    lines = (line.split() for line in Path("/proc/self/maps").read_text().splitlines())
    ranges = ([int(end, 16) for end in line[0].split("-")] for line in lines if line[1] == "---p")
    return [begin for begin, end in ranges if end - begin == OWN_BYTES]


def answers(library: Library) -> dict[str, bool]:
    out = {}
    out["free"] = library.takes(FREE)
    out["freed a moment ago"] = library.takes(FREE)
    out["a free page"] = library.takes(FREE + 4096, 4096)
    out["free, 16 GiB"] = library.takes(FREE, 16 << 30)
    out["between two pages"] = library.takes(FREE + 1234)
    taken = library.reserve(SIZE, FREE)
    out["a range"] = library.takes(FREE)
    out["the end of a range"] = library.takes(FREE + MIB)
    out["before a range, and its beginning"] = library.takes(FREE - MIB)
    out["behind a range"] = library.takes(FREE + SIZE)
    out["before a range"] = library.takes(FREE - SIZE)
    library.free(taken, SIZE)
    map_at(FREE, READ_WRITE)
    out["the program's memory"] = library.takes(FREE)
    map_at(FREE + SIZE, 0)
    out["the program's addresses without memory"] = library.takes(FREE + SIZE)
    memory = library.malloc(SIZE)
    out["hipMalloc's memory"] = library.takes(memory)
    out["beyond all addresses"] = any(library.takes(hint) for hint in (2**47, 2**57, 2**64 - 4096))
    if own := own_addresses():
        out["the library's own"] = any(library.takes(begin + into) for begin in own for into in (0, OWN_BYTES // 2))
    return out


if __name__ == "__main__":
    print(json.dumps(answers(Library(sys.argv[1]))))
