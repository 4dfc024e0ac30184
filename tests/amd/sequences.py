"""Sequences of HIP calls by seed: good arguments and bad ones, in an order that makes sense or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .arguments import BAD_DEVICES, BAD_SIZES, BUFFERS, HUGE, PAGE, PIECE, SLOTS, Chooser, names
from .player import Call

# Each gives a whole call. The number is how often it comes, against the others.

Maker = Callable[[Chooser], Call]
MAKERS: list[tuple[int, Maker]] = []


def often(weight: int) -> Callable[[Maker], Maker]:
    def add(maker: Maker) -> Maker:
        MAKERS.append((weight, maker))
        return maker

    return add


@often(8)
def reserve(c: Chooser) -> Call:
    size = c.mostly([2 * PIECE, 4 * PIECE], [PIECE, PAGE, PAGE + 1, 0, HUGE, 2**63])
    alignment = c.mostly([0], [PAGE, PIECE, 3, 1, 2048, 1 << 30])
    return ["hipMemAddressReserve", [c.out("P"), size, alignment, None, c.flags()], c.slot("reservation")]


@often(3)
def address_free(c: Chooser) -> Call:
    return ["hipMemAddressFree", [c.memory(SLOTS["reservation"]), c.any([4 * PIECE, 2 * PIECE, c.size()])]]


@often(12)
def create(c: Chooser) -> Call:
    size = c.mostly([PIECE, PIECE, 2 * PIECE, PAGE], [0, 1, 2048, PAGE + 1, PAGE + 2048, HUGE, 2**63])
    return ["hipMemCreate", [c.out("P"), size, c.prop(), c.flags()], c.slot("handle")]


@often(6)
def release(c: Chooser) -> Call:
    return ["hipMemRelease", [c.handle()]]


@often(14)
def map_(c: Chooser) -> Call:
    at = ["at", c.slot("reservation"), c.mostly([0, PIECE, 2 * PIECE, 3 * PIECE], [PAGE, 1, 4 * PIECE, -PAGE])]
    size = c.mostly([PIECE, PIECE, 2 * PIECE, PAGE], BAD_SIZES)
    return [
        "hipMemMap",
        [c.mostly([at], [c.memory()]), size, c.mostly([0], [PAGE, 1]), c.handle(), c.flags()],
        c.slot("piece"),
    ]


@often(6)
def unmap(c: Chooser) -> Call:
    return ["hipMemUnmap", [c.memory(SLOTS["piece"]), c.mostly([PIECE, PIECE, PAGE, 2 * PIECE, 4 * PIECE], BAD_SIZES)]]


@often(16)
def set_access(c: Chooser) -> Call:
    at = c.any([c.memory(SLOTS["piece"]), c.memory(SLOTS["piece"]), c.memory(SLOTS["reservation"])])
    size = c.mostly([PIECE, PIECE, PAGE, 2 * PIECE, 4 * PIECE], BAD_SIZES)
    rights = c.rights()
    count = c.mostly([len(rights[1])], [0, 1])
    return ["hipMemSetAccess", [at, size, c.mostly([rights], [None], 0.96), count]]


@often(8)
def get_access(c: Chooser) -> Call:
    return ["hipMemGetAccess", [c.out("Q"), c.location(), c.memory(SLOTS["piece"])]]


@often(3)
def granularity(c: Chooser) -> Call:
    return ["hipMemGetAllocationGranularity", [c.out("z"), c.prop(), c.mostly([0, 1], [2, -1])]]


@often(3)
def properties(c: Chooser) -> Call:
    return ["hipMemGetAllocationPropertiesFromHandle", [c.mostly([["padded", 32]], [None]), c.handle()]]


@often(4)
def export(c: Chooser) -> Call:
    return [
        "hipMemExportToShareableHandle",
        [c.mostly([["out", "d"]], [None]), c.handle(), c.mostly([1], [0, 2, 8, 77]), c.flags()],
        "f0",
    ]


@often(4)
def import_(c: Chooser) -> Call:
    return [
        "hipMemImportFromShareableHandle",
        [c.out("P"), c.mostly([["shared", "f0"]], [None]), c.mostly([1], [0, 2, 77])],
        c.slot("handle"),
    ]


@often(2)
def retain(c: Chooser) -> Call:
    return ["hipMemRetainAllocationHandle", [c.out("P"), c.memory(SLOTS["piece"])]]


@often(10)
def malloc(c: Chooser) -> Call:
    name = c.any(names("hipMalloc hipMalloc hipMalloc hipExtMallocWithFlags hipMallocAsync"))
    extra = {"hipExtMallocWithFlags": [c.mostly([0, 1], [2, 3, 4, 8])], "hipMallocAsync": [c.stream()]}
    return [name, [c.out("P"), c.size(), *extra.get(name, [])], c.slot("device")]


@often(8)
def malloc_managed(c: Chooser) -> Call:
    return ["hipMallocManaged", [c.out("P"), c.size(), c.mostly([1, 1, 2], [0, 3, 4, 8])], c.slot("managed")]


@often(8)
def host_malloc(c: Chooser) -> Call:
    flags = c.any(
        [0, 0, 1, 2, 4, 3, 8, 0x10, 0x20, 0x40000000, 0x80000000, 0x10000000, 0x20000000, 0xC0000000, 0x90000000]
    )
    name = c.any(["hipHostMalloc", "hipHostMalloc", "hipHostAlloc"])
    return [name, [c.out("P"), c.size(), flags], c.slot("pinned")]


@often(5)
def register(c: Chooser) -> Call:
    slot = c.slot("registered")
    at = c.mostly(
        [["host", PIECE * (1 + int(slot[1]))]], [["host", PAGE], ["host", 17], None, ["wild", "low"], c.memory()]
    )
    flags = c.mostly([0, 1, 2, 3, 8], [4, 0x10, 0x20, 0x80000000])
    return ["hipHostRegister", [at, c.mostly([PAGE, PIECE, 100], [0, HUGE]), flags], slot]


@often(4)
def unregister(c: Chooser) -> Call:
    return ["hipHostUnregister", [c.memory(SLOTS["registered"])]]


@often(6)
def free(c: Chooser) -> Call:
    name = c.any(names("hipFree hipFree hipFree hipHostFree hipFreeAsync"))
    return [name, [c.memory(BUFFERS), *([c.stream()] if name == "hipFreeAsync" else [])]]


@often(4)
def host_questions(c: Chooser) -> Call:
    if c.any([True, False]):
        return ["hipHostGetFlags", [c.out("u"), c.memory(BUFFERS)]]
    return ["hipHostGetDevicePointer", [c.out("P"), c.memory(BUFFERS), c.flags()]]


def answer_of(attribute: int) -> Any:
    """A context and a buffer's id are numbers that mean nothing elsewhere."""
    return ["opaque", 8] if attribute in (1, 7) else ["room", 8]


