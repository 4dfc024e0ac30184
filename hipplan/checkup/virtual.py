"""Virtual memory of one device: rights, addresses, parts of a handle, and whether memory comes back."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from ctypes import c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from pathlib import Path

from hipplan.checkup.driver import NONE, READ, READ_WRITE, properties
from hipplan.checkup.question import MIB, Bench, Question, Release, Seen

SIZE = 2 * MIB
MANY = 64


def _rights(bench: Bench) -> Seen:
    """What hipMemGetAccess returns for each right of each device that reaches the memory of device 0."""
    driver, seen = bench.driver, Seen()
    with driver.mapped(SIZE, properties()) as address:
        seen["fresh"] = driver.right(address, 0)
        for ordinal in [ordinal for ordinal in range(bench.devices) if bench.reach(ordinal, 0)][:2]:
            for name, flags in (("rw", READ_WRITE), ("r", READ), ("none", NONE)):
                code = driver.grant(address, SIZE, ordinal, flags)
                seen[f"{name} for gpu.{ordinal}"] = driver.right(address, ordinal) if code == "Success" else code
            driver.grant(address, SIZE, ordinal)
    return seen


def _hints(bench: Bench) -> Seen:
    """Whether a range that was just freed is given again where it was, by size."""
    seen = Seen()
    for size in (SIZE, 32 * MIB, 256 * MIB, 1024 * MIB):
        with bench.driver.reservation(size) as wanted:
            pass
        with bench.driver.reservation(size, wanted) as again:
            seen[f"{size // MIB} MiB"] = "taken" if again == wanted else "elsewhere"
    with bench.driver.reservation(256 * MIB) as first, bench.driver.reservation(256 * MIB, first) as other:
        seen["of a range in use"] = "elsewhere" if other != first else "taken"
    return seen


def _parts(bench: Bench) -> Seen:
    """Whether less than a handle can be mapped, from its start and from its middle."""
    seen, driver = Seen(), bench.driver
    with driver.reservation(2 * SIZE) as address, driver.allocation(2 * SIZE, properties()) as handle:
        for name, offset in (("first half", 0), ("second half", SIZE)):
            place, size = c_void_p(address), c_size_t(SIZE)
            code = driver.code("hipMemMap", place, size, c_size_t(offset), c_void_p(handle), c_ulonglong(0))
            seen[name] = code
            if code == "Success":
                driver.must("hipMemUnmap", place, size)
    return seen


def _comes_back(bench: Bench) -> Seen:
    """Free memory in MiB, beside the start: with 64 MiB mapped, unmapped and released, and its range freed."""
    driver, size = bench.driver, 64 * MIB
    with driver.mapped(SIZE, properties()) as address:  # what the first use takes for good
        driver.grant(address, SIZE, 0)
        driver.write(address, b"first")
    seen, before = Seen(), driver.free_memory(0)

    def note(name: str) -> None:
        seen[name] = round((before - driver.free_memory(0)) / MIB)

    with driver.reservation(size) as address:
        with driver.allocation(size, properties()) as handle, driver.mapping(address, size, handle):
            driver.grant(address, size, 0)
            note("MiB taken when mapped")
        note("MiB taken when released")
    note("MiB taken when its range is freed")
    return seen


def _descriptors(bench: Bench) -> Seen:
    """How many file descriptors 64 allocations take, and keep."""

    def opened() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    with bench.driver.mapped(SIZE, properties()) as address:
        bench.driver.grant(address, SIZE, 0)
    before = opened()
    with ExitStack() as alive:
        for _ in range(MANY):
            alive.enter_context(bench.driver.mapped(SIZE, properties()))
        during = opened()
    return {"of 64 allocations": during - before, "kept": opened() - before}


def _seam(bench: Bench) -> Seen:
    """A copy over the seam of two mappings: in one range, and of two ranges that lie next to each other."""
    driver, seen = bench.driver, Seen()
    with ExitStack() as alive:
        first = alive.enter_context(driver.reservation(64 * MIB))
        other = alive.enter_context(driver.reservation(64 * MIB, first + 64 * MIB))
        for place in (first, first + SIZE, first + 64 * MIB - SIZE, other):
            handle = alive.enter_context(driver.allocation(SIZE, properties()))
            alive.enter_context(driver.mapping(place, SIZE, handle))
            driver.must_grant(place, SIZE, 0)
        seen["in one range"] = driver.write(first + SIZE - 4, b"12345678")
        adjacent = other == first + 64 * MIB
        seen["of two ranges"] = driver.write(other - 4, b"12345678") if adjacent else "ranges are apart"
    return seen


def _managed(bench: Bench) -> Seen:
    """Managed memory that the host writes, that is prefetched to device 0, and that the host reads back."""
    driver, size = bench.driver, 8 * MIB
    address = driver.number("hipMallocManaged", c_void_p, c_size_t(size), c_uint(1))
    try:
        ctypes.memset(address, 7, size)
        seen = Seen(prefetch=driver.code("hipMemPrefetchAsync", c_void_p(address), c_size_t(size), c_int(0), None))
        driver.must("hipDeviceSynchronize")
        seen["bytes"] = "right" if ctypes.string_at(address, size) == b"\7" * size else "wrong"
        return seen
    finally:
        driver.code("hipFree", c_void_p(address))


def _declared_rights(_: Release) -> Seen:
    return {"fresh": "none", **{f"{right} for gpu.{n}": right for n in (0, 1) for right in ("rw", "r", "none")}}


QUESTIONS = (
    Question("rights read back", _rights, _declared_rights),
    Question(
        "address hints",
        _hints,
        lambda release: {"256 MiB": "taken", "1024 MiB": "taken", "of a range in use": "elsewhere"},
    ),
    Question(
        "less than a handle mapped",
        _parts,
        lambda release: {"first half": "Success" if release.is_hip else "NotSupported"},
    ),
    Question(
        "whether unmapped memory comes back (ROCm 6021)",
        _comes_back,
        lambda _: {"MiB taken when mapped": 64, "MiB taken when its range is freed": 0},
    ),
    Question("file descriptors", _descriptors, lambda _: {"kept": 0}),
    Question("a copy over a seam", _seam),
    Question("managed memory", _managed, lambda _: {"bytes": "right"}),
)
