"""A client of the amdgpu driver in a few lines of ctypes: what AMD's libraries do, without AMD's libraries."""

from __future__ import annotations

import ctypes
import json
import os
import time
from collections.abc import Callable, Sequence
from ctypes import c_char, c_int32, c_uint32, c_uint64, c_void_p, sizeof
from typing import Any

MIB = 2**20
VRAM, GTT, USERPTR, DOORBELL = 1, 2, 4, 8
WRITABLE = 1 << 31
SDMA, COMPUTE_AQL, SDMA_BY_ENGINE = 1, 2, 4

libc = ctypes.CDLL(None, use_errno=True)
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, c_void_p]


def _struct(name: str, **fields: Any) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


CALLS: dict[str, tuple[int, Any]] = {
    "get_version": (0x01, _struct("Version", major=c_uint32, minor=c_uint32)),
    "create_queue": (0x02, _struct(
        "Queue", ring=c_uint64, write_pointer=c_uint64, read_pointer=c_uint64, doorbell_offset=c_uint64,
        ring_size=c_uint32, gpu_id=c_uint32, queue_type=c_uint32, percentage=c_uint32, priority=c_uint32,
        queue_id=c_uint32, eop=c_uint64, eop_size=c_uint64, context=c_uint64, context_size=c_uint32, stack=c_uint32,
        engine=c_uint32, pad=c_uint32)),
    "destroy_queue": (0x03, _struct("DestroyQueue", queue_id=c_uint32, pad=c_uint32)),
    "create_event": (0x08, _struct(
        "Event", page_offset=c_uint64, trigger=c_uint32, type=c_uint32, auto_reset=c_uint32, node=c_uint32,
        event_id=c_uint32, slot=c_uint32)),
    "destroy_event": (0x09, _struct("DestroyEvent", event_id=c_uint32, pad=c_uint32)),
    "set_event": (0x0A, _struct("SetEvent", event_id=c_uint32, pad=c_uint32)),
    "reset_event": (0x0B, _struct("ResetEvent", event_id=c_uint32, pad=c_uint32)),
    "wait_events": (0x0C, _struct(
        "Wait", events=c_uint64, count=c_uint32, all=c_uint32, timeout=c_uint32, result=c_uint32)),
    "get_process_apertures_new": (0x14, _struct("Apertures", pointer=c_uint64, count=c_uint32, pad=c_uint32)),
    "alloc_memory_of_gpu": (0x16, _struct(
        "Alloc", address=c_uint64, size=c_uint64, handle=c_uint64, offset=c_uint64, gpu_id=c_uint32, flags=c_uint32)),
    "free_memory_of_gpu": (0x17, _struct("Free", handle=c_uint64)),
    "map_memory_to_gpu": (0x18, _struct(
        "Map", handle=c_uint64, ids=c_uint64, count=c_uint32, success=c_uint32)),
    "unmap_memory_from_gpu": (0x19, _struct(
        "Unmap", handle=c_uint64, ids=c_uint64, count=c_uint32, success=c_uint32)),
    "get_dmabuf_info": (0x1C, _struct(
        "DmabufInfo", size=c_uint64, metadata=c_uint64, metadata_size=c_uint32, gpu_id=c_uint32, flags=c_uint32,
        descriptor=c_uint32)),
    "import_dmabuf": (0x1D, _struct(
        "Import", address=c_uint64, handle=c_uint64, gpu_id=c_uint32, descriptor=c_uint32)),
    "set_xnack_mode": (0x21, _struct("Xnack", enabled=c_int32)),
    "available_memory": (0x23, _struct("Available", available=c_uint64, gpu_id=c_uint32, pad=c_uint32)),
    "export_dmabuf": (0x24, _struct("Export", handle=c_uint64, flags=c_uint32, descriptor=c_uint32)),
    "ipc_import_handle": (0x80, _struct(
        "IpcImport", handle=c_uint64, address=c_uint64, offset=c_uint64, shared=c_uint32 * 4, gpu_id=c_uint32,
        flags=c_uint32)),
    "ipc_export_handle": (0x81, _struct(
        "IpcExport", handle=c_uint64, shared=c_uint32 * 4, gpu_id=c_uint32, flags=c_uint32)),
}  # fmt: skip
METADATA = _struct("Metadata", flags=c_uint64, tiling=c_uint64, size=c_uint32, words=c_uint32 * 64)
EVENT_DATA = _struct("EventData", age=c_uint64, rest=c_uint64 * 3, extension=c_uint64, event_id=c_uint32, pad=c_uint32)
SVM_HEAD = _struct("Svm", start=c_uint64, size=c_uint64, op=c_uint32, count=c_uint32)


