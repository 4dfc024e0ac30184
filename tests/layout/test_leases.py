"""A view is a lease: any thread may return it; a layout with open leases does not close."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import hipplan
from hipplan import _core
from hipplan.errors import LayoutInUse
from tests.conftest import Simulator

PLAN = """
hipplan: 1
allocations:
  block: {size: 2MiB}
reservations:
  range: {size: 8MiB, mappings: [{allocation: block, access: {gpu.0: rw}}]}
buffers:
  staging: {kind: pinned, size: 1MiB}
  other: {kind: pinned, size: 1MiB}
"""


def views_of(layout: Any) -> dict[str, Any]:
    """One of each way to look, by what it looks like."""
    staging = layout["staging"]
    return {
        "buffer": memoryview(staging),
        "numpy": numpy.asarray(layout["staging"]),
        "dlpack": numpy.from_dlpack(staging),
        "capsule": staging.__dlpack__(max_version=(1, 0)),
        "old capsule": staging.__dlpack__(),
        "device capsule": layout["range[0]"].__dlpack__(),
    }


def test_each_kind_of_view_holds_one_lease_until_it_is_deleted(sim: Simulator) -> None:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        views = views_of(layout)
        for left in range(len(views), 0, -1):
            assert layout.leases == left
            views.popitem()

        assert layout.leases == 0


def test_a_slice_of_a_slice_holds_it_too(sim: Simulator) -> None:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        array = numpy.asarray(layout["staging"])[10:][::2]

        assert layout.leases == 1
        del array
        assert layout.leases == 0


def test_the_cuda_array_interface_holds_while_the_piece_lives(sim: Simulator) -> None:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        piece = layout["range[0]"]
        for _ in range(3):
            assert piece.__cuda_array_interface__["version"] == 3
        assert layout.leases == 1
        del piece
        assert layout.leases == 0


def test_closing_with_views_out_is_refused_before_the_first_undo(sim: Simulator) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    arrays = [numpy.asarray(layout[name]) for name in ("staging", "staging", "other")]
    before = sim.alive()
    sim.runtime.arm_faults("*@1000000000=1")
    with pytest.raises(LayoutInUse, match=r"HP409.*3 views.*\n.*'staging' \(2\), 'other' \(1\)"):
        layout.close()

    assert sim.runtime.calls_counted() == 0
    assert sim.alive() == before
    arrays[0][0] = 1
    assert numpy.asarray(layout["other"])[0] == 0  # still open: views can be taken
    arrays.clear()
    layout.close()


def test_leaving_a_with_block_with_views_out_is_reported(sim: Simulator) -> None:
    with pytest.raises(LayoutInUse), hipplan.apply(PLAN, runtime="sim") as layout:
        array = numpy.asarray(layout["staging"])
    del array
    layout.close()


def test_an_error_of_the_body_is_not_hidden_by_views(sim: Simulator) -> None:
    with pytest.raises(ZeroDivisionError), hipplan.apply(PLAN, runtime="sim") as layout:
        array = numpy.asarray(layout["staging"])
        raise ZeroDivisionError
    del array
    layout.close()


def test_a_closed_layout_refuses_views(sim: Simulator) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    piece = layout["staging"]
    layout.close()

    for look in (memoryview, numpy.asarray, numpy.from_dlpack):
        with pytest.raises(BufferError, match="'staging' is closed"):
            look(piece)
    with pytest.raises(BufferError, match="is closed"):
        layout["staging"]


def test_a_forked_child_gets_no_view_of_a_piece_from_before(sim: Simulator) -> None:
    """The driver's memory is not mapped in it: the first access would end the process."""
    with hipplan.apply(PLAN, runtime="sim") as layout:
        pieces = layout["staging"], layout["range[0]"]
        looks: list[Callable[[], Any]] = [
            lambda: numpy.from_dlpack(pieces[0]),
            lambda: memoryview(pieces[0]),
            lambda: pieces[1].__dlpack__(max_version=(1, 0)),
            lambda: pieces[1].__cuda_array_interface__,
        ]
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                for look in looks:
                    try:
                        look()
                    except BufferError as refused:
                        os.write(writing, f"{refused}\n".encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as reported:
            lines = reported.read().splitlines()
        assert os.waitpid(child, 0)[1] == 0
        says = "belongs to a layout of the parent process: a forked child cannot use it"
        assert lines == [f"'{name}' {says}" for name in ("staging", "staging", "range[0]", "range[0]")]
        assert layout.leases == 0


def test_a_piece_from_before_a_change_says_where_there_is_a_new_one(sim: Simulator) -> None:
    region = {"size": "8MiB", "chunk": "2MiB"}
    with hipplan.apply({"hipplan": 1, "regions": {"kv": region}}, runtime="sim") as layout:
        before = layout["kv"]
        layout.shrink("kv", by="2MiB")
        with pytest.raises(BufferError, match=r"memory of 'kv' was freed since .* take layout\['kv'\] again"):
            before.__dlpack__(max_version=(1, 0))
        now = layout["kv"]
        now.__dlpack__(max_version=(1, 0))
    with pytest.raises(BufferError, match="'kv' is closed: its memory was freed"):
        now.__dlpack__(max_version=(1, 0))


def test_force_keeps_addresses_and_viewed_buffers_until_the_views_go(sim: Simulator) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    array = numpy.asarray(layout["staging"])
    capsule = layout["range[0]"].__dlpack__()
    range_address = layout["range"].address
    undone = layout.close(force=True)

    assert sorted(undone.kept) == ["range", "staging"]
    assert {noun for noun, _ in sim.alive()} == {"reservation", "buffer"}
    array[0] = 1  # still its own memory
    ledger = sim.ledger()
    assert ledger["mappings"] == []
    assert [int(reservation["address"], 16) for reservation in ledger["reservations"]] == [range_address]

    del array, capsule
    hipplan.apply(PLAN, runtime="sim").close()  # the next close frees what was kept
    assert sim.alive() == set()


def test_a_pointer_that_is_used_after_a_forced_close_faults() -> None:
    program = f"""
import hipplan
from hipplan.machines.profiles import load_machine
machine = load_machine("sim-2")
shown = [d.model_copy(update={{"host_visible": True}}) for d in machine.devices]
layout = hipplan.apply('''{PLAN}''', runtime="sim", machine=machine.model_copy(update={{"devices": shown}}))
view = memoryview(layout["range[0]"])
view[0] = 1
layout.close(force=True)
again = hipplan.apply('''{PLAN}''', runtime="sim", machine=machine.model_copy(update={{"devices": shown}}))
print("closed", flush=True)
view[0]
print("not reached", flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert ended.stdout == "closed\n"
    assert ended.returncode == -11


def test_leases_come_back_from_any_thread_without_the_gil(sim: Simulator) -> None:
    """Threads take and drop views while the main thread tries to close: one side always wins cleanly."""
    layout = hipplan.apply(PLAN, runtime="sim")
    stop = threading.Event()
    failures: list[BaseException] = []

    def look() -> None:
        while not stop.is_set():
            try:
                numpy.from_dlpack(layout["staging"]).sum()
            except BufferError:
                return  # it was closed
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    refused = 0
    for _ in range(10_000):
        try:
            layout.close()
            break
        except LayoutInUse:
            refused += 1
    stop.set()
    for thread in threads:
        thread.join()
    layout.close()

    assert failures == []
    assert sim.alive() == set()


def test_a_deleter_needs_no_gil(sim: Simulator) -> None:
    """The C deleter is called through ctypes, which lets the GIL go, in a thread of its own."""
    import ctypes

    layout = hipplan.apply(PLAN, runtime="sim")
    capsule = layout["staging"].__dlpack__(max_version=(1, 0))
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    tensor = pointer(capsule, b"dltensor_versioned")
    used = b"used_dltensor_versioned"
    rename(capsule, used)
    del capsule
    assert layout.leases == 1
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ctypes.c_void_p.from_address(tensor + 16).value)
    thread = threading.Thread(target=deleter, args=(tensor,))
    thread.start()
    thread.join()

    assert layout.leases == 0
    layout.close()


def test_a_book_bars_ranges_exactly() -> None:
    book = _core.LeaseBook()
    piece = _core.Window(book, "x", 0x1000, [16], 1, "B", "", False, 0)
    held = _core.Lease(piece)

    assert [item.name for item in book.bar(0x100F, 1)] == ["x"]
    assert book.bar(0x1010, 16) == []
    with pytest.raises(BufferError):
        _core.Lease(_core.Window(book, "y", 0x1008, [16], 1, "B", "", False, 0))
    book.unbar(0x1010, 16)
    _core.Lease(_core.Window(book, "y", 0x1008, [16], 1, "B", "", False, 0))
    del held
    assert len(book) == 0


def test_a_settled_bar_stands_against_the_older_ones_only() -> None:
    book = _core.LeaseBook()

    def window(age: int, at: int = 0x1000) -> _core.Window:
        return _core.Window(book, "x", at, [16], 1, "B", "", False, age)

    old = book.age
    book.bar(0x1000, 16)
    with pytest.raises(BufferError):  # a view during a change would have an unknown state
        _core.Lease(window(book.age))
    book.settle()
    new = book.age
    assert new > old
    _core.Lease(window(new))
    for later in range(3):  # the same place again and again, with another place in between
        with pytest.raises(BufferError):
            _core.Lease(window(old))
        _core.Lease(window(old, 0x1010 + 32 * later))
        book.bar(0x1000, 16)
        book.settle()
    with pytest.raises(BufferError):
        _core.Lease(window(new))
    book.bar(0x1000, 16)
    book.unbar(0x1000, 16)
    _core.Lease(window(book.age))


DROPPED: dict[str, Any] = {
    "hipplan": 1,
    "buffers": {"p": {"kind": "pinned", "size": 4096}, "other": {"kind": "device", "size": 4096}},
}


@pytest.mark.parametrize("look", [numpy.asarray, numpy.from_dlpack, memoryview])
def test_a_view_of_a_layout_that_was_dropped_keeps_its_memory(look: Any, sim: Simulator) -> None:
    def made() -> Any:
        layout = hipplan.apply(DROPPED, runtime="sim")
        return look(layout["p"])

    view = made()
    alive = sim.alive()
    assert len(alive) == 2
    hipplan.apply(DROPPED, runtime="sim").close()
    assert sim.alive() == alive
    view[0] = 7
    assert view[0] == 7
    del view
    hipplan.apply(DROPPED, runtime="sim").close()
    assert sim.alive() == set()


def test_a_dropped_layout_has_freed_memory_without_views(sim: Simulator) -> None:
    piece = hipplan.apply(DROPPED, runtime="sim")["p"]
    assert sim.alive() == set()
    with pytest.raises(BufferError, match="'p' is closed"):
        numpy.asarray(piece)


def test_a_layout_is_neither_copied_nor_pickled(sim: Simulator) -> None:
    """The end of one of two would be the end of what both stand for."""
    with hipplan.apply(DROPPED, runtime="sim") as layout:
        for act in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=r"cannot be copied or pickled: .* docs/sharing.md"):
                act(layout)
            with pytest.raises(TypeError, match="'p' cannot be copied or pickled"):
                act(layout["p"])
        assert len(sim.alive()) == 2


def test_a_closed_layout_cannot_be_entered(sim: Simulator) -> None:
    layout = hipplan.apply(DROPPED, runtime="sim")
    layout.close()

    with pytest.raises(ValueError, match="the layout is closed"), layout:
        raise AssertionError("the body ran")