@often(14)
def pointer_questions(c: Chooser) -> Call:
    name = c.any(
        names(
            "hipPointerGetAttributes hipPointerGetAttribute hipPointerSetAttribute hipDrvPointerGetAttributes "
            "hipMemGetAddressRange hipMemPtrGetInfo "
        )
    )
    attribute = c.any(range(20))
    if name == "hipPointerGetAttributes":
        return [name, [c.mostly([["room", 32]], [None]) if c.any(range(9)) else ["room", 32], c.memory()]]
    if name == "hipPointerGetAttribute":
        return [name, [c.mostly([answer_of(attribute)], [None]), attribute, c.memory()]]
    if name == "hipPointerSetAttribute":
        return [name, [c.mostly([["value", "u", c.any([0, 1])]], [None]), c.mostly([6], [attribute]), c.memory()]]
    if name == "hipDrvPointerGetAttributes":
        asked = [c.any(range(1, 18)) for _ in range(c.any([1, 2, 3]))]
        rooms = [c.mostly([answer_of(one)], [None], 0.97) for one in asked]
        return [name, [c.mostly([len(asked)], [0]), ["array", "i", asked], ["array", "P", rooms], c.memory()]]
    if name == "hipMemGetAddressRange":
        return [name, [["out", "P"], ["out", "z"], c.memory()]]
    return [name, [c.memory(), c.out("z")]]


