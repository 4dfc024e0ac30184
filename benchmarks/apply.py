"""Apply and teardown of a compiled program against hand-written C++ that makes the same driver calls.

    python benchmarks/apply.py [--runtime cuda] [--rounds 15] [--json FILE]

Counted is what the transaction does: from the compiled program to the finished layout, and its closing. Reading
and compiling the plan stands in its own column; it touches no driver and is done once for any number of applies.
"whole" is what a user waits for: hipplan.apply() of a YAML text, verified, queries of the machine and all, to close().
Aims: 1.02 without verification, 1.06 with it, whole 1.15 for 512 and 1.10 for 4,096. --profile FILE shows where the
time of one apply goes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import yaml
from common import MIB, Ratio, arguments, keep, linked, opened, plain, positive, side_by_side, table, timed

import hipplan
from hipplan.language.loader import load
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import Chosen
from hipplan.program.program import Program

SIZE = 2 * MIB


def plan(count: int, devices: int) -> dict[str, Any]:
    return {
        "hipplan": 1,
        "devices": {"gpu": {"count": devices}},
        "allocations": {"chunk": {"device": "gpu.0", "size": SIZE, "count": count}},
        "reservations": {
            "range": {
                "access": {f"gpu.{n}": "rw" for n in range(devices)},
                "mappings": [{"allocation": "chunk.*"}],
            }
        },
    }


def cycle(program: Program, chosen: Chosen, check: bool) -> Mapping[str, float]:
    started = time.perf_counter()
    layout = run(program, chosen.runtime, Options(verify=check))
    applied = time.perf_counter()
    layout.close()
    return {"apply": (applied - started) * 1e6, "teardown": (time.perf_counter() - applied) * 1e6}


def whole(text: str, chosen: Chosen) -> Mapping[str, float]:
    started = time.perf_counter()
    layout = hipplan.apply(text, runtime=chosen.runtime.path, answer=False)
    applied = time.perf_counter()
    layout.close()
    return {"apply": (applied - started) * 1e6, "teardown": (time.perf_counter() - applied) * 1e6}


def counts(text: str) -> list[int]:
    return [positive(number) for number in text.split(",")]


def main() -> None:
    parser = arguments(__doc__ or "", rounds=15)
    parser.add_argument("--counts", type=counts, default="64,512,4096", help="mappings, with commas between")
    parser.add_argument("--profile", default="", help="write a cProfile of ten applies with verification here")
    given = parser.parse_args()
    chosen = opened(given)
    if given.profile:
        profile(chosen, given.profile)
        return
    hand = plain(chosen)
    available = linked(chosen)
    rows, results = [], []
    cases = [(count, 1) for count in given.counts]
    if available > 1:
        cases.append((512, available))
    for count, devices in cases:
        text = yaml.safe_dump(plan(count, devices))
        started = time.perf_counter()
        program = prepare(load(plan(count, devices)), chosen, None)
        compiled = (time.perf_counter() - started) * 1e6
        variants = {
            "C++": lambda count=count, devices=devices: timed(mappings(hand), count, SIZE, devices),
            "hipplan": lambda program=program: cycle(program, chosen, check=False),
            "verified": lambda program=program: cycle(program, chosen, check=True),
            "whole": lambda text=text: whole(text, chosen),
        }
        rounds = given.rounds * (8 if count < 100 else 4 if count < 1000 else 1)
        took = side_by_side(variants, rounds)
        base = took["C++"]
        ratios = {
            f"{name} {part}": Ratio.of(took[name], base, part)
            for name in ("hipplan", "verified", "whole")
            for part in ("apply", "teardown", "all")
        }
        shown = [
            ratio if name.endswith("all") else ratio.median for name, ratio in ratios.items() if "whole " not in name
        ]
        shown.append(ratios["whole all"])
        rows.append([f"{count} x {devices}", base["apply"], base["teardown"], *shown, compiled])
        results.append(
            {"mappings": count, "devices": devices, "rounds": rounds, "us": took,
             "ratios": {name: ratio._asdict() for name, ratio in ratios.items()},
             "load and compile us": compiled}
        )  # fmt: skip
    print(
        "times in us; ratios to C++ (of both: where the median lies with 95 % certainty), without and with verification"
    )
    table(
        [
            "mappings x devices",
            "C++ up",
            "down",
            "up",
            "down",
            "both",
            "v. up",
            "v. down",
            "v. both",
            "whole",
            "compile",
        ],
        rows,
    )
    keep(given.json, "apply", chosen, results)


def mappings(hand: Any) -> Any:
    """plain.cpp's function for the same layout."""

    def call(count: int, size: int, devices: int, up: Any, down: Any) -> int:
        import ctypes

        return int(hand.plain_mappings(count, ctypes.c_size_t(size), devices, up, down))

    return call


def profile(chosen: Chosen, path: str) -> None:
    import cProfile
    import pstats

    program = prepare(load(plan(512, 1)), chosen, None)
    watch = cProfile.Profile()
    watch.enable()
    for _ in range(10):
        cycle(program, chosen, check=True)
    watch.disable()
    watch.dump_stats(path)
    pstats.Stats(watch).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
