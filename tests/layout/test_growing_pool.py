"""Pools that take chunks as an allocator asks: driven without PyTorch, by their exported functions."""

from __future__ import annotations

import gc
import json
import random
import threading
from typing import Any

import pytest

import hipplan
from hipplan import _core
from hipplan.errors import ApplyError, LayoutInUse, PlanError
from hipplan.layout.layout import Layout
from tests.conftest import Simulator
from tests.descriptors import descriptors
from tests.layout.native_pool import Allocator

MIB = 2**20
CHUNK = 4 * MIB
POOL: dict[str, Any] = {"device": "gpu.0", "size": 0, "reserve": "64MiB", "chunk": CHUNK, "torch": {"tag": "weights"}}
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "regions": {
        "weights": POOL,
        "weights.1": {**POOL, "device": "gpu.1"},
        "kv": {**POOL, "torch": {"tag": "kv_cache"}},
        "empty": {"device": "gpu.0", "size": 0, "reserve": "16MiB", "chunk": "2MiB"},
        "plain": {"device": "gpu.0", "size": "2MiB"},
    },
}


def of(layout: Layout, region: str = "weights") -> Any:
    return next(pool for pool in layout.usage() if pool.region == region)


def test_memory_comes_with_blocks_and_goes_with_trim(layout: Layout, sim: Simulator) -> None:
    alive, allocator = sim.alive(), Allocator(layout, "weights")
    assert sim.alive() == alive
    first, second, large = (allocator.block(size) for size in (MIB, MIB, 9 * MIB))
    base = layout["weights"].address
    assert (first, second, large) == (base, base + MIB, base + CHUNK)
    assert (of(layout).mapped, of(layout).used, of(layout).blocks) == (16 * MIB, 11 * MIB, 3)
    for block in (first, second, large):
        sim.write(block, b"hello")
    allocator.free(large)
    assert of(layout).mapped == 16 * MIB  # a kernel may still use it
    assert layout.trim("weights") == 12 * MIB
    assert (of(layout).mapped, of(layout).used) == (CHUNK, 2 * MIB)
    assert sim.read(first, 5) == b"hello"
    allocator.free(first)
    allocator.free(second)
    assert layout.trim() == CHUNK
    assert sim.alive() == alive


def test_what_was_freed_is_taken_again_only_after_the_device_was_idle(layout: Layout) -> None:
    allocator = Allocator(layout, "weights")
    kept, freed = allocator.block(MIB), allocator.block(MIB)
    allocator.free(freed)
    other = allocator.block(MIB)
    assert other != freed
    layout.trim()
    assert allocator.block(MIB) == freed
    for block in (kept, other, freed):
        allocator.free(block)


def test_no_room_is_null_and_says_why(layout: Layout) -> None:
    allocator = Allocator(layout, "weights")
    assert [allocator.malloc(size) for size in (0, -1, 2**62, 65 * MIB)] == [None] * 4
    assert "it reserves 67108864 bytes" in allocator.pool.native.why_full
    assert allocator.malloc(MIB, device=1) is None
    whole = allocator.block(64 * MIB)
    assert allocator.malloc(512) is None
    assert "no 4194304 bytes" in allocator.pool.native.why_full
    for wrong in (0, whole + 512, whole - 512, 2**63):
        allocator.free(wrong)
    assert of(layout).blocks == 1
    allocator.free(whole)
    allocator.free(whole)


def test_tensors_live_through_sleep(layout: Layout, sim: Simulator) -> None:
    allocator = Allocator(layout, "weights")
    blocks = [allocator.block(3 * MIB) for _ in range(4)]
    for number, block in enumerate(blocks):
        sim.fill(block, number + 1, 3 * MIB)
    before = sim.alive()
    layout.sleep("weights")
    assert of(layout).state == "host" and of(layout).mapped == 0 and of(layout).saved == 16 * MIB
    assert layout.asleep == {"weights": "host"}
    assert allocator.malloc(512) is None
    allocator.free(blocks.pop())
    layout.wake("weights")
    assert layout.asleep == {} and of(layout).mapped == 12 * MIB  # what was freed meanwhile is not restored
    for number, block in enumerate(blocks):
        assert sim.read(block, 3 * MIB) == bytes([number + 1]) * (3 * MIB)
    assert sim.alive() != before  # the chunk that was freed
    for block in blocks:
        allocator.free(block)


