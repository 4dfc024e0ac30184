"""The transaction alone: cost per driver call on the simulator, against hip-python and C++ making the same calls.

    python benchmarks/sim_steps.py [--rounds 15] [--json FILE]

512 mappings of 2 MiB, applied and freed. hip-python (7.2, from PyPI) is left out where it is not installed; it
finds the simulator under AMD's library name, so this starts itself again through hipplan's launcher.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from apply import SIZE, cycle, mappings, plan
from common import arguments, keep, opened, plain, side_by_side, table, timed

from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.machines import simulator

COUNT = 512
CALLS = 5 * COUNT + 3
"""Create, map, access, unmap, release; reserve, free, synchronise."""


def by_hip_python() -> Mapping[str, float]:
    """As one would write it with hip-python: each call's code looked at, nothing kept but the handles."""
    from hip import hip

    def ok(answer: tuple[Any, ...]) -> Any:
        if answer[0] != hip.hipError_t.hipSuccess:
            raise RuntimeError(str(answer[0]))
        return answer[1] if len(answer) > 1 else None

    started = time.perf_counter()
    prop = hip.hipMemAllocationProp()
    prop.type = hip.hipMemAllocationType.hipMemAllocationTypePinned
    prop.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
    prop.location.id = 0
    right = hip.hipMemAccessDesc()
    right.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
    right.location.id = 0
    right.flags = hip.hipMemAccessFlags.hipMemAccessFlagsProtReadWrite
    handles = [ok(hip.hipMemCreate(SIZE, prop, 0)) for _ in range(COUNT)]
    base = int(ok(hip.hipMemAddressReserve(COUNT * SIZE, 0, 0, 0)))
    for number, handle in enumerate(handles):
        ok(hip.hipMemMap(base + number * SIZE, SIZE, 0, handle, 0))
        ok(hip.hipMemSetAccess(base + number * SIZE, SIZE, right, 1))
    applied = time.perf_counter()
    ok(hip.hipDeviceSynchronize())
    for number in reversed(range(COUNT)):
        ok(hip.hipMemUnmap(base + number * SIZE, SIZE))
    ok(hip.hipMemAddressFree(base, COUNT * SIZE))
    for handle in reversed(handles):
        ok(hip.hipMemRelease(handle))
    return {"apply": (applied - started) * 1e6, "teardown": (time.perf_counter() - applied) * 1e6}


def main() -> None:
    if "LD_LIBRARY_PATH" not in os.environ or "hipsim-" not in os.environ["LD_LIBRARY_PATH"]:
        sys.exit(simulator.run([sys.executable, *sys.argv], os.environ.get("HIPSIM_PROFILE")))
    parser = arguments(__doc__ or "", rounds=15)
    parser.set_defaults(runtime="sim")
    given = parser.parse_args()
    chosen = opened(given)
    program = prepare(load(plan(COUNT, 1)), chosen, None)
    hand = plain(chosen)
    variants: dict[str, Any] = {
        "C++": lambda: timed(mappings(hand), COUNT, SIZE, 1),
        "hipplan": lambda: cycle(program, chosen, check=False),
        "hipplan, verified": lambda: cycle(program, chosen, check=True),
    }
    missing = ""
    try:
        by_hip_python()
        variants["hip-python"] = by_hip_python
    except Exception as error:
        missing = f"hip-python: {type(error).__name__}: {error}"
    took = side_by_side(variants, given.rounds)
    base = took["C++"]["all"]
    print(f"{COUNT} mappings, {CALLS} driver calls; us, and ns for each call above C++")
    table(
        ["", "up", "down", "both", "ratio to C++", "ns a call above"],
        [
            [name, t["apply"], t["teardown"], t["all"], t["all"] / base, (t["all"] - base) * 1000 / CALLS]
            for name, t in took.items()
        ],
    )
    if missing:
        print(f"not measured: {missing}")
    keep(given.json, "sim_steps", chosen, {"us": took, "calls": CALLS, "not measured": missing})


if __name__ == "__main__":
    main()
