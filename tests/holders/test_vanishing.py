"""Clients are killed at any message, or attach and end at random; the holder keeps no descriptor of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.conftest import WHOLE
from tests.faults.harness import points
from tests.holders.clients import Outcome, Task, result, start
from tests.holders.test_holders import attached, until

CLIENTS = 100 if WHOLE else 30


def files(process: int) -> int:
    return len([*Path(f"/proc/{process}/fd").iterdir()])


def environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("HIPPLAN_SOCKETS", "HIPPLAN_RUNTIME")}


def run(task: Task) -> Outcome | None:
    return result(*start(task, environment()))


def test_a_client_that_is_killed_at_any_message_is_detached(kept: int) -> None:
    complete = run(Task("w"))
    assert complete is not None
    assert complete.ok
    until(lambda: attached() == [])
    opened = files(kept)
    for packet in range(1, complete.packets + 1):
        points["clients that are killed"] += 1
        run(Task("w", packet))
        until(lambda: attached() == [])
        until(lambda: files(kept) <= opened)
    again = run(Task("w"))
    assert again == complete


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(5 if WHOLE else 1))
def test_a_hundred_clients_attach_and_end_at_random(kept: int, seed: int) -> None:
    generator = random.Random(seed)
    first = run(Task("w"))
    assert first is not None
    until(lambda: attached() == [])
    opened, running, outcomes = files(kept), [], list[Outcome]()
    for _ in range(CLIENTS):
        packet = generator.choice((0, 0, 0, generator.randint(1, first.packets)))
        running.append(start(Task("w", packet, generator.choice(("close", "kill", "leave"))), environment()))
        if len(running) == 8:
            outcome = result(*running.pop(generator.randrange(8)))
            outcomes += [outcome] if outcome is not None else []
    for client in running:
        outcome = result(*client)
        outcomes += [outcome] if outcome is not None else []
    assert [outcome.error for outcome in outcomes] == [""] * len(outcomes)
    assert all(outcome.ok and outcome.address == first.address for outcome in outcomes)
    assert len(outcomes) > CLIENTS // 2
    until(lambda: attached() == [])
    until(lambda: files(kept) <= opened)
