"""What a rank does with its layout, in a process of its own. Each is called with the layout and the simulator."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import hipplan
from hipplan.files.strict_json import dumps

WAIT_S = 60.0


def read(layout: Any, name: str) -> bytes:
    """The bytes of something, by way of a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bytes.raw")
        layout.save(name, path)
        return path.read_bytes()


def addresses(layout: Any, sim: Any) -> dict[str, int]:
    return {name: layout[name].address for name in layout if hasattr(layout[name], "address")}


def write_to_all(layout: Any, sim: Any) -> list[int]:
    """Each rank writes a row of everybody's inbox; returns the first byte of each row of its own."""
    me = layout.program.rank
    for other in range(me.ranks):
        for row in range(me.ranks):
            assert read(layout, layout.rank(other)[f"heap.row{row}"].name)[:1] == bytes([0xEE]), (other, row)
    layout.barrier()
    for other in range(me.ranks):
        layout.fill(layout.rank(other)[f"heap.row{me.rank}"].name, me.ranks * other + me.rank)
    layout.barrier()
    rows = [set(read(layout, f"heap.row{row}")) for row in range(me.ranks)]
    assert all(len(row) == 1 for row in rows)
    layout.barrier()
    return [next(iter(row)) for row in rows]


def grow_heap(layout: Any, sim: Any) -> Any:
    """Returns the sizes and addresses of all parts, before and after."""

    def parts() -> dict[int, tuple[int, int]]:
        pieces = {rank: layout.rank(rank)["heap"] for rank in range(layout.program.rank.ranks)}
        return {rank: (piece.address, piece.size) for rank, piece in pieces.items()}

    before = parts()
    layout.grow("heap", by="2MiB" if layout.program.rank.rank else "4MiB")
    grown = parts()
    layout.fill("heap", 7)
    layout.barrier()
    seen = [set(read(layout, layout.rank(rank)["heap"].name)) for rank in before]
    layout.barrier()
    layout.shrink("heap", to="4MiB")
    return before, grown, parts(), seen, not layout.drift()


def names(layout: Any, sim: Any) -> list[str]:
    return [*layout]


def of_rank(layout: Any, sim: Any) -> Any:
    ranks = range(layout.program.rank.ranks)
    return {rank: {name: layout.rank(rank)[name].size for name in layout.rank(rank)} for rank in ranks}


def sleep_and_wake(layout: Any, sim: Any) -> Any:
    """Returns what slept, and whether all is as before."""
    before, free = layout["part"].address, sim.runtime.memory_info(0)[0]
    layout.sleep("part")
    asleep, freed = layout.asleep, sim.runtime.memory_info(0)[0] > free
    layout.barrier()
    layout.wake()
    return asleep, freed, layout["part"].address == before and not layout.drift()


def one_cannot_sleep(layout: Any, sim: Any) -> Any:
    """Rank 1 fails: returns each rank's error and what sleeps then. After that, rank 0 fails to wake."""
    me, answer = layout.program.rank.rank, []
    failing = (("sleep", "hipMemUnmap@2=999", 1), ("sleep", "", 1), ("wake", "hipMemMap@1=999", 0), ("wake", "", 0))
    for call, faults, rank in failing:
        sim.runtime.arm_faults(faults if me == rank else "")
        try:
            getattr(layout, call)("part")
        except hipplan.HipplanError as error:
            answer.append(type(error).__name__)
        sim.runtime.arm_faults("")
        answer.append(layout.asleep)
    return answer, layout.drift()


def cannot_sleep(layout: Any, sim: Any) -> list[str]:
    """What is said of memory that ranks map of each other."""
    answers = []
    for name in ("heap", f"heap@{1 - layout.program.rank.rank}"):
        try:
            layout.sleep(name)
        except (hipplan.ApplyError, hipplan.GroupError) as error:
            answers.append(str(error))
    return answers


def cannot_move_to_the_host(layout: Any, sim: Any) -> str:
    """What is said of memory that other ranks map."""
    try:
        layout.remap("heap", device="host")
    except hipplan.HipplanError as error:
        return str(error)
    return ""


