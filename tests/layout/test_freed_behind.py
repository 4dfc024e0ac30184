"""Copies of sleeping bytes are freed behind the call that no longer needs them: what else happens meanwhile."""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan import _core
from hipplan.errors import LeakError
from hipplan.layout.layout import Layout
from tests.conftest import Simulator
from tests.pauses import LONG_S, Pause, interrupt, wait_until

MIB = 2**20
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "regions": {
        "weights": {"device": "gpu.0", "size": "8MiB", "chunk": "2MiB", "reserve": "32MiB"},
        "cache": {"device": "gpu.1", "size": "4MiB"},
    },
    "contents": {"weights": {"value": 7}},
}
FREES = "hipHostFree@1"


def copies(sim: Simulator) -> int:
    return len([buffer for buffer in sim.ledger()["buffers"] if buffer["size"] == 8 * MIB])


def slept(layout: Layout, name: str = "weights") -> Layout:
    layout.sleep(name)
    return layout


@contextmanager
def being_freed(sim: Simulator, folder: Path, call: Callable[[], object]) -> Iterator[None]:
    """While entered, the copy that the call needs no longer is in the middle of being freed."""
    pause = Pause(folder, FREES)
    sim.runtime.arm_faults(pause.rule)
    try:
        call()
        with pause.under_way():
            yield
    finally:
        sim.runtime.arm_faults("")
    assert _core.wait_until_freed(LONG_S)


def without_copy(layout: Layout, how: str) -> Callable[[], object]:
    """The call that frees a copy of `weights`."""
    if how == "wake":
        return slept(layout).wake
    slept(layout).wake(retain=True)
    if how == "drop":
        return lambda: layout.sleep("weights", to="drop")
    layout.sleep("weights")
    smaller = {**PLAN, "regions": {"cache": PLAN["regions"]["cache"]}, "contents": {}}
    return lambda: layout.update(smaller, lose="*")


@pytest.mark.parametrize("how", ["wake", "drop", "update"])
def test_the_call_returns_before_the_copy_is_freed(how: str, layout: Layout, sim: Simulator, tmp_path: Path) -> None:
    with being_freed(sim, tmp_path, without_copy(layout, how)):
        assert copies(sim) == 1
        assert not _core.wait_until_freed(0)
        assert layout.read("cache").size == 4 * MIB  # nothing waits for it: not the layout's lock either
        if how == "wake":
            assert (layout.read("weights") == 7).all()
            layout.grow("weights", by="2MiB")
    assert copies(sim) == 0
    assert layout.drift() == []


def test_the_next_sleep_waits_for_the_memory_and_works(layout: Layout, sim: Simulator, tmp_path: Path) -> None:
    with being_freed(sim, tmp_path, slept(layout).wake):
        second = threading.Thread(target=slept, args=(layout,))
        second.start()
        wait_until(lambda: layout._holding.lock._owner == second.ident, "the sleep")
        assert layout.asleep == {} and copies(sim) == 1
    second.join()
    assert layout.asleep == {"weights": "host"}
    layout.wake()
    assert (layout.read("weights") == 7).all()


def test_a_sleep_that_keeps_no_bytes_does_not_wait(layout: Layout, sim: Simulator, tmp_path: Path) -> None:
    with being_freed(sim, tmp_path, slept(layout).wake):
        layout.sleep(["weights", "cache"], to="drop")
        assert not _core.wait_until_freed(0)
    layout.wake()


def test_a_sleep_of_another_layout_waits_too(layout: Layout, sim: Simulator, tmp_path: Path) -> None:
    with hipplan.apply({**PLAN, "name": "other"}, runtime="sim") as other:
        with being_freed(sim, tmp_path, slept(layout).wake):
            second = threading.Thread(target=slept, args=(other,))
            second.start()
            wait_until(lambda: other._holding.lock._owner == second.ident, "the sleep")
            assert (other.asleep, copies(sim)) == ({}, 1)
        second.join()
        assert other.asleep == {"weights": "host"}


