"""Applies a plan again and again while its driver calls fail in turn: python -m tests.amd.ioctls PLAN FIRST all|each

A JSON line for each call that fails, before ("fails") and after: what became of the plan, and what the driver's ledger
has more than before. all: each ioctl of the plan; each: the first of each name. `test_ioctls` runs and judges it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hipplan.errors import HipplanError
from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import choose

driver = ctypes.CDLL(None)
NEVER = 10**9
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


def rules(which: str, once: Any) -> Iterator[str]:
    if which == "each":
        driver.kfdsim_calls.restype = ctypes.c_char_p
        names = driver.kfdsim_calls().decode().split()
        return (f"{name}@1=ENOMEM" for name in names)
    fail(f"*@{NEVER}=ENOMEM")
    once()
    driver.kfdsim_fail_calls.restype = ctypes.c_uint64
    return (f"*@{number}=ENOMEM" for number in range(1, driver.kfdsim_fail_calls() + 1))


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def main(path: Path, first: int, which: str) -> None:
    chosen, plan = choose(), load(path)

    def once() -> None:
        with run(prepare(plan, chosen, None), chosen.runtime):
            pass

    for _ in range(3):  # what the library keeps for itself it takes now
        once()
    for number, rule in enumerate(rules(which, once)):
        if number < first:
            continue
        before, error = ledger(), None
        say(number=number, rule=rule, fails=True)
        fail(rule)
        try:
            once()
        except HipplanError as failed:
            error = failed
        fired = driver.kfdsim_fail_fired()
        fail("")
        after = ledger()
        more = {name: after[name] - before[name] for name in after if after[name] != before[name]}
        summary = "; ".join(one.summary for one in error.diagnostics) if error else ""
        kind = type(error).__name__ if error else ""
        say(number=number, rule=rule, fired=fired, error=kind, summary=summary, more=more)
        if fired and more:
            os._exit(SPOILT)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
