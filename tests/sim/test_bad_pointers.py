"""Pointers and handles that are none, into every call: an answer, and never the end of the process."""

from __future__ import annotations

import pytest

from .conftest import Script

NOWHERE = ("0x1000", "0x5123000000000000", "0xfffffffffffff000")

COPIES = """
device, freed = hip.get("hipMalloc", c_void_p, 8192), hip.get("hipMalloc", c_void_p, 8192)
hip.hipFree(freed)
own = ctypes.addressof(ctypes.create_string_buffer(8192))
for known in (hip.get("hipHostMalloc", c_void_p, 8192, 0), hip.get("hipMallocManaged", c_void_p, 8192, 1), device, own):
    for bad in (freed, {nowhere}):
        for size in (1, 4096, 2**62):
            assert hip.hipMemcpy(known, bad, size, 4) == 1, (known, bad, size)
            assert hip.hipMemcpy(bad, known, size, 4) == 1, (known, bad, size)
            assert hip.hipMemset(bad, 1, size) == 1
print("alive")
"""

ARGUMENTS = """
for bad in ({nowhere}):
    handle, device = c_void_p(), hip.get("hipMalloc", c_void_p, 4096)
    assert hip.hipMemImportFromShareableHandle(byref(handle), bad, 1) == 1
    assert hip.hipMemRelease(bad) == hip.hipMemMap(bad, 4096, 0, bad, 0) == hip.hipMemUnmap(bad, 4096) == 1
    assert hip.hipMalloc(bad, 4096) == hip.hipMemGetInfo(bad, None) == hip.hipHostGetFlags(bad, device) == 1
    assert hip.hipMemCreate(byref(handle), 4096, bad, 0) == hip.hipMemSetAccess(device, 4096, bad, 1) == 1
    assert hip.hipPointerGetAttributes(bad, device) == hip.hipPointerSetAttribute(bad, 6, device) == 1
    assert hip.hipStreamSynchronize(bad) != 0 and hip.hipEventQuery(bad) != 0
print("alive")
"""


@pytest.mark.parametrize("source", [COPIES, ARGUMENTS], ids=["copies", "arguments"])
def test_what_is_no_pointer_and_no_handle_is_invalid(source: str, script: Script) -> None:
    done = script(source.format(nowhere=", ".join(NOWHERE)))
    assert done.stdout.split() == ["alive"], done.stderr


@pytest.mark.parametrize(("option", "code"), [("", 0), ("option.gpu_fault_aborts=1", -6)])
def test_a_gpu_that_would_fault_can_end_the_process_as_on_hardware(option: str, code: int, script: Script) -> None:
    source = f"""
simulator.configure("device.0.name=x\\n{option}")
place = hip.get("hipMemAddressReserve", c_void_p, 4096, 0, None, 0)
with hip.allocation(4096) as handle, hip.mapping(place, 4096, handle):
    print(hip.write(place, b"x"), flush=True)
"""
    done = script(source)
    assert done.returncode == code
    assert done.stdout.split() == (["700"] if code == 0 else [])
    assert ("Memory access fault by GPU" in done.stderr) == (code != 0)


def test_overlapping_host_memory_is_copied_as_memmove_does(script: Script) -> None:
    source = """
size = 3 << 20
here = ctypes.create_string_buffer(bytes(i % 251 for i in range(size)), size)
whole = here.raw
at = ctypes.addressof(here)
assert hip.hipMemcpy(at + 5, at, size - 5, 4) == 0 and here.raw[5:] == whole[:-5]
assert hip.hipMemcpy(at, at + 5, size - 5, 4) == 0 and here.raw[: size - 5] == whole[:-5]
"""
    assert script(source).returncode == 0