@often(8)
def advise(c: Chooser) -> Call:
    advice = c.mostly([1, 2, 3, 4, 5, 6, 100, 101], [0, 7, 99, 102, -1])
    at, size, device = c.memory(SLOTS["managed"]), c.size(), c.mostly([-1, 0, 1, 2], BAD_DEVICES)
    if c.any(range(4)):
        return ["hipMemAdvise", [at, size, advice, device]]
    return ["hipMemAdvise_v2", [at, size, advice, ["loc", c.mostly([1, 2], [0, 3, 4, 77]), device]]]


@often(5)
def prefetch(c: Chooser) -> Call:
    at, size, device = c.memory(SLOTS["managed"]), c.size(), c.mostly([-1, 0, 1, 2], BAD_DEVICES)
    if c.any(range(4)):
        return ["hipMemPrefetchAsync", [at, size, device, c.stream()]]
    return [
        "hipMemPrefetchAsync_v2",
        [at, size, ["loc", c.mostly([1, 2], [0, 3, 4, 77]), device], c.flags(), c.stream()],
    ]


@often(10)
def range_attribute(c: Chooser) -> Call:
    at, size = c.memory(SLOTS["managed"]), c.size()
    if c.any(range(4)):
        attribute = c.mostly([1, 2, 3, 4, 100], [0, 5, 99, 101])
        room = c.mostly([4 if attribute != 3 else c.any([4, 8, 16])], [0, 2, 8])
        return ["hipMemRangeGetAttribute", [c.mostly([["room", room]], [None]), room, attribute, at, size]]
    asked = [c.mostly([1, 2, 3, 4, 100], [0, 5], 0.97) for _ in range(c.any([1, 2, 3]))]
    rooms = [["room", 4] for _ in asked]
    return [
        "hipMemRangeGetAttributes",
        [["array", "P", rooms], ["array", "z", [4] * len(asked)], ["array", "i", asked], len(asked), at, size],
    ]


@often(2)
def attach(c: Chooser) -> Call:
    return [
        "hipStreamAttachMemAsync",
        [c.stream(), c.memory(SLOTS["managed"]), c.any([0, PIECE, c.size()]), c.mostly([1, 2, 4], [0, 3])],
    ]


@often(16)
def copy(c: Chooser) -> Call:
    (to, size), (source, _) = c.place(), c.place()
    size = c.mostly([1, PAGE, PIECE, size], [0, 0, *BAD_SIZES])
    kind = c.mostly([4, 4, 4, 0, 1, 2, 3], [5, -1, 77, 1024])
    name = c.any(
        names(
            "hipMemcpy hipMemcpy hipMemcpyAsync hipMemcpyWithStream hipMemcpyHtoD hipMemcpyDtoH hipMemcpyDtoD "
            "hipMemcpyPeer "
        )
    )
    if name == "hipMemcpyPeer":
        return [name, [to, c.device(), source, c.device(), size]]
    extra = [kind] if name in ("hipMemcpy", "hipMemcpyAsync", "hipMemcpyWithStream") else []
    return [name, [to, source, size, *extra, *([c.stream()] if "Async" in name or "With" in name else [])]]


@often(8)
def fill(c: Chooser) -> Call:
    name = c.any(names("hipMemset hipMemset hipMemsetAsync hipMemsetD8 hipMemsetD16 hipMemsetD32"))
    at, size = c.memory(), c.mostly([1, PAGE, PIECE], BAD_SIZES)
    return [name, [at, c.any([0, 7, 255]), size, *([c.stream()] if "Async" in name else [])]]


@often(6)
def set_device(c: Chooser) -> Call:
    return ["hipSetDevice", [c.device()]]


@often(8)
def peers(c: Chooser) -> Call:
    name = c.any(
        names(
            "hipDeviceCanAccessPeer hipDeviceEnablePeerAccess hipDeviceDisablePeerAccess hipDeviceGetP2PAttribute "
            "hipExtGetLinkTypeAndHopCount "
        )
    )
    if name == "hipDeviceCanAccessPeer":
        return [name, [c.out("i"), c.device(), c.device()]]
    if name == "hipDeviceEnablePeerAccess":
        return [name, [c.device(), c.flags()]]
    if name == "hipDeviceDisablePeerAccess":
        return [name, [c.device()]]
    if name == "hipDeviceGetP2PAttribute":
        return [name, [c.out("i"), c.mostly([0, 1, 2, 3], [4, -1]), c.device(), c.device()]]
    return [name, [c.device(), c.device(), c.out("u"), c.out("u")]]


