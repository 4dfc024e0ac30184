"""Clients that are killed at any message, or come and go at random, cost a holder nothing."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.conftest import WHOLE
from tests.faults.harness import points
from tests.holders.clients import Found, Task, result, start
from tests.holders.test_holders import attached, until

CLIENTS = 100


def files(process: int) -> int:
    return len([*Path(f"/proc/{process}/fd").iterdir()])


def environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("XDG_RUNTIME_DIR", "HIPPLAN_RUNTIME")}


def run(task: Task) -> Found | None:
    return result(*start(task, environment()))


def test_a_client_that_is_killed_at_any_message_costs_nothing(kept: int) -> None:
    whole = run(Task("w"))
    assert whole is not None
    assert whole.ok
    until(lambda: attached() == [])
    opened = files(kept)
    for packet in range(1, whole.packets + 1):
        points["clients that are killed"] += 1
        run(Task("w", packet))
        until(lambda: attached() == [])
        until(lambda: files(kept) <= opened)
    again = run(Task("w"))
    assert again == whole


@pytest.mark.parametrize("seed", range(5 if WHOLE else 1))
def test_a_hundred_clients_come_and_vanish_at_random(kept: int, seed: int) -> None:
    chance = random.Random(seed)
    first = run(Task("w"))
    assert first is not None
    until(lambda: attached() == [])
    opened, running, done = files(kept), [], list[Found]()
    for _ in range(CLIENTS):
        packet = chance.choice((0, 0, 0, chance.randint(1, first.packets)))
        running.append(start(Task("w", packet, chance.choice(("close", "kill", "leave"))), environment()))
        if len(running) == 8:
            found = result(*running.pop(chance.randrange(8)))
            done += [found] if found is not None else []
    for one in running:
        found = result(*one)
        done += [found] if found is not None else []
    assert [one.error for one in done] == [""] * len(done)
    assert all(one.ok and one.address == first.address for one in done)
    assert len(done) > CLIENTS // 2
    until(lambda: attached() == [])
    until(lambda: files(kept) <= opened)
