"""Random sequences of calls, held against a model of the rules that fits on a page."""

from __future__ import annotations

import ctypes
from ctypes import c_ulonglong, c_void_p
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ..conformance.hip import (
    GLOBAL,
    ILLEGAL_ADDRESS,
    INVALID_DEVICE,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    PEER_ALREADY_ENABLED,
    PEER_NOT_ENABLED,
    SUCCESS,
    UNKNOWN,
    AccessDesc,
    Hip,
    Location,
    access,
    prop,
)
from ..conformance.sim import PERSONALITIES, Simulator
from ..conftest import WHOLE

PAGE = 4096
PAGES_PER_DEVICE = 64
LINKED = {(0, 1), (1, 0)}
PROFILE = "\n".join(
    [f"device.{i}.memory={PAGES_PER_DEVICE * PAGE}" for i in range(3)] + ["link.0.1=xgmi,1", "link.1.0=xgmi,1"]
)

devices = st.integers(-1, 3)
pages = st.integers(0, 6)
rights = st.sampled_from([0, 1, 3, 2])
index = st.integers(0, 7)


@dataclass
class Allocation:
    device: int
    pages: int
    content: int = 0
    references: int = 1
    mappings: int = 0


@dataclass
class Piece:
    allocation: int
    pages: int
    rights: dict[int, int] = field(default_factory=dict)


@dataclass
class Reservation:
    pages: int
    pieces: dict[int, Piece] = field(default_factory=dict)  # by page


