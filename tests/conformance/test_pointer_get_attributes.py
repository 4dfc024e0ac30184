"""hipPointerGetAttributes and the other questions about an address."""

import ctypes
from ctypes import c_int, c_size_t, c_ubyte, c_uint, c_void_p

import pytest

from .hip import INVALID_VALUE, MIB, PIECE, SUCCESS, Hip, PointerAttributes, access

UNREGISTERED, HOST_TYPE, DEVICE_TYPE, MANAGED_TYPE = 0, 1, 2, 3
ALL = pytest.mark.function("hipPointerGetAttributes")
ONE = pytest.mark.function("hipPointerGetAttribute")
DRIVER = pytest.mark.function("hipDrvPointerGetAttributes")

BUFFER_ID = 7


def ask(hip: Hip, address: object) -> PointerAttributes:
    out: PointerAttributes = hip.get("hipPointerGetAttributes", PointerAttributes, address)
    return out


@ALL
def test_null_is_invalid_up_to_6_x_and_a_success_since_7_0(hip: Hip) -> None:
    """An address of null alone: an answer into null is invalid again since 7.1."""
    expected = SUCCESS if hip.version >= (7, 0) else INVALID_VALUE
    assert hip.hipPointerGetAttributes(None, None) == INVALID_VALUE
    assert hip.hipPointerGetAttributes(ctypes.byref(PointerAttributes()), None) == expected


@ALL
def test_an_unknown_address_is_unregistered_on_no_device(hip: Hip) -> None:
    got = ask(hip, ctypes.create_string_buffer(16))

    assert (got.type, got.device, got.device_pointer, got.host_pointer) == (UNREGISTERED, -2, None, None)


@ALL
def test_device_memory(hip: Hip) -> None:
    with hip.buffer(MIB) as address:
        got = ask(hip, address + 100)

        assert (got.type, got.device, got.is_managed) == (DEVICE_TYPE, 0, 0)
        assert (got.device_pointer, got.host_pointer) == (address + 100, None)


@ALL
@pytest.mark.needs("two devices")
def test_the_device_is_the_one_current_at_allocation(hip: Hip) -> None:
    hip.hipSetDevice(1)
    with hip.buffer(MIB) as address, hip.pinned(MIB) as pinned:
        hip.hipSetDevice(0)
        assert ask(hip, address).device == ask(hip, pinned).device == 1
        hip.hipSetDevice(1)


@ALL
def test_pinned_memory(hip: Hip) -> None:
    with hip.pinned(MIB, 3) as address:
        got = ask(hip, address + 8)

        assert (got.type, got.is_managed, got.flags) == (HOST_TYPE, 0, 3)
        assert got.host_pointer == got.device_pointer == address + 8


@ALL
def test_registered_memory(hip: Hip) -> None:
    here = ctypes.create_string_buffer(MIB)
    assert hip.hipHostRegister(here, MIB, 1) == SUCCESS
    got = ask(hip, here)
    assert hip.hipHostUnregister(here) == SUCCESS

    assert (got.type, got.host_pointer, got.flags) == (HOST_TYPE, ctypes.addressof(here), 1)