def refusals(layout: Any, sim: Any) -> list[str]:
    """What is said to calls that cannot be."""
    other = 1 - layout.program.rank.rank
    calls = [
        lambda: layout.rank(9),
        lambda: layout.rank("x"),
        lambda: layout.rank(other)["nothing"],
        lambda: layout.export(f"heap@{other}#0"),
    ]
    answers = []
    for call in calls:
        try:
            call()
        except (ValueError, KeyError) as error:
            answers.append(str(error))
    for call in (
        lambda: layout.grow(f"heap@{other}", by="2MiB"),
        lambda: layout.shrink(f"heap@{other}", by="2MiB"),
        lambda: layout.remap(f"heap@{other}"),
        lambda: layout.remap("heap"),
        lambda: layout.remap("heap", part="..2MiB"),
    ):
        try:
            call()
        except hipplan.ApplyError as error:
            answers.append(str(error))
    return answers


def see_others_go(layout: Any, sim: Any) -> dict[int, str]:
    """Rank 0 watches the others: rank 1 closes, rank 2 is killed, rank 3 stays until rank 0 has seen it."""
    me = layout.program.rank.rank
    if me == 1:
        layout.close()
    elif me == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    elif me == 0:
        until = time.monotonic() + WAIT_S
        while len(layout.lost) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert set(read(layout, layout.rank(2)["heap"].name)[:100]) == {0xEE}
        assert not layout.drift()
    return dict(layout.lost) if not layout.closed else {}


def close_and_wait(layout: Any, sim: Any) -> Any:
    """Rank 0 closes first, and its wait times out, because rank 1 waits for rank 0's end."""
    if layout.program.rank.rank == 0:
        return layout.close(wait=0.2).ranks
    until = time.monotonic() + WAIT_S
    while not layout.lost and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.3)
    return dumps({str(rank): how for rank, how in layout.lost.items()}), layout.close(wait=WAIT_S).ranks


def fork(layout: Any, sim: Any) -> Any:
    """A child of rank 1 lives on; rank 0 is notified of rank 1's end anyway."""
    if layout.program.rank.rank == 1:
        child = os.fork()
        if child == 0:
            time.sleep(WAIT_S)
            os._exit(0)
        layout.barrier()
        layout.close()
        return child
    layout.barrier()
    until = time.monotonic() + WAIT_S / 2
    while not layout.lost and time.monotonic() < until:
        time.sleep(0.01)
    return dict(layout.lost)


def _places(layout: Any) -> list[int]:
    return [layout.rank(rank)["heap"].address for rank in range(layout.program.rank.ranks)]


def _again(layout: Any) -> Any:
    """The same plan once more, by all ranks."""
    group = layout._holding.ranks.group
    return hipplan.apply(_plan(), runtime="sim", group=group, timeout=WAIT_S)


def _plan() -> Any:
    """It stands with its tests."""
    from tests.ranks.test_parts import PLAN

    return PLAN


def _taken(*addresses: int) -> Any:
    """A layout of this rank alone that has these addresses."""
    ranges = {
        f"r{n}": {"address": address, "address_policy": "exact", "size": "2MiB"} for n, address in enumerate(addresses)
    }
    return hipplan.apply({"hipplan": 1, "reservations": ranges}, runtime="sim")


def _proposed(layout: Any, number: int = 0) -> int:
    """What is proposed to the ranks."""
    from hipplan.ranks.addresses import starts_of

    return starts_of(layout.program.plan_of_all)[number]


def again_with_taken_addresses(layout: Any, sim: Any) -> Any:
    """Between two applies rank 1 takes one of the addresses for something else."""
    before = _places(layout)
    layout.close()
    taken = _taken(_proposed(layout) + before[2] - before[0]) if layout.program.rank.rank == 1 else None
    with _again(layout) as again:
        after = _places(again)
        assert after[0] == _proposed(layout, 1)
        assert not again.drift()
        again.barrier()
    if taken is not None:
        taken.close()
    return {"before": before, "after": after}