def test_a_copy_is_kept_for_the_next_sleep(layout: Layout, sim: Simulator) -> None:
    allocator = Allocator(layout, "weights")
    block = allocator.block(MIB)
    sim.write(block, b"first")
    layout.sleep("weights")
    layout.wake("weights", retain=True)
    assert of(layout).saved == CHUNK
    assert sim.read(block, 5) == b"first"
    sim.write(block, b"later")
    sim.runtime.arm_faults("hipHostMalloc@1+=hipErrorOutOfMemory")
    layout.sleep("weights")
    layout.wake()
    assert sim.read(block, 5) == b"later" and of(layout).saved == 0
    allocator.free(block)


def test_what_is_dropped_comes_back_with_other_bytes(layout: Layout, sim: Simulator) -> None:
    allocator = Allocator(layout, "weights")
    block = allocator.block(MIB)
    layout.sleep("weights", to="drop")
    assert (layout.asleep, of(layout).saved) == ({"weights": "drop"}, 0)
    layout.wake()
    sim.write(block, b"again")
    assert sim.read(block, 5) == b"again"
    allocator.free(block)


def test_a_tag_means_all_its_regions_and_no_name_means_all(layout: Layout) -> None:
    allocators = [Allocator(layout, name) for name in ("weights", "kv")]
    blocks = [allocator.block(MIB) for allocator in allocators]
    layout.sleep()
    assert layout.asleep == {"weights": "host", "weights.1": "host", "kv": "host", "plain": "host"}
    layout.wake(["weights*"])
    assert layout.asleep == {"kv": "host", "plain": "host"}
    layout.wake("kv_cache")
    assert layout.asleep == {"plain": "host"}
    layout.wake()
    layout.sleep(["kv*", "plain"], to="drop")
    assert layout.asleep == {"kv": "drop", "plain": "drop"}
    layout.wake(["plain", "kv"])
    for allocator, block in zip(allocators, blocks, strict=True):
        allocator.free(block)


def test_pools_wake_again_where_the_rest_cannot_sleep(layout: Layout, sim: Simulator) -> None:
    allocator = Allocator(layout, "weights")
    block = allocator.block(MIB)
    sim.write(block, b"hello")
    lease = _core.Lease(layout["plain"])
    with pytest.raises(LayoutInUse):
        layout.sleep(["weights", "plain"])
    del lease
    gc.collect()
    assert layout.asleep == {}
    assert sim.read(block, 5) == b"hello"
    allocator.free(block)


def test_a_pool_sleeps_into_no_file(layout: Layout, tmp_path: Any) -> None:
    Allocator(layout, "weights")
    with pytest.raises(ApplyError, match="go to host memory or are dropped") as refused:
        layout.sleep("weights", to=tmp_path / "bytes.bin")
    assert refused.value.diagnostics[0].code == "HP440"


def test_who_is_inside_keeps_it_awake_and_sleep_keeps_out(layout: Layout) -> None:
    pool = Allocator(layout, "weights").pool
    with pool.entering():
        with pytest.raises(LayoutInUse, match="PyTorch allocates in it"):
            layout.sleep("weights")
        with pytest.raises(LayoutInUse, match="PyTorch allocates in it"):
            layout.close()
        with pool.entering():  # another thread may enter meanwhile
            pass
    layout.sleep("weights")
    with pytest.raises(ApplyError, match="HP441"), pool.entering():
        pass
    layout.wake("weights")
    pool.stop()
    with pytest.raises(LayoutInUse, match="being changed"), pool.entering():
        pass
    pool.native.resume()
    with pool.entering():
        pass


def test_blocks_keep_the_layout_open_and_force_unmaps_them(sim: Simulator) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    allocator = Allocator(layout, "weights")
    block = allocator.block(MIB)
    with pytest.raises(LayoutInUse, match="'weights' \\(1\\)"):
        layout.close()
    assert allocator.block(MIB) == block + MIB  # it goes on
    undone = layout.close(force=True)
    assert undone.kept == ("weights",)
    assert allocator.malloc(512) is None
    allocator.free(block)
    allocator.free(block + MIB)
    hipplan.apply({"hipplan": 1, "buffers": {"b": {"kind": "pinned", "size": 4096}}}, runtime="sim").close()


