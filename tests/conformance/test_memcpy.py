"""hipMemcpy and its relatives: one rule book under many names."""

import ctypes
from array import array
from collections.abc import Callable
from ctypes import c_void_p

import pytest

from .hip import (
    CONTEXT_DESTROYED,
    DANGLING,
    DEFAULT,
    DEVICE_TO_DEVICE,
    HOST_TO_HOST,
    ILLEGAL_ADDRESS,
    INVALID_DEVICE,
    INVALID_DIRECTION,
    INVALID_VALUE,
    MIB,
    SUCCESS,
    TO_DEVICE,
    TO_HOST,
    Hip,
    access,
)
from .sim import Simulator

MEMCPY = pytest.mark.function("hipMemcpy")
Copy = Callable[[Hip, object, object, int, int], int]

COPIES: dict[str, Copy] = {
    "hipMemcpy": lambda h, d, s, n, k: h.hipMemcpy(d, s, n, k),
    "hipMemcpyAsync": lambda h, d, s, n, k: h.hipMemcpyAsync(d, s, n, k, None),
    "hipMemcpyWithStream": lambda h, d, s, n, k: h.hipMemcpyWithStream(d, s, n, k, None),
}
every_copy = pytest.mark.parametrize(
    "copy", [pytest.param(f, id=n, marks=pytest.mark.function(n)) for n, f in COPIES.items()]
)