def again_beside_many_mappings(layout: Any, sim: Any) -> Any:
    """Rank 1 has mapped memory of its own, which hipplan knows nothing of, at the first ten addresses of the plan."""
    import ctypes

    layout.close()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    fixed = 0x100000  # MAP_FIXED_NOREPLACE
    size = ctypes.c_size_t(4096)
    places = [ctypes.c_void_p(_proposed(layout, n)) for n in range(10)] if layout.program.rank.rank == 1 else []
    for place in places:
        assert libc.mmap(place, size, 1, 0x22 | fixed, -1, 0) == place.value
    try:
        with _again(layout) as again:
            again.barrier()
            return _places(again)[0] == _proposed(layout, 10)
    finally:
        for place in places:
            libc.munmap(place, size)


def again_and_again(layout: Any, sim: Any) -> Any:
    """The addresses of the parts in three layouts, one after the other. Rank 1 has other memory beside them."""
    import ctypes

    places = [_places(layout)]
    layout.close()
    hip, memory = ctypes.CDLL(sim.runtime.path), ctypes.c_void_p()
    for _ in range(2):
        if layout.program.rank.rank == 1:
            assert hip.hipMalloc(ctypes.byref(memory), ctypes.c_size_t(700 << 20)) == 0
        with _again(layout) as again:
            places.append(_places(again))
            assert not again.drift()
            again.barrier()
        if layout.program.rank.rank == 1:
            assert hip.hipFree(memory) == 0
    return places


def two_at_once(layout: Any, sim: Any) -> Any:
    with _again(layout) as other:
        assert not other.drift()
        assert not layout.drift()
        return [*_places(layout), *_places(other)]


def all_taken(layout: Any, sim: Any) -> Any:
    """Rank 1 has taken every place that is proposed."""
    from hipplan.ranks import addresses

    assert _places(layout)[0] == _proposed(layout)
    layout.close()
    places = addresses.starts_of(layout.program.plan_of_all)
    taken = _taken(*places) if layout.program.rank.rank == 1 else None
    rooms, addresses._rooms = addresses._rooms, lambda *_: places[: addresses.ROOMS]
    try:
        _again(layout)
    except hipplan.GroupError as error:
        return tuple(diagnostic.code for diagnostic in error.diagnostics)
    finally:
        addresses._rooms = rooms
        if taken is not None:
            taken.close()


def where_there_is_room(layout: Any, sim: Any) -> Any:
    """Rank 1 has taken what the plan and the call propose: the drivers say where they have room."""
    from hipplan.ranks import addresses

    layout.close()
    places = addresses.starts_of(layout.program.plan_of_all)
    taken = _taken(*places) if layout.program.rank.rank == 1 else None
    rooms, asked = addresses._rooms, list[int]()

    def counted(size: int, *more: Any) -> list[int]:
        asked.append(size)
        return rooms(size, *more)

    addresses._rooms = counted
    try:
        with _again(layout) as again:
            assert not again.drift()
            return _places(again), asked
    finally:
        addresses._rooms = rooms
        if taken is not None:
            taken.close()


def barriers(layout: Any, sim: Any) -> list[str]:
    """What is said of deadlines that are none; then all meet."""
    answers = []
    for timeout in ("x", float("nan"), 0, -1, float("inf"), True):
        try:
            layout.barrier(timeout)
        except (TypeError, ValueError) as error:
            answers.append(type(error).__name__)
        try:
            layout.close(wait=timeout or -1)
        except (TypeError, ValueError) as error:
            answers.append(type(error).__name__)
    layout.barrier()
    return answers


def leave_a_barrier(layout: Any, sim: Any) -> str:
    """The error of a rank in a barrier in which another rank was interrupted; empty if there is none."""
    try:
        layout.barrier()
    except (KeyboardInterrupt, hipplan.GroupError) as error:
        return f"{type(error).__name__} {error}"
    return ""


def see_one_go(layout: Any, sim: Any) -> dict[int, str]:
    """Rank 1 closes; returns the error that rank 0 gets, which waits for nothing else."""
    if layout.program.rank.rank == 1:
        layout.close()
        return {}
    until = time.monotonic() + WAIT_S / 2
    while not layout.lost and time.monotonic() < until:
        time.sleep(0.01)
    return dict(layout.lost)


