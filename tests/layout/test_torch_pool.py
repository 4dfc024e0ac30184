"""The allocator that PyTorch calls, called as PyTorch calls it: by its exported C functions, on simulated memory."""

from __future__ import annotations

import ctypes
import random
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hipplan
from hipplan import _core
from hipplan.layout.layout import Layout
from hipplan.layout.mempool import used_by_all_threads
from hipplan.layout.torchpool import TorchPool
from tests.conftest import Simulator

KIB = 1024
ROOM = 1024 * KIB
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "regions": {
        "scratch": {"device": "gpu.1", "size": ROOM},
        "wide": {"devices": ["gpu.*"], "size": ROOM},
        "sealed": {"size": ROOM, "access": {"gpu.0": "r"}},
    },
    "buffers": {"staging": {"kind": "pinned", "size": ROOM}, "plain": {"kind": "device", "size": ROOM}},
}
EXPORTS = ctypes.CDLL(_core.__file__)


class Allocator:
    """A pool's two functions."""

    def __init__(self, pool: Any, device: int = 1) -> None:
        self._malloc = getattr(EXPORTS, f"hipplan_pool_malloc_{pool.slot}")
        self._malloc.restype = ctypes.c_void_p
        self._free = getattr(EXPORTS, f"hipplan_pool_free_{pool.slot}")
        self.device = device

    def malloc(self, size: int) -> int | None:
        result: int | None = self._malloc(ctypes.c_ssize_t(size), self.device, None)
        return result

    def free(self, address: int, size: int = 0) -> None:
        self._free(ctypes.c_void_p(address), ctypes.c_ssize_t(size), self.device, None)


@pytest.fixture
def layout(sim: Simulator) -> Iterator[Layout]:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        yield layout


@pytest.fixture
def pool(layout: Layout) -> Iterator[Any]:
    pool = TorchPool(layout._holding, "scratch").native
    yield pool
    pool.close()


def test_blocks_lie_in_the_region_and_are_leases(pool: Any, layout: Layout) -> None:
    base = layout["scratch"].address
    allocator = Allocator(pool)
    first, second = allocator.malloc(1000), allocator.malloc(1)

    assert (first, second) == (base, base + KIB)
    assert (pool.blocks, pool.used, layout.leases) == (2, KIB + 512, 2)
    with pytest.raises(hipplan.LayoutInUse, match="'scratch' \\(2\\)"):
        layout.close()
    allocator.free(base)
    allocator.free(base + KIB)
    assert (pool.blocks, pool.used, layout.leases, pool.largest_free) == (0, 0, 0, ROOM)


def test_no_room_is_a_null_pointer(pool: Any) -> None:
    allocator = Allocator(pool)

    assert allocator.malloc(ROOM + 1) is None
    assert allocator.malloc(0) is None
    assert allocator.malloc(-1) is None
    assert allocator.malloc(2**62) is None
    assert Allocator(pool, device=0).malloc(512) is None
    whole = allocator.malloc(ROOM)
    assert whole is not None
    assert allocator.malloc(1) is None
    allocator.free(whole)


def test_unknown_pointers_are_not_freed(pool: Any) -> None:
    allocator = Allocator(pool)
    block = allocator.malloc(4 * KIB) or 0
    for wrong in (0, block + 512, block - 512, 2**63):
        allocator.free(wrong)

    assert pool.blocks == 1
    allocator.free(block)
    allocator.free(block)
    assert (pool.blocks, pool.largest_free) == (0, ROOM)


def test_the_smallest_gap_that_fits_is_taken_and_neighbours_join(pool: Any) -> None:
    allocator = Allocator(pool)
    sizes = [8 * KIB, KIB, 4 * KIB, KIB, 16 * KIB, KIB]
    blocks = [allocator.malloc(size) or 0 for size in sizes]
    for hole in (0, 2, 4):
        allocator.free(blocks[hole])

    assert allocator.malloc(3 * KIB) == blocks[2]
    assert allocator.malloc(9 * KIB) == blocks[4]
    allocator.free(blocks[2])
    allocator.free(blocks[1])
    assert allocator.malloc(13 * KIB) == blocks[0]
    for block in (blocks[0], blocks[3], blocks[4], blocks[5]):
        allocator.free(block)
    assert pool.largest_free == ROOM


