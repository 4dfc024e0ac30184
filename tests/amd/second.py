"""A second generator of random sequences, written from HIP's manual by an author who had not read the first.

Most sequences tell a story: memory is made, mapped, used, asked about and freed, in a plausible order. In between
come calls with one argument that is wrong, and calls on what is gone. How often is drawn for each sequence.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Call = list[Any]

KIB, MIB = 1 << 10, 1 << 20
MEMORY = ("device", "managed", "pinned", "registered", "piece")
ADVICE = (1, 2, 3, 4, 5, 6)
DEVICES = 3
MOST = 16 * MIB
"""So many bytes are moved at most: memory may be as large as the host lets it."""


@dataclass
class Slot:
    name: str
    kind: str
    size: int
    gone: bool = False
    inside: str = ""  # of a piece: its range


class Story:
    """One sequence in the making."""

    def __init__(self, seed: int, release: str) -> None:
        self.random = random.Random(f"second {seed}")
        self.newer = release != "6.4"
        self.calls: list[Call] = []
        self.slots: list[Slot] = []
        self.clumsy = self.random.choice((0.0, 0.02, 0.1, 0.3))
        """How often an argument is wrong."""

    # What arguments are made of

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def slips(self) -> bool:
        return self.random.random() < self.clumsy

    def size(self) -> int:
        if self.slips():
            return int(self.pick(0, 1, 4095, 4097, 2**31, 2**40, 2**62, 2**64 - 1, 2**64 - 4096))
        return int(
            self.pick(1, 100, 4 * KIB, 4 * KIB, 12 * KIB, 64 * KIB, MIB, 2 * MIB, 2 * MIB, 4 * MIB, 5 * MIB + 12)
        )

    def whole(self) -> int:
        """A size of virtual memory."""
        if self.slips():
            return self.size()
        return int(self.pick(4 * KIB, 64 * KIB, 2 * MIB, 2 * MIB, 2 * MIB, 4 * MIB, 6 * MIB))

    def number(self, *good: int) -> int:
        return int(
            self.pick(-1, -7, 2, 3, 4, 7, 8, 16, 64, 99, 1 << 20, 2**31 - 1) if self.slips() else self.pick(*good)
        )

    def device(self) -> int:
        return self.number(0, 0, 1, 1, 2)

    def out(self, code: str) -> Any:
        return None if self.random.random() < self.clumsy / 4 else ["out", code]

    def live(self, *kinds: str) -> Slot | None:
        found = [slot for slot in self.slots if slot.kind in kinds and (self.slips() or not slot.gone)]
        return self.random.choice(found) if found else None

    def at(self, *kinds: str, start: bool = False) -> Any:
        """An address in something of these kinds."""
        slot = self.live(*kinds)
        if slot is None or self.slips():
            return self.pick(None, ["host", 4096 * self.pick(0, 1, 5)], ["wild", self.pick("low", "split", "last")])
        if start != self.slips() or slot.kind in ("handle", "stream", "event", "descriptor"):
            return ["at", slot.name, 0]
        last = max(slot.size - 1, 0)
        offset = self.pick(0, 0, 1, 2, 16, 4 * KIB, 2 * MIB, slot.size // 2 // 4096 * 4096, slot.size - 4 * KIB, last)
        return ["at", slot.name, max(0, min(offset, last))]

    def extent(self, address: Any) -> int:
        """A number of bytes from an address: most often within what it is in."""
        if isinstance(address, list) and address[0] == "at" and not self.slips():
            slot = next(one for one in self.slots if one.name == address[1])
            room = min(max(slot.size - address[2], 0), MOST)
            return int(self.pick(room, min(room, 4 * KIB), min(room, 100), room // 2, min(room, 2 * MIB)))
        return int(self.pick(0, 1, 64, 4 * KIB, 8 * KIB, 64 * KIB))

    def bytes_at(self) -> Any:
        return ["host", self.pick(0, 1, 4 * KIB, 40 * KIB)] if self.random.random() < 0.3 else self.at(*MEMORY)

    def stream(self) -> Any:
        if self.random.random() < 0.5:
            return self.pick(None, None, 2)
        slot = self.live("stream")
        return ["at", slot.name, 0] if slot else None

    def prop(self) -> Any:
        return [
            "prop",
            self.number(1, 1, 1, 1, 0x40000000),
            self.number(0, 0, 1),
            self.number(1, 1, 1, 1, 2),
            self.device(),
        ]

    def rights(self) -> tuple[Any, int]:
        rows = [
            [self.number(1, 1, 1, 2), self.device(), self.number(3, 3, 3, 1, 0)]
            for _ in range(self.pick(1, 1, 1, 2, 3))
        ]
        count = len(rows) if not self.slips() else self.pick(0, 1)
        return (None if self.slips() else ["access", rows]), min(count, len(rows))

    def room_for(self, asked: int) -> Any:
        """Of an attribute of a pointer. A context is a number, and BUFFER_ID counts what a process has made so far."""
        return ["opaque" if asked in (1, 7) else "room", 8]

    # Telling

    def tell(self, function: str, *arguments: Any, makes: str = "", size: int = 0, inside: str = "") -> str:
        call: Call = [function, list(arguments)]
        name = ""
        if makes:
            name = f"{makes[0]}{len(self.slots)}"
            self.slots.append(Slot(name, makes, size, inside=inside))
            call.append(name)
        self.calls.append(call)
        return name

    def ends(self, address: Any, *kinds: str) -> None:
        for slot in self.slots:
            if isinstance(address, list) and address[0] == "at" and slot.name == address[1] and slot.kind in kinds:
                slot.gone = True

    # Calls

    def reserve(self) -> None:
        size = min(self.whole() * self.pick(1, 1, 2, 3), 2**64 - 1)
        align = self.number(0, 0, 0, 4 * KIB, 2 * MIB)
        wanted = self.at("reservation", start=True) if self.slips() else None
        flags = 1 if self.slips() else 0
        self.tell("hipMemAddressReserve", self.out("P"), size, align, wanted, flags, makes="reservation", size=size)

    def create(self) -> None:
        size = self.whole()
        prop = None if self.slips() and self.slips() else self.prop()
        self.tell("hipMemCreate", self.out("P"), size, prop, 1 if self.slips() else 0, makes="handle", size=size)

    def map(self) -> None:
        place, handle = self.live("reservation"), self.live("handle")
        if place is None or handle is None:
            return (self.reserve if place is None else self.create)()
        offset = self.pick(0, 0, 0, 4 * KIB, 2 * MIB, 4 * MIB) if handle.size < place.size else 0
        offset = min(offset, max(place.size - 1, 0))
        size = handle.size if not self.slips() else self.whole()
        self.tell(
            "hipMemMap", ["at", place.name, offset], size, 4 * KIB if self.slips() else 0, ["at", handle.name, 0],
            1 if self.slips() else 0, makes="piece", size=size, inside=place.name,
        )  # fmt: skip
        return None

    def set_access(self) -> None:
        piece = self.at("piece", start=True)
        rights, count = self.rights()
        self.tell("hipMemSetAccess", piece, self.extent(piece) if self.slips() else self.size_of(piece), rights, count)

    def size_of(self, address: Any) -> int:
        if isinstance(address, list) and address[0] == "at":
            return next(slot.size for slot in self.slots if slot.name == address[1])
        return self.whole()

    def a_mapping(self) -> None:
        """The whole of it, in order."""
        size, device = self.whole(), self.pick(0, 0, 1)
        place = self.tell(
            "hipMemAddressReserve", ["out", "P"], size * 2, 0, None, 0, makes="reservation", size=2 * size
        )
        handle = self.tell(
            "hipMemCreate", ["out", "P"], size, ["prop", 1, self.pick(0, 1), 1, device], 0, makes="handle", size=size
        )
        piece = self.tell(
            "hipMemMap", ["at", place, self.pick(0, size)], size, 0, ["at", handle, 0], 0, makes="piece", size=size,
            inside=place,
        )  # fmt: skip
        rights = [[1, one, self.pick(3, 3, 1)] for one in self.pick((0,), (1,), (0, 1), (device,))]
        self.tell("hipMemSetAccess", ["at", piece, 0], size, ["access", rights], len(rights))
        if self.random.random() < 0.5:
            self.tell("hipMemRelease", ["at", handle, 0])
            self.ends(["at", handle, 0], "handle")

    def get_access(self) -> None:
        self.tell("hipMemGetAccess", self.out("Q"), ["location", self.number(1, 1, 1, 2), self.device()],
                  self.at("piece", "reservation"))  # fmt: skip

    def unmap(self) -> None:
        piece = self.at("piece", start=True)
        self.tell("hipMemUnmap", piece, self.whole() if self.slips() else self.size_of(piece))
        self.ends(piece, "piece")

    def release(self) -> None:
        handle = self.at("handle")
        self.tell("hipMemRelease", handle)
        self.ends(handle, "handle")

    def unreserve(self) -> None:
        place = self.live("reservation")
        if place is None:
            return
        in_use = any(slot.kind == "piece" and slot.inside == place.name and not slot.gone for slot in self.slots)
        if in_use and not self.slips():
            return
        self.tell("hipMemAddressFree", ["at", place.name, 0], self.whole() if self.slips() else place.size)
        place.gone = True

    def retain(self) -> None:
        piece = self.live("piece")
        self.tell("hipMemRetainAllocationHandle", self.out("P"), self.at("piece"), makes="handle" if piece else "",
                  size=piece.size if piece else 0)  # fmt: skip

    def export(self) -> None:
        handle = self.live("handle")
        if handle:
            self.tell("hipMemExportToShareableHandle", self.out("d"), ["at", handle.name, 0], self.number(1), 0,
                      makes="descriptor", size=handle.size)  # fmt: skip

    def import_(self) -> None:
        exported = self.live("descriptor")
        if exported:
            self.tell("hipMemImportFromShareableHandle", self.out("P"), ["shared", exported.name], self.number(1),
                      makes="handle", size=exported.size)  # fmt: skip

    def about_handles(self) -> None:
        if self.pick(True, False):
            self.tell("hipMemGetAllocationGranularity", self.out("z"), self.prop(), self.number(0, 1))
        else:
            self.tell(
                "hipMemGetAllocationPropertiesFromHandle", None if self.slips() else ["padded", 32], self.at("handle")
            )

    def device_memory(self) -> None:
        size, how = self.size(), self.pick("hipMalloc", "hipMalloc", "hipExtMallocWithFlags", "hipMallocAsync")
        more = {"hipMalloc": [], "hipMallocAsync": [self.stream()]}.get(how, [self.number(0, 1, 3)])
        self.fill_new(self.tell(how, self.out("P"), size, *more, makes="device", size=size), size)

    def fill_new(self, name: str, size: int) -> None:
        """What new memory holds is nobody's promise."""
        self.tell("hipMemset", ["at", name, 0], self.pick(0, 3), min(size, MOST))

    def pitched_memory(self) -> None:
        width, height = self.pick(1, 100, 256, 4 * KIB, self.size()), self.pick(1, 2, 16, 0)
        size = -(-width // 256) * 256 * height
        if self.pick(True, False):
            self.tell("hipMallocPitch", self.out("P"), self.out("z"), width, height, makes="device", size=size)
        else:
            self.tell("hipMemAllocPitch", self.out("P"), self.out("z"), width, height, self.number(4, 8, 16),
                      makes="device", size=size)  # fmt: skip
        self.fill_new(self.slots[-1].name, size)

    def managed_memory(self) -> None:
        size = self.size()
        name = self.tell("hipMallocManaged", self.out("P"), size, self.number(1, 1, 2), makes="managed", size=size)
        self.fill_new(name, size)

    def pinned_memory(self) -> None:
        size = self.size()
        how = self.pick("hipHostMalloc", "hipHostMalloc", "hipHostAlloc", "hipMallocHost", "hipMemAllocHost")
        flags = [] if how in ("hipMallocHost", "hipMemAllocHost") else [self.number(0, 0, 1, 2, 4, 0x40000000)]
        self.fill_new(self.tell(how, self.out("P"), size, *flags, makes="pinned", size=size), size)

    def registered_memory(self) -> None:
        if not any(slot.kind == "registered" and not slot.gone for slot in self.slots) or self.slips():
            size = self.extent(None) or 1
            self.tell("hipHostRegister", ["host", 64 * KIB * self.pick(1, 2, 3)], size, self.number(0, 0, 1, 2),
                      makes="registered", size=size)  # fmt: skip

    def free(self) -> None:
        how, kinds = self.pick(
            ("hipFree", ("device", "managed", "pinned")), ("hipFree", ("device",)), ("hipHostFree", ("pinned",)),
            ("hipFreeHost", ("pinned",)), ("hipFreeAsync", ("device",)), ("hipHostUnregister", ("registered",)),
        )  # fmt: skip
        address = self.at(*kinds, start=True)
        self.tell(how, address, *([self.stream()] if how == "hipFreeAsync" else []))
        self.ends(address, *kinds)

    def about_pointers(self) -> None:
        address = self.at(*MEMORY, *(["reservation"] if self.slips() else []))
        kind = self.pick(*range(8))
        if kind == 0:
            self.tell("hipPointerGetAttributes", None if self.slips() else ["room", 32], address)
        elif kind == 1:
            attribute = self.number(*range(1, 18))
            self.tell("hipPointerGetAttribute", self.room_for(attribute), attribute, address)
        elif kind == 2:
            asked = [self.number(*range(2, 18)) for _ in range(self.pick(1, 2, 5))]
            rooms = ["array", "P", [self.room_for(one) for one in asked]]
            self.tell("hipDrvPointerGetAttributes", len(asked), ["array", "i", asked], rooms, address)
        elif kind == 3:
            self.tell("hipMemGetAddressRange", ["out", "P"], ["out", "z"], address)
        elif kind == 4:
            self.tell("hipMemPtrGetInfo", address, ["out", "z"])
        elif kind == 5:
            self.tell("hipHostGetDevicePointer", self.out("P"), self.at("pinned", "registered", "managed", "device"),
                      1 if self.slips() else 0)  # fmt: skip
        elif kind == 6:
            self.tell("hipHostGetFlags", self.out("u"), self.at("pinned", "registered", "managed"))
        else:
            self.tell("hipPointerSetAttribute", ["value", "i", self.pick(0, 1)], self.number(6), address)

    def copy(self) -> None:
        to, source = self.bytes_at(), self.bytes_at()
        if to and source and to[0] == source[0] and (to[0] == "host" or to[1] == source[1]):
            return  # what a copy onto itself leaves is nobody's promise
        size = min(self.extent(to), self.extent(source))
        how = self.pick(
            "hipMemcpy", "hipMemcpy", "hipMemcpyAsync", "hipMemcpyWithStream", "hipMemcpyPeer", "HtoD", "DtoH", "DtoD"
        )
        if how == "hipMemcpyPeer":
            if self.pick(True, False):
                self.tell("hipMemcpyPeer", to, self.device(), source, self.device(), size)
            else:
                self.tell("hipMemcpyPeerAsync", to, self.device(), source, self.device(), size, self.stream())
        elif how == "hipMemcpy":
            self.tell(how, to, source, size, self.number(4, 4, 0, 1, 2, 3))
        elif how.startswith("hip"):
            self.tell(how, to, source, size, self.number(4, 4, 0, 1, 2, 3), self.stream())
        elif self.pick(True, False):
            self.tell(f"hipMemcpy{how}", to, source, size)
        else:
            self.tell(f"hipMemcpy{how}Async", to, source, size, self.stream())

    def fill(self) -> None:
        to = self.at(*MEMORY)
        how, unit = self.pick(
            ("hipMemset", 1), ("hipMemset", 1), ("hipMemsetD8", 1), ("hipMemsetD16", 2), ("hipMemsetD32", 4)
        )
        size = self.extent(to) // unit
        if self.pick(True, False):
            self.tell(how, to, self.pick(0, 1, 7, 255), size)
        else:
            self.tell(f"{how}Async", to, self.pick(0, 1, 7, 255), size, self.stream())

    def look(self) -> None:
        """Brings bytes to the host, and compares those."""
        source = self.at("device", "piece", "pinned", "managed")
        self.tell("hipMemcpy", ["host", 4 * MIB], source, min(self.extent(source), 2 * MIB), 4)
        self.tell("bytes", ["host", 4 * MIB], 2 * MIB)

    def use_managed(self) -> None:
        address = self.at("managed")
        size = self.extent(address) or 1
        kind = self.pick(*range(7))
        place = self.pick(["loc", 1, self.device()], ["loc", self.number(1, 2, 3), self.device()])
        if kind == 0:
            self.tell("hipMemAdvise", address, size, self.number(*ADVICE), self.number(0, 0, 1, 2, -1))
        elif kind == 1 and self.newer:
            self.tell("hipMemAdvise_v2", address, size, self.number(*ADVICE), place)
        elif kind == 2:
            self.tell("hipMemPrefetchAsync", address, size, self.number(0, 0, -1, -1), self.stream())
        elif kind == 3 and self.newer:
            self.tell("hipMemPrefetchAsync_v2", address, size, ["loc", self.pick(1, 2), 0], 0, self.stream())
        elif kind == 4:
            self.tell("hipStreamAttachMemAsync", self.stream(), address, self.pick(0, size), self.number(1, 2, 4))
        elif kind == 5:
            asked = [self.pick(1, 2, 3, 4) for _ in range(self.pick(4, 5, 6))]
            room = {3: 4 * DEVICES}
            sizes = [room.get(one, 4) for one in asked]
            rooms = ["array", "P", [["room", one] for one in sizes]]
            self.tell("hipMemRangeGetAttributes", rooms, ["array", "z", sizes], ["array", "i", asked], len(asked),
                      address, size)  # fmt: skip
        else:
            room = self.pick(4, 4, 12, 8 if self.slips() else 4)
            self.tell("hipMemRangeGetAttribute", ["room", room], room, self.number(1, 2, 3, 4), address, size)

    def stream_or_event(self) -> None:
        kind = self.pick(*range(10))
        event = self.live("event")
        named = ["at", event.name, 0] if event else None
        if kind == 0:
            self.tell("hipStreamCreateWithFlags", self.out("P"), self.number(0, 1), makes="stream", size=1)
        elif kind == 1:
            self.tell("hipStreamCreateWithPriority", self.out("P"), self.number(0, 1), self.number(-1, 0, 1),
                      makes="stream", size=1)  # fmt: skip
        elif kind == 2:
            self.tell("hipEventCreateWithFlags", self.out("P"), self.number(0, 1, 2, 3), makes="event", size=1)
        elif kind == 3:
            self.tell("hipEventRecord", named, self.stream())
        elif kind == 4:
            self.tell("hipStreamWaitEvent", self.stream(), named, 0)
        elif kind == 5:
            self.tell(self.pick("hipStreamSynchronize", "hipStreamQuery"), self.stream())
        elif kind == 6:
            self.tell(self.pick("hipEventQuery", "hipEventSynchronize"), named)
        elif kind == 7:
            asked = self.pick(("hipStreamGetFlags", "u"), ("hipStreamGetPriority", "i"), ("hipStreamGetDevice", "i"))
            self.tell(asked[0], self.stream(), self.out(asked[1]))
        else:
            slot = self.live("stream", "event")
            if slot:
                self.tell("hipStreamDestroy" if slot.kind == "stream" else "hipEventDestroy", ["at", slot.name, 0])
                slot.gone = True

    def devices(self) -> None:
        kind = self.pick(*range(10))
        if kind < 3:
            self.tell("hipSetDevice", self.number(0, 1, 0, 1, 2))
        elif kind == 3:
            self.tell("hipDeviceEnablePeerAccess", self.device(), 1 if self.slips() else 0)
        elif kind == 4:
            self.tell("hipDeviceDisablePeerAccess", self.device())
        elif kind == 5:
            self.tell("hipDeviceCanAccessPeer", self.out("i"), self.device(), self.device())
        elif kind == 6:
            self.tell("hipMemGetInfo", None if self.slips() else ["opaque", 8], self.out("z"))
        elif kind == 7:
            self.tell(
                "hipDeviceGetP2PAttribute", self.out("i"), self.number(0, 1, 2, 3, 4), self.device(), self.device()
            )
        elif kind == 8:
            self.tell("hipDeviceGetAttribute", self.out("i"), self.pick(*range(96), *range(9999, 10022)), self.device())
        else:
            self.tell(self.pick("hipDeviceSynchronize", "hipGetLastError", "hipPeekAtLastError", "hipExtGetLastError"))


def second_sequence(seed: int, release: str) -> list[Call]:
    story = Story(seed, release)
    acts: dict[str, list[Callable[[], None]]] = {
        "virtual": [
            story.a_mapping, story.a_mapping, story.reserve, story.create, story.create, story.map, story.map,
            story.map, story.set_access, story.set_access, story.get_access, story.get_access, story.unmap,
            story.release, story.unreserve, story.retain, story.about_handles,
        ],
        "sharing": [story.a_mapping, story.create, story.export, story.export, story.import_, story.import_, story.map],
        "buffers": [
            story.device_memory, story.device_memory, story.pinned_memory, story.managed_memory, story.pitched_memory,
            story.registered_memory, story.free, story.free,
        ],
        "bytes": [story.copy, story.copy, story.fill, story.look],
        "questions": [story.about_pointers],
        "managed": [story.managed_memory, story.use_managed, story.use_managed, story.use_managed],
        "streams": [story.stream_or_event],
        "devices": [story.devices],
    }  # fmt: skip
    themes = story.random.sample(sorted(acts), k=story.random.randint(1, 5))
    if "bytes" in themes or "questions" in themes:
        themes += story.random.sample(["virtual", "buffers", "managed"], k=2)
    for _ in range(story.random.randint(3, 40)):
        story.pick(*acts[story.pick(*themes)])()
    return story.calls
