"""Growing a tensor at a fixed base against a new buffer, a copy and a free; what a change of one chunk costs beside
others; and one handle against many.

    python benchmarks/growth.py [--runtime cuda] [--chunks 2,256,1024,4096,12000] [--rounds 15] [--json FILE]

"grow" is layout.grow: one more chunk behind what is there, as a transaction, read back. "copy" is what one does without
virtual memory: hipMalloc of the new size, copy, free the old one.

Of a region of many chunks of 2 MiB one chunk is added, freed and remapped without its bytes, and an update adds one
buffer to its layout; beside it C++ (plain.cpp) makes the driver calls of that change. The first figure should not
depend on the chunks. Sealing changes all of them.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from typing import Any

from apply import counts
from common import MIB, Ratio, arguments, keep, opened, plain, side_by_side, table, there_and_back, timed

from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import Chosen

CHUNK = 64 * MIB
SMALL_CHUNK = 2 * MIB
BUFFER = {"kind": "device", "size": "64KiB"}


def grow(chosen: Chosen, before: int, chunk: int, peak: list[int]) -> Mapping[str, float]:
    """From `before` bytes to one chunk more, at the same address."""
    region = {"size": before, "chunk": chunk, "reserve": before + chunk}
    program = prepare(load({"hipplan": 1, "regions": {"cache": region}}), chosen, None)
    free = chosen.runtime.memory_info(0)[0]
    with run(program, chosen.runtime) as layout:
        started = time.perf_counter()
        layout.grow("cache", by=chunk)
        took = (time.perf_counter() - started) * 1e6
        peak.append(free - chosen.runtime.memory_info(0)[0])
    return {"grow": took}


def copy(chosen: Chosen, before: int, chunk: int, peak: list[int]) -> Mapping[str, float]:
    """What else a user would do: a larger buffer, the bytes copied, the old one freed."""
    runtime, hip = chosen.runtime, ctypes.CDLL(chosen.runtime.path)
    free = runtime.memory_info(0)[0]

    def malloc(size: int) -> int:
        pointer = ctypes.c_void_p()
        check(hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)))
        return pointer.value or 0

    def check(code: int) -> None:
        if code:
            raise RuntimeError(f"HIP error {code}")

    old = malloc(before)
    runtime.fill(old, 1, before)
    runtime.synchronize(0)
    started = time.perf_counter()
    new = malloc(before + chunk)
    made = time.perf_counter()
    peak.append(free - runtime.memory_info(0)[0])
    asked = time.perf_counter() - made
    runtime.copy(new, old, before)
    runtime.synchronize(0)
    check(hip.hipFree(ctypes.c_void_p(old)))
    took = (time.perf_counter() - started - asked) * 1e6
    check(hip.hipFree(ctypes.c_void_p(new)))
    return {"grow": took}


def region(chunks: int, **more: Any) -> dict[str, Any]:
    """A plan of one region of so many chunks, with room for one more."""
    size = chunks * SMALL_CHUNK
    cache = {"size": size, "chunk": SMALL_CHUNK, "reserve": size + SMALL_CHUNK}
    return {"hipplan": 1, "regions": {"cache": cache}, **more}


def changes(chosen: Chosen, hand: ctypes.CDLL, chunks: int, rounds: int) -> dict[str, Any]:
    """What each change of one chunk takes beside `chunks` others: "apply" is the change, "teardown" its undoing."""
    without, with_buffer = load(region(chunks)), load(region(chunks, buffers={"more": BUFFER}))
    middle = f"{chunks // 2 * SMALL_CHUNK}..{(chunks // 2 + 1) * SMALL_CHUNK}"
    own = ctypes.c_void_p()
    if code := hand.plain_region(chunks, ctypes.c_size_t(SMALL_CHUNK), chunks + 1, ctypes.byref(own)):
        raise RuntimeError(f"HIP error {code}")
    with run(prepare(without, chosen, None), chosen.runtime) as layout:

        def remap() -> Any:
            return layout.remap("cache", part=middle, keep_bytes=False)

        def back_and_remap() -> None:
            layout.shrink("cache", by=SMALL_CHUNK)
            remap()

        def unseal() -> None:
            layout.unseal("cache")
            layout.grow("cache", by=SMALL_CHUNK)  # ends the record of thousands of calls, which the seal has made
            layout.shrink("cache", by=SMALL_CHUNK)

        variants = {
            "first": lambda: there_and_back(lambda: layout.grow("cache", by=SMALL_CHUNK), back_and_remap),
            "first by hand": lambda: timed(hand.plain_grow, own),
            "grow": lambda: there_and_back(lambda: layout.grow("cache", by=SMALL_CHUNK),
                                           lambda: layout.shrink("cache", by=SMALL_CHUNK)),
            "grow by hand": lambda: timed(hand.plain_grow, own),
            "remap": lambda: there_and_back(remap, lambda: None),
            "remap by hand": lambda: timed(hand.plain_remap, own),
            "seal": lambda: there_and_back(lambda: layout.seal("cache"), unseal),
            "seal by hand": lambda: timed(hand.plain_seal, own),
            "buffer": lambda: there_and_back(lambda: layout.update(with_buffer),
                                             lambda: layout.update(without, lose="*")),
            "buffer by hand": lambda: timed(hand.plain_buffers, 1, ctypes.c_size_t(1 << 16)),
        }  # fmt: skip
        took = side_by_side(variants, rounds)
    if code := hand.plain_close(own):
        raise RuntimeError(f"HIP error {code}")
    return took


CHANGES = {
    "first after update": ("first", "apply"),
    "grow": ("grow", "apply"),
    "shrink": ("grow", "teardown"),
    "remap a chunk": ("remap", "all"),
    "add a buffer": ("buffer", "apply"),
    "seal all of them": ("seal", "apply"),
}
"""Row of the table -> which variant and which part of it."""


def compare_changes(chosen: Chosen, sizes: list[int], rounds: int) -> list[Any]:
    """Prints a table for all sizes; returns the results."""
    hand = plain(chosen)
    rows, results = [], []
    least: dict[str, float] = {}
    for chunks in sizes:
        needed = 2 * (chunks + 2) * SMALL_CHUNK
        if needed > chosen.runtime.memory_info(0)[0]:
            print(f"not measured: {chunks} chunks twice, which device 0 does not hold")
            continue
        took = changes(chosen, hand, chunks, rounds if chunks < 1000 else -(-rounds // 3))
        for title, (name, part) in CHANGES.items():
            by_hand = took[f"{name} by hand"]
            least.setdefault(title, took[name][part])
            beside = Ratio.of(took[name], by_hand, part).median
            rows.append([f"{chunks}", title, took[name][part], by_hand[part], beside, took[name][part] / least[title]])
        results.append({"chunks": chunks, "chunk": SMALL_CHUNK, "us": took})
    print("a change beside so many chunks of 2 MiB, us; ratio: to C++ with the same calls; growth: to the first size")
    table(["chunks", "", "hipplan", "C++", "ratio", "growth"], rows)
    return results


def tensors(chosen: Chosen, count: int, size: int, handles: int) -> Any:
    """A program that gives `count` tensors' worth of memory out of so many handles."""
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 1}},
        "allocations": {"a": {"device": "gpu.0", "size": count * size // handles, "count": handles}},
        "reservations": {"r": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a.*"}]}},
    }
    program = prepare(load(plan), chosen, None)

    def once() -> Mapping[str, float]:
        started = time.perf_counter()
        layout = run(program, chosen.runtime)
        applied = time.perf_counter()
        layout.close()
        return {"apply": (applied - started) * 1e6, "teardown": (time.perf_counter() - applied) * 1e6}

    return once


def main() -> None:
    parser = arguments(__doc__ or "", rounds=15)
    about = "numbers of chunks for the changes of one, with commas between"
    parser.add_argument("--chunks", type=counts, default="2,256,1024,4096,12000", help=about)
    given = parser.parse_args()
    chosen = opened(given)
    simulated = hasattr(ctypes.CDLL(chosen.runtime.path), "hipsim_ledger")  # under AMD's name too
    rows, results = [], []
    for before, chunk in ((64 * MIB, CHUNK), (1024 * MIB, CHUNK), (8192 * MIB, CHUNK), (40960 * MIB, 1024 * MIB)):
        if simulated and before > 64 * MIB:
            continue  # its copies are real ones, by the CPU
        if 2 * before + chunk > chosen.runtime.memory_info(0)[0]:
            print(f"not measured: {before // MIB} MiB twice, which device 0 does not hold")
            continue
        peaks: dict[str, list[int]] = {"grow": [], "copy": []}
        took = side_by_side(
            {
                "grow": lambda b=before, c=chunk, p=peaks: grow(chosen, b, c, p["grow"]),
                "copy": lambda b=before, c=chunk, p=peaks: copy(chosen, b, c, p["copy"]),
            },
            given.rounds,
        )
        ratio = took["copy"]["all"] / took["grow"]["all"]
        peak = {name: max(seen) for name, seen in peaks.items()}
        title = f"{before // MIB} MiB + {chunk // MIB} MiB"
        rows.append([title, took["grow"]["all"], took["copy"]["all"], ratio, peak["grow"] / peak["copy"]])
        results.append({"before": before, "chunk": chunk, "us": took, "ratio": ratio, "peak": peak})
    print("growing, us; ratio: how many times faster than a new buffer, copy, free; peak: memory, of theirs")
    table(["", "at a fixed base", "new buffer", "ratio", "peak"], rows)

    results += compare_changes(chosen, given.chunks, given.rounds)
    variants = {f"{handles}": tensors(chosen, 512, 2 * MIB, handles) for handles in (1, 512)}
    took = side_by_side(variants, given.rounds)
    ratio = took["512"]["all"] / took["1"]["all"]
    print("512 tensors of 2 MiB, verified, us")
    table(
        ["handles", "apply", "teardown", "ratio"],
        [["1", took["1"]["apply"], took["1"]["teardown"], 1.0],
         ["512", took["512"]["apply"], took["512"]["teardown"], ratio]],
    )  # fmt: skip
    results.append({"tensors": 512, "size": 2 * MIB, "us": took, "ratio": ratio})
    keep(given.json, "growth", chosen, results)


if __name__ == "__main__":
    main()
