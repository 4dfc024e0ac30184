"""Where the simulator answers otherwise than AMD's library, each with its reason and with calls that show it.

A row whose calls show no such difference any more fails the suite, so the table can neither hide a mistake nor grow
stale. `DEATHS` are calls that AMD's process does not survive; the simulator answers them and goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .arguments import PAGE, PIECE
from .player import Call

ALL = ("6.4", "7.2")


@dataclass(frozen=True)
class Declared:
    function: str
    what: str
    amd: Any
    """The code that AMD's library returns, and the simulator's."""
    here: Any
    why: str
    shown_by: list[Call]
    """The last call differs."""
    releases: tuple[str, ...] = ALL
    holds: Callable[[list[Any]], bool] = lambda arguments: True
    """Which arguments the row is about."""
    family: str = ""
    """Where it is about more functions: how their names begin."""
    made_by: str = ""
    """Where it is only about memory that this function made."""

    def is_about(self, call: Call, before: list[Call]) -> bool:
        named = call[0].startswith(self.family) if self.family else call[0] == self.function
        made = [maker[2] for maker in before if maker[0] == self.made_by and len(maker) == 3]
        passed = [argument[1] for argument in call[1] if isinstance(argument, list) and argument[0] == "at"]
        return named and self.holds(call[1]) and (not self.made_by or not set(made).isdisjoint(passed))


@dataclass(frozen=True)
class Death:
    """The last of these calls ends AMD's process. The simulator returns `here`."""

    reason: str
    here: int
    shown_by: list[Call]
    releases: tuple[str, ...] = ALL
    processes: int = 1
    """Of so many processes at least one ends: what lies in their memory decides. The others get `here`, too."""


def mapped(handle_type: int = 0, device: int = 0) -> list[Call]:
    """A piece m0 of h0 at the start of r0."""
    return [
        ["hipMemAddressReserve", [["out", "P"], 4 * PIECE, 0, None, 0], "r0"],
        ["hipMemCreate", [["out", "P"], PIECE, ["prop", 1, handle_type, 1, device], 0], "h0"],
        ["hipMemMap", [["at", "r0", 0], PIECE, 0, ["at", "h0", 0], 0], "m0"],
    ]


APART: list[Call] = [["hipSetDevice", [2]], ["hipMalloc", [["out", "P"], PIECE], "b0"], ["hipSetDevice", [0]]]
"""Memory of a device that has no link to the current one."""
READ_WRITE = 3
HOST_MEMORY = 64 << 30
"""Of tests/amd/machine.yaml."""
POOLED: list[Call] = [["hipMallocAsync", [["out", "P"], PIECE, None], "b0"], ["hipFree", [["at", "b0", 0]]]]
POOLED_AGAIN: list[Call] = [
    ["hipMallocAsync", [["out", "P"], 5 * PIECE, None], "b0"], ["hipFreeAsync", [["at", "b0", 0], None]],
    ["hipMallocAsync", [["out", "P"], PAGE, None], "b1"],
]  # fmt: skip
LARGER = "AMD's pool gives what was freed into it and is large enough, all of it; the simulator has no pools"
BUFFER: Call = ["hipMalloc", [["out", "P"], PIECE], "b0"]


def attribute(number: int, device: int = 0) -> list[Call]:
    return [["hipDeviceGetAttribute", [["out", "i"], number, device]]]


def asks(*numbers: int) -> Callable[[list[Any]], bool]:
    return lambda arguments: arguments[1] in numbers


