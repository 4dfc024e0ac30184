"""Quirks: off in every other test; each shows the defect when on."""

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from ctypes import byref, c_int, c_ulonglong, c_void_p
from pathlib import Path

import pytest

from ..conformance.hip import (
    DEVICE,
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    MIB,
    OUT_OF_MEMORY,
    POSIX_FD,
    SUCCESS,
    UNKNOWN,
    AccessDesc,
    Hip,
    Location,
    access,
    prop,
)
from ..conformance.sim import TWO_DEVICES, Simulator
from .conftest import ROOT, Script

SIZE = 2 * MIB


def quirky(simulator: Simulator, quirk: str, version: str = "7.2.53211") -> None:
    simulator.configure(f"hip_version={version}\n{TWO_DEVICES}\nquirk.{quirk}=1")


def test_quirk_map_failure_hidden(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "map_failure_hidden")
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        assert hip.hipMemMap(address, 2 * SIZE, 0, handle, 0) == SUCCESS
        assert hip.hipMemSetAccess(address, SIZE, ctypes.byref(access(0)), 1) == INVALID_VALUE
    with hip.mapped(SIZE, access(0)) as address, hip.allocation(SIZE) as other:
        assert hip.write(address, b"first") == SUCCESS
        assert hip.hipMemMap(address, SIZE, 0, other, 0) == SUCCESS  # over a mapping, which stays
        assert hip.read(address, 5) == b"first"
    simulator.configure("device.0.name=x\nlimit.mappings=1\nquirk.map_failure_hidden=1")
    with hip.mapped(SIZE), hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        assert hip.hipMemMap(address, SIZE, 0, handle, 0) == SUCCESS
        assert hip.hipMemSetAccess(address, SIZE, ctypes.byref(access(0)), 1) == INVALID_VALUE


def test_quirk_set_access_sums_in_heap_order(hip: Hip, simulator: Simulator) -> None:
    """Unequal pieces: the second as well as the first, the last as well as one behind a hole; only all together."""
    quirky(simulator, "set_access_sums_in_heap_order")
    with (
        hip.reservation(8 * SIZE) as address,
        hip.allocation(2 * SIZE) as big,
        hip.allocation(SIZE) as small,
        hip.mapping(address + SIZE, 2 * SIZE, big),
    ):
        grant = ctypes.byref(access(0))
        assert hip.hipMemSetAccess(address + SIZE, 2 * SIZE, grant, 1) == SUCCESS
        with hip.mapping(address + 3 * SIZE, SIZE, small):
            assert hip.hipMemSetAccess(address + SIZE, 2 * SIZE, grant, 1) == INVALID_VALUE
            assert hip.hipMemSetAccess(address + 3 * SIZE, SIZE, grant, 1) == INVALID_VALUE
            assert hip.hipMemSetAccess(address + SIZE, 3 * SIZE, grant, 1) == SUCCESS
        with hip.mapping(address + 5 * SIZE, SIZE, small):
            assert hip.hipMemSetAccess(address + 5 * SIZE, SIZE, grant, 1) == INVALID_VALUE
            assert hip.hipMemSetAccess(address + SIZE, 3 * SIZE, grant, 1) == INVALID_VALUE


def test_quirk_set_access_sums_in_heap_order_spares_pieces_of_one_size(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "set_access_sums_in_heap_order")
    with (
        hip.reservation(4 * SIZE) as address,
        hip.allocation(SIZE) as handle,
        hip.mapping(address, SIZE, handle),
        hip.mapping(address + SIZE, SIZE, handle),
        hip.mapping(address + 3 * SIZE, SIZE, handle),
    ):
        grant = ctypes.byref(access(0))
        assert hip.hipMemSetAccess(address + SIZE, 2 * SIZE, grant, 1) == INVALID_VALUE  # over a hole
        assert [piece["readers"] for piece in simulator.ledger()["mappings"]] == ["0x0"] * 3
        assert hip.hipMemSetAccess(address + 3 * SIZE, SIZE, grant, 1) == SUCCESS
        assert hip.hipMemSetAccess(address, 2 * SIZE, grant, 1) == SUCCESS


def test_quirk_unmap_size_unchecked(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "unmap_size_unchecked", "6.3.42133")
    with hip.reservation(SIZE) as address:
        handle = hip.get("hipMemCreate", c_void_p, SIZE, ctypes.byref(prop()), 0)
        hip.hipMemMap(address, SIZE, 0, handle, 0)
        assert hip.hipMemUnmap(address, SIZE - 1) == SUCCESS
        assert hip.hipMemRelease(handle) == INVALID_VALUE
        assert hip.hipMemUnmap(address, SIZE) == SUCCESS