@ALL
def test_managed_memory(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        got = ask(hip, address)

        assert (got.type, got.is_managed, got.host_pointer) == (MANAGED_TYPE, 1, address)


@ALL
@pytest.mark.needs("vmm", "peers")
def test_mapped_memory_is_on_the_device_of_its_properties(hip: Hip) -> None:
    with hip.mapped(2 * MIB, access(0), device=1) as address:
        got = ask(hip, address + MIB)

        assert (got.type, got.device, got.device_pointer) == (DEVICE_TYPE, 1, address + MIB)


@ALL
@pytest.mark.needs("vmm")
def test_reserved_unmapped_addresses_are_unknown(hip: Hip) -> None:
    with hip.reservation(2 * MIB) as address:
        assert ask(hip, address).type == UNREGISTERED


@ONE
def test_one_attribute_at_a_time(hip: Hip) -> None:
    with hip.buffer(1000) as address:
        at = address + 10
        assert hip.get("hipPointerGetAttribute", c_uint, 2, at) == DEVICE_TYPE
        assert hip.get("hipPointerGetAttribute", c_void_p, 3, at) == at
        assert hip.get("hipPointerGetAttribute", c_int, 9, at) == 0
        assert hip.get("hipPointerGetAttribute", c_void_p, 11, at) == address
        assert hip.get("hipPointerGetAttribute", c_size_t, 12, at) == 1000
        assert hip.get("hipPointerGetAttribute", ctypes.c_bool, 13, at) is True


@ONE
def test_one_attribute_of_bad_arguments(hip: Hip) -> None:
    out = ctypes.byref(c_size_t())
    with hip.buffer(64) as address:
        assert hip.hipPointerGetAttribute(None, 2, address) == INVALID_VALUE
        assert hip.hipPointerGetAttribute(out, 2, None) == INVALID_VALUE
        assert hip.hipPointerGetAttribute(out, 99, address) == INVALID_VALUE
    assert hip.hipPointerGetAttribute(out, 2, ctypes.create_string_buffer(8)) == INVALID_VALUE


@DRIVER
def test_several_attributes_in_one_call(hip: Hip) -> None:
    kind, size = c_uint(), c_size_t()
    data = (c_void_p * 2)(ctypes.addressof(kind), ctypes.addressof(size))
    with hip.buffer(1000) as address:
        assert hip.hipDrvPointerGetAttributes(2, (c_int * 2)(2, 12), data, address) == SUCCESS
        assert hip.hipDrvPointerGetAttributes(0, (c_int * 2)(2, 12), data, address) == INVALID_VALUE
        assert hip.hipDrvPointerGetAttributes(2, None, data, address) == INVALID_VALUE

    assert (kind.value, size.value) == (DEVICE_TYPE, 1000)


@DRIVER
def test_several_attributes_of_an_unknown_address_are_nothing(hip: Hip) -> None:
    kind, device = c_uint(7), c_int(7)
    data = (c_void_p * 2)(ctypes.addressof(kind), ctypes.addressof(device))
    here = ctypes.create_string_buffer(8)
    assert hip.hipDrvPointerGetAttributes(2, (c_int * 2)(2, 9), data, here) == SUCCESS
    assert (kind.value, device.value) == (0, -2)


@pytest.mark.function("hipPointerSetAttribute")
def test_a_buffer_has_an_id_that_no_later_one_has(hip: Hip) -> None:
    seen = []
    for _ in range(5):
        with hip.buffer(MIB) as first, hip.buffer(MIB) as second:
            seen += [hip.get("hipPointerGetAttribute", c_uint, BUFFER_ID, at) for at in (first, second, second + 4096)]

    assert seen[1::3] == seen[2::3]
    assert len(set(seen)) == 10


@pytest.mark.needs("vmm")
def test_each_mapping_of_an_allocation_has_an_id(hip: Hip) -> None:
    with (
        hip.buffer(MIB) as other,
        hip.reservation(2 * PIECE) as start,
        hip.allocation(PIECE) as handle,
        hip.mapping(start, PIECE, handle, access(0)),
        hip.mapping(start + PIECE, PIECE, handle, access(0)),
    ):
        ids = [hip.get("hipPointerGetAttribute", c_uint, BUFFER_ID, at) for at in (start, start + PIECE, other)]
    assert len(set(ids)) == 3


def test_only_sync_memops_can_be_set(hip: Hip) -> None:
    on = ctypes.byref(c_uint(1))
    with hip.buffer(64) as address:
        assert hip.hipPointerSetAttribute(on, 6, address) == SUCCESS
        assert hip.hipPointerSetAttribute(on, 2, address) == INVALID_VALUE
        assert hip.hipPointerSetAttribute(None, 6, address) == INVALID_VALUE


@pytest.mark.needs("vmm")
def test_a_mapping_keeps_sync_memops(hip: Hip) -> None:
    with hip.reservation(PIECE) as address, hip.allocation(PIECE) as handle:
        for _ in range(2):
            with hip.mapping(address, PIECE, handle):
                seen = [hip.get("hipPointerGetAttribute", c_ubyte, 6, address)]
                assert hip.hipPointerSetAttribute(ctypes.byref(c_uint(1)), 6, address + 4096) == SUCCESS
                seen += [hip.get("hipPointerGetAttribute", c_ubyte, 6, address)]
                assert seen == [0, 1]


@pytest.mark.function("hipMemPtrGetInfo")
def test_the_size_of_an_allocation(hip: Hip) -> None:
    size = c_size_t()
    with hip.buffer(1000) as address:
        assert hip.hipMemPtrGetInfo(address, ctypes.byref(size)) == SUCCESS
    assert size.value == 1000
    assert hip.hipMemPtrGetInfo(None, ctypes.byref(size)) == (SUCCESS if hip.version >= (7, 1) else INVALID_VALUE)