DECLARED = (
    Declared(
        "hipMemSetAccess", "flags that are none, up to 6.x", 0, 1,
        "AMD's library takes any number and gives it back from hipMemGetAccess; no program can mean it",
        [*mapped(), ["hipMemSetAccess", [["at", "m0", 0], PIECE, ["access", [[1, 0, 8]]], 1]]], ("6.4",),
        holds=lambda arguments: any(flags not in (0, 1, 3) for _, _, flags in arguments[2][1]),
    ),
    Declared(
        "hipMemSetAccess", "a range that wraps round, up to 6.x", 0, 1, "ROCr adds without looking for the end",
        [["hipMemAddressReserve", [["out", "P"], 4 * PIECE, 0, None, 0], "r0"],
         ["hipMemSetAccess", [["wild", "last"], PIECE, ["access", [[1, 1, 0]]], 1]]], ("6.4",),
        holds=lambda arguments: arguments[0] == ["wild", "last"] or arguments[1] >= 2**63,
    ),
    Declared(
        "hipMemExportToShareableHandle", "of a handle made with type None, as type None", 0, 1,
        "AMD's library hands a descriptor out; the simulator has one for memory that asked to be shareable alone",
        [*mapped(), ["hipMemExportToShareableHandle", [["out", "d"], ["at", "h0", 0], 0, 0], "f0"]],
        holds=lambda arguments: arguments[2] == 0,
    ),
    Declared(
        "hipDeviceGetAttribute", "pools of memory", 0, 0, "the simulator has hipMallocAsync and no pools of one's own",
        attribute(88), holds=asks(88, 91),
    ),
    Declared(
        "hipDeviceGetAttribute", "addresses of registers", 0, 0, "AMD's own, which nothing answers here",
        attribute(10005), holds=asks(10005, 10006),
    ),
    Declared(
        "hipDeviceGetAttribute", "sizes of textures on a device without images", 0, 0,
        "AMD's library does not write them, and returns what lies in its memory", attribute(51), holds=asks(44, 50, 51),
    ),
    Declared(
        "hipMallocManaged", "more than the host has", 0, 2, "the kernel decides, and the stand-in driver says yes",
        [["hipMallocManaged", [["out", "P"], 2**40, 1], "b0"]], holds=lambda arguments: arguments[1] > HOST_MEMORY,
    ),
    Declared(
        "hipPointerGetAttributes", "of a mapping of memory that was made for another device than the current one, "
        "without a link between the two, since 7.1", 2, 0,
        "AMD's library takes the memory from one and the address for the other's, and cannot map it there",
        [["hipSetDevice", [2]], *mapped(device=1), ["hipPointerGetAttributes", [["room", 32], ["at", "m0", 0]]]],
        ("7.2",),
    ),
    Declared(
        "hipFree", "of mapped virtual memory", 0, 1,
        "AMD's library forgets the piece, and 6.4 crashes at its hipMemUnmap; the simulator keeps what a program lost",
        [*mapped(), ["hipFree", [["at", "m0", 0]]]], ("7.2",),
    ),
    Declared(
        "hipMemRelease", "after hipMemUnmap of another size, up to 6.x", 0, 1,
        "AMD's library then frees memory that is mapped; the simulator keeps it",
        [*mapped(), ["hipMemUnmap", [["at", "m0", 0], PAGE]], ["hipMemRelease", [["at", "h0", 0]]]], ("6.4",),
    ),
    Declared(
        "hipFreeAsync", "of what no pool gave, while the device's pool keeps freed memory, up to 6.x", 0, 0,
        "AMD's library asks itself with hipMemGetInfo how much is free, and that success becomes the last error; the "
        "simulator has no pools", [*POOLED, ["hipMalloc", [["out", "P"], PIECE], "b1"], ["hipGetDeviceCount", [None]],
         ["hipFreeAsync", [["at", "b1", 0], None]]], ("6.4",),
    ),
    *(Declared(
        name, "the size of memory that hipFreeAsync had freed since the last wait, up to 6.x", 0, 0, LARGER,
        [*POOLED_AGAIN, [name, arguments]], ("6.4",), holds=holds, made_by="hipMallocAsync",
    ) for name, arguments, holds in (
        ("hipMemGetAddressRange", [["out", "P"], ["out", "z"], ["at", "b1", 0]], lambda arguments: True),
        ("hipMemPtrGetInfo", [["at", "b1", 0], ["out", "z"]], lambda arguments: True),
        ("hipPointerGetAttribute", [["room", 8], 12, ["at", "b1", 0]], asks(12)),
        ("hipDrvPointerGetAttributes",
         [1, ["array", "i", [12]], ["array", "P", [["room", 8]]], ["at", "b1", 0]],
         lambda arguments: 12 in arguments[1][2]),
    )),
    Declared(
        "hipMemset", "of a mapping while another device is current that has no rights, since 7.0", 0, "fault",
        "AMD's library opens the memory to the current device, for good and without a word; the simulator keeps to "
        "what hipMemSetAccess gave",
        [*mapped(), ["hipMemSetAccess", [["at", "m0", 0], PIECE, ["access", [[1, 0, 1]]], 1]], ["hipSetDevice", [1]],
         ["hipMemset", [["at", "m0", 2], 7, PAGE]]], ("7.2",),
    ),
    Declared(
        "hipMemcpy", "of a mapping by a device without rights, behind a copy between its memory and that device's, "
        "since 7.0", 0, "fault", "as with hipMemset: the first copy opens the memory to the other device",
        [*mapped(), ["hipMemSetAccess", [["at", "m0", 0], PIECE, ["access", [[1, 0, READ_WRITE]]], 1]],
         ["hipSetDevice", [1]], BUFFER, ["hipMemcpyDtoD", [["at", "m0", 0], ["at", "b0", 0], PAGE]],
         ["hipMemcpy", [["host", 0], ["at", "m0", PAGE + 1], 1, 4]]], ("7.2",),
        holds=lambda arguments: arguments[1] == ["at", "m0", PAGE + 1],
    ),
    Declared(
        "hipMemAdvise", "of pinned or registered memory", 0, 1, "the kernel decides, and the stand-in driver says yes",
        [["hipHostMalloc", [["out", "P"], PIECE, 0], "p0"], ["hipMemAdvise", [["at", "p0", 0], PAGE, 1, 0]]],
    ),
    Declared(
        "hipMemRangeGetAttribute", "of the caller's own memory", 0, 1, "as with advice: the stand-in driver says yes",
        [["hipMemRangeGetAttribute", [["room", 4], 4, 2, ["host", 0], PAGE]]],
        holds=lambda arguments: arguments[3][0] == "host",
    ),
    Declared(
        "hipMemRangeGetAttributes", "of fewer attributes than the first size has bytes", 1, 0,
        "AMD's library looks at as many pointers as the first size says: what lies behind the array may be null or not",
        [["hipMallocManaged", [["out", "P"], PIECE, 1], "b0"],
         ["hipMemRangeGetAttributes", [["array", "P", [["room", 4], None, None, None]], ["array", "z", [4]],
                                       ["array", "i", [1]], 1, ["at", "b0", 0], PAGE]]],
        holds=lambda arguments: arguments[3] < arguments[1][2][0],
    ),
    Declared(
        "hipMemSetAccess", "for a device without a link to the memory's", 0, 1,
        "the kernel decides, and the stand-in driver says yes",
        [*mapped(), ["hipMemSetAccess", [["at", "m0", 0], PIECE, ["access", [[1, 2, READ_WRITE]]], 1]]],
        holds=lambda arguments: any(device == 2 for _, device, _ in arguments[2][1]),
    ),
    Declared(
        "hipPointerGetAttribute", "addresses of a device's memory without a link to the current one", 2, 0,
        "AMD's library tries to make it accessible; the simulator tells the address",
        [["hipSetDevice", [2]], BUFFER, ["hipSetDevice", [1]],
         ["hipPointerGetAttribute", [["room", 8], 11, ["at", "b0", 0]]]], holds=asks(3, 11),
    ),
    Declared(
        "hipMemsetD16", "more bytes than a range has, on a piece that is not its first", "fault", 1,
        "AMD's library does not see it, and the GPU has a page fault; the simulator refuses",
        [["hipMemAddressReserve", [["out", "P"], 4 * PIECE, 0, None, 0], "r0"],
         ["hipMemCreate", [["out", "P"], PIECE, ["prop", 1, 0, 1, 0], 0], "h0"],
         ["hipMemMap", [["at", "r0", PIECE], PIECE, 0, ["at", "h0", 0], 0], "m0"],
         ["hipMemsetD16", [["at", "m0", 0], 7, 2 * PIECE]]], family="hipMemset",
    ),
    Declared(
        "hipMemcpy", "more bytes than a range has, on a piece that is not its first", "fault", 1,
        "as with hipMemsetD16",
        [["hipMemAddressReserve", [["out", "P"], 4 * PIECE, 0, None, 0], "r0"],
         ["hipMemCreate", [["out", "P"], PIECE, ["prop", 1, 0, 1, 0], 0], "h0"],
         ["hipMemMap", [["at", "r0", 3 * PIECE], PIECE, 0, ["at", "h0", 0], 0], "m0"],
         ["hipMemcpy", [["host", 0], ["at", "m0", 0], 2 * PIECE, 4]]], family="hipMemcpy",
    ),
)  # fmt: skip

