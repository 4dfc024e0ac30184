"""Applies a plan again and again while its driver calls fail in turn: python -m tests.amd.ioctls PLAN NAME NUMBER MOST

Begins with the NUMBERth call of NAME and goes on through the names of calls.def; of each, at most MOST calls fail.
Writes a JSON line for each call that fails, before ("fails") and after: what became of the plan, and what the driver's
ledger has more than before. `test_ioctls` runs and judges it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hipplan.errors import HipplanError
from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import choose

driver = ctypes.CDLL(None)
POLLS = 3
"""How many waits for an event fail: 6.4 polls with thousands of them (docs/amd.md)."""
SPOILT = 9
"""The exit code of a process in which something is left: the next call fails in another one."""
COUNTED = ("buffers", "imports", "exported", "mappings", "managed", "queues", "events", "descriptors", "host_used")


def ledger() -> dict[str, int]:
    """How much of each kind is alive."""
    driver.kfdsim_ledger.restype = ctypes.c_size_t
    text = ctypes.create_string_buffer(driver.kfdsim_ledger(None, ctypes.c_size_t(0)) + 4096)
    driver.kfdsim_ledger(text, ctypes.c_size_t(len(text)))
    found: dict[str, Any] = json.loads(text.value)
    counts = {name: found[name] if isinstance(found[name], int) else len(found[name]) for name in COUNTED}
    return counts | {f"gpu {gpu['gpu']}": gpu["used"] for gpu in found["gpus"]}


def fail(rules: str) -> None:
    assert driver.kfdsim_fail(rules.encode()) == 0, rules


def names() -> list[str]:
    driver.kfdsim_calls.restype = ctypes.c_char_p
    found: list[str] = driver.kfdsim_calls().decode().split()
    return found


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def attempt(name: str, number: int, once: Callable[[], None]) -> bool:
    """Applies the plan while a call fails. Whether there was such a call."""
    before, error = ledger(), None
    say(name=name, number=number, fails=True)
    fail(f"{name}@{number}=ENOMEM")
    try:
        once()
    except HipplanError as failed:
        error = failed
    fired = driver.kfdsim_fail_fired()
    fail("")
    after = ledger()
    more = {key: after[key] - before[key] for key in after if after[key] != before[key]}
    summary = "; ".join(one.summary for one in error.diagnostics) if error else ""
    kind = type(error).__name__ if error else ""
    say(name=name, number=number, fired=fired, error=kind, summary=summary, more=more)
    if fired and more:
        os._exit(SPOILT)
    return bool(fired)


def main(path: Path, first: str, number: int, most: int) -> None:
    chosen, plan = choose(), load(path)

    def once() -> None:
        with run(prepare(plan, chosen, None), chosen.runtime):
            pass

    for _ in range(3):  # what the library keeps for itself it takes now
        once()
    for name in names()[names().index(first) :]:
        while number <= (min(most, POLLS) if name == "wait_events" else most) and attempt(name, number, once):
            number += 1
        number = 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