def text(data: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(data, len(data))


@every_copy
def test_nothing_is_a_success_before_all_checks(hip: Hip, copy: Copy) -> None:
    """But hipMemcpyAsync looks at the kind first."""
    expected = INVALID_DIRECTION if copy is COPIES["hipMemcpyAsync"] else SUCCESS
    assert copy(hip, None, None, 0, 77) == expected


@every_copy
def test_nulls_are_invalid(hip: Hip, copy: Copy) -> None:
    with hip.buffer(64) as address:
        assert copy(hip, None, address, 4, TO_HOST) == INVALID_VALUE
        assert copy(hip, address, None, 4, TO_DEVICE) == INVALID_VALUE


@every_copy
@pytest.mark.parametrize("kind", [5, 99])
def test_an_unknown_kind_is_an_invalid_direction(hip: Hip, copy: Copy, kind: int) -> None:
    with hip.buffer(64) as address:
        assert copy(hip, address, text(b"1234"), 4, kind) == INVALID_DIRECTION


@every_copy
def test_past_the_end_of_a_known_allocation_is_invalid(hip: Hip, copy: Copy) -> None:
    with hip.buffer(64) as device, hip.pinned(64) as host:
        assert copy(hip, device, text(bytes(65)), 65, TO_DEVICE) == INVALID_VALUE
        assert copy(hip, device + 60, text(bytes(8)), 8, TO_DEVICE) == INVALID_VALUE
        assert copy(hip, text(bytes(65)), device, 65, TO_HOST) == INVALID_VALUE
        assert copy(hip, host, device, 65, DEFAULT) == INVALID_VALUE


@every_copy
def test_there_and_back(hip: Hip, copy: Copy) -> None:
    with hip.buffer(64) as first, hip.buffer(64) as second:
        back = text(bytes(5))
        assert copy(hip, first + 3, text(b"hello"), 5, TO_DEVICE) == SUCCESS
        assert copy(hip, second, first + 3, 5, DEVICE_TO_DEVICE) == SUCCESS
        assert copy(hip, back, second, 5, TO_HOST) == SUCCESS
        assert hip.hipDeviceSynchronize() == SUCCESS
        assert back.raw == b"hello"


@MEMCPY
@pytest.mark.parametrize("kind", [HOST_TO_HOST, DEFAULT])
def test_host_to_host(hip: Hip, kind: int) -> None:
    out = text(bytes(4))
    assert hip.hipMemcpy(out, text(b"abcd"), 4, kind) == SUCCESS
    assert out.raw == b"abcd"


@MEMCPY
def test_host_to_host_of_several_mib(hip: Hip) -> None:
    data = bytes(array("I", range(5 * MIB // 8)))
    size = len(data)
    out = text(bytes(3 * size))
    assert hip.hipMemcpy(ctypes.addressof(out) + size, text(data), size, HOST_TO_HOST) == SUCCESS
    assert out.raw == bytes(size) + data + bytes(size)


@MEMCPY
@pytest.mark.needs("pageable refused")
@pytest.mark.parametrize("kind", [TO_DEVICE, TO_HOST, DEVICE_TO_DEVICE])
def test_a_device_kind_between_host_pointers_is_invalid(hip: Hip, kind: int) -> None:
    assert hip.hipMemcpy(text(bytes(4)), text(b"abcd"), 4, kind) == INVALID_VALUE


@MEMCPY
def test_onto_itself_is_a_success(hip: Hip) -> None:
    with hip.buffer(64) as address:
        assert hip.hipMemcpy(address, address, 64, DEFAULT) == SUCCESS


@MEMCPY
def test_large_copies_between_devices_keep_every_byte(hip: Hip) -> None:
    pattern = bytes(range(251)) * (5 * MIB // 251)
    with hip.buffer(len(pattern)) as first, hip.buffer(len(pattern)) as second:
        hip.write(first, pattern)
        assert hip.hipMemcpy(second, first, len(pattern), DEVICE_TO_DEVICE) == SUCCESS
        assert hip.read(second, len(pattern)) == pattern


@MEMCPY
def test_copies_between_devices_stop_at_their_last_byte(hip: Hip) -> None:
    size = 3 * MIB + 5
    with hip.buffer(2 * size) as first, hip.buffer(2 * size) as second:
        hip.hipMemset(first, 1, 2 * size)
        hip.hipMemset(second, 2, 2 * size)
        assert hip.hipMemcpy(second, first, size, DEVICE_TO_DEVICE) == SUCCESS

        assert hip.read(second + size - 1, 2) == b"\1\2"
        assert hip.read(second + size, size) == b"\2" * size


@MEMCPY
@pytest.mark.needs("handle checks")
def test_a_bad_host_pointer_is_an_error_and_not_the_end(hip: Hip) -> None:
    with hip.buffer(64) as address:
        assert hip.hipMemcpy(address, c_void_p(16), 64, TO_DEVICE) == INVALID_VALUE
        assert hip.hipMemcpy(c_void_p(16), address, 64, TO_HOST) == INVALID_VALUE


@MEMCPY
@pytest.mark.needs("two devices")
def test_copies_between_devices_need_no_peer_access(hip: Hip) -> None:
    with hip.buffer(64) as first:
        hip.hipSetDevice(1)
        with hip.buffer(64) as second:
            hip.write(first, b"across")
            assert hip.hipMemcpy(second, first, 6, DEVICE_TO_DEVICE) == SUCCESS
            assert hip.read(second, 6) == b"across"


@MEMCPY
@pytest.mark.needs("vmm")
def test_one_copy_spans_pieces_up_to_the_end_of_the_reservation(hip: Hip) -> None:
    size = 2 * MIB
    with (
        hip.reservation(3 * size) as address,
        hip.allocation(size) as first,
        hip.allocation(size) as second,
        hip.mapping(address, size, first, access(0)),
        hip.mapping(address + size, size, second, access(0)),
    ):
        data = bytes(range(256)) * (2 * size // 256)
        assert hip.write(address, data) == SUCCESS
        assert hip.read(address, 2 * size) == data
        assert hip.hipMemcpy(address, text(bytes(16)), 4 * size, TO_DEVICE) == INVALID_VALUE


@MEMCPY
@pytest.mark.needs("vmm", "handle checks")
def test_a_copy_over_an_unmapped_hole_is_refused_whole(hip: Hip) -> None:
    size = 2 * MIB
    with (
        hip.reservation(3 * size) as address,
        hip.allocation(size) as handle,
        hip.mapping(address, size, handle, access(0)),
    ):
        assert hip.write(address, b"x" * (size + 1)) == ILLEGAL_ADDRESS
        assert hip.read(address, 4) == bytes(4)


@MEMCPY
@pytest.mark.needs("vmm", "peers")
def test_the_access_of_another_device_does_not_help(hip: Hip, simulator: Simulator) -> None:
    """Current device and owner are 0; only device 1 was granted anything."""
    with hip.mapped(2 * MIB, access(1)) as address:
        assert hip.write(address, b"x") == ILLEGAL_ADDRESS
        hip.hipSetDevice(1)  # whose stream carries out a copy since 7.0; before, the owner does
        assert hip.write(address, b"x") == (SUCCESS if hip.version >= (7, 0) else ILLEGAL_ADDRESS)


@pytest.mark.parametrize(
    "function",
    [pytest.param(n, marks=pytest.mark.function(n)) for n in ("hipMemcpyAsync", "hipMemcpyWithStream")],
)
@pytest.mark.needs("handle checks")
def test_a_bad_stream_has_the_release_s_code(hip: Hip, function: str) -> None:
    with hip.buffer(64) as address:
        code = getattr(hip, function)(address, text(b"1234"), 4, TO_DEVICE, DANGLING)

        assert code == (INVALID_VALUE if hip.version >= (7, 0) else CONTEXT_DESTROYED)


DRIVER = ["hipMemcpyHtoD", "hipMemcpyDtoD", "hipMemcpyDtoH"]


@pytest.mark.parametrize(
    "suffix", [pytest.param("", marks=pytest.mark.function("hipMemcpyHtoD/DtoD/DtoH")),
               pytest.param("Async", marks=pytest.mark.function("hipMemcpyHtoD/DtoD/DtoHAsync"))]
)  # fmt: skip
def test_the_driver_s_names_copy_there_across_and_back(hip: Hip, suffix: str) -> None:
    into, across, back = (getattr(hip, name + suffix) for name in DRIVER)
    stream = (None,) if suffix else ()
    out = text(bytes(5))
    with hip.buffer(64) as first, hip.buffer(64) as second:
        assert into(first, text(b"hello"), 5, *stream) == SUCCESS
        assert across(second, first, 5, *stream) == SUCCESS
        assert back(out, second, 5, *stream) == SUCCESS
        assert into(first, text(bytes(65)), 65, *stream) == INVALID_VALUE
        assert into(None, text(b"x"), 1, *stream) == INVALID_VALUE
        assert hip.hipDeviceSynchronize() == SUCCESS
    assert out.raw == b"hello"


PEER: dict[str, Callable[..., int]] = {
    "hipMemcpyPeer": lambda h, *a: h.hipMemcpyPeer(*a),
    "hipMemcpyPeerAsync": lambda h, *a: h.hipMemcpyPeerAsync(*a, None),
}
every_peer_copy = pytest.mark.parametrize(
    "copy", [pytest.param(f, id=n, marks=pytest.mark.function(n)) for n, f in PEER.items()]
)


@every_peer_copy
@pytest.mark.parametrize("devices", [(99, 0), (0, 99), (-1, 0), (0, -1)])
def test_a_bad_device_is_invalid_device_before_all_else(
    hip: Hip, copy: Callable[..., int], devices: tuple[int, int]
) -> None:
    assert copy(hip, None, devices[0], None, devices[1], 0) == INVALID_DEVICE


@every_peer_copy
def test_peer_copies_check_size_null_and_range(hip: Hip, copy: Callable[..., int]) -> None:
    with hip.buffer(64) as first, hip.buffer(64) as second:
        assert copy(hip, None, 0, None, 0, 0) == SUCCESS
        assert copy(hip, None, 0, first, 0, 4) == INVALID_VALUE
        assert copy(hip, first, 0, None, 0, 4) == INVALID_VALUE
        assert copy(hip, first, 0, second, 0, 65) == INVALID_VALUE


@every_peer_copy
@pytest.mark.needs("two devices")
def test_the_device_numbers_are_otherwise_ignored(hip: Hip, copy: Callable[..., int]) -> None:
    with hip.buffer(64) as first, hip.buffer(64) as second:
        hip.write(first, b"same device")
        assert copy(hip, second, 1, first, 1, 11) == SUCCESS
        assert hip.read(second, 11) == b"same device"


@pytest.mark.function("hipMemcpyPeerAsync")
@pytest.mark.needs("handle checks")
def test_peer_async_checks_its_stream(hip: Hip) -> None:
    with hip.buffer(64) as first, hip.buffer(64) as second:
        code = hip.hipMemcpyPeerAsync(first, 0, second, 0, 4, DANGLING)

        assert code == (INVALID_VALUE if hip.version >= (7, 0) else CONTEXT_DESTROYED)
