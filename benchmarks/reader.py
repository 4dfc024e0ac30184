"""The yardstick of loading.py: a plain reader of files, as one writes it without any library.

Threads of Python. Each has a stream and two pieces of pinned memory; while the copy of the one is under way it reads
the next piece of the files into the other. It calls the runtime's own library, and times none of what it makes.
"""

from __future__ import annotations

import ctypes
import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

from common import MIB, Times, Variant

from hipplan.machines.runtimes import Chosen

PLAIN = ((8, 16 * MIB), (16, 8 * MIB), (28, 16 * MIB))
"""Threads of the plain reader in all, and bytes of a piece."""
PLAIN_SMALL = ((2, MIB),)
"""On the simulator."""
DEFAULT_KIND = 4
"""hipMemcpyDefault."""
PORTABLE = 1
"""hipHostMallocPortable."""


class Piece(NamedTuple):
    """Some bytes of a file, and where they go."""

    descriptor: int
    offset: int
    size: int
    address: int


class Driver:
    """The few calls that moving bytes takes."""

    def __init__(self, chosen: Chosen) -> None:
        self._library = ctypes.CDLL(chosen.runtime.path)

    def call(self, name: str, *given: object) -> None:
        code = getattr(self._library, name)(*given)
        if code != 0:
            raise RuntimeError(f"{name}: HIP error {code}")

    @contextmanager
    def pinned(self, device: int, size: int) -> Iterator[int]:
        self.call("hipSetDevice", device)
        address = ctypes.c_void_p()
        self.call("hipHostMalloc", ctypes.byref(address), ctypes.c_size_t(size), PORTABLE)
        try:
            yield address.value or 0
        finally:
            self.call("hipHostFree", address)

    @contextmanager
    def device_memory(self, device: int, size: int) -> Iterator[int]:
        self.call("hipSetDevice", device)
        address = ctypes.c_void_p()
        self.call("hipMalloc", ctypes.byref(address), ctypes.c_size_t(size))
        try:
            yield address.value or 0
        finally:
            self.call("hipFree", address)

    @contextmanager
    def stream(self, device: int) -> Iterator[ctypes.c_void_p]:
        self.call("hipSetDevice", device)
        made = ctypes.c_void_p()
        self.call("hipStreamCreateWithFlags", ctypes.byref(made), 1)
        try:
            yield made
        finally:
            self.call("hipStreamDestroy", made)

    def copy(self, to: int, source: int, size: int, stream: ctypes.c_void_p) -> None:
        given = ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), DEFAULT_KIND, stream
        self.call("hipMemcpyAsync", *given)

    def wait(self, stream: ctypes.c_void_p) -> None:
        self.call("hipStreamSynchronize", stream)


def cut(files: Sequence[tuple[int, int]], address: int, piece: int) -> Iterator[Piece]:
    """files: (descriptor, bytes), one after the other to `address`."""
    for descriptor, size in files:
        for offset in range(0, size, piece):
            now = min(piece, size - offset)
            yield Piece(descriptor, offset, now, address)
            address += now


class Reader:
    """Fills memory of devices from files; what it works with is made once."""

    def __init__(self, driver: Driver, devices: Sequence[int], threads: int, piece: int, made: ExitStack) -> None:
        """threads: of each device."""
        self.driver = driver
        self.piece = piece
        self._lanes = []
        for device in devices:
            for _ in range(threads):
                staging = made.enter_context(driver.pinned(device, 2 * piece))
                views = [
                    memoryview((ctypes.c_char * piece).from_address(staging + n * piece)).cast("B") for n in (0, 1)
                ]
                self._lanes.append((device, made.enter_context(driver.stream(device)), staging, views))

    def read(self, work: Mapping[int, Sequence[Piece]]) -> float:
        """device -> what it gets. Returns seconds."""
        taken = {device: queue.SimpleQueue[Piece]() for device in work}
        for device, pieces in work.items():
            for piece in pieces:
                taken[device].put(piece)
        failed: list[BaseException] = []
        threads = [threading.Thread(target=self._guarded, args=(failed, lane, taken[lane[0]])) for lane in self._lanes]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        if failed:
            raise failed[0]
        return took

    def _guarded(self, failed: list[BaseException], *given: object) -> None:
        try:
            self._work(*given)  # type: ignore[arg-type]
        except BaseException as error:
            failed.append(error)

    def _work(self, lane: tuple[int, ctypes.c_void_p, int, list[memoryview]], taken: queue.SimpleQueue[Piece]) -> None:
        device, stream, staging, views = lane
        self.driver.call("hipSetDevice", device)
        for number in count():
            try:
                piece = taken.get_nowait()
            except queue.Empty:
                break
            half = number % 2
            done = 0
            while done < piece.size:
                done += os.preadv(piece.descriptor, [views[half][done : piece.size]], piece.offset + done)
            self.driver.wait(stream)
            self.driver.copy(piece.address, staging + half * self.piece, piece.size, stream)
        self.driver.wait(stream)


@contextmanager
def reading(
    driver: Driver, files: Sequence[Path], shares: Sequence[tuple[int, int]], small: bool
) -> Iterator[dict[str, Variant]]:
    """The plain reader's variants. shares: device -> its part of the bytes of each file, one after the other."""
    with ExitStack() as made:
        opened_files = [made.enter_context(path.open("rb")) for path in files]
        sizes = [path.stat().st_size // len(shares) for path in files]
        places = {device: made.enter_context(driver.device_memory(device, sum(sizes))) for device, _ in shares}
        variants: dict[str, Variant] = {}
        for threads, piece in PLAIN_SMALL if small else PLAIN:
            each = max(1, threads // len(shares))
            reader = Reader(driver, list(places), each, piece, made)
            work = {
                device: [
                    part._replace(offset=part.offset + part_of * sizes[number])
                    for number, file in enumerate(opened_files)
                    for part in cut([(file.fileno(), sizes[number])], place + sum(sizes[:number]), piece)
                ]
                for (device, part_of), place in zip(shares, places.values(), strict=True)
            }
            variants[f"plain reader, {each} x {piece // MIB} MiB"] = _read(reader, work)
        yield variants


def _read(reader: Reader, work: Mapping[int, Sequence[Piece]]) -> Variant:
    return lambda: {"load": reader.read(work) * 1e6}


def best(took: Mapping[str, Times]) -> float:
    """Of the plain reader, microseconds."""
    return min(times["all"] for name, times in took.items() if name.startswith("plain reader"))