class Driver:
    """/dev/kfd, open."""

    def __init__(self) -> None:
        self.file = os.open("/dev/kfd", os.O_RDWR | os.O_CLOEXEC)
        size = 6 * 8 + 8  # kfd_process_device_apertures
        apertures = bytearray(64 * size)
        ask = self.call("get_process_apertures_new", pointer=ctypes.addressof(c_char.from_buffer(apertures)), count=64)
        self.kept: list[Any] = []
        self.gpus = [int.from_bytes(apertures[i * size + 48 : i * size + 52], "little") for i in range(ask.count)]

    def call(self, name: str, **fields: Any) -> Any:
        """An ioctl by its name; its arguments as they come back. Raises OSError."""
        number, kind = CALLS[name]
        arguments = kind(**fields)
        return self._ioctl(number, arguments, sizeof(arguments))

    def attributes(self, start: int, size: int, op: int, *pairs: tuple[int, int]) -> list[tuple[int, int]]:
        """The ioctl about managed memory: pairs of type and value, as they come back."""
        body = (c_uint32 * (6 + 2 * len(pairs)))()
        head = SVM_HEAD(start=start, size=size, op=op, count=len(pairs))
        ctypes.memmove(body, ctypes.byref(head), sizeof(head))
        for index, (kind, value) in enumerate(pairs):
            body[6 + 2 * index], body[7 + 2 * index] = kind, value
        self._ioctl(0x20, body, sizeof(body))
        return [(body[6 + 2 * i], body[7 + 2 * i]) for i in range(len(pairs))]

    def _ioctl(self, number: int, arguments: Any, size: int) -> Any:
        request = 3 << 30 | size << 16 | ord("K") << 8 | number
        if libc.ioctl(self.file, request, ctypes.byref(arguments)):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return arguments

    def allocate(self, size: int, address: int, gpu: int = 0, flags: int = VRAM | WRITABLE, offset: int = 0) -> int:
        wanted = {"size": size, "address": address, "gpu_id": self.gpus[gpu], "flags": flags, "offset": offset}
        return int(self.call("alloc_memory_of_gpu", **wanted).handle)

    def map(self, handle: int, *gpus: int, call: str = "map_memory_to_gpu") -> None:
        ids = (c_uint32 * len(gpus))(*(self.gpus[gpu] for gpu in gpus))
        self.call(call, handle=handle, ids=ctypes.addressof(ids), count=len(gpus))

    def unmap(self, handle: int, *gpus: int) -> None:
        self.map(handle, *gpus, call="unmap_memory_from_gpu")

    def free(self, handle: int) -> None:
        self.call("free_memory_of_gpu", handle=handle)

    def host(self, text: bytes) -> tuple[int, Any]:
        """Memory of this process that all GPUs have, filled; its handle, and the bytes."""
        pages = -(-len(text) // 4096) * 4096
        whole = (c_char * (pages + 4096)).from_buffer(bytearray(pages + 4096))
        start = -(-ctypes.addressof(whole) // 4096) * 4096
        inside = (c_char * pages).from_address(start)
        inside.raw = text.ljust(pages, b"\0")
        self.kept.append(whole)
        handle = self.allocate(pages, start, flags=USERPTR | WRITABLE, offset=start)
        self.map(handle, *range(len(self.gpus)))
        return handle, inside


class Queue:
    """A queue of SDMA or AQL packets."""

    def __init__(self, driver: Driver, gpu: int = 0, kind: int = SDMA) -> None:
        self.driver, self.size = driver, 65536
        self.handle, whole = driver.host(b"\0" * (self.size + 4096))
        start = ctypes.addressof(whole)
        self.ring = (c_char * self.size).from_address(start)
        self.pointers = (c_uint64 * 2).from_address(start + self.size)
        made = driver.call(
            "create_queue", ring=start, ring_size=self.size, write_pointer=start + self.size,
            read_pointer=start + self.size + 8, gpu_id=driver.gpus[gpu], queue_type=kind,
        )  # fmt: skip
        self.id = made.queue_id
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))  # outlives Python: the driver's thread reads it to the end

    def submit(self, packet: bytes, units: int) -> None:
        unit = len(packet) // units
        at = self.pointers[0] * unit % self.size
        self.driver.call(
            "get_version"
        )  # by whose lock ThreadSanitizer knows that this thread has read and written before
        self.ring[at : at + len(packet)] = packet  # no memmove, which ThreadSanitizer watches
        self.pointers[0] += units

    def copy(self, to: int, source: int, size: int) -> None:
        """One SDMA packet, done when this returns."""
        words = (1, size - 1, 0, source & 0xFFFFFFFF, source >> 32, to & 0xFFFFFFFF, to >> 32)
        self.submit(b"".join(word.to_bytes(4, "little") for word in words), 28)
        self.wait()

    def fill(self, to: int, value: int, size: int) -> None:
        """One SDMA packet that writes the same byte everywhere, done when this returns."""
        words = (2 << 30 | 11, to & 0xFFFFFFFF, to >> 32, value * 0x01010101, size - 4)
        self.submit(b"".join(word.to_bytes(4, "little") for word in words), 20)
        self.wait()

    def wait(self) -> None:
        until(lambda: self.pointers[1] == self.pointers[0])
        self.driver.call("get_version")  # what the GPU wrote is seen by now: ThreadSanitizer knows by the driver's lock

    def destroy(self) -> None:
        self.driver.call("destroy_queue", queue_id=self.id)
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(self))
        self.driver.unmap(self.handle, *range(len(self.driver.gpus)))
        self.driver.free(self.handle)


def until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.001)


def ledger() -> dict[str, Any]:
    libc.kfdsim_ledger.restype = ctypes.c_size_t
    size = libc.kfdsim_ledger(None, ctypes.c_size_t(0)) + 4096
    text = ctypes.create_string_buffer(size)
    libc.kfdsim_ledger(text, ctypes.c_size_t(size))
    contents: dict[str, Any] = json.loads(text.value)
    return contents


def alive(contents: dict[str, Any], but: Sequence[str] = ()) -> dict[str, Any]:
    """What of a ledger is not empty."""
    return {name: value for name, value in contents.items() if value and name not in ("gpus", "descriptors", *but)}
