"""One checksum of many bytes, by several threads: SHA-256 of the SHA-256 of each block."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_BLOCK = 16 * 2**20
_THREADS_MAX = 32

Read = Callable[[int, int], "bytes | memoryview"]
"""Gives so many bytes from an offset on."""


def digest(read: Read, size: int) -> str:
    """Of `size` bytes. Raises what read() raises."""

    def block(at: int) -> bytes:
        return hashlib.sha256(read(at, min(_BLOCK, size - at))).digest()

    from concurrent.futures import ThreadPoolExecutor  # slow to import, and seldom needed

    with ThreadPoolExecutor(min(_THREADS_MAX, len(os.sched_getaffinity(0)))) as threads:
        try:
            return hashlib.sha256(b"".join(threads.map(block, range(0, size, _BLOCK)))).hexdigest()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)


@contextmanager
def of_file(path: str) -> Iterator[Read]:
    """Reads a file. Raises OSError, ValueError: it is shorter than it was."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(at: int, size: int) -> bytes:
        collected = bytearray()
        while len(collected) < size:
            if not (more := os.pread(descriptor, size - len(collected), at + len(collected))):
                raise ValueError(f"{path} was truncated meanwhile")
            collected += more
        return bytes(collected)

    try:
        yield read
    finally:
        os.close(descriptor)
