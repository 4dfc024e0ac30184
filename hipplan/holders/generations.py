"""What a holder keeps: generations of memory, each filled once, and a backup of the bytes of one that sleeps."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from hipplan.holders.command_line import CommandLine
from hipplan.processes.packets import Message
from hipplan.program.backups import HOST

_FILES_MAX, _FILE_MIN, _PAGE = 16, 64 << 20, 4096
_FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_READ_ONLY = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_BY_RANK = ("r", "plan", "rw")
"""What an attached process may be given, the least first."""


def identities(descriptors: Iterable[int]) -> list[tuple[int, int]]:
    """(device number, inode) of the file behind each descriptor; (-1, -1) for a closed one."""
    return [_identity(descriptor) for descriptor in descriptors]


def _identity(descriptor: int) -> tuple[int, int]:
    try:
        file = os.fstat(descriptor)
    except OSError:
        return -1, -1
    return file.st_dev, file.st_ino


def file_sizes(size: int) -> list[int]:
    """The sizes of the files that a backup of so many bytes consists of.

    Linux lets one process at a time write to a file in memory: 2.2 GiB/s on a host where 16 files took 32 GiB/s.
    """
    each = max(_FILE_MIN, -(-size // (_FILES_MAX * _PAGE)) * _PAGE)
    return [min(each, size - at) for at in range(0, size, each)]


class SavedBytes:
    """The bytes of a generation that sleeps, in host memory or dropped."""

    def __init__(self, place: str, size: int = 0) -> None:
        """place: HOST or DROP. size: bytes of host memory, which the kernel provides when they are written.

        Raises OSError.
        """
        self.place = place
        self.size = size
        self.descriptors: list[int] = []
        """Files in memory, whose sizes add up to size."""
        self._freeing: list[threading.Thread] = []
        try:
            for file_size in file_sizes(size) if place == HOST else ():
                self.descriptors.append(os.memfd_create("hipplan-asleep", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
                os.ftruncate(self.descriptors[-1], file_size)
                fcntl.fcntl(self.descriptors[-1], fcntl.F_ADD_SEALS, _FIXED_SIZE)
        except BaseException:
            self.close()
            raise

    def complete(self) -> None:
        """Make the files read-only for all processes, after all bytes are written. Raises OSError."""
        for descriptor in self.descriptors:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _READ_ONLY)

    def begin_to_free(self) -> None:
        """Free the host memory on threads: for 64 GiB that takes 0.9 s, and 4 s one file after the other."""
        self._freeing = [threading.Thread(target=os.close, args=(descriptor,)) for descriptor in self.descriptors]
        self.descriptors = []
        for thread in self._freeing:
            try:
                thread.start()
            except RuntimeError:  # this user has as many threads as allowed
                thread.run()

    def close(self) -> None:
        """Free the host memory, and return when it is free."""
        if not self._freeing:
            self.begin_to_free()
        while self._freeing:
            thread = self._freeing.pop()
            if thread.ident is not None:
                thread.join()

    def status(self) -> Message:
        """Returns what `ps` shows."""
        return {"kept": self.place, "bytes": self.size}


@dataclass(eq=False)
class Generation:
    """Memory that was filled once, and its description."""

    number: int
    description: Message
    """program, plan, digest, machine, runtime, family, allocations (how many), size, bytes, bytes_by_uuid, writable
    (names)."""
    command_line: CommandLine
    """The command line of the filler that filled it."""
    descriptors: list[int]
    """Descriptors of its memory; empty while it sleeps."""
    since: float = field(default_factory=time.time)
    backup: SavedBytes | None = None
    """Its bytes while it sleeps; None while it is awake."""
    given: str = "r"
    """The most that a process has been attached with: while it is r, the memory has the bytes of its contents."""

    def __post_init__(self) -> None:
        self.identities = identities(self.descriptors)
        self._freed_behind: SavedBytes | None = None
        """The backup that wake() began to free."""

    @property
    def size(self) -> int:
        """Bytes of all its memory."""
        return int(self.description["size"])

    @property
    def freed_by_close(self) -> Message:
        """Device, or host -> bytes that close() frees."""
        if self.backup is None:
            return dict(self.description["bytes"])
        return {HOST: self.backup.size} if self.backup.size else {}

    def gives_more(self, access: str) -> bool:
        """Whether this access is more than any process has had yet."""
        return max(self.given, access, key=_BY_RANK.index) != self.given

    def give(self, access: str) -> None:
        """Note that a process is attached with this access."""
        if self.gives_more(access):
            self.given = access

    def described(self, holder: str, access: str, sees: Message | None) -> Message:
        """What a process that attaches is sent. sees: of a process without Python. Raises HeldError, as rows_for_c."""
        if sees is None:
            return {"made": self.description}
        from hipplan.holders import rows_for_c  # reads programs, which a holder does for no other process

        return rows_for_c.answer(holder, self.description, access, sees)

    def status(self) -> Message:
        """Returns what `ps` shows."""
        keys = ("plan", "digest", "machine", "runtime", "bytes", "writable")
        return {"generation": self.number, "since": self.since, **{key: self.description[key] for key in keys}}

    def why_not_refillable(self, access: str) -> str:
        """Why filling the plan again may give other bytes; empty if it gives the same. access: of the holder."""
        if access == "rw":
            return "attached processes may have written them (--access rw)"
        if access == "plan" and self.description["writable"]:
            return f"attached processes may have written '{self.description['writable'][0]}' (attached: rw)"
        return "their plan came from standard input" if self.command_line.from_stdin else ""

    def sleep(self, backup: SavedBytes) -> None:
        """Free the memory and take over the complete backup."""
        self.backup = backup
        self._close_descriptors()

    def wake(self, descriptors: list[int]) -> None:
        """Take over descriptors of new memory with the same bytes, and begin to free the backup."""
        backup, self.backup = self.backup, None
        self.descriptors, self.identities = descriptors, identities(descriptors)
        if backup is not None:
            backup.begin_to_free()
            self._freed_behind = backup

    def wait_until_freed(self) -> None:
        """Return when the backup that wake() began to free is free: the next one needs the room."""
        if self._freed_behind is not None:
            self._freed_behind.close()
            self._freed_behind = None

    def close(self) -> None:
        """Free the memory, except what attached processes map, and the backup."""
        self._close_descriptors()
        self.wait_until_freed()
        if self.backup is not None:
            self.backup.close()

    def _close_descriptors(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.pop())
        self.identities = []


class Generations:
    """The current generation of a holder, and replaced ones whose descriptors are still being sent."""

    def __init__(self) -> None:
        self.current: Generation | None = None
        self._replaced: list[Generation] = []

    @property
    def backup(self) -> SavedBytes | None:
        """The current generation's bytes while it sleeps; None while it is awake."""
        return None if self.current is None else self.current.backup

    def switch(self, description: Message, command_line: CommandLine, descriptors: list[int]) -> Generation:
        """Replace the current generation by a new one."""
        old, number = self.current, 1
        if old is not None:
            self._replaced.append(old)
            number = old.number + 1
        self.current = Generation(number, description, command_line, descriptors)
        return self.current

    def close_replaced(self, busy: Container[Generation | None]) -> None:
        """Close replaced generations; attached processes keep their memory. busy: generations that must stay open,
        because their descriptors are being sent."""
        for old in [old for old in self._replaced if old not in busy]:
            old.close()
            self._replaced.remove(old)

    def close(self) -> None:
        self.close_replaced(())
        if self.current is not None:
            self.current.close()


def bytes_by_uuid(generations: Iterable[Generation]) -> Mapping[str, int]:
    """UUID of a device -> bytes of it that these generations use now."""
    total: dict[str, int] = {}
    for generation in generations:
        for uuid, size in generation.description["bytes_by_uuid"].items() if generation.backup is None else ():
            total[uuid] = total.get(uuid, 0) + size
    return total
