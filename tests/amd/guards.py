"""Calls that random sequences leave out: AMD's library, or the process with it, does not survive them.

Each reason is declared with sequences that show it in declared.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .player import Player, Thing

MEMORY = ("device", "managed", "pinned", "registered", "piece")


def live(player: Player, argument: Any, kinds: tuple[str, ...]) -> Thing | None:
    """What of these kinds is alive at an address."""
    address = (
        player.address(argument) if not isinstance(argument, list) or argument[0] in ("at", "host", "wild") else None
    )
    if address is None:
        return None
    for thing in player.things.values():
        if thing.alive and thing.kind in kinds and thing.value <= address < thing.value + max(thing.size, 1):
            return thing
    return None


def is_wild(player: Player, argument: Any) -> bool:
    """An address where the CPU finds nothing, and of which HIP knows nothing."""
    if not isinstance(argument, list) or argument[0] not in ("at", "wild"):
        return False
    if argument[0] == "at" and player.things[argument[1]].kind in ("handle", "stream", "event", "descriptor"):
        return False
    thing = live(player, argument, (*MEMORY, "reservation"))
    return thing is None or (thing.kind == "reservation" and live(player, argument, MEMORY) is None)


def owners(player: Player, arguments: list[Any]) -> set[int]:
    found = (live(player, argument, ("device", "piece")) for argument in arguments)
    return {thing.device for thing in found if thing}


def engine(player: Player, arguments: list[Any]) -> int:
    """The device of the stream that is named, else the current one."""
    named = [player.things[slot] for argument in arguments for slot in player.slots_of(argument)]
    return next((thing.device for thing in named if thing.kind == "stream"), player.device)


def linked(devices: set[int]) -> bool:
    return devices <= {0, 1} or len(devices) == 1


def range_of(player: Player, argument: Any) -> tuple[int, list[int]]:
    """The size of the range that an address is in, and those of the pieces there."""
    place = live(player, argument, ("reservation",))
    if place is None:
        return 0, []
    inside = range(place.value, place.value + place.size)
    pieces = [
        thing.size
        for thing in player.things.values()
        if thing.alive and thing.kind == "piece" and thing.value in inside
    ]
    return place.size, pieces


def is_beyond_pooled(player: Player, argument: Any, size: int) -> bool:
    found = live(player, argument, ("device",))
    return bool(found and found.pooled and (player.address(argument) or 0) + size > found.value + found.size)


def fills_a_whole_range(player: Player, argument: Any, size: int) -> bool:
    whole, pieces = range_of(player, argument)
    return bool(pieces) and size >= whole


def has_unequal_pieces(player: Player, argument: Any) -> bool:
    return len(set(range_of(player, argument)[1])) > 1


def is_number(player: Player, argument: Any) -> bool:
    """What stands where a handle should, and is none."""
    if argument is None:
        return False
    return not isinstance(argument, list) or argument[0] != "at" or player.things[argument[1]].kind != "handle"


SIZE_AT = {"hipMemGetAddressRange": 2, "hipMemPtrGetInfo": 0}
"""Calls that return the size of memory, and which argument is its address."""
HANDLE_AT = {"hipMemRelease": 0, "hipMemGetAllocationPropertiesFromHandle": 1}
"""Calls with a handle, and which argument it is."""


def reasons(player: Player, name: str, arguments: list[Any]) -> Iterator[str]:
    first = arguments[0] if arguments else None
    if player.damaged:
        yield f"behind a {player.damaged}"
    for argument in arguments:
        for slot in player.slots_of(argument):
            thing = player.things[slot]
            if thing.kind in ("handle", "stream", "event", "descriptor") and not thing.alive:
                yield f"a dead {thing.kind}"
            if thing.spoiled:
                yield f"a range on which a {thing.spoiled} failed"
            if any(player.things[parent].spoiled for parent in thing.parents if parent in player.things):
                yield "a mapping in a range that is in disorder"
    if name.startswith(("hipMemcpy", "hipMemset")):
        if any(is_wild(player, argument) for argument in arguments):
            yield "bytes where there are none"
        unit = {"hipMemsetD16": 2, "hipMemsetD32": 4}.get(name.removesuffix("Async"), 1)
        if (player.address(first) or 0) % unit:
            yield "hipMemsetD16 and D32 of an address between two values"
        size = arguments[4 if name.startswith("hipMemcpyPeer") else 2] * unit
        if any(is_beyond_pooled(player, argument, size) for argument in arguments):
            yield "more bytes than were asked of a pool, which may have given a larger piece"
        piece = live(player, first, ("piece",))
        opens = player.version >= (7, 0) and piece and engine(player, arguments) != piece.device
        if name.startswith("hipMemset") and opens:
            yield "hipMemset of another device's mapping, which opens it to the current one"
        if name.startswith("hipMemset") and fills_a_whole_range(player, first, arguments[2] * unit):
            yield "hipMemset of more than a range has, on a piece"
        if name.startswith("hipMemcpyPeer") and any(
            live(player, argument, MEMORY) is None for argument in arguments if isinstance(argument, list)
        ):
            yield "hipMemcpyPeer of pageable memory"
        if name.startswith("hipMemcpyPeer") and not linked({arguments[1], arguments[3]}):
            yield "bytes of a device that the one that moves them has no link to"
        if not linked({*owners(player, arguments), engine(player, arguments)}):
            yield "bytes of a device that the one that moves them has no link to"
        if any(piece and piece.opened for piece in (live(player, argument, ("piece",)) for argument in arguments)):
            yield "bytes of a mapping that a copy between devices has opened"
        sides = [argument for argument in arguments[:2] if isinstance(argument, list)]
        if sides and all(live(player, side, MEMORY) is None for side in sides) and arguments[2] > 4 << 20:
            yield "bytes where there are none"
    elif name in HANDLE_AT and is_number(player, arguments[HANDLE_AT[name]]):
        yield f"{name} of a number"
    elif name == "hipMemAddressReserve" and arguments[1] > 2**64 - 2**20:
        yield "hipMemAddressReserve of almost all addresses"
    elif name == "hipMemAddressReserve" and arguments[3] == ["wild", "low"]:
        yield "hipMemAddressReserve at an address that is never freed"
    elif name == "hipMemSetAccess":
        found, rights = live(player, first, ("piece",)), arguments[2]
        if (
            found
            and rights
            and any(not linked({device, found.device}) for kind, device, _ in rights[1] if 0 <= device <= 2)
        ):
            yield "rights of a device that has no link: the kernel decides"
        if player.version >= (7, 0) and has_unequal_pieces(player, first):
            yield "rights over unequal pieces: heap addresses decide"
    elif name == "hipMemImportFromShareableHandle" and arguments[1]:
        exported = player.things[arguments[1][1]]
        if exported.parents and not player.things[exported.parents[0]].alive:
            yield "an import of memory that was freed: the kernel decides"
    elif name in ("hipFree", "hipFreeAsync"):
        found = live(player, first, MEMORY)
        if found and found.kind == "registered" and (player.version < (7, 2) or found.value != player.address(first)):
            yield "hipFree of registered memory"
        if found and found.kind == "piece":
            yield "hipFree of mapped virtual memory"
        if found and found.kind == "registered" and name == "hipFreeAsync":
            yield "hipFree of registered memory"
    elif name == "hipMemPtrGetInfo" and arguments[1] is None:
        yield "hipMemPtrGetInfo into null"
    elif name.startswith(("hipMemAdvise", "hipMemPrefetch", "hipMemRangeGet")):
        at = arguments[4] if name.startswith("hipMemRangeGetAttributes") else arguments[3] if "Range" in name else first
        found = live(player, at, MEMORY)
        if isinstance(at, list) and (found is None or found.kind != "managed"):
            yield "managed calls on memory that the kernel alone knows"
        size = (
            arguments[5]
            if name.startswith("hipMemRangeGetAttributes")
            else arguments[4]
            if "Range" in name
            else arguments[1]
        )
        if found and "RangeGet" in name and size > found.value + found.size - (player.address(at) or 0):
            yield "managed calls on memory that the kernel alone knows"
    elif name == "hipMemMap":
        place = live(player, first, ("reservation",))
        if place and arguments[1] > place.value + place.size - (player.address(first) or 0):
            yield "hipMemMap past the end of a range"
    elif name == "hipMemUnmap" and player.version < (7, 0):
        found = live(player, first, ("piece",))
        if player.address(first) and arguments[1] and (found is None or found.value != player.address(first)):
            yield "hipMemUnmap of what is not the start of a mapping"
    elif name == "hipMemExportToShareableHandle" and player.version < (7, 0) and first is None:
        yield "hipMemExportToShareableHandle into null"
    elif name == "hipHostRegister" and first is not None:
        if any(live(player, at, MEMORY) for at in (first,)) or is_wild(player, first):
            yield "hipHostRegister of memory that HIP has given out"
    elif name == "hipHostUnregister":
        found = live(player, first, MEMORY)
        if found and (found.kind != "registered" or found.value != player.address(first)):
            yield "hipHostUnregister of what is not the start of registered memory"
    elif name == "hipMemAddressFree":
        found = live(player, first, ("reservation",))
        if player.address(first) and (found is None or found.value != player.address(first)):
            yield "hipMemAddressFree of what is not the start of a range"
    elif name == "hipMemRetainAllocationHandle":
        if player.address(arguments[1]) and live(player, arguments[1], ("piece",)) is None:
            yield "hipMemRetainAllocationHandle of what is not mapped"
    elif name == "hipEventRecord" and arguments[1] == 1:
        yield "an event in hipStreamLegacy, which crashes who waits for it"
    elif name == "hipStreamWaitEvent" and arguments[1] and arguments[2] == 1:
        yield "hipStreamWaitEvent that waits for an event from outside"
    elif name == "hipStreamWaitEvent" and arguments[1] and not player.things[arguments[1][1]].awaited:
        yield "hipStreamWaitEvent of an interprocess event that was never recorded"
    elif name in SIZE_AT and (found := live(player, arguments[SIZE_AT[name]], ("device",))) and found.pooled:
        yield "the size of what a pool gave, which may be a larger piece"
    elif name in ("hipHostGetDevicePointer", "hipPointerGetAttribute", "hipDrvPointerGetAttributes"):
        found = live(player, arguments[1 if name.startswith("hipHost") else -1], ("device", "piece"))
        if found and not linked({found.device, player.device}):
            yield "where memory of a device without a link is"
        if name == "hipDrvPointerGetAttributes" and None in arguments[2][2]:
            yield "hipDrvPointerGetAttributes with a null answer"
    elif name.startswith("hipStream") and first == 1:
        yield "questions about hipStreamLegacy"


def reason_to_skip(player: Player, call: list[Any]) -> str:
    return next(reasons(player, call[0], call[1]), "")
