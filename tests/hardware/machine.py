"""What the tests here share: the runtime by its C ABI, work done by one device, and what a process holds."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import re
import sys
from collections.abc import Iterable, Iterator
from ctypes import c_int, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hipplan import _core
from hipplan.machines.runtimes import Chosen
from tests.descriptors import opened

MIB = 2**20
DEFAULT_KIND = 4  # hipMemcpyDefault: the addresses tell
_ADDRESS_OF = re.compile(r"(?:ptr=|handle=|stream=|bytes at )(0x[0-9a-f]+)")
_SIZE_OF = re.compile(r"(?:size=|of )(\d+)")


@dataclass(frozen=True)
class Held:
    """What this process holds of the machine."""

    free: tuple[int, ...]
    """Bytes free on each device."""
    files: tuple[str, ...]
    """Names of the files that are open: one that is left open is named by the test that fails."""

    @staticmethod
    def by(machine: Machine) -> Held:
        free = tuple(machine.runtime.memory_info(device)[0] for device in range(machine.count))
        return Held(free, tuple(sorted(name for _, name in opened())))

    def same(self, other: Held, slack: int) -> bool:
        """Equal, but for `slack` bytes of device memory that a driver may keep for later or take up."""
        near = all(abs(a - b) <= slack for a, b in zip(self.free, other.free, strict=True))
        return near and len(self.files) == len(other.files)


class Machine:
    """The runtime under test, and calls that a plan does not make: what an experiment would do with its memory."""

    def __init__(self, chosen: Chosen) -> None:
        self.chosen = chosen
        self.runtime = chosen.runtime
        self.hip = ctypes.CDLL(self.runtime.path)
        self.count = self.runtime.device_count()
        self.simulated = hasattr(self.hip, "hipsim_ledger")
        self.slack = 0
        """Bytes of free device memory that are not the plan's: see `wavers`."""
        self.new_descriptors = False
        """Whether a library opened files for itself."""

    @property
    def wanted(self) -> str:
        """The same runtime, as hipplan.apply takes it."""
        return self.runtime.path if os.sep in self.runtime.path else self.chosen.kind

    def is_amd_before(self, major: int, minor: int) -> bool:
        """Whether it is AMD's library, of an earlier release."""
        return self.chosen.kind == "amd" and self.runtime.version < major * 10_000_000 + minor * 100_000

    @property
    def linked(self) -> int:
        """How many devices, from the first on, all reach one another."""
        reach = self.runtime.can_access_peer
        apart = (n for n in range(1, self.count) if not all(reach(n, m) and reach(m, n) for m in range(n)))
        return next(apart, self.count)

    @property
    def kept_by_driver(self) -> int:
        """Bytes of free device memory that change by themselves once PyTorch has run in this process: NVIDIA's driver
        then keeps blocks that small memory comes out of."""
        return 4 * MIB if not self.simulated and "torch" in sys.modules else 0

    def wavers(self, size: int = 256 * MIB) -> None:
        """Free device memory is no exact measure in this test: the driver keeps pages of managed memory for later
        (up to 117 MiB were seen on H200 with 12 MiB managed), and a framework's kernels are loaded on first use.
        """
        if not self.simulated:
            self.slack = size

    def call(self, function: str, *arguments: Any) -> None:
        code = getattr(self.hip, function)(*arguments)
        assert code == 0, f"{function} -> {code}"

    def disarm(self) -> None:
        """Ends the faults. A fault may also have kept the caller's current device from being set back."""
        self.runtime.arm_faults("")
        self.call("hipSetDevice", 0)
        _core.take_leaks()

    @contextlib.contextmanager
    def current(self, device: int) -> Iterator[None]:
        before = c_int()
        self.call("hipGetDevice", ctypes.byref(before))
        self.call("hipSetDevice", device)
        yield
        self.call("hipSetDevice", before.value)

    @contextlib.contextmanager
    def scratch(self, device: int, size: int) -> Iterator[int]:
        """Memory of one device alone, with that device current."""
        address = c_void_p()
        with self.current(device):
            self.call("hipMalloc", ctypes.byref(address), c_size_t(size))
            yield int(address.value or 0)
            self.call("hipFree", address)

    def make_streams(self, device: int, count: int) -> None:
        """So many at once, and then none."""
        streams = [c_void_p() for _ in range(count)]
        with self.current(device):
            for stream in streams:
                self.call("hipStreamCreateWithFlags", ctypes.byref(stream), 1)
            for stream in streams:
                self.call("hipStreamDestroy", stream)

    def copy(self, to: int, source: int, size: int) -> None:
        """On the current device's null stream, awaited."""
        self.call("hipMemcpyAsync", c_void_p(to), c_void_p(source), c_size_t(size), DEFAULT_KIND, None)
        self.call("hipStreamSynchronize", None)

    def write_by(self, device: int, address: int, data: bytes) -> None:
        """The device puts data there, out of its own memory."""
        host = ctypes.create_string_buffer(data, len(data))
        with self.scratch(device, len(data)) as own:
            self.copy(own, ctypes.addressof(host), len(data))
            self.copy(address, own, len(data))

    def read_by(self, device: int, address: int, size: int) -> bytes:
        """The device fetches what is there into its own memory."""
        host = ctypes.create_string_buffer(size)
        with self.scratch(device, size) as own:
            self.copy(own, address, size)
            self.copy(ctypes.addressof(host), own, size)
        return host.raw

    def free_retired(self, failures: Iterable[Any]) -> None:
        """Frees exactly what an undo reported as lost, so that anything unreported still shows.

        Waits first, which the faults may have kept the undo from: AMD's hipFree waits for the memory's own device only,
        and a prefetch that runs for another one would come too late.
        """
        for device in range(self.count):
            with self.current(device):
                self.call("hipDeviceSynchronize")
        for lost in failures:
            if not lost.lost or lost.is_change:  # rights of freed objects need no undo
                continue
            if "peer access" in lost.identity:
                device, peer = map(int, re.findall(r"device (\d+)", lost.identity))
                with self.current(device):
                    self.call("hipDeviceDisablePeerAccess", peer)
                continue
            message = f"{lost.arguments} {lost.identity}"  # a call that was not made has no arguments
            result = _ADDRESS_OF.search(message)
            assert result, lost
            pointer = c_void_p(int(result[1], 16))
            if lost.call in ("hipMemUnmap", "hipMemAddressFree"):
                size = _SIZE_OF.search(message)
                assert size, lost
                self.call(lost.call, pointer, c_size_t(int(size[1])))
            else:
                self.call(lost.call, pointer)

    def alive(self) -> int:
        """Objects alive, where the runtime keeps a ledger; else 0: there free memory must tell."""
        if not self.simulated:
            return 0
        ledger = json.loads(self.runtime.ledger())
        nouns = ("allocations", "reservations", "mappings", "buffers", "streams", "peers")
        return sum(len(ledger[noun]) for noun in nouns)


def pattern(size: int, seed: object) -> bytes:
    return random.Random(str(seed)).randbytes(size)


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
