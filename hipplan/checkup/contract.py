"""Codes of single calls: the conformance suite's quick form. One question is one call with one kind of argument."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_ulonglong, c_void_p
from functools import partial

from hipplan.checkup.driver import NOWHERE, POSIX_FD, READ_WRITE, Access, Driver, Location, properties
from hipplan.checkup.question import Bench, Question, Release, Seen

SIZE = 2 * 2**20
Call = Callable[[Driver], str]
Codes = str | tuple[str, ...]
"""A code, or several of which each is right."""


@contextmanager
def _memory(driver: Driver) -> Iterator[int]:
    with driver.mapped(SIZE, properties()) as address:
        driver.grant(address, SIZE, 0)
        yield address


def _grant(driver: Driver, ordinal: int, flags: int = READ_WRITE, size: int = SIZE) -> str:
    with _memory(driver) as address:
        return driver.grant(address, size, ordinal, flags)


def _create(driver: Driver, size: int, ordinal: int = 0, location: int = 1) -> str:
    handle = c_void_p()
    wanted = properties(ordinal, location=location)
    code = driver.code("hipMemCreate", byref(handle), c_size_t(size), byref(wanted), c_ulonglong(0))
    if code == "Success":
        driver.must("hipMemRelease", handle)
    return code


def _map(driver: Driver, *, offset: int = 0, size: int = SIZE) -> str:
    with driver.reservation(2 * SIZE) as address, driver.allocation(SIZE, properties()) as handle:
        place = c_void_p(address)
        code = driver.code("hipMemMap", place, c_size_t(size), c_size_t(offset), c_void_p(handle), c_ulonglong(0))
        if code == "Success":
            driver.must("hipMemUnmap", place, c_size_t(size))
        return code


def _map_twice(driver: Driver) -> str:
    with _memory(driver) as address, driver.allocation(SIZE, properties()) as handle:
        return driver.code(
            "hipMemMap", c_void_p(address), c_size_t(SIZE), c_size_t(0), c_void_p(handle), c_ulonglong(0)
        )


def _use_after_release(driver: Driver) -> str:
    with driver.reservation(SIZE) as address:
        handle = driver.number("hipMemCreate", c_void_p, c_size_t(SIZE), byref(properties()), c_ulonglong(0))
        with driver.mapping(address, SIZE, handle):
            driver.must("hipMemRelease", c_void_p(handle))
            driver.grant(address, SIZE, 0)
            return driver.write(address, b"alive")


def _unmap_nothing(driver: Driver) -> str:
    with _memory(driver) as address:
        return driver.code("hipMemUnmap", c_void_p(address), c_size_t(0))


def _free_nothing(driver: Driver) -> str:
    with driver.reservation(SIZE) as address:
        return driver.code("hipMemAddressFree", c_void_p(address), c_size_t(0))


def _free_used_range(driver: Driver) -> str:
    with _memory(driver) as address:
        return driver.code("hipMemAddressFree", c_void_p(address), c_size_t(SIZE))


def _free_registered(driver: Driver) -> str:
    with mmap.mmap(-1, 4096) as host:
        view = (ctypes.c_char * 4096).from_buffer(host)
        address = c_void_p(ctypes.addressof(view))
        driver.must("hipHostRegister", address, c_size_t(4096), ctypes.c_uint(0))
        try:
            return driver.code("hipFree", address)
        finally:
            driver.code("hipHostUnregister", address)
            del view


def _export_into_null(driver: Driver) -> str:
    with driver.allocation(SIZE, properties(handle_type=POSIX_FD)) as handle:
        return driver.code("hipMemExportToShareableHandle", None, c_void_p(handle), c_int(POSIX_FD), c_ulonglong(0))


def _grant_before_map(driver: Driver) -> str:
    with driver.reservation(SIZE) as address:
        return driver.grant(address, SIZE, 0)


def _bad_first(driver: Driver) -> str:
    """The code of a call after one that failed, and whose failure nobody read."""
    driver.code("hipMemRelease", None)
    with _memory(driver) as address:
        return driver.write(address, b"fine")


def _grant_none(driver: Driver) -> str:
    with _memory(driver) as address:
        access = Access(Location(1, 0), READ_WRITE)
        return driver.code("hipMemSetAccess", c_void_p(address), c_size_t(SIZE), byref(access), c_size_t(0))


def _reserve(driver: Driver, size: int) -> str:
    address = c_void_p()
    code = driver.code(
        "hipMemAddressReserve", byref(address), c_size_t(size), c_size_t(0), None, c_ulonglong(0)
    )  # fmt: skip
    if code == "Success":
        driver.must("hipMemAddressFree", address, c_size_t(size))
    return code


def _bad_device(release: Release) -> Codes:
    return "InvalidDevice" if release.kind == "cuda" or release.version >= (7, 0) else INVALID


INVALID, FINE = "InvalidValue", "Success"
_FREE_USED: dict[str, Codes] = {"amd": ("Unknown", "ended by SIGSEGV"), "sim": "Unknown", "cuda": INVALID}
_FREE_REGISTERED: dict[tuple[str, tuple[int, int]], Codes] = {
    ("amd", (6, 4)): "ended by SIGABRT",
    ("amd", (7, 2)): FINE,
}

_CALLS: dict[str, tuple[Call, Callable[[Release], Codes]]] = {
    "hipMemAddressReserve of 0 bytes": (
        partial(_reserve, size=0),
        lambda release: INVALID if release.kind == "cuda" or release.version >= (7, 0) else "OutOfMemory",
    ),
    "hipMemAddressFree of 0 bytes": (_free_nothing, lambda _: INVALID),
    "hipMemCreate of 0 bytes": (partial(_create, size=0), lambda _: INVALID),
    "hipMemCreate on device 99": (partial(_create, size=SIZE, ordinal=99), _bad_device),
    "hipMemCreate of 1 EiB": (partial(_create, size=2**60), lambda _: "OutOfMemory"),
    "hipMemMap with an offset": (partial(_map, offset=4096, size=SIZE - 4096), lambda _: (INVALID, "NotSupported")),
    "hipMemMap of 0 bytes": (partial(_map, size=0), lambda _: INVALID),
    "hipMemMap over a mapping": (_map_twice, lambda _: (INVALID, FINE)),
    "hipMemUnmap of 0 bytes": (_unmap_nothing, lambda _: INVALID),
    "hipMemRelease of null": (lambda driver: driver.code("hipMemRelease", None), lambda _: INVALID),
    "hipMemSetAccess before hipMemMap": (_grant_before_map, lambda _: INVALID),
    "hipMemSetAccess for device 99": (partial(_grant, ordinal=99), lambda _: (INVALID, "InvalidDevice")),
    "hipMemSetAccess for 0 places": (_grant_none, lambda _: INVALID),
    "hipMemSetAccess with flags 2": (
        partial(_grant, ordinal=0, flags=2),
        lambda release: FINE if (release.kind, release.version) == ("amd", (6, 4)) else INVALID,
    ),
    "hipMemSetAccess of less than a mapping": (
        partial(_grant, ordinal=0, size=SIZE - 4096),
        lambda release: FINE if release.is_hip and release.version < (7, 0) else INVALID,
    ),
    "hipMemGetAccess of no mapping": (lambda driver: driver.right(NOWHERE, 0), lambda _: INVALID),
    "a copy into memory whose handle was released": (_use_after_release, lambda _: FINE),
    "a copy after a call that failed": (_bad_first, lambda _: FINE),
    "hipFree of null": (lambda driver: driver.code("hipFree", None), lambda _: FINE),
    "hipMemExportToShareableHandle into null": (
        _export_into_null,
        lambda release: "ended by SIGSEGV" if (release.kind, release.version) == ("amd", (6, 4)) else INVALID,
    ),
    "hipFree of registered memory": (
        _free_registered,
        lambda release: _FREE_REGISTERED.get((release.kind, release.version), (INVALID, FINE)),
    ),
    "hipMemAddressFree of a range in use": (_free_used_range, lambda release: _FREE_USED[release.kind]),
}
"""None names memory that is not there: AMD's library does not check handles and ranges, and the process ends."""


def _question(name: str, call: Call, declared: Callable[[Release], Codes]) -> Question:
    def ask(bench: Bench) -> Seen:
        return {"code": call(bench.driver)}

    return Question(name, ask, lambda release: {"code": declared(release)})


QUESTIONS = tuple(_question(name, call, declared) for name, (call, declared) in _CALLS.items())
