"""Where the time of apply and teardown goes: within the driver's calls, and beside them.

    python benchmarks/calls.py [--runtime cuda] [--counts 64,512] [--rounds 25] [--json FILE]

hipplan and hand-written C++ make the same calls through a library that adds up what they take; what is left is their
own. Medians, in microseconds. See apply.py for the ratios, which are measured without that library.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

from apply import SIZE, counts, cycle, mappings, plan
from common import Variant, arguments, built, keep, opened, plain, side_by_side, table, timed

from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.machines.runtimes import choose


def main() -> None:
    parser = arguments(__doc__ or "", rounds=25)
    parser.add_argument("--counts", type=counts, default="64,512", help="mappings, with commas between")
    given = parser.parse_args()
    os.environ["COUNTED"] = opened(given).runtime.path
    library = built("counting.cpp")
    chosen = choose(str(library))
    hand, counting = plain(chosen), ctypes.CDLL(str(library))
    rows, results = [], []
    for count in given.counts:
        program = prepare(load(plan(count, 1)), chosen, None)
        variants = {
            "C++": lambda count=count: timed(mappings(hand), count, SIZE, 1),
            "hipplan": lambda program=program: cycle(program, chosen, check=False),
            "verified": lambda program=program: cycle(program, chosen, check=True),
        }
        how_many: dict[str, int] = {}
        took = side_by_side(
            {name: watched(name, once, counting, how_many) for name, once in variants.items()}, given.rounds
        )
        for name, parts in took.items():
            ratio = parts["within"] / took["C++"]["within"]
            a_call = parts["beside"] / how_many[name]
            rows.append([f"{count} x 1", name, parts["all"], how_many[name], parts["within"], ratio, parts["beside"],
                         a_call])  # fmt: skip
        results.append({"mappings": count, "devices": 1, "rounds": given.rounds, "calls": how_many, "us": took})
    table(["mappings x devices", "", "up and down", "calls", "within them", "ratio", "beside", "a call"], rows)
    keep(given.json, "calls", chosen, results)


def watched(name: str, once: Variant, counting: ctypes.CDLL, how_many: dict[str, int]) -> Variant:
    """A round, with the time inside and outside of driver calls. Stores its number of calls in `how_many`."""

    def again() -> Mapping[str, float]:
        counted(counting)  # what was before
        whole_us = sum(once().values())
        how_many[name], within_us = counted(counting)
        return {"within": within_us, "beside": whole_us - within_us}

    return again


def counted(counting: ctypes.CDLL) -> tuple[int, float]:
    """(calls, microseconds) since the last time."""
    how_many, ns = ctypes.c_int64(), ctypes.c_int64()
    counting.counted(ctypes.byref(how_many), ctypes.byref(ns))
    return how_many.value, ns.value / 1000


if __name__ == "__main__":
    main()
