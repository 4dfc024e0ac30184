"""The other process of a checkup: reads what the first one wrote, and writes what the first one reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_uint, c_void_p

from hipplan.checkup.driver import Driver, IpcHandle
from hipplan.checkup.question import MIB

SIZE = 2 * MIB
FIRST, SECOND = b"first of two  ok" * (SIZE // 16), b"second of two ok" * (SIZE // 16)


@contextmanager
def _by_handle(path: str, given: str) -> Iterator[int]:
    driver, address = Driver(path), c_void_p()
    handle = IpcHandle.from_buffer_copy(bytes.fromhex(given))
    driver.must("hipIpcOpenMemHandle", byref(address), handle, c_uint(1))
    yield address.value or 0
    driver.must("hipIpcCloseMemHandle", address)


@contextmanager
def _by_descriptor(path: str, given: str) -> Iterator[int]:
    from hipplan.api import apply

    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 1}},
        "allocations": {"given": {"device": "gpu.0", "size": SIZE, "shareable": "posix_fd", "bind": "given"}},
        "reservations": {"here": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "given"}]}},
    }
    with apply(plan, runtime=path, bind={"given": int(given)}) as layout:
        yield layout["here"].address


def main() -> None:
    path, how, given = sys.argv[1:]
    opened = _by_handle if how == "ipc" else _by_descriptor
    try:
        with opened(path, given) as address:
            driver = Driver(path)
            answer = "right" if driver.read(address, SIZE) == FIRST else "wrong"
            if (code := driver.write(address, SECOND)) != "Success":
                answer = f"hipMemcpy: {code}"
            driver.must("hipDeviceSynchronize")
    except Exception as error:
        answer = f"{type(error).__name__}: {error}".splitlines()[0]
    print(answer, flush=True)
    os._exit(0)  # skips the driver's exit handlers, which may hang


if __name__ == "__main__":
    main()
