"""The driver's calls by themselves, with their codes: what a checkup asks lies below hipplan's own objects."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_ubyte, c_ulonglong, c_ushort, c_void_p
from typing import Any

DEVICE, HOST = 1, 2
"""hipMemLocationType."""
NONE, READ, READ_WRITE = 0, 1, 3
"""hipMemAccessFlags."""
POSIX_FD = 1
DEFAULT = 4
"""hipMemcpyDefault."""
HOST_NATIVE_ATOMICS = 15
"""hipDeviceAttributeHostNativeAtomicSupported."""
P2P_NATIVE_ATOMICS = 2
"""hipDevP2PAttrNativeAtomicSupported."""
NOWHERE = 0x51A0_0000_0BAD_0000
"""No address of anything."""

_NAMES = {
    0: "Success", 1: "InvalidValue", 2: "OutOfMemory", 3: "NotInitialized", 17: "InvalidDevicePointer",
    100: "NoDevice", 101: "InvalidDevice", 201: "InvalidContext", 217: "PeerAccessUnsupported", 400: "InvalidHandle",
    500: "NotFound", 600: "NotReady", 700: "IllegalAddress", 704: "PeerAccessAlreadyEnabled",
    705: "PeerAccessNotEnabled", 709: "ContextIsDestroyed", 712: "HostMemoryAlreadyRegistered",
    713: "HostMemoryNotRegistered", 719: "LaunchFailure", 801: "NotSupported", 999: "Unknown",
}  # fmt: skip
_RIGHTS = {NONE: "none", READ: "r", READ_WRITE: "rw"}


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


class Properties(ctypes.Structure):
    _fields_ = [
        ("type", c_int), ("handle_type", c_int), ("location", Location), ("win32", c_void_p), ("compression", c_ubyte),
        ("rdma", c_ubyte), ("usage", c_ushort),
    ]  # fmt: skip


class IpcHandle(ctypes.Structure):
    """hipIpcMemHandle_t, which is passed by value."""

    _fields_ = [("reserved", c_ubyte * 64)]


class NotHere(Exception):
    """The question makes no sense on this machine; the text says why."""


class CallFailed(Exception):
    """A call that a check needs, and that did not succeed."""


class Driver:
    """A library with HIP's calls."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def code(self, call: str, *arguments: Any) -> str:
        """Makes a call. The name of its code, such as InvalidValue. Raises NotHere if the library has no such call."""
        function: Callable[..., int] | None = getattr(self._library, call, None)
        if function is None:
            raise NotHere(f"this library has no {call}")
        number = function(*arguments)
        return _NAMES.get(number, str(number))

    def must(self, call: str, *arguments: Any) -> None:
        """Makes a call that must succeed. Raises CallFailed."""
        if (code := self.code(call, *arguments)) != "Success":
            raise CallFailed(f"{call}: {code}")

    def number(self, call: str, kind: Any, *arguments: Any) -> int:
        """A call whose first parameter is its result. Raises CallFailed."""
        value = kind()
        self.must(call, byref(value), *arguments)
        return int(value.value or 0)

    def attribute(self, attribute: int, device: int) -> int:
        return self.number("hipDeviceGetAttribute", c_int, c_int(attribute), c_int(device))

    def right(self, address: int, ordinal: int, location: int = DEVICE) -> str:
        """What hipMemGetAccess returns: none, r or rw; or the name of its code."""
        flags = c_ulonglong(55)
        code = self.code("hipMemGetAccess", byref(flags), byref(Location(location, ordinal)), c_void_p(address))
        return _RIGHTS.get(flags.value, str(flags.value)) if code == "Success" else code

    def grant(self, address: int, size: int, ordinal: int, flags: int = READ_WRITE, location: int = DEVICE) -> str:
        """hipMemSetAccess for one place; the name of its code."""
        access = Access(Location(location, ordinal), flags)
        return self.code("hipMemSetAccess", c_void_p(address), c_size_t(size), byref(access), c_size_t(1))

    def must_grant(self, address: int, size: int, ordinal: int) -> None:
        """Reading and writing for a device. Raises CallFailed."""
        if (code := self.grant(address, size, ordinal)) != "Success":
            raise CallFailed(f"hipMemSetAccess: {code}")

    def write(self, address: int, data: bytes) -> str:
        return self.code("hipMemcpy", c_void_p(address), data, c_size_t(len(data)), c_int(DEFAULT))

    def read(self, address: int, size: int) -> bytes:
        """Raises CallFailed."""
        data = ctypes.create_string_buffer(size)
        self.must("hipMemcpy", data, c_void_p(address), c_size_t(size), c_int(DEFAULT))
        return data.raw

    def free_memory(self, device: int) -> int:
        """Raises CallFailed."""
        self.must("hipSetDevice", c_int(device))
        return self.number("hipMemGetInfo", c_size_t, None)

    @contextmanager
    def reservation(self, size: int, hint: int = 0) -> Iterator[int]:
        """Raises CallFailed."""
        arguments = c_size_t(size), c_size_t(0), c_void_p(hint), c_ulonglong(0)
        address = self.number("hipMemAddressReserve", c_void_p, *arguments)
        try:
            yield address
        finally:
            self.code("hipMemAddressFree", c_void_p(address), c_size_t(size))

    @contextmanager
    def allocation(self, size: int, properties: Properties) -> Iterator[int]:
        """Raises CallFailed."""
        handle = self.number("hipMemCreate", c_void_p, c_size_t(size), byref(properties), c_ulonglong(0))
        try:
            yield handle
        finally:
            self.code("hipMemRelease", c_void_p(handle))

    @contextmanager
    def mapping(self, address: int, size: int, handle: int) -> Iterator[int]:
        """Raises CallFailed."""
        self.must("hipMemMap", c_void_p(address), c_size_t(size), c_size_t(0), c_void_p(handle), c_ulonglong(0))
        try:
            yield address
        finally:
            self.code("hipMemUnmap", c_void_p(address), c_size_t(size))

    @contextmanager
    def mapped(self, size: int, properties: Properties) -> Iterator[int]:
        """New memory in a range of its own. Raises CallFailed."""
        with (
            self.reservation(size) as address,
            self.allocation(size, properties) as handle,
            self.mapping(address, size, handle),
        ):
            yield address

    @contextmanager
    def buffer(self, size: int) -> Iterator[int]:
        """Memory of hipMalloc. Raises CallFailed."""
        address = self.number("hipMalloc", c_void_p, c_size_t(size))
        try:
            yield address
        finally:
            self.code("hipFree", c_void_p(address))


def properties(ordinal: int = 0, *, location: int = DEVICE, handle_type: int = 0) -> Properties:
    """The properties of pinned memory."""
    return Properties(type=1, handle_type=handle_type, location=Location(location, ordinal))