DEATHS = (
    Death("hipMemAddressFree of what is no range", 1, [["hipMemAddressFree", [["wild", "split"], PIECE]]]),
    Death("hipMemRetainAllocationHandle of hipMalloc's memory", 1,
          [BUFFER, ["hipMemRetainAllocationHandle", [["out", "P"], ["at", "b0", 0]]]]),
    Death("hipMemcpy to an address that is invalid", 1, [["hipMemcpy", [["wild", "split"], ["host", 0], PAGE, 4]]]),
    Death("hipMemcpy from an address that is invalid", 1, [["hipMemcpy", [["host", 0], ["wild", "split"], PAGE, 4]]]),
    Death("hipMemImportFromShareableHandle of the other form", 1,
          [["hipMemImportFromShareableHandle", [["out", "P"], 3, 1], "h0"]], ("6.4",)),
    Death("hipMemAddressReserve of almost all addresses", 1,
          [["hipMemAddressReserve", [["out", "P"], 2**64 - PAGE, 0, None, 0], "r0"],
           ["hipMemAddressFree", [["wild", "low"], 2**64 - PAGE]]]),
    Death("hipMemRelease of a number", 1, [["hipMemRelease", [["wild", "low"]]]]),
    Death("hipMemGetAllocationPropertiesFromHandle of a number", 1,
          [["hipMemGetAllocationPropertiesFromHandle", [["room", 32], ["wild", "low"]]]]),
    Death("hipMemUnmap of what is not mapped", 1, [["hipMemUnmap", [["host", 0], PIECE]]], ("6.4",)),
    Death("hipMemExportToShareableHandle into null", 1,
          [*mapped(1), ["hipMemExportToShareableHandle", [None, ["at", "h0", 0], 1, 0], "f0"]], ("6.4",)),
    Death("hipFree of registered memory", 1,
          [["hipHostRegister", [["host", 0], PAGE, 0], "x0"], ["hipFree", [["host", 0]]]], ("6.4",)),
    Death("hipHostUnregister inside registered memory", 713,
          [["hipHostRegister", [["host", 0], PIECE, 0], "x0"], ["hipHostUnregister", [["host", PAGE]]]]),
    Death("hipStreamGetPriority of hipStreamLegacy", 0, [["hipStreamGetPriority", [1, ["out", "i"]]]]),
    Death("hipDrvPointerGetAttributes with a null answer", 1,
          [BUFFER, ["hipDrvPointerGetAttributes", [1, ["array", "i", [8]], ["array", "P", [None]], ["at", "b0", 0]]]]),
    Death("hipMemUnmap after hipFree of mapped virtual memory", 0,
          [*mapped(), ["hipFree", [["at", "m0", 0]]], ["hipMemUnmap", [["at", "m0", 0], PIECE]]], ("6.4",)),
    Death("hipMemPrefetchAsync of hipMalloc's memory", 0,
          [BUFFER, ["hipMemPrefetchAsync", [["at", "b0", 0], PAGE, -1, None]]]),
    Death("hipMemsetD16 and D32 of an address between two values", 0,
          [BUFFER, ["hipMemsetD32", [["at", "b0", 2], 7, PAGE]]]),
    Death("hipStreamWaitEvent that waits for an event from outside", 0,
          [["hipEventCreateWithFlags", [["out", "P"], 0], "e0"], ["hipStreamWaitEvent", [1, ["at", "e0", 0], 1]]]),
    Death("hipStreamWaitEvent of an event in hipStreamLegacy", 0,
          [["hipEventCreateWithFlags", [["out", "P"], 1], "e0"], ["hipEventRecord", [["at", "e0", 0], 1]],
           ["hipStreamWaitEvent", [2, ["at", "e0", 0], 0]]]),
    Death("hipStreamWaitEvent of an interprocess event that was never recorded", 0,
          [["hipEventCreateWithFlags", [["out", "P"], 6], "e0"], ["hipStreamWaitEvent", [2, ["at", "e0", 0], 0]]],
          ("7.2",)),
    Death("hipHostGetDevicePointer of memory of a device without a link", 0,
          [["hipSetDevice", [2]], BUFFER, ["hipSetDevice", [0]],
           ["hipHostGetDevicePointer", [["out", "P"], ["at", "b0", 0], 0]]]),
    Death("hipMemcpy between devices without a link", 1,
          [*APART, ["hipMalloc", [["out", "P"], PIECE], "b1"],
           ["hipMemcpy", [["at", "b1", 0], ["at", "b0", 0], PAGE, 4]]]),
    Death("hipMemcpyPeer between devices without a link", 1,
          [*APART, ["hipMalloc", [["out", "P"], PIECE], "b1"],
           ["hipMemcpyPeer", [["at", "b1", 0], 0, ["at", "b0", 0], 2, PAGE]]]),
    Death("hipMemset of memory of a device without a link to the current one", 0,
          [*APART, ["hipMemset", [["at", "b0", 0], 1, PAGE]]]),
    Death("hipMemGetAddressRange into null", 0, [BUFFER, ["hipMemGetAddressRange", [None, None, ["at", "b0", 0]]]]),
    Death("hipIpcGetMemHandle of pinned memory", 1,
          [["hipHostMalloc", [["out", "P"], PIECE, 0], "p0"],
           ["hipIpcGetMemHandle", [["room", 64], ["at", "p0", 0]]]], ("7.2",), processes=50),
    Death("hipMemPtrGetInfo into null", 1, [BUFFER, ["hipMemPtrGetInfo", [["at", "b0", 0], None]]]),
    Death("hipMemMap past the end of a range", 0,
          [*mapped(), ["hipMemCreate", [["out", "P"], 2 * PIECE, ["prop", 1, 0, 1, 0], 0], "h1"],
           ["hipMemMap", [["at", "r0", 3 * PIECE], 2 * PIECE, 0, ["at", "h1", 0], 0], "m1"]]),
    Death("a second hipMemAddressFree after one of a range in use", 0,
          [*mapped(), ["hipMemAddressFree", [["at", "r0", 0], 4 * PIECE]], ["hipMemUnmap", [["at", "m0", 0], PIECE]],
           ["hipMemAddressFree", [["at", "r0", 0], 4 * PIECE]]]),
)  # fmt: skip
"""Rights over unequal pieces on 7.2 have no row: heap addresses decide whether they are given (test_plans.py). Nor has
hipFree behind a prefetch to a second device, which a thread of 7.2's carries out (test_differential.py); nor what
follows hipMemUnmap of another size on 6.4: whether and where the process ends differs from run to run."""
