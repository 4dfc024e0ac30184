"""Whether a shared library is whole, read from its ELF header; the linker maps one that is cut off, and the process
ends by SIGBUS."""

from __future__ import annotations

import os
import struct

_MACHINES = {"x86_64": 62, "aarch64": 183}
"""ELF's e_machine."""
_HEADER = struct.Struct("<5s11xHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQ")
_NOTE = struct.Struct("<III")
_NOTES, _BUILD_ID, _NOTES_MAX = 4, 3, 1 << 16
"""ELF's PT_NOTE and NT_GNU_BUILD_ID; bytes of notes that are read."""
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


def build_id(path: str) -> str | None:
    """The build id of a library, which the linker computed of its contents; None if it has none, or cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            magic, _, _, _, _, table, _, _, _, entry, count = _HEADER.unpack(file.read(_HEADER.size))
            if magic != b"\x7fELF\x02":
                return None
            file.seek(table)
            segments = file.read(entry * count)
            for at in range(0, entry * count, entry):
                kind, _, offset, _, _, size = _SEGMENT.unpack_from(segments, at)
                if kind == _NOTES:
                    file.seek(offset)
                    if identity := _build_id_in(file.read(min(size, _NOTES_MAX))):
                        return identity
    except (OSError, ValueError, struct.error):
        pass
    return None


def _build_id_in(notes: bytes) -> str | None:
    at = 0
    while at + _NOTE.size <= len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, at)
        begin = at + _NOTE.size + -(-name_size // 4) * 4
        if kind == _BUILD_ID and notes[at + _NOTE.size : begin] == b"GNU\0":
            return notes[begin : begin + size].hex()
        at = begin + -(-size // 4) * 4
    return None
