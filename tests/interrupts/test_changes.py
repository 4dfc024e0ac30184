"""Interrupts in a change in place: wherever one falls, the layout is the old one or the new one, and loses nothing."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from hipplan import _core
from hipplan.layout.layout import Layout
from hipplan.layout.run import run
from hipplan.layout.undo import wait_until_freed
from hipplan.program.steps import Step
from tests.conftest import WHOLE, Simulator
from tests.faults.change import Facts, facts, owned, writable
from tests.faults.counting import cut, points
from tests.faults.test_changes import ONE, OTHER, SEALED_HERE, SEALED_LONGER, become
from tests.faults.test_every_call import program_of
from tests.interrupts.test_library import interrupt_at
from tests.pauses import LONG_S, during, interrupt, wait_until

PLACES = 250 if WHOLE else 20


def look_at_everything(layout: Layout) -> None:
    """Raises LeaseRefused where something is barred."""
    for name in set(layout) - layout.program.asleep.keys():
        if hasattr(layout[name], "address"):
            _core.Lease(layout[name])


def sleep_and_wake(layout: Layout) -> None:
    layout.sleep(["hot", "model"])
    layout.wake()


def is_in_new_memory(now: Facts, before: Facts) -> bool:
    """Whether a region was remapped before the interrupt came, which changes nothing that its program has."""
    is_same = all(now[kind] == before[kind] for kind in ("address", "access"))
    return is_same and [*now["bytes"].values()] == [*before["bytes"].values()] and now["handle"] != before["handle"]


ACTS: dict[str, tuple[str, Any]] = {
    "update": (ONE, lambda: become(OTHER)),
    "update and seal": (SEALED_HERE, lambda: become(SEALED_LONGER)),
    "grow": (ONE, lambda: lambda layout: layout.grow("hot", to="6MiB")),
    "shrink": (ONE, lambda: lambda layout: layout.shrink("hot", to="2MiB")),
    "sleep": (ONE, lambda: lambda layout: layout.sleep("hot", checksum=True)),
    "sleep and wake": (ONE, lambda: sleep_and_wake),
    "remap": (ONE, lambda: lambda layout: layout.remap("hot")),
    "remap a part": (ONE, lambda: lambda layout: layout.remap("hot", part="2MiB..4MiB", device="gpu.1")),
}


@pytest.mark.in_parts
@pytest.mark.parametrize("what", ACTS)
def test_an_interrupt_at_any_instruction_leaves_the_old_or_the_new(what: str, sim: Simulator) -> None:
    source, made = ACTS[what]
    program, act = program_of(source), made()
    for _ in range(2):  # the second time, all that is remembered is there
        with run(program, sim.runtime) as layout, interrupt_at(0) as counted:
            act(layout)
    whole = counted[0]
    places = min(PLACES, whole - 1)
    points["interrupts between instructions"] += places
    cut["interrupts between instructions"] += whole - 1 - places
    for at in sorted(random.Random(7).sample(range(1, whole), places)):
        layout = run(program, sim.runtime)
        for number, (_, address) in enumerate(writable(layout)):
            sim.fill(address, number + 1, 64)
        before = facts(sim, layout)
        with interrupt_at(at):
            try:
                act(layout)
            except KeyboardInterrupt:
                pass
            else:
                pytest.fail(f"instruction {at} of {whole}: the interrupt was swallowed")
        assert layout.drift() == [], f"instruction {at} of {whole}"
        if layout.program is program:
            now = facts(sim, layout)
            assert now == before or (what == "remap" and is_in_new_memory(now, before)), f"instruction {at} of {whole}"
        wait_until_freed()
        alive = {key for key in sim.alive() if key[0] != "stream"}
        assert alive == owned(sim, layout), f"instruction {at} of {whole}"
        look_at_everything(layout)
        act(layout)  # and it can be changed again
        assert layout.drift() == []
        layout.close()
        assert sim.alive() == set(), f"instruction {at} of {whole}"
    assert _core.take_leaks() == []


def test_an_interrupt_at_any_instruction_of_a_close_is_raised_when_all_is_freed(sim: Simulator) -> None:
    calls: list[str] = []

    def opened() -> Layout:
        calls.clear()
        layout = run(program, sim.runtime)
        layout.watch("hot", on_unmap=lambda name: calls.append("unmap"), on_map=lambda name: calls.append("map"))
        return layout

    program = program_of(ONE)
    for _ in range(2):
        layout = opened()
        with interrupt_at(0) as counted:
            layout.close()
    whole = counted[0]
    places = range(1, whole, 1 if WHOLE else 7)
    points["interrupts between instructions"] += len(places)
    cut["interrupts between instructions"] += whole - 1 - len(places)
    for at in places:
        layout = opened()
        with interrupt_at(at), pytest.raises(KeyboardInterrupt):
            layout.close()
        if not layout.closed:
            assert at < 5 and calls == []  # close() has not begun
            layout.close()
        assert calls[-1:] == ["unmap"], f"instruction {at} of {whole}"  # before it, what the interrupt has undone
        wait_until_freed()
        assert sim.alive() == set(), f"instruction {at} of {whole}"
    assert _core.take_leaks() == []


def test_an_interrupt_in_a_close_is_raised_also_if_the_layout_is_in_use(
    sim: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def on_unmap(name: str) -> None:
        calls.append(name)
        if len(calls) == 1:
            raise KeyboardInterrupt

    layout = run(program_of(ONE), sim.runtime)
    layout.watch("hot", on_unmap=on_unmap)
    view = memoryview(layout["staging"])
    with pytest.raises(KeyboardInterrupt):
        layout.close()
    assert calls == ["hot", "hot"] and not layout.closed
    assert "HP409" in caplog.text
    del view
    layout.close()
    assert sim.alive() == set()


class Stop(Exception):
    """Raised between two steps."""


def test_an_exception_between_any_two_steps_rolls_back_and_goes_on(sim: Simulator) -> None:
    program = program_of(ONE)
    seen: list[str] = []
    with run(program, sim.runtime) as layout:
        layout.update(OTHER, on_step=lambda number, step: seen.append(f"{number} {step.call}"), lose="*")
    assert len(seen) > 20
    assert [line.split()[0] for line in seen] == [str(number) for number in range(len(seen))]
    for stop in range(len(seen)):

        def on_step(number: int, step: Step, stop: int = stop) -> None:
            if number == stop:
                raise Stop

        with run(program, sim.runtime) as layout:
            before, alive = facts(sim, layout), sim.alive()
            with pytest.raises(Stop):
                layout.update(OTHER, on_step=on_step, lose="*")
            assert layout.program is program
            assert (facts(sim, layout), sim.alive()) == (before, alive)


def test_a_signal_while_a_device_is_waited_for_is_answered_at_once(sim: Simulator, tmp_path: Path) -> None:
    """Before anything is taken out nothing is lost by not waiting."""
    answered = threading.Event()

    def act() -> None:
        interrupt()
        assert answered.wait(LONG_S)

    with run(program_of(ONE), sim.runtime) as layout:
        before = facts(sim, layout)
        with during(sim, tmp_path, "hipDeviceSynchronize@1", act):
            with pytest.raises(KeyboardInterrupt):
                become(OTHER)(layout)
            answered.set()
        assert facts(sim, layout) == before


def test_a_busy_device_is_reported_during_a_change(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("HIPPLAN_IDLE_NOTICE", "0.1")
    message = "device 'gpu.0' is still busy after 0.1 s; the change waits for it"

    def act() -> None:
        wait_until(lambda: caplog.text, message)

    with run(program_of(ONE), sim.runtime) as layout, during(sim, tmp_path, "hipDeviceSynchronize@1", act):
        become(OTHER)(layout)

    assert [record.getMessage() for record in caplog.records][:1] == [message]


def test_a_signal_while_things_are_freed_is_raised_when_they_are(sim: Simulator, tmp_path: Path) -> None:
    with run(program_of(ONE), sim.runtime) as layout:
        with during(sim, tmp_path, "hipHostFree@1", interrupt), pytest.raises(KeyboardInterrupt):
            become(OTHER)(layout)
        assert "staging" not in layout
        assert {key for key in sim.alive() if key[0] != "stream"} == owned(sim, layout)
        assert layout.drift() == []


def test_a_layout_closed_in_the_middle_of_a_change_stays_closed(sim: Simulator) -> None:
    layout = run(program_of(ONE), sim.runtime)

    def on_step(number: int, step: Step) -> None:
        if number == 5:
            layout.close()

    with pytest.raises(ValueError, match="closed"):
        layout.update(OTHER, on_step=on_step, lose="*")
    assert layout.closed
    assert sim.alive() == set()
