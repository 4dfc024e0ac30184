"""Checksums of many bytes, by several threads: SHA-256 of the SHA-256 of each block."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

_BLOCK = 16 * 2**20
_THREADS_MAX = 32

Read = Callable[[int, int], "bytes | memoryview"]
"""Gives so many bytes from an offset on."""


def digests(read: Read, pieces: Sequence[tuple[int, int]]) -> list[str]:
    """The checksum of each piece (offset, bytes). Raises what read() raises."""
    blocks = [
        [(at, min(_BLOCK, offset + size - at)) for at in range(offset, offset + size, _BLOCK)]
        for offset, size in pieces
    ]

    def of_block(block: tuple[int, int]) -> bytes:
        return hashlib.sha256(read(*block)).digest()

    from concurrent.futures import ThreadPoolExecutor  # slow to import, and seldom needed

    with ThreadPoolExecutor(min(_THREADS_MAX, len(os.sched_getaffinity(0)))) as threads:
        try:
            done = threads.map(of_block, (block for piece in blocks for block in piece))
            return [hashlib.sha256(b"".join(islice(done, len(piece)))).hexdigest() for piece in blocks]
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