def test_a_dropped_layout_is_freed_after_its_last_block(sim: Simulator) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    allocator = Allocator(layout, "weights")
    block, freed = allocator.block(MIB), allocator.block(6 * MIB)
    allocator.free(freed)
    del allocator.pool, layout
    gc.collect()
    sim.write(block, b"alive")
    assert sim.read(block, 5) == b"alive"
    allocator.free(block)
    hipplan.apply({"hipplan": 1, "buffers": {"b": {"kind": "pinned", "size": 4096}}}, runtime="sim").close()
    assert sim.alive() == set()


def test_a_dropped_layout_without_blocks_leaves_nothing(sim: Simulator) -> None:
    for _ in range(3):
        layout = hipplan.apply(PLAN, runtime="sim")
        allocator = Allocator(layout, "weights")
        allocator.free(allocator.block(MIB))
        del layout, allocator
        gc.collect()
        assert sim.alive() == set()


def test_there_are_more_than_sixteen_pools(sim: Simulator) -> None:
    regions = {f"r{n}": {**POOL, "reserve": "4MiB", "torch": {"tag": f"t{n}"}} for n in range(100)}
    for _ in range(12):  # slots become free
        with hipplan.apply(
            {"hipplan": 1, "devices": {"gpu": {"count": 1}}, "regions": regions}, runtime="sim"
        ) as layout:
            allocators = [Allocator(layout, name) for name in regions]
            assert len({allocator.pool.native.slot for allocator in allocators}) == 100
            blocks = [allocator.block(MIB) for allocator in allocators]
            for allocator, block in zip(allocators, blocks, strict=True):
                allocator.free(block)


def test_other_changes_run_beside_it_and_an_update_may_remove_it(layout: Layout, sim: Simulator) -> None:
    allocator = Allocator(layout, "kv")
    block = allocator.block(MIB)
    layout.grow("empty", by="2MiB")
    sim.write(block, b"hello")
    without = {**PLAN, "regions": {name: region for name, region in PLAN["regions"].items() if name != "kv"}}
    with pytest.raises(LayoutInUse, match="'kv'"):
        layout.update(without, lose="*")
    assert sim.read(block, 5) == b"hello"
    other = allocator.block(MIB)
    for each in (block, other):
        allocator.free(each)
    layout.update(without, lose="*")
    assert allocator.malloc(MIB) is None
    assert [pool.region for pool in layout.usage()] == ["weights", "weights.1"]
    layout.update(PLAN, lose="*")
    again = Allocator(layout, "kv")
    again.free(again.block(MIB))


def test_an_update_that_cannot_empty_a_pool_changes_nothing(layout: Layout, sim: Simulator) -> None:
    allocator = Allocator(layout, "kv")
    allocator.free(allocator.block(MIB))
    without = {**PLAN, "regions": {name: region for name, region in PLAN["regions"].items() if name != "kv"}}
    sim.runtime.arm_faults("hipDeviceSynchronize@1=hipErrorUnknown")
    with pytest.raises(ApplyError, match="nothing was freed"):
        layout.update(without, lose="*")
    allocator.free(allocator.block(MIB))
    layout.update(without, lose="*")


def test_another_chunk_is_used_once_no_block_is_left(layout: Layout) -> None:
    allocator = Allocator(layout, "kv")
    block = allocator.block(MIB)
    changed = {**PLAN, "regions": {**PLAN["regions"], "kv": {**PLAN["regions"]["kv"], "chunk": "8MiB"}}}
    layout.update(changed)
    assert Allocator(layout, "kv").pool is allocator.pool
    allocator.free(block)
    layout.trim()
    after = Allocator(layout, "kv")
    assert after.pool is not allocator.pool
    block = after.block(MIB)
    assert of(layout, "kv").mapped == 8 * MIB
    after.free(block)


def test_sixteen_threads(layout: Layout) -> None:
    allocator = Allocator(layout, "weights")
    stop = threading.Event()

    def work(seed: int) -> None:
        numbers = random.Random(seed)
        mine: list[int] = []
        for _ in range(200):
            if mine and numbers.random() < 0.5:
                allocator.free(mine.pop(numbers.randrange(len(mine))))
            elif (block := allocator.malloc(numbers.randrange(1, 64 * 1024))) is not None:
                mine.append(block)
        for block in mine:
            allocator.free(block)

    def trim() -> None:
        while not stop.is_set():
            layout.trim("weights")
            layout.sleep("weights")
            layout.wake("weights")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    trimming = threading.Thread(target=trim)
    for thread in (*threads, trimming):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    trimming.join()
    layout.trim()
    assert (of(layout).mapped, of(layout).blocks, of(layout).used) == (0, 0, 0)


