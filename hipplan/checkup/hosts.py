"""Chunks of the host's memory that are mapped as a device's are: who may use them, and what is read through them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_int, c_size_t, c_void_p

from hipplan.checkup.driver import HOST, HOST_NATIVE_ATOMICS, READ, READ_WRITE, NotHere, properties
from hipplan.checkup.question import MIB, Bench, Question, Release, Seen

SIZE = 2 * MIB
_SINCE = {"amd": (7, 1), "sim": (7, 2)}


@contextmanager
def _chunk(bench: Bench) -> Iterator[int]:
    """A mapped chunk. Raises NotHere before the release that has them."""
    release = bench.release
    if release.kind in _SINCE and release.version < _SINCE[release.kind]:
        raise NotHere(f"HIP {release.version[0]}.{release.version[1]} has no allocations in the host's memory")
    with bench.driver.mapped(SIZE, properties(location=HOST)) as address:
        yield address


def _rights(bench: Bench) -> Seen:
    """Rights of device 0 and of the host, as they are read back."""
    driver, seen = bench.driver, Seen()
    with _chunk(bench) as address:
        seen["fresh for gpu.0"] = driver.right(address, 0)
        for who, location in (("gpu.0", 1), ("the host", HOST)):
            for right, flags in (("r", READ), ("rw", READ_WRITE)):
                code = driver.grant(address, SIZE, 0, flags, location)
                back = driver.right(address, 0, location)
                seen[f"{right} for {who}"] = f"{code}, read back: {back}"
    return seen


def _reads(bench: Bench) -> Seen:
    """What the host reads that device 0 filled, and what a copy of device 0 reads that the host wrote."""
    driver, seen = bench.driver, Seen()
    with _chunk(bench) as address, driver.buffer(SIZE) as buffer:
        driver.must_grant(address, SIZE, 0)
        if (code := driver.grant(address, SIZE, 0, READ_WRITE, HOST)) != "Success":
            raise NotHere(f"hipMemSetAccess for the host: {code}")
        driver.must("hipMemset", c_void_p(address), c_int(0x5A), c_size_t(SIZE))
        driver.must("hipDeviceSynchronize")
        filled = ctypes.string_at(address, SIZE) == b"\x5a" * SIZE
        seen["the host reads what the device filled"] = "right" if filled else "wrong"
        ctypes.memset(address, 0x33, SIZE)
        driver.must("hipMemcpy", c_void_p(buffer), c_void_p(address), c_size_t(SIZE), c_int(4))
        copied = driver.read(buffer, SIZE) == b"\x33" * SIZE
        seen["the device copies what the host wrote"] = "right" if copied else "wrong"
    return seen


def _atomics(bench: Bench) -> Seen:
    """What the driver says of atomics between a device and the host. No kernel runs."""
    return {
        f"native between gpu.{ordinal} and the host": bool(bench.driver.attribute(HOST_NATIVE_ATOMICS, ordinal))
        for ordinal in range(bench.devices)
    }


def _declared_reads(_: Release) -> Seen:
    return {"the host reads what the device filled": "right", "the device copies what the host wrote": "right"}


QUESTIONS = (
    Question("rights of host chunks", _rights),
    Question("reads of host chunks", _reads, _declared_reads),
    Question("atomics, as the driver says", _atomics),
)