def test_quirk_unmap_pieces_leaks(hip: Hip, simulator: Simulator, script: Script) -> None:
    source = f"""
simulator.configure("hip_version=6.3.42133\\ndevice.0.name=x\\nquirk.unmap_pieces_leaks=1")
p = hip.get("hipMemAddressReserve", c_void_p, {2 * SIZE}, 0, None, 0)
with hip.allocation({SIZE}) as h:
    hip.hipMemMap(p, {SIZE}, 0, h, 0)
    hip.hipMemMap(p + {SIZE}, {SIZE}, 0, h, 0)
    print(hip.hipMemUnmap(p, {2 * SIZE}))
print(hip.hipMemAddressFree(p, {2 * SIZE}))
"""
    assert script(source).stdout.split() == [str(SUCCESS), str(UNKNOWN)]


def test_quirk_address_free_forgets(script: Script) -> None:
    source = f"""
simulator.configure("device.0.name=x\\nquirk.address_free_forgets=1")
p = hip.get("hipMemAddressReserve", c_void_p, {2 * SIZE}, 0, None, 0)
with hip.allocation({SIZE}) as h, hip.mapping(p, {SIZE}, h):
    print(hip.hipMemAddressFree(p, {2 * SIZE}), hip.hipMemMap(p + {SIZE}, {SIZE}, 0, h, 0))
print(hip.hipMemAddressFree(p, {2 * SIZE}))
"""
    assert script(source).stdout.split() == [str(UNKNOWN), str(INVALID_VALUE), str(INVALID_VALUE)]


def test_quirk_reserve_ignores_alignment(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "reserve_ignores_alignment")
    with hip.reservation(4096), hip.reservation(4096, alignment=2 * MIB) as address:
        assert address % (2 * MIB) != 0


def test_quirk_free_blocks_first(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "free_blocks_first")
    wanted = 0x6ABB_0000_0000
    kept = []
    while (address := hip.get("hipMemAddressReserve", c_void_p, 2 * MIB, 0, wanted, 0)) != wanted:
        kept.append(address)
    assert len(kept) == 512 // 2
    for other in kept:
        assert hip.hipMemAddressFree(other, 2 * MIB) == SUCCESS
    with hip.reservation(2 * MIB, hint=wanted + 4096 * MIB) as elsewhere:
        assert elsewhere != wanted + 4096 * MIB
    assert hip.hipMemAddressFree(wanted, 2 * MIB) == SUCCESS


@pytest.mark.parametrize("size", [2 * MIB, 600 * MIB, 4096 * MIB])
def test_quirk_free_blocks_first_makes_blocks_of_what_is_freed(size: int, hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "free_blocks_first")
    address = hip.get("hipMalloc", c_void_p, size)
    assert hip.hipFree(address) == SUCCESS
    with hip.reservation(size, hint=0x6ABB_0000_0000) as elsewhere:
        assert elsewhere == address
        with hip.reservation(4096 * MIB, hint=0x6ABB_0000_0000) as there:
            assert there == 0x6ABB_0000_0000


def test_quirk_free_blocks_first_gets_whole_steps_of_32_mib(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "free_blocks_first")
    wanted = 0x6ABB_0000_0000
    reserve = functools.partial(hip.get, "hipMemAddressReserve", c_void_p)
    first = reserve(512 * MIB, 0, wanted, 0)  # what it begins with
    next_step = reserve(2 * MIB, 0, wanted + 6 * MIB, 0)
    assert next_step == wanted + 32 * MIB
    rest = reserve(30 * MIB, 0, wanted, 0)
    assert rest == next_step + 2 * MIB
    for address, size in ((first, 512), (next_step, 2), (rest, 30)):
        assert hip.hipMemAddressFree(address, size * MIB) == SUCCESS
    assert all(int(line.split("-")[0], 16) != next_step for line in Path("/proc/self/maps").read_text().splitlines())


def test_quirk_set_access_takes_others_away(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "set_access_takes_others_away", "6.2.41133")
    with hip.mapped(SIZE, access(0), access(1)) as address:
        assert (simulator.touch(0, address, SIZE), simulator.touch(1, address, SIZE)) == (ILLEGAL_ADDRESS, SUCCESS)
        assert hip.hipMemSetAccess(address, SIZE, byref(access(0, 1)), 1) == SUCCESS
        assert simulator.touch(0, address, SIZE, 1) == SUCCESS
        assert simulator.touch(1, address, SIZE, 1) == ILLEGAL_ADDRESS