def test_cycles_leave_everything_as_it_was(layout: Layout, sim: Simulator) -> None:
    allocator = Allocator(layout, "weights")
    block = allocator.block(5 * MIB)
    sim.fill(block, 7, 5 * MIB)
    layout.sleep("weights")
    layout.wake("weights", retain=True)
    alive, files, usage = sim.alive(), descriptors(), of(layout)
    for _ in range(100):
        layout.sleep("weights")
        layout.wake("weights", retain=True)
    assert len(sim.alive()) == len(alive) and descriptors() == files and of(layout) == usage
    assert sim.read(block, 5 * MIB) == bytes([7]) * (5 * MIB)
    allocator.free(block)


def test_usage_is_a_table_and_json(layout: Layout) -> None:
    allocator = Allocator(layout, "weights")
    block = allocator.block(MIB)
    table = str(layout.usage()).splitlines()
    assert table[0].split() == ["tag", "region", "device", "state", "reserved", "mapped", "used", "saved", "blocks"]
    assert table[1].split() == ["weights", "weights", "gpu.0", "open", "64MiB", "4MiB", "1MiB", "0B", "1"]
    usage = json.loads(json.dumps(layout.usage().as_dict()))
    assert usage["tags"]["weights"] == {"reserved": 128 * MIB, "mapped": CHUNK, "used": MIB, "saved": 0}
    assert [pool["region"] for pool in usage["pools"]] == ["weights", "weights.1", "kv"]
    allocator.free(block)
    with hipplan.apply({"hipplan": 1, "regions": {"r": {"size": "2MiB"}}}, runtime="sim") as other:
        assert str(other.usage()) == "the layout has no pools with a tag"


def test_an_unknown_tag_is_named(layout: Layout) -> None:
    with pytest.raises(KeyError, match="no pool has the tag 'none'; tags: kv_cache, weights"):
        layout.trim("none")


def test_a_region_that_starts_empty_grows_from_nothing(layout: Layout, sim: Simulator) -> None:
    assert layout["empty"].size == 0
    address = layout["empty"].address
    for verb in ("sleep", "remap", "seal"):
        with pytest.raises(ApplyError, match="'empty' has no memory yet"):
            getattr(layout, verb)("empty")
    layout.grow("empty", by="3MiB")
    assert (layout["empty"].address, layout["empty"].size) == (address, 4 * MIB)
    sim.write(address, b"hello")
    layout.grow("empty", to="8MiB")
    layout.sleep("empty")
    layout.wake()
    assert sim.read(address, 5) == b"hello"
    assert not layout.drift()
    with pytest.raises(ApplyError, match="nothing of it would remain"):
        layout.shrink("empty", by="8MiB")


@pytest.mark.parametrize("verb", ["grow", "shrink", "remap", "seal"])
def test_a_pool_is_not_changed_like_a_region(verb: str, layout: Layout) -> None:
    with pytest.raises(ApplyError, match="'weights' is a pool for PyTorch"):
        getattr(layout, verb)("weights", **({"by": "2MiB"} if verb in ("grow", "shrink") else {}))


@pytest.mark.parametrize(
    ("region", "code"),
    [
        ({"size": 0}, "HP105"),
        ({"size": 0, "reserve": "4MiB"}, "HP107"),
        ({"size": 0, "reserve": "4MiB", "chunk": "2MiB", "tensors": {"t": {"dtype": "u8", "shape": [1]}}}, "HP107"),
        ({**POOL, "size": "4MiB"}, "HP107"),
        ({**POOL, "devices": ["gpu.0"], "device": None}, "HP107"),
        ({**POOL, "seal": True}, "HP107"),
        ({**POOL, "torch": {"tag": "kv_cache"}}, "HP204"),
    ],
)
def test_what_is_no_pool(region: dict[str, Any], code: str) -> None:
    given = {key: value for key, value in region.items() if value is not None}
    with pytest.raises(PlanError) as refused:
        hipplan.load({**PLAN, "regions": {**PLAN["regions"], "wrong": given}})
    assert code in {diagnostic.code for diagnostic in refused.value.diagnostics}
