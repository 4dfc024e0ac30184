"""HIP's C ABI over ctypes, as thin as can be: any library by path, codes returned and never raised.

hip = Hip("libhipsim.so")
code = hip.hipMalloc(ctypes.byref(pointer), 4096)
address = hip.get("hipMalloc", c_void_p, 4096)      # the first argument is the answer; asserts Success
with hip.reservation(8 * MIB) as address: ...       # made and undone, both asserted
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from ctypes import c_char, c_int, c_size_t, c_ubyte, c_uint, c_ulonglong, c_ushort, c_void_p
from typing import Any

KIB = 1024
MIB = 1024 * KIB
PIECE = 2 * MIB
"""Bytes of memory or addresses: a multiple of every known granularity."""
GIB = 1024 * MIB

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_DIRECTION = 0, 1, 2, 21
NO_DEVICE, INVALID_DEVICE, INVALID_CONTEXT, INVALID_HANDLE = 100, 101, 201, 400
NOT_FOUND, NOT_READY, ILLEGAL_ADDRESS, PEER_ALREADY_ENABLED, PEER_NOT_ENABLED = 500, 600, 700, 704, 705
INVALID_CONFIGURATION, INVALID_DEVICE_POINTER = 9, 17
CONTEXT_DESTROYED, NOT_REGISTERED, NOT_SUPPORTED, UNKNOWN = 709, 713, 801, 999

DEVICE, HOST = 1, 2  # hipMemLocationType
NONE, READ, READ_WRITE = 0, 1, 3  # hipMemAccessFlags
PINNED, UNCACHED = 1, 0x40000000  # hipMemAllocationType
POSIX_FD, WIN32 = 1, 2  # hipMemAllocationHandleType
MINIMUM, RECOMMENDED = 0, 1
CPU, NOWHERE = -1, -2
HOST_TO_HOST, TO_DEVICE, TO_HOST, DEVICE_TO_DEVICE, DEFAULT = range(5)
GLOBAL, ATTACH_HOST, SINGLE = 1, 2, 4

DANGLING = 0x51A0_0000_0BAD_0000
"""No handle, no stream and no address of anything."""


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class AccessDesc(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


class AllocationProp(ctypes.Structure):
    _fields_ = [
        ("type", c_int),
        ("handle_type", c_int),
        ("location", Location),
        ("win32_metadata", c_void_p),
        ("compression", c_ubyte),
        ("rdma", c_ubyte),
        ("usage", c_ushort),
    ]


class PointerAttributes(ctypes.Structure):
    _fields_ = [
        ("type", c_int),
        ("device", c_int),
        ("device_pointer", c_void_p),
        ("host_pointer", c_void_p),
        ("is_managed", c_int),
        ("flags", c_uint),
    ]


def prop(device: int = 0, *, kind: int = PINNED, handle: int = 0, location: int = DEVICE) -> AllocationProp:
    return AllocationProp(type=kind, handle_type=handle, location=Location(location, device))


def access(device: int, flags: int = READ_WRITE, location: int = DEVICE) -> AccessDesc:
    return AccessDesc(Location(location, device), flags)


class IpcHandle(ctypes.Structure):
    """hipIpcMemHandle_t and hipIpcEventHandle_t, which are passed by value."""

    _fields_ = [("reserved", c_ubyte * 64)]


_CODES: dict[str, Any] = {
    "P": c_void_p, "i": c_int, "u": c_uint, "z": c_size_t, "Q": c_ulonglong, "s": ctypes.c_char_p,
    "L": Location, "I": IpcHandle, "B": c_ubyte, "H": c_ushort,
}  # fmt: skip

_PROTOTYPES = """
hipInit u|hipRuntimeGetVersion P|hipDriverGetVersion P|hipGetLastError|hipPeekAtLastError|hipExtGetLastError
hipDrvGetErrorName iP|hipDrvGetErrorString iP|hipGetDeviceCount P|hipSetDevice i|hipGetDevice P|hipDeviceGet Pi
hipDeviceGetName Pii|hipDeviceTotalMem Pi|hipDeviceGetPCIBusId Pii|hipDeviceGetByPCIBusId Ps|hipDeviceGetUuid Pi
hipDeviceGetAttribute Pii|hipDeviceComputeCapability PPi|hipDeviceSynchronize|hipDeviceReset|hipMemGetInfo PP
hipGetDevicePropertiesR0600 Pi|hipGetDeviceProperties Pi|hipGetDeviceFlags P|hipSetDeviceFlags u
hipGetProcAddress sPiQP|hipDevicePrimaryCtxGetState iPP|hipDevicePrimaryCtxRetain Pi|hipDevicePrimaryCtxRelease i
hipCtxGetCurrent P|hipCtxSetCurrent P|hipCtxGetDevice P|hipCtxSynchronize|hipCtxEnablePeerAccess Pu
hipCtxDisablePeerAccess P
hipMemAddressReserve PzzPQ|hipMemAddressFree Pz|hipMemCreate PzPQ|hipMemRelease P|hipMemMap PzzPQ|hipMemUnmap Pz
hipMemSetAccess PzPz|hipMemGetAccess PPP|hipMemGetAllocationGranularity PPi
hipMemGetAllocationPropertiesFromHandle PP|hipMemExportToShareableHandle PPiQ
hipMemImportFromShareableHandle PPi|hipMemRetainAllocationHandle PP|hipMemMapArrayAsync PuP
hipMallocManaged Pzu|hipMemAdvise Pzii|hipMemAdvise_v2 PziL|hipMemPrefetchAsync PziP|hipMemPrefetchAsync_v2 PzLuP
hipMemRangeGetAttribute PziPz|hipMemRangeGetAttributes PPPzPz|hipStreamAttachMemAsync PPzu
hipMemGetHandleForAddressRange PPziQ|hipMemDiscardBatchAsync PPzQP|hipDrvMemDiscardBatchAsync PPzQP
hipDeviceCanAccessPeer Pii|hipDeviceEnablePeerAccess iu|hipDeviceDisablePeerAccess i|hipMemGetAddressRange PPP
hipMemcpyPeer PiPiz|hipMemcpyPeerAsync PiPizP|hipDeviceGetP2PAttribute Piii|hipExtGetLinkTypeAndHopCount iiPP
hipMalloc Pz|hipFree P|hipExtMallocWithFlags Pzu|hipMallocPitch PPzz|hipMemAllocPitch PPzzu|hipMallocAsync PzP
hipFreeAsync PP|hipHostMalloc Pzu|hipMallocHost Pz|hipMemAllocHost Pz|hipHostAlloc Pzu|hipHostFree P|hipFreeHost P
hipHostRegister Pzu|hipHostUnregister P|hipHostGetDevicePointer PPu|hipHostGetFlags PP
hipPointerGetAttributes PP|hipPointerGetAttribute PiP|hipPointerSetAttribute PiP|hipDrvPointerGetAttributes uPPP
hipMemPtrGetInfo PP|hipMemcpy PPzi|hipMemcpyAsync PPziP|hipMemcpyWithStream PPziP|hipMemcpyHtoD PPz
hipMemcpyDtoH PPz|hipMemcpyDtoD PPz|hipMemcpyHtoDAsync PPzP|hipMemcpyDtoHAsync PPzP|hipMemcpyDtoDAsync PPzP
hipMemset Piz|hipMemsetAsync PizP|hipMemsetD8 PBz|hipMemsetD8Async PBzP|hipMemsetD16 PHz|hipMemsetD16Async PHzP
hipMemsetD32 Piz|hipMemsetD32Async PizP|hipStreamCreate P|hipStreamCreateWithFlags Pu
hipStreamCreateWithPriority Pui|hipDeviceGetStreamPriorityRange PP|hipStreamDestroy P|hipStreamSynchronize P
hipStreamQuery P|hipStreamWaitEvent PPu|hipStreamAddCallback PPPu|hipLaunchHostFunc PPP|hipStreamGetFlags PP
hipStreamGetPriority PP|hipStreamGetDevice PP|hipEventCreate P|hipEventCreateWithFlags Pu|hipEventRecord PP
hipIpcGetMemHandle PP|hipIpcOpenMemHandle PIu|hipIpcCloseMemHandle P|hipIpcGetEventHandle PP|hipIpcOpenEventHandle PI
hipEventRecordWithFlags PPu|hipEventQuery P|hipEventSynchronize P|hipEventElapsedTime PPP|hipEventDestroy P
hipGetSymbolAddress PP|hipGetSymbolSize PP|hipStreamWriteValue32 PPuu|hipStreamWriteValue64 PPQu
hipStreamWaitValue32 PPuuu|hipStreamWaitValue64 PPQuQ
"""


class Hip:
    """A runtime. Every HIP function of the list above is an attribute that returns its code as an int."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.library = ctypes.CDLL(path)
        self.warm: set[int] = set()
        for entry in _PROTOTYPES.replace("\n", "|").split("|"):
            name, _, parameters = entry.partition(" ")
            if name and (function := getattr(self.library, name, None)) is not None:
                function.restype = c_int
                function.argtypes = [_CODES[code] for code in parameters]

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("hip"):
            raise AttributeError(name)
        if not hasattr(self.library, name) and not hasattr(self.library, "hipsim_configure"):
            import pytest  # not above: scripts without pytest start in half the time

            pytest.skip(f"this runtime does not export {name}")  # libhipcuda has only what hipplan calls
        function: Callable[..., int] = getattr(self.library, name)
        return function

    def get(self, function: str, kind: Any, *arguments: Any) -> Any:
        """Calls a function whose first parameter is the answer; asserts Success and returns the value."""
        value = kind()
        code = getattr(self, function)(ctypes.byref(value), *arguments)
        assert code == SUCCESS, f"{function}: {code}"
        return getattr(value, "value", value)

    def attribute(self, number: int, device: int = 0) -> int:
        value: int = self.get("hipDeviceGetAttribute", c_int, number, device)
        return value

    @property
    def version(self) -> tuple[int, int]:
        number = self.get("hipRuntimeGetVersion", c_int)
        return number // 10_000_000, number // 100_000 % 100

    @property
    def devices(self) -> int:
        count = c_int()
        self.hipGetDeviceCount(ctypes.byref(count))
        return count.value

    def granularity(self, device: int = 0, option: int = MINIMUM) -> int:
        value: int = self.get("hipMemGetAllocationGranularity", c_size_t, ctypes.byref(prop(device)), option)
        return value

    def free_memory(self) -> int:
        """Of the current device. What its first copy takes for good is taken before: 144 MiB on AMD's 6.4."""
        device = self.get("hipGetDevice", c_int)
        if device not in self.warm and not hasattr(self.library, "hipsim_configure"):
            self.warm.add(device)
            with self.buffer(4096) as address:
                self.write(address, b"first")
        value: int = self.get("hipMemGetInfo", c_size_t, None)
        return value

    def write(self, address: int, data: bytes) -> int:
        return self.hipMemcpy(address, ctypes.create_string_buffer(data, len(data)), len(data), TO_DEVICE)

    def read(self, address: int, size: int) -> bytes:
        out = (c_char * size)()
        assert self.hipMemcpy(out, address, size, TO_HOST) == SUCCESS
        return out.raw

    # Objects that are undone at the end; each undo must succeed.

    @contextlib.contextmanager
    def reservation(self, size: int, alignment: int = 0, hint: int = 0) -> Iterator[int]:
        address = self.get("hipMemAddressReserve", c_void_p, size, alignment, hint, 0)
        yield address
        assert self.hipMemAddressFree(address, size) == SUCCESS

    @contextlib.contextmanager
    def allocation(self, size: int, properties: AllocationProp | None = None) -> Iterator[int]:
        properties = properties or prop()
        if properties.location.type == DEVICE:
            self.hipSetDevice(properties.location.id)
        handle = self.get("hipMemCreate", c_void_p, size, ctypes.byref(properties), 0)
        yield handle
        assert self.hipMemRelease(handle) == SUCCESS

    @contextlib.contextmanager
    def mapping(self, address: int, size: int, handle: int, *grants: AccessDesc) -> Iterator[int]:
        code = self.hipMemMap(address, size, 0, handle, 0)
        assert code == SUCCESS, f"hipMemMap: {code}"
        for grant in grants:
            assert self.hipMemSetAccess(address, size, ctypes.byref(grant), 1) == SUCCESS
        yield address
        assert self.hipMemUnmap(address, size) == SUCCESS

    @contextlib.contextmanager
    def mapped(self, size: int, *grants: AccessDesc, device: int = 0) -> Iterator[int]:
        """A reservation filled by one allocation of `device`."""
        with (
            self.reservation(size) as address,
            self.allocation(size, prop(device)) as handle,
            self.mapping(address, size, handle, *grants),
        ):
            yield address

    @contextlib.contextmanager
    def buffer(self, size: int) -> Iterator[int]:
        address = self.get("hipMalloc", c_void_p, size)
        yield address
        assert self.hipFree(address) == SUCCESS

    @contextlib.contextmanager
    def pinned(self, size: int, flags: int = 0) -> Iterator[int]:
        address = self.get("hipHostMalloc", c_void_p, size, flags)
        yield address
        assert self.hipHostFree(address) == SUCCESS

    @contextlib.contextmanager
    def managed(self, size: int, flags: int = GLOBAL) -> Iterator[int]:
        address = self.get("hipMallocManaged", c_void_p, size, flags)
        yield address
        assert self.hipFree(address) == SUCCESS

    @contextlib.contextmanager
    def stream(self, flags: int = 0) -> Iterator[int]:
        stream = self.get("hipStreamCreateWithFlags", c_void_p, flags)
        yield stream
        assert self.hipStreamDestroy(stream) == SUCCESS

    @contextlib.contextmanager
    def event(self, flags: int = 0) -> Iterator[int]:
        event = self.get("hipEventCreateWithFlags", c_void_p, flags)
        yield event
        assert self.hipEventDestroy(event) == SUCCESS
