"""Whether a shared library is whole, read from its ELF header; the linker maps one that is cut off, and the process
ends by SIGBUS."""

from __future__ import annotations

import os
import struct

_MACHINES = {"x86_64": 62, "aarch64": 183}
"""ELF's e_machine."""
_HEADER = struct.Struct("<5s11xHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQ")
_SHARED = 3
"""ELF's e_type of a shared library."""


def fault_of(path: str) -> str:
    """Why the linker cannot use the file, as the end of a sentence about it; empty if it can."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            size = os.fstat(file.fileno()).st_size
            magic, kind, machine, _, _, table, _, _, _, entry, count = _HEADER.unpack(file.read(_HEADER.size))
            if magic != b"\x7fELF\x02" or kind != _SHARED:
                return "is no shared library of 64 bits"
            if machine != _MACHINES.get(os.uname().machine, machine):
                return "is for another processor"
            file.seek(table)
            segments = file.read(entry * count)
        needed = 0
        for at in range(0, entry * count, entry):
            _, _, offset, _, _, bytes_in_file = _SEGMENT.unpack_from(segments, at)
            needed = max(needed, offset + bytes_in_file)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except (ValueError, struct.error):
        return "is no whole shared library"
    return f"is cut off: it has {size} of {needed} bytes" if needed > size else ""