def test_an_interrupt_ends_the_wait_with_nothing_changed(layout: Layout, sim: Simulator, tmp_path: Path) -> None:
    with being_freed(sim, tmp_path, slept(layout).wake):
        threading.Timer(0.05, interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            layout.sleep("weights")
        assert (layout.asleep, layout.drift()) == ({}, [])


def test_close_waits_for_it(sim: Simulator, tmp_path: Path) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    with being_freed(sim, tmp_path, slept(layout).wake):
        closing = threading.Thread(target=layout.close)
        closing.start()
        wait_until(lambda: len(sim.alive()) == 1, "all but the copy to be freed")
        assert closing.is_alive() and copies(sim) == 1
    closing.join()
    assert layout.closed and sim.alive() == set()


def test_an_interrupt_of_close_is_raised_once_all_is_freed(
    sim: Simulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    pause, begun = Pause(tmp_path, FREES), threading.Event()

    def stop() -> None:
        with pause.under_way():
            begun.set()
            wait_until(lambda: len(sim.alive()) == 1, "all but the copy to be freed")
            interrupt()
            wait_until(lambda: "still releasing memory: please wait" in caplog.text, "the message")

    slept(layout)
    sim.runtime.arm_faults(pause.rule)
    other = threading.Thread(target=stop)
    other.start()
    layout.wake()
    assert begun.wait(LONG_S)  # else close, which frees other pinned memory, could be first
    with pytest.raises(KeyboardInterrupt):
        layout.close()
    other.join()
    sim.runtime.arm_faults("")
    assert layout.closed and sim.alive() == set()


def failing(sim: Simulator, call: Callable[[], object]) -> None:
    """The copy that the call needs no longer cannot be freed."""
    sim.runtime.arm_faults(f"{FREES}=hipErrorUnknown")
    call()
    assert _core.wait_until_freed(LONG_S)
    sim.runtime.arm_faults("")


def test_close_reports_a_copy_that_could_not_be_freed(sim: Simulator) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    failing(sim, slept(layout).wake)
    assert (layout.asleep, layout.drift()) == ({}, [])
    with pytest.raises(LeakError, match=r"HP403.*pinned buffer '#asleep.weights.0'") as leaked:
        layout.close()
    assert leaked.value.undone is not None and leaked.value.undone.leaks == ("#asleep.weights.0",)
    assert leaked.value.exit_code == 5 and layout.closed and copies(sim) == 1
    sim.free_everything()


def test_the_next_change_logs_it_and_close_does_not_say_it_again(
    sim: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    failing(sim, slept(layout).wake)
    with caplog.at_level(logging.ERROR, "hipplan"):
        layout.grow("weights", by="2MiB")
    assert [record.message.partition(" of ")[0] for record in caplog.records] == [
        "error[HP403]: pinned buffer '#asleep.weights.0'"
    ]
    layout.close()
    assert copies(sim) == 1
    sim.free_everything()


def test_a_layout_that_is_dropped_waits_and_reports(sim: Simulator, caplog: pytest.LogCaptureFixture) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    sim.runtime.arm_faults(f"{FREES}=hipErrorUnknown; hipHostFree@2=delay:50")
    slept(layout).wake()
    slept(layout).wake()  # this one is freed after a moment
    del layout
    gc.collect()
    sim.runtime.arm_faults("")
    assert copies(sim) == 1
    assert [line for line in _core.take_leaks() if "#asleep.weights.0" in line] or caplog.records
    sim.free_everything()


def test_the_record_has_what_was_freed_behind(sim: Simulator, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    layout = hipplan.apply(PLAN, runtime="sim", record=record)
    failing(sim, slept(layout).wake)
    slept(layout).wake()
    layout.close()
    undo = [json.loads(line) for line in record.read_text().splitlines() if '"undo"' in line]
    freed = [(line["name"], line["result"]) for line in undo if line["name"] == "#asleep.weights.0"]
    assert freed == [("#asleep.weights.0", "leaked"), ("#asleep.weights.0", "released")]
    sim.free_everything()


def test_a_forked_child_waits_for_nothing_and_frees_nothing(layout: Layout, sim: Simulator, tmp_path: Path) -> None:
    with being_freed(sim, tmp_path, slept(layout).wake):
        child = os.fork()
        if child == 0:
            layout.close()
            os._exit(0 if _core.wait_until_freed(LONG_S) and not layout._holding.native.retired.behind else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert copies(sim) == 1


SCRIPT = """
import hipplan, os, signal, sys, time
plan = {"hipplan": 1, "regions": {"weights": {"size": "8MiB"}}, "contents": {"weights": {"value": 7}}}
layout = hipplan.apply(plan, runtime="sim")
layout.sleep("weights")
layout.runtime.arm_faults(sys.argv[1])
layout.wake()
while "999" in sys.argv[1] and not layout.runtime.faults_fired():  # else what the drop frees may be the first
    time.sleep(0.001)
if "dropped" in sys.argv:
    del layout
if "killed" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
print("awake")
"""


@pytest.mark.parametrize(
    ("rules", "more", "code", "text"),
    [
        ("hipHostFree@1=delay:200", "", 0, ""),
        ("hipHostFree@1=delay:200", "dropped", 0, ""),
        ("hipHostFree@1=999; hipHostFree@1=delay:200", "", 0, "pinned buffer '#asleep.weights.0'"),
        ("hipHostFree@1=999; hipHostFree@1=delay:200", "dropped", 0, "pinned buffer '#asleep.weights.0'"),
        ("hipHostFree@1=delay:60000", "killed", -9, ""),
    ],
)
def test_a_process_that_exits_meanwhile(rules: str, more: str, code: int, text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, rules, more], capture_output=True, text=True, timeout=LONG_S, check=False
    )
    assert done.returncode == code
    assert text in done.stderr if text else done.stderr == ""
    assert done.stdout == ("" if code else "awake\n")


def test_many_cycles_leave_nothing(layout: Layout, sim: Simulator) -> None:
    before = sim.alive()
    for _ in range(20):
        slept(layout).wake()
    assert _core.wait_until_freed(LONG_S)
    layout.grow("weights", by="2MiB")
    assert layout._holding.native.retired.behind == []
    layout.shrink("weights", by="2MiB")
    assert len(sim.alive()) == len(before)