def parts_of_all(layout: Any, sim: Any) -> Any:
    """Rank -> address of its heap here, and its first byte; whether all is as planned."""
    ranks = range(layout.program.rank.ranks)
    heaps = {rank: layout.rank(rank)["heap"] for rank in ranks}
    collected = {rank: (heap.address, read(layout, heap.name)[0]) for rank, heap in heaps.items()}
    layout.barrier()
    return collected, layout.drift()


def seal_what_others_write(layout: Any, sim: Any) -> list[str]:
    answers = []
    for name in ("heap", "weights"):
        try:
            layout.seal(name)
            answers.append("sealed")
        except (hipplan.ApplyError, hipplan.GroupError) as error:
            answers.append(str(error))
    return answers


def numbers(layout: Any, sim: Any) -> Any:
    """Ranks as other libraries write numbers, and numbers that are no ranks."""
    import numpy as np

    name, answer = layout.rank(np.int64(0))["heap"].name, []
    for wrong in (True, 1.5, -1, 10**5000, None):
        try:
            layout.rank(wrong)
        except ValueError as error:
            answer.append(str(error))
    return name, answer


def update_beside_others(layout: Any, sim: Any) -> str:
    """The simulator of a rank has only its own memory, so this one takes as much as the other rank does."""
    size = layout["heap"].size
    taken = {"hipplan": 1, "buffers": {"b": {"kind": "device", "size": size}}}
    with hipplan.apply(taken, runtime="sim"):
        heap = {"size": size, "map": {"ranks": "node"}}
        more = {"size": "2MiB", "map": {"ranks": "node"}}
        return str(layout.update({"hipplan": 1, "ranks": {}, "regions": {"heap": heap, "more": more}}))


def consent_of_each(layout: Any, sim: Any) -> list[str]:
    """Updates that free a buffer: without consent, with a consent that only rank 0 gives, and with that of all."""
    without = {"hipplan": 1, "ranks": {}, "regions": {"heap": {"size": "2MiB", "map": {"ranks": "node"}}}}
    own = ["report"] if "report" in layout and layout.program.rank.rank == 0 else []
    answers = []
    for lose in ((), own, ["x", "report"], ["report", "x"]):
        try:
            answers.append(str(layout.update(without, lose=lose)))
        except hipplan.HipplanError as error:
            answers.append(str(error))
    assert layout.drift() == []
    return answers


def host_tier(layout: Any, sim: Any) -> Any:
    """Twice in a row: memory of a rank's own moves to the host and back, sleeps there and wakes, and grows there.

    Returns the address before and after, the devices on the way, and what is kept."""
    me = layout.program.rank.rank
    address, been = layout["part"].address, []
    for _ in range(2):
        layout.fill("part", me + 1)
        layout.remap("part", device="host")
        been.append(layout["part"].devices)
        layout.remap("part", device="gpu", retain=True)
        layout.sleep("part", to="mapped")
        been.append(layout.asleep["part"])
        assert set(read(layout, "part")) == {me + 1}
        layout.barrier()
        layout.wake()
        assert set(read(layout, "part")) == {me + 1} and set(read(layout, "tail")) == {9}
        assert not layout.drift()
    layout.grow("tail", by="4MiB")
    assert layout["tail"].resource.bytes_by_device == (("gpu", 4 << 20), ("host", 4 << 20))
    layout.shrink("tail", by="4MiB")
    return address == layout["part"].address, been, layout.retained


def one_cannot_move_to_the_host(layout: Any, sim: Any) -> Any:
    """Rank 1 fails, on the way there and on the way back: all ranks stay where they are."""
    me, answer = layout.program.rank.rank, []
    for act in (
        lambda: layout.remap("part", device="host"),
        lambda: layout.sleep("part", to="mapped"),
        lambda: layout.wake(),
    ):
        for fails in (True, False):
            sim.runtime.arm_faults("hipMemMap@1=999" if me == 1 and fails else "")
            try:
                act()
            except hipplan.HipplanError as error:
                answer.append(type(error).__name__)
            sim.runtime.arm_faults("")
            answer.append((layout["part"].devices, layout.asleep))
        if layout["part"].devices == ("host",) and not layout.asleep:
            layout.remap("part", device="gpu")
    return answer, layout.drift()
