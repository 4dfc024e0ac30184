"""Bytes that are moved while something else happens to the layout: another change, an interrupt, a forced close."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import hipplan
from hipplan.layout.mover import Mover
from tests.conftest import Simulator

MIB = 2**20
SIZE = 64 * MIB
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "buffers": {
        "x": {"kind": "device", "device": "gpu.0", "size": SIZE},
        "y": {"kind": "device", "device": "gpu.1", "size": 4096},
    },
    "regions": {
        "r": {"device": "gpu.0", "chunk": "2MiB", "size": "2MiB", "reserve": "64MiB"},
        "t": {"device": "gpu.0", "tensors": {f"t{n}": {"dtype": "u8", "shape": [4 * MIB]} for n in range(4)}},
    },
}


def loading(layout: hipplan.Layout, file: Path, meanwhile: Callable[[], None]) -> list[BaseException | None]:
    """Loads a file into x on a thread of its own, and does something while the bytes are on their way."""
    layout.fill("x", 0)
    file.write_bytes(b"A" * SIZE)
    layout.runtime.arm_faults("hipMemcpyAsync@1+=delay:30")
    begun, outcome = threading.Event(), []

    def load() -> None:
        try:
            layout.load("x", file, on_bytes=lambda done, total: begun.set())
            outcome.append(None)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    assert begun.wait(300)
    meanwhile()
    thread.join()
    layout.runtime.arm_faults("")
    return outcome


def test_a_change_leaves_the_files_of_a_load_open(layout: hipplan.Layout, tmp_path: Path) -> None:
    """Otherwise another file could have the descriptor's number by the time that it is read."""
    other = tmp_path / "other"
    other.write_bytes(b"Z" * SIZE)
    taken: list[int] = []

    def meanwhile() -> None:
        layout.grow("r", by="2MiB")
        taken.extend(os.open(other, os.O_RDONLY) for _ in range(3))

    outcome = loading(layout, tmp_path / "file", meanwhile)
    for descriptor in taken:
        os.close(descriptor)
    address = layout["x"].address
    assert outcome == [None]
    assert layout.runtime.read(address, SIZE).count(b"A") == SIZE


def test_a_forced_close_leaves_a_load_its_streams(sim: Simulator, tmp_path: Path) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    kept: list[str] = []
    outcome = loading(layout, tmp_path / "file", lambda: kept.extend(layout.close(force=True).kept))
    assert "x" in kept
    assert outcome == [None]
    with hipplan.apply(PLAN, runtime="sim"):
        pass  # frees what was kept
    assert sim.alive() == set()


def test_a_close_says_that_bytes_are_being_moved(layout: hipplan.Layout, tmp_path: Path) -> None:
    def meanwhile() -> None:
        with pytest.raises(hipplan.LayoutInUse, match=r"bytes of 'x' are being copied\n.*wait until fill, load"):
            layout.close()

    assert loading(layout, tmp_path / "file", meanwhile) == [None]


def test_what_an_interrupted_save_had_queued_is_not_written_later(layout: hipplan.Layout, tmp_path: Path) -> None:
    layout.fill("t", 5)
    looked_at = 0

    def interrupt(frame: FrameType, event: str, argument: object) -> None:
        nonlocal looked_at
        looked_at += event == "call" and frame.f_code is Mover.at.__code__
        if looked_at == 3:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            layout.save("t", tmp_path / "t.safetensors")
    finally:
        sys.setprofile(None)
    victim = tmp_path / "victim"
    with victim.open("wb") as stream:  # which gets the number of the file that was to be saved
        stream.write(b"precious")
        stream.flush()
        layout.fill("y", 1)
        assert victim.read_bytes() == b"precious"


def test_missing_objects_have_no_bytes(layout: hipplan.Layout, tmp_path: Path) -> None:
    acts: list[Callable[[], object]] = [
        lambda: layout.fill("nope", 1),
        lambda: layout.load("nope", tmp_path),
        lambda: layout.copy("nope", "x"),
        lambda: layout.save("nope", tmp_path),
    ]
    for act in acts:
        with pytest.raises(hipplan.ApplyError, match=r"HP420.*layout has no 'nope'; there are: r, .*t\.t1, \.\.\.$"):
            act()


def test_bytes_are_not_moved_from_inside_of_a_change(layout: hipplan.Layout, tmp_path: Path) -> None:
    """Another thread's move may wait for the change to end, and this one for that move."""
    entered, refused = threading.Event(), []

    def on_step(number: int, step: object) -> None:
        if number == 0:
            entered.set()
            thread.join(0.2)
            try:
                layout.save("x", tmp_path / "x.bin")
            except RuntimeError as error:
                refused.append(str(error))

    def fill() -> None:
        entered.wait(20)
        layout.fill("y", 1)  # makes what moves bytes, which is a change

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    more = PLAN | {"buffers": PLAN["buffers"] | {"z": {"kind": "pinned", "size": 4096}}}
    layout.update(more, on_step=on_step)
    thread.join(20)
    assert not thread.is_alive()
    assert refused == ["the layout is being changed: bytes cannot be copied during a change"]


@pytest.mark.parametrize(
    "raised", [ValueError("mine"), TimeoutError("mine"), PermissionError(1, "mine"), KeyError("mine")]
)
def test_what_a_callback_raises_is_the_callers_own(
    raised: Exception, layout: hipplan.Layout, sim: Simulator, tmp_path: Path
) -> None:
    """Not a file's that cannot be read or written, and not a step's."""

    def no(*_: object) -> None:
        raise raised

    (tmp_path / "bytes").write_bytes(bytes(SIZE))
    filled = PLAN | {"contents": {"x": {"value": 1}}}
    moves: list[Callable[[], object]] = [
        lambda: layout.fill("y", 1, on_bytes=no),
        lambda: layout.load("x", tmp_path / "bytes", on_bytes=no),
        lambda: layout.save("x", tmp_path / "saved", on_bytes=no),
    ]
    changes: list[Callable[[], object]] = [
        lambda: hipplan.apply(PLAN, runtime="sim", on_step=no),
        lambda: hipplan.apply(filled, runtime="sim", on_bytes=no),
        lambda: layout.update(PLAN | {"streams": {"s": {}}}, on_step=no),
    ]
    for acts in (moves, changes):
        before = sim.alive()
        for act in acts:
            with pytest.raises(type(raised)) as caught:
                act()
            assert caught.value is raised
    assert not (tmp_path / "saved").exists()
    assert sim.alive() == before