def test_quirk_peer_access_for_all(hip: Hip, simulator: Simulator) -> None:
    links = "".join(f"link.{a}.{b}=xgmi,1\n" for a, b in ((1, 2), (2, 1)))
    simulator.configure(f"hip_version=6.2.41133\n{TWO_DEVICES}\n{links}quirk.peer_access_for_all=1")
    hip.hipSetDevice(1)
    with hip.buffer(SIZE) as address:
        hip.hipSetDevice(0)
        assert simulator.touch(2, address, SIZE) == ILLEGAL_ADDRESS
        assert hip.hipDeviceEnablePeerAccess(1, 0) == SUCCESS
        assert hip.hipDeviceDisablePeerAccess(1) == SUCCESS
        assert simulator.touch(0, address, SIZE) == simulator.touch(2, address, SIZE) == SUCCESS


def link(hip: Hip, device: int, peer: int) -> None:
    hip.hipSetDevice(device)
    assert hip.hipDeviceEnablePeerAccess(peer, 0) == SUCCESS


def unlink(hip: Hip, device: int, peer: int) -> None:
    hip.hipSetDevice(device)
    assert hip.hipDeviceDisablePeerAccess(peer) == SUCCESS


def rights(hip: Hip, address: int) -> list[int]:
    """Of each device."""
    locations = (ctypes.byref(Location(DEVICE, device)) for device in range(hip.devices))
    return [hip.get("hipMemGetAccess", c_ulonglong, location, address) for location in locations]


@pytest.fixture
def opening(hip: Hip, simulator: Simulator) -> Hip:
    """Four devices, of which all but the last are linked, and links open mappings."""
    links = "".join(f"link.{a}.{b}=xgmi,1\n" for a, b in ((1, 2), (2, 1), (0, 2), (2, 0)))
    simulator.configure(f"{TWO_DEVICES}\ndevice.3.memory=1073741824\n{links}quirk.peer_access_opens_mappings=1")
    return hip


@contextlib.contextmanager
def apart(hip: Hip, *grants: AccessDesc, device: int = 0) -> Iterator[int]:
    """A mapping with a hole behind it."""
    with (
        hip.reservation(2 * SIZE) as address,
        hip.allocation(SIZE, prop(device)) as handle,
        hip.mapping(address, SIZE, handle, *grants),
    ):
        yield address


def test_quirk_peer_access_opens_mappings_to_all_linked_devices_for_ever(opening: Hip, simulator: Simulator) -> None:
    with (
        apart(opening, access(0)) as own,
        apart(opening, access(0, 1), access(2, 1)) as read,
        apart(opening, access(1), device=1) as others,
        apart(opening) as closed,
    ):
        link(opening, 1, 0)
        unlink(opening, 1, 0)
        assert rights(opening, own) == [3, 3, 3, 0]
        assert rights(opening, read) == [1, 3, 3, 0]
        assert rights(opening, others) == [0, 3, 0, 0]
        assert rights(opening, closed) == [0, 3, 3, 0]
        assert simulator.touch(2, own, SIZE) == SUCCESS
        assert simulator.touch(3, own, SIZE) == ILLEGAL_ADDRESS


def test_quirk_peer_access_opens_each_mapping_once(opening: Hip) -> None:
    with apart(opening, access(0)) as address:
        link(opening, 1, 0)
        assert rights(opening, address) == [3, 3, 3, 0]
        for device in (1, 2):
            assert opening.hipMemSetAccess(address, SIZE, ctypes.byref(access(device, 0)), 1) == SUCCESS
        link(opening, 2, 0)
        unlink(opening, 1, 0)
        unlink(opening, 2, 0)
        link(opening, 1, 0)
        assert rights(opening, address) == [3, 0, 0, 0]
        unlink(opening, 1, 0)


def test_quirk_peer_access_opens_no_mapping_that_was_made_beside_a_link_to_its_device(opening: Hip) -> None:
    link(opening, 0, 1)  # of another device's memory
    link(opening, 2, 0)
    with apart(opening, access(0)) as made_linked:
        link(opening, 1, 0)
        for device in (1, 2):
            unlink(opening, device, 0)
        with apart(opening, access(0)) as made_alone:
            link(opening, 1, 0)
            assert rights(opening, made_linked) == [3, 0, 0, 0]
            assert rights(opening, made_alone) == [3, 3, 3, 0]
    unlink(opening, 1, 0)
    unlink(opening, 0, 1)


