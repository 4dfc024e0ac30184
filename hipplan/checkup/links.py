"""Two devices: whether a peer link opens memory that nobody opened (HIP 7.0 to 7.2), and what the links can do."""

from __future__ import annotations

from contextlib import ExitStack
from ctypes import c_int, c_size_t, c_uint, c_void_p

from hipplan.checkup.driver import P2P_NATIVE_ATOMICS, CallFailed, NotHere, properties
from hipplan.checkup.question import MIB, Bench, Question, Release, Seen

SIZE = 2 * MIB


def _require_pair(bench: Bench) -> None:
    if bench.devices < 2:
        raise NotHere("there is one device")
    if not (bench.reach(0, 1) and bench.reach(1, 0)):
        raise NotHere("devices 0 and 1 do not reach each other")


def _opens(bench: Bench) -> Seen:
    """The right of gpu.1 on memory of gpu.0 that only gpu.0 was given: before a link, with it, after it, set again."""
    _require_pair(bench)
    driver, seen = bench.driver, Seen()
    driver.must("hipSetDevice", c_int(0))
    with driver.mapped(SIZE, properties()) as address, ExitStack() as linked:
        driver.must_grant(address, SIZE, 0)
        seen["before the link"] = driver.right(address, 1)
        for device in (0, 1):
            driver.must("hipSetDevice", c_int(device))
            driver.must("hipDeviceEnablePeerAccess", c_int(1 - device), c_uint(0))
            linked.callback(_unlink, bench, device)
        seen["with the link"] = driver.right(address, 1)
        linked.close()
        seen["after the link"] = driver.right(address, 1)
        driver.must("hipSetDevice", c_int(0))
        closed = driver.grant(address, SIZE, 1, 0)
        seen["closed again"] = driver.right(address, 1) if closed == "Success" else closed
    return seen


def _unlink(bench: Bench, device: int) -> None:
    bench.driver.code("hipSetDevice", c_int(device))
    bench.driver.code("hipDeviceDisablePeerAccess", c_int(1 - device))


def _copies(bench: Bench) -> Seen:
    """The bytes of a copy between mappings of two devices, each open to both."""
    _require_pair(bench)
    driver = bench.driver
    with ExitStack() as alive:
        places = []
        for device in (0, 1):
            driver.must("hipSetDevice", c_int(device))
            places.append(alive.enter_context(driver.mapped(SIZE, properties(device))))
            for ordinal in (0, 1):
                driver.must_grant(places[-1], SIZE, ordinal)
        driver.must("hipSetDevice", c_int(0))
        wanted = bytes(range(256)) * (SIZE // 256)
        if (code := driver.write(places[0], wanted)) != "Success":
            raise CallFailed(f"hipMemcpy: {code}")
        driver.must("hipMemcpyPeer", c_void_p(places[1]), c_int(1), c_void_p(places[0]), c_int(0), c_size_t(SIZE))
        return {"bytes": "right" if driver.read(places[1], SIZE) == wanted else "wrong"}


def _matrix(bench: Bench) -> Seen:
    """Who reaches whom over what, and whether atomics go over the link."""
    runtime, seen = bench.chosen.runtime, Seen()
    pairs = [(a, b) for a in range(bench.devices) for b in range(bench.devices) if a != b]
    if not pairs:
        raise NotHere("there is one device")
    for a, b in pairs:
        if not runtime.can_access_peer(a, b):
            seen[f"gpu.{a} to gpu.{b}"] = "out of reach"
            continue
        kind, hops = runtime.link(a, b) or ("unknown", 0)
        try:
            arguments = c_int(P2P_NATIVE_ATOMICS), c_int(a), c_int(b)
            atomics = "atomics" if bench.driver.number("hipDeviceGetP2PAttribute", c_int, *arguments) else "no atomics"
        except CallFailed as refused:
            atomics = str(refused)
        seen[f"gpu.{a} to gpu.{b}"] = f"{kind}, {hops} hops, {atomics}"
    return seen


def _declared_opens(release: Release) -> Seen:
    opens = release.kind == "amd" and (7, 0) <= release.version <= (7, 2)
    with_link = "rw" if opens else "none"
    return {
        "before the link": "none", "with the link": with_link, "after the link": with_link, "closed again": "none",
    }  # fmt: skip


QUESTIONS = (
    Question("links between devices", _matrix),
    Question("a peer link opens memory (HIP 7.0 to 7.2)", _opens, _declared_opens),
    Question("a copy between two devices", _copies, lambda _: {"bytes": "right"}),
)
