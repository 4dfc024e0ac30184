"""All short sequences of calls over a small alphabet, from several states to begin with.

A letter is a call with good or bad arguments, or a few that belong together. Some read bytes back, so that what copies
and fills left in memory is compared as well. Nothing reads memory that was never written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from .arguments import PAGE, PIECE
from .player import Call

Letter = list[Call]


def at(slot: str, offset: int = 0) -> list[Any]:
    return ["at", slot, offset]


def reserve(slot: str, size: int = 4 * PIECE) -> Call:
    return ["hipMemAddressReserve", [["out", "P"], size, 0, None, 0], slot]


def create(slot: str, device: int = 0, size: int = PIECE) -> Call:
    return ["hipMemCreate", [["out", "P"], size, ["prop", 1, 0, 1, device], 0], slot]


def map_(slot: str, handle: str, where: int, size: int = PIECE) -> Call:
    return ["hipMemMap", [at("r0", where), size, 0, at(handle), 0], slot]


def allow(where: int, size: int, *rights: tuple[int, int]) -> Call:
    listed = [[1, device, flags] for device, flags in rights]
    return ["hipMemSetAccess", [at("r0", where), size, ["access", listed], len(listed)]]


def unmap(where: int, size: int = PIECE) -> Call:
    return ["hipMemUnmap", [at("r0", where), size]]


def copy(to: Any, source: Any, size: int = PAGE) -> Call:
    return ["hipMemcpy", [to, source, size, 4]]


def read(source: Any) -> Letter:
    """Copies to the host, and looks at what came."""
    return [copy(["host", 2 * PIECE], source), ["bytes", [["host", 2 * PIECE], PAGE]]]


def release(slot: str) -> Call:
    return ["hipMemRelease", [at(slot)]]


READ_WRITE, READ, NONE = 3, 1, 0
MAPPED: Letter = [reserve("r0"), create("h0"), map_("m0", "h0", 0), allow(0, PIECE, (0, READ_WRITE))]
FILLED: Letter = [
    *MAPPED,
    ["hipMemcpy", [at("m0"), ["host", 0], PIECE, 1]],
    ["hipMalloc", [["out", "P"], PIECE], "b0"],
    ["hipMemset", [at("b0"), 90, PIECE]],
]

LIFE: dict[str, Letter] = {
    "reserve": [reserve("r0")],
    "reserve nothing": [reserve("r1", 0)],
    "create on 0": [create("h0")],
    "create on 1": [create("h1", 1)],
    "create nowhere": [create("h2", 9)],
    "map": [map_("m0", "h0", 0)],
    "map again behind it": [map_("m1", "h0", PIECE)],
    "map the other behind it": [map_("m2", "h1", PIECE)],
    "map over it": [map_("m3", "h1", 0)],
    "map more than there is": [map_("m3", "h0", 2 * PIECE, 2 * PIECE)],
    "map null": [["hipMemMap", [at("r0"), PIECE, 0, None, 0], "m3"]],
    "0 may": [allow(0, PIECE, (0, READ_WRITE))],
    "1 may read": [allow(0, PIECE, (1, READ))],
    "both may, everywhere": [allow(0, 2 * PIECE, (0, READ_WRITE), (1, READ_WRITE))],
    "no device may": [allow(0, PIECE, (0, NONE), (1, NONE))],
    "9 may": [allow(0, PIECE, (9, READ_WRITE))],
    "who may": [["hipMemGetAccess", [["out", "Q"], ["location", 1, 0], at("r0")]]],
    "unmap": [unmap(0)],
    "unmap behind it": [unmap(PIECE)],
    "unmap both": [unmap(0, 2 * PIECE)],
    "unmap nothing": [unmap(0, 0)],
    "retain": [["hipMemRetainAllocationHandle", [["out", "P"], at("r0")]]],
    "release": [release("h0")],
    "release null": [["hipMemRelease", [None]]],
    "free": [["hipMemAddressFree", [at("r0"), 4 * PIECE]]],
    "free nothing": [["hipMemAddressFree", [at("r0"), 0]]],
    "last error": [["hipGetLastError", []]],
}
"""The life of virtual memory."""

BYTES: dict[str, Letter] = {
    "write": [copy(at("r0", PAGE), ["host", PIECE])],
    "fill": [["hipMemset", [at("r0", 2), 7, PAGE]]],
    "read": read(at("r0")),
    "read behind it": read(at("r0", PIECE)),
    "write behind it": [copy(at("r0", PIECE), ["host", PIECE + PAGE])],
    "from ordinary memory": [copy(at("r0", 3), at("b0"), 100)],
    "to ordinary memory": [copy(at("b0", 5), at("r0"), 100)],
    "read ordinary memory": read(at("b0")),
    "over the seam": read(at("r0", PIECE - 8)),
    "from itself": [copy(at("r0", 64), at("r0"), 100)],
    "map again behind it": [map_("m1", "h0", PIECE), allow(PIECE, PIECE, (0, READ_WRITE))],
    "0 may": [allow(0, PIECE, (0, READ_WRITE))],
    "0 may read": [allow(0, PIECE, (0, READ))],
    "1 may": [allow(0, PIECE, (1, READ_WRITE))],
    "0 may not": [allow(0, PIECE, (0, NONE))],
    "on 1": [["hipSetDevice", [1]]],
    "peers": [["hipDeviceEnablePeerAccess", [1, 0]]],
    "unmap": [unmap(0)],
    "map": [map_("m2", "h0", 0)],
    "release": [release("h0")],
    "free ordinary memory": [["hipFree", [at("b0")]]],
}
"""What copies and fills leave."""


def on_1(call: Call) -> Letter:
    """A call while device 1 is current."""
    return [["hipSetDevice", [1]], call, ["hipSetDevice", [0]]]


def who_may(where: int) -> Letter:
    """The rights of each device."""
    return [["hipMemGetAccess", [["out", "Q"], ["location", 1, device], at("r0", where)]] for device in range(3)]


REACH: dict[str, Letter] = {
    "1 reaches 0": on_1(["hipDeviceEnablePeerAccess", [0, 0]]),
    "1 reaches 0 no more": on_1(["hipDeviceDisablePeerAccess", [0]]),
    "0 reaches 1": [["hipDeviceEnablePeerAccess", [1, 0]]],
    "map behind it": [create("h1"), map_("m1", "h1", PIECE)],
    "map memory of 1 behind it": [*on_1(create("h2", 1)), map_("m2", "h2", PIECE)],
    "0 may read behind it": [allow(PIECE, PIECE, (0, READ))],
    "1 may read": [allow(0, PIECE, (1, READ))],
    "1 may not": [allow(0, PIECE, (1, NONE))],
    "1 may not behind it": [allow(PIECE, PIECE, (1, NONE))],
    "unmap": [unmap(0)],
    "map again": [map_("m3", "h0", 0)],
}
"""What peer access does to the rights of mappings."""

STARTS: dict[str, tuple[Letter, dict[str, Letter]]] = {
    "nothing": ([], LIFE),
    "a range and a handle": ([reserve("r0"), create("h0")], LIFE),
    "a mapping": (MAPPED, LIFE),
    "filled memory": (FILLED, BYTES),
    "rights": (MAPPED, {name: [*calls, *who_may(0), *who_may(PIECE)] for name, calls in REACH.items()}),
}


def letters(alphabet: dict[str, Letter], release: str) -> list[str]:
    """Without hipMemUnmap of another size on 6.4, behind which its process cannot be used: random sequences have it."""
    return [name for name in alphabet if not (release == "6.4" and name == "unmap both")]


def short_sequences(start: str, release: str, length: int) -> Iterator[tuple[str, list[Call]]]:
    """Every word of so many letters, with its name. What is shorter is the beginning of one."""
    prepared, alphabet = STARTS[start]
    for word in itertools.product(letters(alphabet, release), repeat=length):
        calls = itertools.chain(prepared, *(alphabet[letter] for letter in word))
        yield f"from {start}: {', '.join(word)}", list(calls)