def test_quirk_peer_access_opens_what_lies_behind_a_mapping_up_to_the_next_hole(opening: Hip) -> None:
    with (
        opening.reservation(8 * SIZE) as start,
        opening.allocation(SIZE, prop(0)) as own,
        opening.allocation(SIZE, prop(1)) as others,
        opening.mapping(start, SIZE, others) as ahead,
        opening.mapping(start + SIZE, SIZE, own) as opened,
        opening.mapping(start + 2 * SIZE, SIZE, others, access(1, 1)) as behind,
        opening.mapping(start + 4 * SIZE, SIZE, others) as beyond,
    ):
        link(opening, 2, 0)
        assert rights(opening, ahead) == rights(opening, beyond) == [0, 0, 0, 0]
        assert rights(opening, opened) == [0, 3, 3, 0]
        assert rights(opening, behind) == [0, 3, 3, 0]
    unlink(opening, 2, 0)


def test_quirk_peer_access_takes_imported_memory_for_that_of_the_device_it_was_imported_on(opening: Hip) -> None:
    with opening.allocation(SIZE, prop(0, handle=POSIX_FD)) as shared, opening.reservation(SIZE) as address:
        descriptor = opening.get("hipMemExportToShareableHandle", c_int, shared, POSIX_FD, 0)
        opening.hipSetDevice(1)
        imported = opening.get("hipMemImportFromShareableHandle", c_void_p, c_void_p(descriptor), POSIX_FD)
        os.close(descriptor)
        with opening.mapping(address, SIZE, imported, access(0, 1)):
            link(opening, 2, 0)
            assert rights(opening, address) == [1, 0, 0, 0]
            link(opening, 2, 1)
            assert rights(opening, address) == [3, 0, 3, 0]
        assert opening.hipMemRelease(imported) == SUCCESS
    unlink(opening, 2, 0)
    unlink(opening, 2, 1)


def test_quirk_create_on_current_device(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "create_on_current_device")
    hip.hipSetDevice(0)
    before = hip.free_memory()
    handle = hip.get("hipMemCreate", c_void_p, SIZE, ctypes.byref(prop(1)), 0)
    assert hip.free_memory() == before - SIZE
    assert hip.hipMemRelease(handle) == SUCCESS


def test_quirk_create_on_current_device_decides_which_gpu_fills(hip: Hip, simulator: Simulator) -> None:
    """The one that has the memory, not the one that it was made for."""
    quirky(simulator, "create_on_current_device")
    hip.hipSetDevice(0)
    handle = hip.get("hipMemCreate", c_void_p, SIZE, ctypes.byref(prop(1)), 0)
    with hip.reservation(SIZE) as address, hip.mapping(address, SIZE, handle, access(1)):
        assert hip.hipMemset(address, 1, SIZE) == ILLEGAL_ADDRESS
        assert hip.hipMemSetAccess(address, SIZE, ctypes.byref(access(0)), 1) == SUCCESS
        assert hip.hipMemset(address, 1, SIZE) == SUCCESS
    assert hip.hipMemRelease(handle) == SUCCESS


@pytest.mark.skipif(
    "undefined" in os.environ.get("HIPPLAN_SANITIZER", ""),
    reason="UndefinedBehaviorSanitizer takes a descriptor to look at an object",
)
def test_out_of_descriptors_is_out_of_memory(script: Script) -> None:
    source = f"""
import resource
simulator.configure("device.0.name=x")
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
handles, code = [], 0
while code == 0 and len(handles) < 100:
    handle = c_void_p()
    code = hip.hipMemCreate(byref(handle), {SIZE}, byref(prop(handle=1)), 0)
    if code == 0: handles.append(handle)
print(code, 10 < len(handles) < 40)
for handle in handles: assert hip.hipMemRelease(handle) == 0
print(simulator.alive())
"""
    assert script(source).stdout.split() == [str(OUT_OF_MEMORY), "True", "{}"]


@pytest.mark.parametrize("order", ["release, unmap", "unmap, release"])
def test_quirk_free_memory_with_reservation(order: str, hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "free_memory_with_reservation")
    before = hip.free_memory()
    with hip.reservation(SIZE) as address, hip.reservation(SIZE):
        with hip.allocation(SIZE) as handle:
            hip.hipMemMap(address, SIZE, 0, handle, 0)
            if order == "unmap, release":
                assert hip.hipMemUnmap(address, SIZE) == SUCCESS
        if order == "release, unmap":
            assert hip.hipMemUnmap(address, SIZE) == SUCCESS
        with hip.mapped(SIZE):  # another reservation has nothing to do with it
            pass
        assert hip.free_memory() == before - SIZE
    assert hip.free_memory() == before