@settings(max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 200 * KIB)), max_size=60))
def test_blocks_never_meet_and_all_room_comes_back(steps: list[tuple[bool, int]]) -> None:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        pool = TorchPool(layout._holding, "scratch").native
        allocator, base = Allocator(pool), layout["scratch"].address
        out: dict[int, int] = {}
        for frees, size in steps:
            if frees and out:
                block = sorted(out)[size % len(out)]
                allocator.free(block, out.pop(block))
                continue
            free, block_or_none = pool.largest_free, allocator.malloc(size)
            assert (block_or_none is None) == (-(-size // 512) * 512 > free)
            if block_or_none is not None:
                out[block_or_none] = size
            ends = sorted((at, at + size) for at, size in out.items())
            assert all(end <= start for (_, end), (start, _) in pairwise(ends))
            assert all(base <= at and end <= base + ROOM for at, end in ends)
        for block in out:
            allocator.free(block)
        assert (pool.blocks, pool.used, pool.largest_free, layout.leases) == (0, 0, ROOM, 0)
        pool.close()


def test_threads_share_a_pool(pool: Any) -> None:
    allocator = Allocator(pool)

    def work(seed: int) -> None:
        numbers = random.Random(seed)
        mine: list[int] = []
        for _ in range(300):
            if mine and numbers.random() < 0.5:
                allocator.free(mine.pop(numbers.randrange(len(mine))))
            elif (block := allocator.malloc(numbers.randrange(1, 8 * KIB))) is not None:
                mine.append(block)
        for block in mine:
            allocator.free(block)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (pool.blocks, pool.largest_free) == (0, ROOM)


def test_a_free_waits_for_the_device_as_hipfree_does(pool: Any, sim: Simulator) -> None:
    allocator = Allocator(pool)
    block = allocator.malloc(512) or 0
    sim.runtime.arm_faults("hipDeviceSynchronize@1=hipErrorUnknown")
    allocator.free(block)

    assert sim.runtime.faults_fired() == 1
    assert pool.blocks == 0
    assert "hipDeviceSynchronize" in _core.take_leaks()[0]


def test_a_closed_pool_takes_back_and_gives_out_nothing(layout: Layout) -> None:
    pool = TorchPool(layout._holding, "scratch").native
    allocator = Allocator(pool)
    block = allocator.malloc(512) or 0
    pool.close()

    assert allocator.malloc(512) is None
    allocator.free(block)
    assert pool.blocks == 0


def test_slots_are_used_again(layout: Layout) -> None:
    for _ in range(3):
        pools = [TorchPool(layout._holding, "scratch").native for _ in range(16)]
        assert sorted(pool.slot for pool in pools) == list(range(16))
        with pytest.raises(RuntimeError, match="16 pools already"):
            TorchPool(layout._holding, "scratch")
        for pool in pools:
            pool.close()


def test_the_slot_of_a_closed_pool_is_used_again_once_its_last_block_is_freed(layout: Layout) -> None:
    for _ in range(17):  # there are 16 slots
        pool = TorchPool(layout._holding, "scratch").native
        allocator = Allocator(pool)
        block = allocator.malloc(512) or 0
        pool.close()
        allocator.free(block)


def test_a_slot_s_functions_are_not_the_next_pool_s(layout: Layout) -> None:
    """PyTorch keeps them for as long as a user keeps the MemPool that torch_pool() gave."""
    first = TorchPool(layout._holding, "scratch")
    first.close()
    second = TorchPool(layout._holding, "scratch")
    try:
        assert second.native.slot != first.native.slot
        assert Allocator(first.native).malloc(256) is None
    finally:
        second.close()


def test_slots_of_layouts_that_were_dropped_are_used_again(sim: Simulator) -> None:
    for _ in range(20):
        TorchPool(hipplan.apply(PLAN, runtime="sim")._holding, "scratch")


@pytest.mark.parametrize(
    ("name", "why"), [("staging", "pinned"), ("wide", "several devices"), ("sealed", "may not write")]
)
def test_what_cannot_be_a_pool(name: str, why: str, layout: Layout) -> None:
    with pytest.raises(ValueError, match=why):
        TorchPool(layout._holding, name)


def test_a_device_buffer_can(layout: Layout) -> None:
    pool = TorchPool(layout._holding, "plain").native
    allocator = Allocator(pool, device=0)
    block = allocator.malloc(512)

    assert block == layout["plain"].address
    allocator.free(block or 0)
    pool.close()


def test_pytorch_and_the_simulator_do_not_go_together(layout: Layout) -> None:
    with pytest.raises(RuntimeError, match=r"not installed|cannot allocate"), layout.torch_pool("scratch"):
        pytest.fail("it was entered")
    assert layout.leases == 0


def test_a_change_in_place_calls_for_another_pool_when_no_tensor_is_left(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TorchPool, "trim", lambda self: None)  # PyTorch's cache holds nothing here
    plan = {"hipplan": 1, "regions": {"r": {"chunk": "2MiB", "size": "2MiB", "reserve": "8MiB"}}}
    with hipplan.apply(plan, runtime="sim") as layout:
        first = TorchPool(layout._holding, "r")
        assert not first.is_outdated()
        block = Allocator(first.native, 0).malloc(KIB)
        assert block
        layout.grow("r", by="2MiB")
        assert not first.is_outdated()  # it keeps its size
        Allocator(first.native, 0).free(block)
        assert first.is_outdated()
        second = TorchPool(layout._holding, "r")
        assert second.native.largest_free == 4 * 1024 * KIB
        layout.remap("r")
        assert Allocator(second.native, 0).malloc(KIB) is None  # of memory that is gone
        assert second.is_outdated()
        third = TorchPool(layout._holding, "r")
        block = Allocator(third.native, 0).malloc(KIB)
        assert block
        Allocator(third.native, 0).free(block)
        third.close()


def test_a_pool_sleeps_with_its_region(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(empty_cache=lambda: None))
    monkeypatch.setattr(TorchPool, "_torch", lambda self: torch)
    pool = layout._torch_pools["scratch"] = TorchPool(layout._holding, "scratch")
    allocator = Allocator(pool.native)
    block = allocator.malloc(KIB)
    with pytest.raises(hipplan.LayoutInUse, match="'scratch'"):
        layout.sleep("scratch")
    layout.sleep("scratch", force=True)
    assert allocator.malloc(KIB) is None  # nothing is there
    layout.wake()
    more = allocator.malloc(KIB)
    assert (block, more) == (layout["scratch"].address, (layout["scratch"].address) + KIB)
    for item in (block, more):
        allocator.free(item or 0)
    layout.sleep("scratch")  # an empty one needs no force
    layout.wake()


def test_a_pool_is_for_this_thread_or_all(layout: Layout) -> None:
    pool = TorchPool(layout._holding, "scratch")
    with pytest.raises(ValueError, match="threads is 'this' or 'all', not 'some'"), pool.used("some"):  # type: ignore[arg-type]
        pass
    pool.close()


@pytest.mark.parametrize("there", [(), ("_cuda_beginAllocateToPool",), ("_cuda_endAllocateToPool",)])
def test_a_pytorch_that_cannot_do_it_for_all_threads_is_named(
    there: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    private = SimpleNamespace(**dict.fromkeys(there, lambda *_: None))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=private, __version__="2.5.0"))
    with (
        pytest.raises(RuntimeError, match=r"threads='all' needs another PyTorch: 2.5.0"),
        used_by_all_threads(SimpleNamespace(id=(0, 1)), 0),
    ):
        pass
