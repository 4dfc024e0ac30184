"""What a holder keeps: memory that was filled once, its bytes while it sleeps, and what replaced it."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from hipplan.holders.orders import Order
from hipplan.processes.packets import Message
from hipplan.program.backups import HOST

_FILES_MAX, _FILE_MIN, _PAGE = 16, 64 << 20, 4096
_FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_READ_ONLY = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def identities(descriptors: Iterable[int]) -> list[tuple[int, int]]:
    """What the kernel calls the files behind them; (-1, -1) of one that is closed."""
    return [_identity(descriptor) for descriptor in descriptors]


def _identity(descriptor: int) -> tuple[int, int]:
    try:
        file = os.fstat(descriptor)
    except OSError:
        return -1, -1
    return file.st_dev, file.st_ino


def file_sizes(size: int) -> list[int]:
    """The sizes of the files that so many bytes are saved in, one after the other.

    Linux lets one process at a time write to a file in memory: 2.2 GiB/s on a host where 16 files took 32 GiB/s.
    """
    each = max(_FILE_MIN, -(-size // (_FILES_MAX * _PAGE)) * _PAGE)
    return [min(each, size - at) for at in range(0, size, each)]


class Backup:
    """Where the bytes of a generation are while it sleeps."""

    def __init__(self, kept: str, size: int = 0) -> None:
        """kept: HOST or DROP. size: bytes of host memory, which the kernel provides when they are written.

        Raises OSError.
        """
        self.kept = kept
        self.size = size
        self.descriptors: list[int] = []
        """Files in memory of exactly that size in all."""
        try:
            for bytes_there in file_sizes(size) if kept == HOST else ():
                self.descriptors.append(os.memfd_create("hipplan-asleep", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
                os.ftruncate(self.descriptors[-1], bytes_there)
                fcntl.fcntl(self.descriptors[-1], fcntl.F_ADD_SEALS, _FIXED_SIZE)
        except BaseException:
            self.close()
            raise

    def complete(self) -> None:
        """All bytes are written: no process can change them any more. Raises OSError."""
        for descriptor in self.descriptors:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _READ_ONLY)

    def close(self) -> None:
        """Frees the host memory, all files at once: of 64 GiB that takes 0.9 s, one after the other 4 s."""
        threads = [threading.Thread(target=os.close, args=(descriptor,)) for descriptor in self.descriptors]
        self.descriptors = []
        for thread in threads:
            try:
                thread.start()
            except RuntimeError:  # this user may have no more threads
                thread.run()
        for thread in threads:
            if thread.ident is not None:
                thread.join()

    def described(self) -> Message:
        """For `ps`."""
        return {"kept": self.kept, "bytes": self.size}


@dataclass(eq=False)
class Generation:
    """Memory that was filled once, and what it is."""

    number: int
    made: Message
    """Its description: program, plan, digest, machine, runtime, size, bytes, bytes_by_uuid, writable (names)."""
    order: Order
    """What it was filled by."""
    descriptors: list[int]
    """Of its memory; none while it sleeps."""
    since: float = field(default_factory=time.time)
    backup: Backup | None = None
    """Where its bytes are while it sleeps."""

    def __post_init__(self) -> None:
        self.identities = identities(self.descriptors)

    @property
    def size(self) -> int:
        """Bytes of all its memory."""
        return int(self.made["size"])

    @property
    def given_back(self) -> Message:
        """Bytes that closing it frees, by device."""
        if self.backup is None:
            return dict(self.made["bytes"])
        return {HOST: self.backup.size} if self.backup.size else {}

    def described(self) -> Message:
        """For `ps`."""
        keys = ("plan", "digest", "machine", "runtime", "bytes", "writable")
        return {"generation": self.number, "since": self.since, **{key: self.made[key] for key in keys}}

    def why_not_dropped(self, access: str) -> str:
        """Why contents that are filled anew may not be these bytes; empty if they are. access: of the holder."""
        if access == "rw":
            return "attached processes may have written them (--access rw)"
        if access == "plan" and self.made["writable"]:
            return f"attached processes may have written '{self.made['writable'][0]}' (attached: rw)"
        return "their plan came from standard input" if self.order.from_stdin else ""

    def fall_asleep(self, backup: Backup) -> None:
        """Frees the memory. backup: complete, from now on this generation's."""
        self.backup = backup
        self._close_descriptors()

    def wake_up(self, descriptors: list[int]) -> None:
        """descriptors: of new memory with the same bytes. Frees the backup."""
        backup, self.backup = self.backup, None
        self.descriptors, self.identities = descriptors, identities(descriptors)
        if backup is not None:
            backup.close()

    def close(self) -> None:
        """Frees the memory, except what attached processes keep, and the backup."""
        self._close_descriptors()
        if self.backup is not None:
            self.backup.close()

    def _close_descriptors(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.pop())
        self.identities = []


class Kept:
    """The generation that counts, and those before it whose descriptors are still being sent."""

    def __init__(self) -> None:
        self.current: Generation | None = None
        self._olds: list[Generation] = []

    @property
    def asleep(self) -> Backup | None:
        """Where the bytes are; None while the memory is there."""
        return None if self.current is None else self.current.backup

    def switch(self, made: Message, order: Order, descriptors: list[int]) -> Generation:
        """What was made counts from here on."""
        old, number = self.current, 1
        if old is not None:
            self._olds.append(old)
            number = old.number + 1
        self.current = Generation(number, made, order, descriptors)
        return self.current

    def close_olds(self, busy: Container[Generation | None]) -> None:
        """Attached processes keep the memory. busy: generations whose descriptors are being sent."""
        for old in [old for old in self._olds if old not in busy]:
            old.close()
            self._olds.remove(old)

    def close(self) -> None:
        self.close_olds(())
        if self.current is not None:
            self.current.close()


def bytes_by_uuid(generations: Iterable[Generation]) -> Mapping[str, int]:
    """UUID of a device -> bytes that these generations take of it now."""
    total: dict[str, int] = {}
    for generation in generations:
        for uuid, size in generation.made["bytes_by_uuid"].items() if generation.backup is None else ():
            total[uuid] = total.get(uuid, 0) + size
    return total