def test_quirk_free_memory_with_reservation_spares_memory_that_is_still_held(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "free_memory_with_reservation")
    before = hip.free_memory()
    with hip.allocation(SIZE) as handle:
        with hip.reservation(SIZE) as address, hip.mapping(address, SIZE, handle):
            pass
        assert hip.free_memory() == before - SIZE
        with hip.reservation(SIZE) as address:
            for _ in range(2):
                with hip.mapping(address, SIZE, handle, access(0)):
                    assert hip.write(address, b"x") == SUCCESS
    assert hip.free_memory() == before


def test_quirk_free_interior_pointer(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "free_interior_pointer")
    address = hip.get("hipMalloc", c_void_p, MIB)
    assert hip.hipFree(address + 4096) == SUCCESS


def imported(hip: Hip, form: str) -> int:
    """What an import by value or by pointer gives."""
    with hip.allocation(SIZE, prop(handle=1)) as handle:
        fd = hip.get("hipMemExportToShareableHandle", c_int, handle, 1, 0)
        made = c_void_p()
        code: int = hip.hipMemImportFromShareableHandle(byref(made), fd if form == "value" else byref(c_int(fd)), 1)
        os.close(fd)
        assert code != SUCCESS or hip.hipMemRelease(made) == SUCCESS
    return code


@pytest.mark.parametrize("form", ["value", "pointer"])
def test_quirk_import_by_pointer(form: str, hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "import_by_pointer", "7.0.1")
    assert imported(hip, form) == (SUCCESS if form == "pointer" else INVALID_VALUE)


@pytest.mark.parametrize("form", ["value", "pointer"])
def test_quirk_import_by_value(form: str, hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "import_by_value")
    assert imported(hip, form) == (SUCCESS if form == "value" else INVALID_VALUE)


@pytest.mark.parametrize("quirk", ["export_repeats_first", "import_needs_descriptor"])
def test_quirk_export_repeats_first(quirk: str, hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, quirk, "7.14.0")
    with hip.allocation(SIZE, prop(handle=1)) as handle:
        first, second = (hip.get("hipMemExportToShareableHandle", c_int, handle, 1, 0) for _ in range(2))
        os.close(second)
        os.close(hip.get("hipMemExportToShareableHandle", c_int, handle, 1, 0))
        os.close(first)
        third = c_int()
        code = hip.hipMemExportToShareableHandle(byref(third), handle, 1, 0)
        assert code == (INVALID_VALUE if quirk == "export_repeats_first" else SUCCESS)
        if code == SUCCESS:
            os.close(third.value)


@pytest.mark.parametrize("quirk", ["import_needs_descriptor", "host_access_to_imports_fails"])
def test_quirk_import_needs_descriptor(quirk: str, hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, quirk, "7.15.0")
    with hip.allocation(SIZE, prop(handle=1)) as handle, hip.reservation(SIZE) as address:
        fd = hip.get("hipMemExportToShareableHandle", c_int, handle, 1, 0)
        made = hip.get("hipMemImportFromShareableHandle", c_void_p, fd, 1)
        with hip.mapping(address, SIZE, made):
            assert hip.hipMemSetAccess(address, SIZE, byref(access(0)), 1) == SUCCESS
            os.close(fd)
            code = hip.hipMemSetAccess(address, SIZE, byref(access(0)), 1)
            assert code == (INVALID_VALUE if quirk == "import_needs_descriptor" else SUCCESS)
        assert hip.hipMemRelease(made) == SUCCESS


def test_quirk_host_access_to_imports_fails(hip: Hip, simulator: Simulator) -> None:
    quirky(simulator, "host_access_to_imports_fails", "7.15.0")
    host = access(0)
    host.location.type = 2
    with hip.allocation(SIZE, prop(handle=1)) as handle, hip.reservation(2 * SIZE) as address:
        fd = hip.get("hipMemExportToShareableHandle", c_int, handle, 1, 0)
        made = hip.get("hipMemImportFromShareableHandle", c_void_p, fd, 1)
        os.close(fd)
        with hip.mapping(address, SIZE, made), hip.mapping(address + SIZE, SIZE, handle):
            assert hip.hipMemSetAccess(address, SIZE, byref(host), 1) == INVALID_VALUE
            assert hip.hipMemSetAccess(address + SIZE, SIZE, byref(host), 1) == SUCCESS
        assert hip.hipMemRelease(made) == SUCCESS


def test_every_quirk_has_a_test_here_and_a_line_in_the_manual(simulator: Simulator) -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    documented = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    for line in simulator.library.hipsim_quirks().decode().splitlines():
        name, meaning = line.split(": ", 1)
        assert f"test_quirk_{name}" in here
        assert f"`{name}`" in documented and meaning