class SimulatorAgainstModel(RuleBasedStateMachine):
    hip: Hip

    @initialize(version=st.sampled_from(sorted(PERSONALITIES)))
    def start(self, version: str) -> None:
        self.simulator = Simulator(self.hip)
        self.simulator.undo_everything(self.hip)
        self.simulator.configure(f"hip_version={PERSONALITIES[version]}\n{PROFILE}")
        self.new = self.hip.version >= (7, 0)
        self.used = [0, 0, 0]
        self.current = 0
        self.allocations: dict[int, Allocation] = {}
        self.reservations: dict[int, Reservation] = {}
        self.buffers: dict[int, tuple[int, int]] = {}
        self.peers: set[tuple[int, int]] = set()
        self.hip.hipSetDevice(0)

    # What a call is aimed at: mostly something alive, sometimes something gone.

    def some(self, table: dict[int, object], which: int) -> int | None:
        return sorted(table)[which % len(table)] if table else None

    # Devices and peers

    @rule(device=devices)
    def set_device(self, device: int) -> None:
        code = self.hip.hipSetDevice(device)
        assert code == (SUCCESS if 0 <= device < 3 else INVALID_DEVICE)
        self.current = device if code == SUCCESS else self.current

    @rule(peer=devices, enable=st.booleans())
    def peer_access(self, peer: int, enable: bool) -> None:
        pair = (self.current, peer)
        if enable:
            code = self.hip.hipDeviceEnablePeerAccess(peer, 0)
            again = PEER_ALREADY_ENABLED if pair in self.peers else SUCCESS
        else:
            code = self.hip.hipDeviceDisablePeerAccess(peer)
            again = SUCCESS if pair in self.peers else PEER_NOT_ENABLED
        assert code == (again if pair in LINKED else INVALID_DEVICE)
        if code == SUCCESS:
            self.peers ^= {pair}

    # Ordinary memory

    @rule(n=pages)
    def malloc(self, n: int) -> None:
        out = c_void_p()
        code = self.hip.hipMalloc(ctypes.byref(out), n * PAGE)
        fits = self.used[self.current] + n <= PAGES_PER_DEVICE
        assert code == (SUCCESS if fits else OUT_OF_MEMORY)
        assert (out.value is None) == (n == 0 or not fits)
        if out.value:
            self.buffers[out.value] = (self.current, n)
            self.used[self.current] += n

    @rule(which=index, interior=st.booleans())
    def free(self, which: int, interior: bool) -> None:
        address = self.some(self.buffers, which)  # type: ignore[arg-type]
        if address is None:
            return
        assert self.hip.hipFree(address + interior) == (INVALID_VALUE if interior else SUCCESS)
        if not interior:
            device, n = self.buffers.pop(address)
            self.used[device] -= n
            assert self.hip.hipFree(address) == INVALID_VALUE

    @precondition(lambda self: self.buffers)
    @rule(which=index, device=st.integers(0, 2))
    def kernel_on_buffer(self, which: int, device: int) -> None:
        address = sorted(self.buffers)[which % len(self.buffers)]
        owner, n = self.buffers[address]
        allowed = device == owner or (device, owner) in self.peers
        assert (self.simulator.touch(device, address, n * PAGE) == 0) == allowed

    @rule(n=pages)
    def managed(self, n: int) -> None:
        out = c_void_p()
        code = self.hip.hipMallocManaged(ctypes.byref(out), n * PAGE, GLOBAL)
        assert code == (SUCCESS if n else INVALID_VALUE)
        if n:
            assert self.hip.hipFree(out) == SUCCESS

    # Virtual memory

    @rule(n=pages)
    def reserve(self, n: int) -> None:
        out = c_void_p()
        code = self.hip.hipMemAddressReserve(ctypes.byref(out), n * PAGE, 0, None, 0)
        assert code == (SUCCESS if n else INVALID_VALUE if self.new else OUT_OF_MEMORY)
        if out.value:
            for base, other in self.reservations.items():
                assert out.value + n * PAGE <= base or base + other.pages * PAGE <= out.value
            self.reservations[out.value] = Reservation(n)

    @rule(which=index, offset=st.integers(0, 2))
    def address_free(self, which: int, offset: int) -> None:
        base = self.some(self.reservations, which)  # type: ignore[arg-type]
        if base is None:
            return
        inside = min(offset, self.reservations[base].pages - 1)
        code = self.hip.hipMemAddressFree(base + inside * PAGE, PAGE)
        assert code == (UNKNOWN if self.reservations[base].pieces else SUCCESS)
        if code == SUCCESS:
            del self.reservations[base]
            assert self.hip.hipMemAddressFree(base, PAGE) == INVALID_VALUE

    @rule(n=pages, device=devices)
    def create(self, n: int, device: int) -> None:
        out = c_void_p()
        code = self.hip.hipMemCreate(ctypes.byref(out), n * PAGE, ctypes.byref(prop(device)), 0)
        if n == 0:
            expected = INVALID_VALUE
        elif not 0 <= device < 3:
            expected = INVALID_DEVICE if self.new else INVALID_VALUE
        else:
            expected = SUCCESS if self.used[device] + n <= PAGES_PER_DEVICE else OUT_OF_MEMORY
        assert code == expected
        if out.value:
            assert out.value not in self.allocations
            self.allocations[out.value] = Allocation(device, n)
            self.used[device] += n

    @rule(which=index)
    def release(self, which: int) -> None:
        handle = self.some(self.allocations, which)  # type: ignore[arg-type]
        if handle is None:
            return
        allocation = self.allocations[handle]
        assert self.hip.hipMemRelease(handle) == (SUCCESS if allocation.references else INVALID_VALUE)
        allocation.references = max(allocation.references - 1, 0)
        self.drop_unused(handle)

    def drop_unused(self, handle: int) -> None:
        allocation = self.allocations[handle]
        if not allocation.references and not allocation.mappings:
            self.used[allocation.device] -= allocation.pages
            del self.allocations[handle]
            assert self.hip.hipMemRelease(handle) == INVALID_VALUE

    @rule(where=index, page=pages, which=index, n=pages)
    def map(self, where: int, page: int, which: int, n: int) -> None:
        base = self.some(self.reservations, where)  # type: ignore[arg-type]
        handle = self.some(self.allocations, which)  # type: ignore[arg-type]
        if base is None or handle is None:
            return
        place, allocation = self.reservations[base], self.allocations[handle]
        page %= place.pages
        overlaps = any(page < p + piece.pages and p < page + n for p, piece in place.pieces.items())
        good = n > 0 and page + n <= place.pages and n <= allocation.pages and not overlaps
        code = self.hip.hipMemMap(base + page * PAGE, n * PAGE, 0, handle, 0)
        assert code == (SUCCESS if good else INVALID_VALUE)
        if good:
            place.pieces[page] = Piece(handle, n)
            allocation.mappings += 1

    def run_from(self, place: Reservation, page: int, n: int) -> list[int]:
        """The contiguous pieces that start at `page` and reach `n` pages or beyond; [] where there is a hole."""
        results, at = [], page
        while at < page + n:
            if at not in place.pieces:
                return []
            results.append(at)
            at += place.pieces[at].pages
        return results

    def start_of(self, place: Reservation, page: int) -> int:
        """The first page of the piece that `page` lies in; without a piece the page itself."""
        return next((p for p, piece in place.pieces.items() if p <= page < p + piece.pages), page)

    @rule(where=index, page=pages, n=pages)
    def unmap(self, where: int, page: int, n: int) -> None:
        base = self.some(self.reservations, where)  # type: ignore[arg-type]
        if base is None:
            return
        place = self.reservations[base]
        page %= place.pages
        # Since 7.0 an address inside a mapping means the mapping, and its size counts from there (docs/simulator.md).
        result = self.run_from(place, self.start_of(place, page) if self.new else page, n)
        whole = sum(place.pieces[p].pages for p in result) == n > 0
        good = whole and (self.new or len(result) == 1)
        assert self.hip.hipMemUnmap(base + page * PAGE, n * PAGE) == (SUCCESS if good else INVALID_VALUE)
        for p in result if good else []:
            handle = place.pieces.pop(p).allocation
            self.allocations[handle].mappings -= 1
            self.drop_unused(handle)

    @rule(where=index, page=pages, n=pages, grants=st.lists(st.tuples(devices, rights), max_size=3))
    def set_access(self, where: int, page: int, n: int, grants: list[tuple[int, int]]) -> None:
        base = self.some(self.reservations, where)  # type: ignore[arg-type]
        if base is None:
            return
        place = self.reservations[base]
        page %= place.pages
        result = self.run_from(place, page, n)
        covered = sum(place.pieces[p].pages for p in result)
        expected = INVALID_VALUE
        if n and grants and (covered == n or (covered > n and not self.new)):
            expected = SUCCESS
            for device, flags in grants:
                owners = {self.allocations[place.pieces[p].allocation].device for p in result}
                if flags == 2 or not 0 <= device < 3 or any(o != device and (device, o) not in LINKED for o in owners):
                    expected = INVALID_VALUE
                    break
                for p in result:
                    place.pieces[p].rights[device] = flags
        descs = (AccessDesc * max(len(grants), 1))(*[access(d, f) for d, f in grants])
        assert self.hip.hipMemSetAccess(base + page * PAGE, n * PAGE, descs, len(grants)) == expected

    @rule(where=index, page=pages, device=st.integers(0, 2), value=st.integers(1, 255))
    def touch_copy_and_ask(self, where: int, page: int, device: int, value: int) -> None:
        base = self.some(self.reservations, where)  # type: ignore[arg-type]
        if base is None:
            return
        place = self.reservations[base]
        page %= place.pages
        address = base + page * PAGE
        start = next((p for p, piece in place.pieces.items() if p <= page < p + piece.pages), None)
        flags = c_ulonglong()
        asked = self.hip.hipMemGetAccess(ctypes.byref(flags), ctypes.byref(Location(1, device)), address)
        if start is None:
            assert asked == INVALID_VALUE
            assert self.simulator.touch(device, address, 1, 1) != 0
            assert self.hip.hipMemset(address, value, PAGE) == INVALID_VALUE
            return
        piece = place.pieces[start]
        allocation = self.allocations[piece.allocation]
        right = piece.rights.get(device, 0)
        assert (asked, flags.value) == (SUCCESS, right)
        assert (self.simulator.touch(device, address, PAGE, 1) == 0) == (right >= 1)
        assert (self.simulator.touch(device, address, PAGE, 2) == 0) == (right == 3)
        # Of pageable memory the current GPU copies since 7.0, before that the owner; a fill is the other way round.
        readable = piece.rights.get(self.current if self.new else allocation.device, 0) >= 1
        filling = {self.current, allocation.device} if self.new else {self.current}
        writable = any(piece.rights.get(d, 0) == 3 for d in filling)
        whole = base + start * PAGE
        if readable:  # the same memory under every address
            assert self.hip.read(whole, 1)[0] == allocation.content
        assert self.hip.hipMemset(whole, value, 1) == (SUCCESS if writable else ILLEGAL_ADDRESS)
        allocation.content = value if writable else allocation.content

    @invariant()
    def the_ledger_agrees(self) -> None:
        if not hasattr(self, "simulator"):
            return
        ledger = self.simulator.ledger()
        assert [d["used"] for d in ledger["devices"]] == [n * PAGE for n in self.used]
        assert {int(a["handle"], 16): (a["references"], a["mappings"]) for a in ledger["allocations"]} == {
            handle: (a.references, a.mappings) for handle, a in self.allocations.items()
        }
        assert {int(r["address"], 16) for r in ledger["reservations"]} == set(self.reservations)
        assert len(ledger["mappings"]) == sum(len(r.pieces) for r in self.reservations.values())

    def teardown(self) -> None:
        if not hasattr(self, "simulator"):
            return
        for base, place in self.reservations.items():
            for page, piece in place.pieces.items():
                assert self.hip.hipMemUnmap(base + page * PAGE, piece.pages * PAGE) == SUCCESS
            assert self.hip.hipMemAddressFree(base, PAGE) == SUCCESS
        for handle, allocation in self.allocations.items():
            for _ in range(allocation.references):
                assert self.hip.hipMemRelease(handle) == SUCCESS
        for address in self.buffers:
            assert self.hip.hipFree(address) == SUCCESS
        for device, peer in self.peers:
            self.hip.hipSetDevice(device)
            assert self.hip.hipDeviceDisablePeerAccess(peer) == SUCCESS
        assert self.simulator.alive() == {}


def test_the_simulator_answers_as_the_model_does(hip: Hip) -> None:
    SimulatorAgainstModel.hip = hip
    case = SimulatorAgainstModel.TestCase
    case.settings = settings(
        max_examples=150 if WHOLE else 60,
        stateful_step_count=60,
        suppress_health_check=list(HealthCheck),
    )
    case().runTest()


@pytest.mark.skipif("not config.getoption('--hypothesis-seed')", reason="the long run is for a chosen seed")
def test_the_simulator_answers_as_the_model_does_for_long(hip: Hip) -> None:
    SimulatorAgainstModel.hip = hip
    case = SimulatorAgainstModel.TestCase
    case.settings = settings(max_examples=3000, stateful_step_count=150)
    case().runTest()