@often(6)
def streams(c: Chooser) -> Call:
    name = c.any(
        names(
            "hipStreamCreateWithFlags hipStreamCreateWithPriority hipStreamDestroy hipStreamSynchronize "
            "hipStreamQuery hipStreamGetFlags hipStreamGetPriority hipStreamGetDevice hipStreamWaitEvent "
        )
    )
    if name == "hipStreamCreateWithFlags":
        return [name, [c.out("P"), c.mostly([0, 1], [2, 9])], c.slot("stream")]
    if name == "hipStreamCreateWithPriority":
        return [name, [c.out("P"), c.mostly([0, 1], [2]), c.any([-2, -1, 0, 1, 2])], c.slot("stream")]
    if name in ("hipStreamGetFlags", "hipStreamGetPriority", "hipStreamGetDevice"):
        return [name, [c.stream(), c.out("i")]]
    return [name, [c.stream(), *([c.event(), c.flags()] if name == "hipStreamWaitEvent" else [])]]


@often(5)
def events(c: Chooser) -> Call:
    name = c.any(
        ["hipEventCreateWithFlags", "hipEventRecord", "hipEventQuery", "hipEventSynchronize", "hipEventDestroy"]
    )
    if name == "hipEventCreateWithFlags":
        return [name, [c.out("P"), c.mostly([0, 1, 2, 3], [4, 8, 0x40000000, 0x80000000])], c.slot("event")]
    return [name, [c.event(), *([c.stream()] if name == "hipEventRecord" else [])]]


@often(10)
def last_errors(c: Chooser) -> Call:
    return [c.any(["hipGetLastError", "hipGetLastError", "hipPeekAtLastError", "hipExtGetLastError"]), []]


ATTRIBUTES = sorted({*range(100), *range(10000, 10022)} - {44, 50, 51, 88, 91, 10005, 10006})
"""Without those that are uninitialized, addresses, or of pools, which the simulator has not: declared.py."""


@often(6)
def device_questions(c: Chooser) -> Call:
    name = c.any(
        names(
            "hipGetDevice hipDeviceGet hipDeviceTotalMem hipDeviceGetAttribute hipMemGetInfo hipDeviceSynchronize "
            "hipGetDeviceCount hipDeviceGetPCIBusId hipDevicePrimaryCtxGetState hipCtxGetDevice hipCtxSynchronize "
            "hipGetDeviceFlags hipRuntimeGetVersion "
        )
    )
    arguments: dict[str, list[Any]] = {
        "hipGetDevice": [c.out("i")],
        "hipDeviceGet": [c.out("i"), c.device()],
        "hipDeviceTotalMem": [c.out("z"), c.device()],
        "hipDeviceGetAttribute": [
            c.out("i"),
            c.any(ATTRIBUTES),
            c.device(),
        ],
        "hipMemGetInfo": [["opaque", 8], ["out", "z"]],
        "hipGetDeviceCount": [c.out("i")],
        "hipDeviceGetPCIBusId": [c.mostly([["room", 13]], [None]), 13, c.device()],
        "hipDevicePrimaryCtxGetState": [c.device(), c.out("u"), c.out("i")],
        "hipCtxGetDevice": [c.out("i")],
        "hipGetDeviceFlags": [c.out("u")],
        "hipRuntimeGetVersion": [c.out("i")],
    }
    return [name, arguments.get(name, [])]


WEIGHTS = [weight for weight, _ in MAKERS]


ABSENT = {"6.4": ("hipMemAdvise_v2", "hipMemPrefetchAsync_v2")}


def random_sequence(seed: int, release: str, length: int = 60) -> list[Call]:
    chooser = Chooser(seed)
    makers = chooser.random.choices([maker for _, maker in MAKERS], WEIGHTS, k=length)
    calls = [maker(chooser) for maker in makers]
    return [call for call in calls if call[0] not in ABSENT.get(release, ())]
