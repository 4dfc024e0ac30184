"""Two threads that move bytes of one layout: the second waits, because both need the same pinned memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.layout.transfer import UnderWay
from tests.conftest import Simulator
from tests.pauses import LONG_S, Pause, wait_until

MIB = 2**20
SIZE = 8 * MIB
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 1}},
    "buffers": {
        "x": {"kind": "device", "device": "gpu.0", "size": SIZE},
        "y": {"kind": "device", "device": "gpu.0", "size": SIZE},
    },
    "streams": {"s": {"device": "gpu.0"}},
    "regions": {
        "r": {"device": "gpu.0", "size": SIZE},
        "grows": {"device": "gpu.0", "chunk": "2MiB", "size": "2MiB", "reserve": "64MiB"},
    },
}
Act = Callable[[hipplan.Layout, Path], object]


class Turns:
    """A layout's lock for moving bytes, which says when a thread waits for it."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.is_waited_for = threading.Event()

    def acquire(self, blocking: bool = True) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        if blocking:
            self.is_waited_for.set()
            self._lock.acquire()
        return blocking

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "a").write_bytes(b"A" * SIZE)
    (tmp_path / "b").write_bytes(b"B" * SIZE)
    return tmp_path


@pytest.fixture
def layout(sim: Simulator, files: Path) -> Iterator[hipplan.Layout]:
    with hipplan.apply(PLAN, runtime="sim") as made:
        made.load("x", files / "a")  # makes what moves bytes
        for name in ("x", "y", "r"):
            made.fill(name, ord("-"))
        yield made


def bytes_of(layout: hipplan.Layout, name: str) -> set[int]:
    content = layout.runtime.read(layout[name].address, SIZE)
    return {content[0]} if content == content[:1] * SIZE else set(content)


def in_thread(act: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    wrong: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, wrong


def both(
    layout: hipplan.Layout, files: Path, first: Act, second: Act, monkeypatch: pytest.MonkeyPatch
) -> list[BaseException]:
    """The second begins while the first is in a driver call; what they raise."""
    turn: Any = layout._holding.turn
    turn._turn = turns = Turns(turn._turn)
    wait_for_threads = UnderWay.wait_for_threads

    def waits(under_way: UnderWay) -> None:
        if any(not transfer.ordered for transfer in under_way.forget_done()):
            turns.is_waited_for.set()
        wait_for_threads(under_way)

    monkeypatch.setattr(UnderWay, "wait_for_threads", waits)
    pause = Pause(files, "hipMemcpyAsync@1")
    layout.runtime.arm_faults(pause.rule)
    one, wrong = in_thread(lambda: first(layout, files))
    with pause.under_way():
        other, wrong_too = in_thread(lambda: second(layout, files))
        wait_until(lambda: turns.is_waited_for.is_set() or not other.is_alive(), "the second")
    one.join(LONG_S)
    other.join(LONG_S)
    layout.runtime.arm_faults("")
    assert not one.is_alive()
    assert not other.is_alive()
    return wrong + wrong_too


def updated(layout: hipplan.Layout, files: Path) -> None:
    new = {"kind": "device", "device": "gpu.0", "size": SIZE}
    contents = {"new": {"file": str(files / "b")}}
    layout.update(PLAN | {"buffers": PLAN["buffers"] | {"new": new}, "contents": contents})


def slept_and_woken(layout: hipplan.Layout, files: Path) -> None:
    layout.sleep("r")
    layout.wake("r")


def loaded_in_stream(layout: hipplan.Layout, files: Path) -> None:
    layout.load("x", files / "a", stream="s").wait()


FIRST: dict[str, Act] = {
    "load": lambda layout, files: layout.load("x", files / "a"),
    "load in a stream": loaded_in_stream,
    "update": updated,
    "wake": slept_and_woken,
}
SECOND: dict[str, Act] = {
    "load": lambda layout, files: layout.load("y", files / "b"),
    "save": lambda layout, files: layout.save("y", files / "saved"),
    "fill": lambda layout, files: layout.fill("y", 0x4242, dtype="u16"),
    "update": updated,
    "wake": slept_and_woken,
    "remap": lambda layout, files: layout.remap("grows"),
    "seal": lambda layout, files: layout.seal("grows"),
}
BECOMES = {("x", "load"): b"A", ("x", "load in a stream"): b"A", ("y", "load"): b"B", ("y", "fill"): b"B"}


@pytest.mark.in_parts
@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", FIRST)
def test_no_byte_goes_astray(
    first: str, second: str, layout: hipplan.Layout, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert both(layout, files, FIRST[first], SECOND[second], monkeypatch) == []
    assert bytes_of(layout, "x") == set(BECOMES.get(("x", first), b"-"))
    assert bytes_of(layout, "y") == set(BECOMES.get(("y", second), b"-"))
    assert bytes_of(layout, "r") == set(b"-")
    assert "update" not in (first, second) or bytes_of(layout, "new") == set(b"B")
    assert second != "save" or (files / "saved").read_bytes() == b"-" * SIZE


def test_sealing_waits_for_a_load_of_the_same_memory(
    layout: hipplan.Layout, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read-only memory would fault the rest of the load."""
    load: Act = lambda layout, files: layout.load("r", files / "a")  # noqa: E731
    assert both(layout, files, load, lambda layout, _: layout.seal("r"), monkeypatch) == []
    assert bytes_of(layout, "r") == set(b"A")


def test_two_layouts_on_one_device_do_not_wait_for_each_other(
    layout: hipplan.Layout, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hipplan.apply(PLAN, runtime="sim") as other:
        wrong = both(layout, files, FIRST["load"], lambda _, files: other.load("x", files / "b"), monkeypatch)
        assert wrong == []
        assert bytes_of(other, "x") == set(b"B")
    assert bytes_of(layout, "x") == set(b"A")


def test_a_callback_of_a_change_does_not_wait_for_another_thread(
    layout: hipplan.Layout, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That thread may wait for the change to end."""
    layout.grow("grows", by="2MiB")
    watch = layout.watch("grows", on_unmap=lambda name: layout.save("y", files / "saved"))
    (refused,) = both(layout, files, FIRST["load"], lambda layout, _: layout.shrink("grows", by="2MiB"), monkeypatch)

    assert isinstance(refused, hipplan.LayoutInUse)
    assert "bytes of 'x' are being copied" in str(refused)
    layout.shrink("grows", by="2MiB")
    watch.stop()
    assert (files / "saved").read_bytes() == b"-" * SIZE


@pytest.mark.parametrize("change", ["update", "remap", "wake"])
def test_what_fills_memory_is_refused_in_on_bytes(change: str, layout: hipplan.Layout, files: Path) -> None:
    acts: dict[str, Act] = {
        "update": updated,
        "remap": lambda layout, _: layout.remap("grows"),
        "wake": lambda layout, _: layout.wake(),
    }
    with pytest.raises(RuntimeError, match="bytes are being copied already: this cannot begin during a copy"):
        layout.load("x", files / "a", on_bytes=lambda done, total: acts[change](layout, files) and None)
    layout.load("x", files / "a")
    assert bytes_of(layout, "x") == set(b"A")


def test_what_fills_nothing_need_not_wait(layout: hipplan.Layout, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[bool] = []

    def grow(layout: hipplan.Layout, files: Path) -> None:
        layout.grow("grows", by="2MiB")
        waited.append(layout._holding.turn._turn.is_waited_for.is_set())  # type: ignore[attr-defined]

    assert both(layout, files, FIRST["load"], grow, monkeypatch) == []
    assert waited == [False]
    assert bytes_of(layout, "x") == set(b"A")
