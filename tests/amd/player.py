"""Plays sequences of HIP calls on one library and writes down each answer: python -m tests.amd.player LIBRARY < jobs.

A sequence is a list of calls, a call a list in JSON: the function, its arguments, the slot that its result goes into.
Arguments name objects by slot, never by address, so the same sequence can be played on any library:

    ["hipMalloc", [["out", "P"], 4096], "b0"]
    ["hipMemcpy", [["at", "b0", 16], ["host", 0], 4080, 4]]

A call on a slot that holds nothing is passed over. One line comes back per call: the code (or "fault": a GPU touched
what it may not), what was written to the outputs with addresses told by slot, and, if the sequence is watched, the
thread's last error. "bytes" is no call of HIP's: it tells a checksum of the host's bytes.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import zlib
from collections.abc import Callable
from ctypes import c_char, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from tests.conformance.hip import AccessDesc, AllocationProp, Hip, Location

from .guards import live, reason_to_skip

Call = list[Any]

KINDS: dict[str, Any] = {"P": c_void_p, "Q": c_uint64, "z": c_size_t, "i": c_int, "u": c_uint, "f": ctypes.c_float,
         "s": ctypes.c_char_p, "d": c_int}  # fmt: skip
ILLEGAL_ADDRESS, NOT_READY = 700, 600
INTERPROCESS = 4  # a flag of events
WILD = {"low": 0x1000, "split": 0x5123_0000_0000_0000, "last": 2**64 - 4096}
"""Addresses that are valid on no machine."""

MAKES = {  # function -> what it makes, and which argument is its size
    "hipMemAddressReserve": ("reservation", 1), "hipMemCreate": ("handle", 1), "hipMemMap": ("piece", 1),
    "hipMemImportFromShareableHandle": ("handle", None), "hipMemExportToShareableHandle": ("descriptor", None),
    "hipMalloc": ("device", 1), "hipExtMallocWithFlags": ("device", 1), "hipMallocAsync": ("device", 1),
    "hipMallocManaged": ("managed", 1), "hipHostMalloc": ("pinned", 1), "hipHostAlloc": ("pinned", 1),
    "hipMallocHost": ("pinned", 1), "hipMemAllocHost": ("pinned", 1), "hipMallocPitch": ("device", None),
    "hipMemAllocPitch": ("device", None),
    "hipHostRegister": ("registered", 1), "hipStreamCreateWithFlags": ("stream", None),
    "hipStreamCreateWithPriority": ("stream", None), "hipEventCreateWithFlags": ("event", None),
}  # fmt: skip
ENDS = {  # function -> what it ends at the address of its first argument
    "hipMemAddressFree": ("reservation",), "hipMemRelease": ("handle",), "hipMemUnmap": ("piece",),
    "hipFree": ("device", "managed", "pinned", "registered"), "hipHostFree": ("device", "managed", "pinned"),
    "hipFreeHost": ("device", "managed", "pinned"),
    "hipFreeAsync": ("device", "managed", "pinned"), "hipHostUnregister": ("registered",),
    "hipStreamDestroy": ("stream",), "hipEventDestroy": ("event",),
}  # fmt: skip
OPAQUE = ("handle", "stream", "event", "descriptor")  # a number that means nothing as an address
SKIPPED_BYTES = ["skipped: a page fault leaves any bytes"]
MOVES_BYTES = ("hipMemcpy", "hipMemset", "hipMemPrefetch", "hipEventRecord")
HOST_BYTES = 8 << 20
PATTERN = b"".join(bytes([page % 251]) * 4096 for page in range(HOST_BYTES // 4096))


@dataclass
class Thing:
    """What a slot holds."""

    kind: str
    value: int  # address, or handle
    size: int
    alive: bool = True
    spoiled: str = ""  # of a range: what failed on it, and left HIP's books in disorder
    parents: tuple[str, ...] = ()  # of a piece: its reservation and its handle
    pooled: bool = False  # from hipMallocAsync
    device: int = 0  # whose memory it is, or which was current
    opened: bool = False  # of a piece: to a device without rights, by a copy
    awaited: bool = True  # of an event: whether a stream may wait for it
    inside: Thing | None = None  # the reservation that a piece is in


class Player:
    def __init__(self, library: str) -> None:
        self.hip = Hip(library)
        self.hip.hipInit(0)
        number = c_int()
        self.hip.hipRuntimeGetVersion(ctypes.byref(number))
        self.version = (number.value // 10_000_000, number.value // 100_000 % 100)
        self.pages = c_char.from_buffer(mmap.mmap(-1, HOST_BYTES))
        self.host = ctypes.addressof(self.pages)
        self.things: dict[str, Thing] = {}
        self.device = 0  # the current one
        self.damaged, self.faulted = "", False  # by which call on AMD's library; by a GPU
        self.simulated = hasattr(self.hip.library, "hipsim_configure")
        count = c_int()
        self.hip.hipGetDeviceCount(ctypes.byref(count))
        self.devices = count.value
        if not self.simulated:
            self.faults = ctypes.CDLL(None).kfdsim_page_faults
            self.faults.restype = c_uint64
        self.warm_up()

    def write_pattern(self) -> None:
        """Into the host's bytes: no page is as another."""
        ctypes.memmove(self.host, PATTERN, HOST_BYTES)

    def warm_up(self) -> None:
        """A device's first copy takes memory for its queue; afterwards what is free depends on the program alone."""
        for device in range(self.devices):
            self.hip.hipSetDevice(device)
            address = c_void_p()
            self.hip.hipMalloc(ctypes.byref(address), 4096)
            self.hip.hipMemcpy(address.value, self.host, 4096, 1)
            self.hip.hipMemset(address.value, 1, 4096)
            self.hip.hipFree(address.value)
        self.hip.hipSetDevice(0)

    # Arguments

    def address(self, what: Any) -> int | None:
        """The number behind an argument, or None where its slot holds nothing."""
        if not isinstance(what, list):
            return int(what or 0)
        kind, *rest = what
        if kind == "at":
            thing = self.things.get(rest[0])
            return None if thing is None else thing.value + rest[1]
        if kind == "host":
            return self.host + int(rest[0])
        return WILD[rest[0]]

    def argument(self, what: Any, outputs: list[tuple[str, Any]]) -> Any:
        if not isinstance(what, list):
            return what
        kind, *rest = what
        if kind in ("at", "host", "wild"):
            return self.address(what)
        if kind == "out":
            made = KINDS[rest[0]](0x3737 if rest[0] != "s" else None)
            outputs.append((rest[0], made))
            return ctypes.addressof(made)
        if kind in ("room", "opaque", "padded"):  # n bytes for the answer, and some that no call may write
            room = ctypes.create_string_buffer(b"7" * (rest[0] + 16), rest[0] + 16)
            outputs.append((kind, room))
            return ctypes.addressof(room)
        if kind == "loc":
            return Location(*rest)
        if kind == "shared":  # a descriptor, as this release takes it: up to 7.0 by pointer
            descriptor = self.things[rest[0]].value
            return descriptor if self.version >= (7, 1) else self.argument(["value", "i", descriptor], outputs)
        structure: Any = None
        if kind == "prop":
            structure = AllocationProp(rest[0], rest[1], Location(rest[2], rest[3]))
        elif kind == "location":
            structure = Location(*rest)
        elif kind == "access":
            structure = (AccessDesc * max(1, len(rest[0])))(*[AccessDesc(Location(t, i), f) for t, i, f in rest[0]])
        elif kind == "value":
            structure = KINDS[rest[0]](self.argument(rest[1], outputs))
        elif kind == "array":
            values = [self.argument(one, outputs) for one in rest[1]]
            structure = (KINDS[rest[0]] * max(1, len(values)))(*values)
        outputs.append(("keep", structure))
        return ctypes.addressof(structure)

    def slots_of(self, what: Any) -> list[str]:
        if not isinstance(what, list) or not what:
            return []
        if what[0] in ("at", "shared"):
            return [what[1]]
        return [slot for part in what for slot in self.slots_of(part)]

    # Answers

    def told(self, kind: str, made: Any) -> Any:
        if kind == "room":
            return self.words(made.raw[:-8])
        if kind == "padded":  # the last four bytes mean nothing
            return self.words(made.raw[:-20] + bytes(4) + made.raw[-16:-8])
        if kind == "opaque":  # a number that means nothing elsewhere: which of its words were written
            return [set(made.raw[at : at + 4]) != {0x37} for at in (0, 4, 8)]
        if kind == "d":
            return "a descriptor" if 0 <= made.value < 4096 else made.value
        if kind == "s":
            return (made.value or b"").decode()
        if kind != "P":
            return round(made.value, 3) if kind == "f" else made.value
        return self.name_of(made.value or 0)

    def words(self, room: bytes) -> list[str]:
        """Eight bytes each, an address by its name."""
        out = []
        for at in range(0, len(room), 8):
            word = room[at : at + 8]
            name = self.name_of(int.from_bytes(word, "little"))
            out.append(name if "+" in name else word.hex())
        return out

    def name_of(self, value: int) -> str:
        for slot, thing in self.things.items():
            room = 1 if thing.kind in OPAQUE else max(thing.size, 1)
            if thing.alive and thing.value <= value < thing.value + room and thing.kind != "reservation":
                return f"{slot}+{value - thing.value}"
        if self.host <= value < self.host + HOST_BYTES:
            return f"host+{value - self.host}"
        return str(value) if value < 0x10000 else "an address"

    def play(self, call: Call, watched: bool = True, guarded: bool = True) -> list[Any]:
        name, arguments, *slot = call
        slots = [one for argument in arguments for one in self.slots_of(argument)]
        if name == "bytes":
            if self.faulted:
                return SKIPPED_BYTES
            return [0, [zlib.crc32(ctypes.string_at(self.argument(arguments[0], []), arguments[1]))]]
        if not hasattr(self.hip.library, name):
            return ["absent"]
        if any(slot not in self.things for slot in slots):
            return ["empty slot"]
        if slot and slot[0] in self.things and self.things[slot[0]].alive:
            return ["slot taken"]
        if any(self.is_reused(slot) for slot in slots):
            return ["reused address"]
        if any(self.is_outside(argument) for argument in arguments):
            return ["skipped: an address outside of what it is counted from"]
        if guarded and (reason := reason_to_skip(self, call)):
            return [f"skipped: {reason}"]
        answer = self.carry_out(name, arguments, slot[0] if slot else None)
        return [*answer, self.hip.hipPeekAtLastError()] if watched else answer

    def is_outside(self, argument: Any) -> bool:
        """There may be a neighbour, on one library, and not on the other."""
        if not isinstance(argument, list) or argument[0] != "at":
            return False
        thing = self.things[argument[1]]
        return thing.kind not in OPAQUE and not 0 <= argument[2] < max(thing.size, 1)

    def is_reused(self, slot: str) -> bool:
        """A dead object's address may be another's now: on one library, and not on the other."""
        dead = self.things[slot]
        if dead.pooled and not dead.alive:
            return True  # a pool may keep it
        if dead.alive or dead.kind in OPAQUE:
            return False
        return any(
            t.alive and t.kind not in OPAQUE and t.value < dead.value + dead.size and dead.value < t.value + t.size
            for t in self.things.values()
            if t is not dead.inside
        )

    def carry_out(self, name: str, arguments: list[Any], slot: str | None) -> list[Any]:
        outputs: list[tuple[str, Any]] = []
        values = [self.argument(argument, outputs) for argument in arguments]
        faults = 0 if self.simulated else self.faults()
        code: Any = getattr(self.hip, name)(*values)
        if code == NOT_READY:  # how fast a GPU is decides nothing here
            self.finish_all_work()
            code = getattr(self.hip, name)(*values)
        if code == 0 and name.startswith(MOVES_BYTES) and not self.simulated:
            self.finish_all_work()
            code = "fault" if self.faults() > faults else code
        elif self.simulated and code == ILLEGAL_ADDRESS:
            code = "fault"
        if code == "fault":
            self.faulted = True
            self.hip.hipGetLastError()
            self.hip.hipExtGetLastError()
        if code == 0 and name == "hipSetDevice":
            self.device = arguments[0]
        if code == 0:
            self.follow(name, arguments, values, outputs, slot)
        elif name == "hipMemAddressFree":
            self.spoil(values[0] or 0, "hipMemAddressFree")
        told = [self.told(kind, made) for kind, made in outputs if kind != "keep"]
        undefined = code == "fault" or (code != 0 and name.startswith("hipMemRangeGet"))  # what was begun stays
        return [code, [] if undefined else told]

    def finish_all_work(self) -> None:
        """So that a fault shows before the next call. All of these succeed, and leave the last error alone."""
        for device in range(self.devices):
            self.hip.hipSetDevice(device)
            self.hip.hipDeviceSynchronize()
        self.hip.hipSetDevice(self.device)

    def find(self, kind: str, address: int) -> Thing | None:
        alive = (thing for thing in self.things.values() if thing.alive and thing.kind == kind)
        return next((one for one in alive if one.value <= address < one.value + one.size), None)

    def spoil(self, address: int, what: str) -> None:
        for thing in self.things.values():
            if thing.kind == "reservation" and thing.value <= address < thing.value + thing.size:
                thing.spoiled = what

    def really_maps(self, address: int, size: int, handle: Thing) -> bool:
        """Up to 7.2 hipMemMap says Success whatever happened."""
        inside = any(
            t.kind == "reservation" and t.alive and t.value <= address and address + size <= t.value + t.size
            for t in self.things.values()
        )
        overlaps = any(
            t.kind == "piece" and t.alive and t.value < address + size and address < t.value + t.size
            for t in self.things.values()
        )
        return inside and not overlaps and address % 4096 == 0 and size % 4096 == 0 and size <= handle.size

    def follow(self, name: str, arguments: list[Any], values: list[Any], outputs: list[Any], slot: str | None) -> None:
        """Keeps the books after a success."""
        if name == "hipMemMap" and not self.really_maps(
            values[0], values[1], self.things[self.slots_of(arguments[3])[0]]
        ):
            self.spoil(values[0], "hipMemMap")
            return
        if name == "hipMemUnmap" and self.version < (7, 0):
            piece = self.find("piece", values[0])
            if piece and piece.size != values[1]:  # a record of it that is freed already stays in the library's books
                self.damaged = "hipMemUnmap of another size"
        if name == "hipEventRecord":
            self.things[arguments[0][1]].awaited = True
        if slot and name in MAKES:
            kind, size_at = MAKES[name]
            value = values[0] if kind in ("registered", "piece") else outputs[0][1].value
            if value:
                parents: tuple[str, ...] = ()
                if kind == "piece":
                    parents = (*self.slots_of(arguments[0]), *self.slots_of(arguments[3]))
                elif kind == "descriptor":
                    parents = tuple(self.slots_of(arguments[1]))
                if name.endswith("Pitch"):
                    size = outputs[1][1].value * values[3]
                else:
                    size = values[size_at] if size_at is not None else self.size_of_import(name, arguments)
                self.things[slot] = Thing(
                    kind, value, size, parents=parents, device=self.owner(name, arguments, parents)
                )
                self.things[slot].pooled = name == "hipMallocAsync"
                self.things[slot].awaited = name != "hipEventCreateWithFlags" or not arguments[1] & INTERPROCESS
                self.things[slot].inside = self.find("reservation", value) if kind == "piece" else None
        if name.startswith("hipMemcpy") and self.version >= (7, 0):
            self.note_opened(arguments)
        first = self.find("piece", values[0] or 0) if name == "hipMemUnmap" else None
        from_the_start = first.value if first else (values[0] or 0) if values else 0
        for kind in ENDS.get(name, ()):
            for thing in self.things.values():
                ends = thing.value <= (values[0] or 0) < thing.value + max(thing.size, 1)
                if kind in OPAQUE or kind == "registered":  # two registrations may overlap
                    ends = thing.value == values[0]
                if kind == "piece" and len(values) > 1:  # since 7.0 the size counts from the start of the first piece
                    ends = from_the_start <= thing.value < from_the_start + values[1]
                if thing.kind == kind and thing.alive and ends:
                    thing.alive = False
                    if kind == "handle" and len(values) == 1:
                        return

    def note_opened(self, arguments: list[Any]) -> None:
        """A copy between two devices opens the mappings that it uses to the other device, the first time."""
        sides = [live(self, argument, ("device", "piece")) for argument in arguments if isinstance(argument, list)]
        devices = {self.device, *(side.device for side in sides if side)}
        for side in sides:
            if side and side.kind == "piece" and len(devices) > 1:
                side.opened = True

    def owner(self, name: str, arguments: list[Any], parents: tuple[str, ...]) -> int:
        if name == "hipMemCreate" and self.version < (7, 1):  # later ones take the current device's
            return int(arguments[2][4])
        if parents and parents[-1] in self.things:
            return self.things[parents[-1]].device
        if name == "hipMallocAsync" and isinstance(arguments[2], list):
            return self.things[arguments[2][1]].device
        return self.device

    def size_of_import(self, name: str, arguments: list[Any]) -> int:
        exported = self.slots_of(arguments[1])
        return self.things[exported[0]].size if exported else 0

    def clean(self) -> None:
        """Undoes what a sequence left, so that the next one begins on an empty machine."""
        hip, alive = self.hip, [thing for thing in self.things.values() if thing.alive]
        for thing in alive:
            if thing.kind == "piece":
                hip.hipMemUnmap(thing.value, thing.size)
        undo: dict[str, Callable[[Thing], Any]] = {
            "reservation": lambda t: None if t.spoiled else hip.hipMemAddressFree(t.value, t.size),
            "handle": lambda t: hip.hipMemRelease(t.value),
            "descriptor": lambda t: os.close(t.value),
            "registered": lambda t: hip.hipHostUnregister(t.value),
            "stream": lambda t: hip.hipStreamDestroy(t.value),
            "event": lambda t: hip.hipEventDestroy(t.value),
        }
        for thing in alive:
            if thing.kind != "piece":
                undo.get(thing.kind, lambda t: hip.hipFree(t.value))(thing)
        for device in range(self.devices):
            hip.hipSetDevice(device)
            for peer in range(self.devices):
                hip.hipDeviceDisablePeerAccess(peer)
        hip.hipSetDevice(0)
        hip.hipGetLastError()
        hip.hipExtGetLastError()
        self.things.clear()
        self.device, self.damaged, self.faulted = 0, "", False


def main() -> None:
    """Jobs on stdin, one JSON line each: [name, calls, watched, guarded].

    Watched: the last error is looked at after each call. Guarded: guards.py leaves calls out. Answers go to stdout,
    and whether AMD's library can be used for another job.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    player = Player(sys.argv[1])
    for line in sys.stdin:
        name, calls, watched, guarded = json.loads(line)
        done = []
        if any(call[0] == "bytes" for call in calls):
            player.write_pattern()
        for number, call in enumerate(calls):
            answers.write(f"{name} {number}\n")  # so that a crash is known by its call
            done.append(player.play(call, watched, guarded))
        answers.write(f"{name} {len(calls)}\n")
        intact = player.simulated or not player.damaged
        player.clean()
        answers.write(json.dumps([name, done, intact]) + "\n")


if __name__ == "__main__":
    main()
