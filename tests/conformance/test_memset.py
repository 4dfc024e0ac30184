"""hipMemset and its element-wise relatives."""

import ctypes
from typing import NamedTuple

import pytest

from .hip import CONTEXT_DESTROYED, DANGLING, INVALID_VALUE, MIB, SUCCESS, Hip


class Fill(NamedTuple):
    function: str
    width: int
    value: int


FILLS = [
    Fill(f"hipMemset{kind}{suffix}", width, value)
    for kind, width, value in [("", 1, 0x41), ("D8", 1, 0x42), ("D16", 2, 0x4443), ("D32", 4, 0x48474645)]
    for suffix in ("", "Async")
]
every_fill = pytest.mark.parametrize(
    "fill", [pytest.param(f, id=f.function, marks=pytest.mark.function(f.function)) for f in FILLS]
)


def call(hip: Hip, fill: Fill, address: object, count: int, stream: int | None = None) -> int:
    arguments = [address, fill.value, count] + ([stream] if fill.function.endswith("Async") else [])
    code: int = getattr(hip, fill.function)(*arguments)
    return code


@every_fill
def test_nothing_is_a_success_and_null_is_invalid(hip: Hip, fill: Fill) -> None:
    assert call(hip, fill, None, 0) == SUCCESS
    assert call(hip, fill, None, 1) == INVALID_VALUE


@every_fill
def test_exactly_the_counted_elements_change(hip: Hip, fill: Fill) -> None:
    with hip.buffer(4096) as address:
        hip.hipMemset(address, 0, 4096)
        assert call(hip, fill, address + 8, 3) == SUCCESS
        assert hip.hipDeviceSynchronize() == SUCCESS

        pattern = fill.value.to_bytes(fill.width, "little") * 3
        assert hip.read(address, 32) == bytes(8) + pattern + bytes(24 - len(pattern))


@every_fill
def test_past_the_end_is_invalid(hip: Hip, fill: Fill) -> None:
    with hip.buffer(64) as address:
        assert call(hip, fill, address, 64 // fill.width) == SUCCESS
        assert call(hip, fill, address, 64 // fill.width + 1) == INVALID_VALUE
        assert call(hip, fill, address, (1 << 64) // fill.width - 1) == INVALID_VALUE


@every_fill
@pytest.mark.needs("pageable refused")
def test_the_program_s_own_memory_is_invalid(hip: Hip, fill: Fill) -> None:
    assert call(hip, fill, ctypes.create_string_buffer(64), 1) == INVALID_VALUE


@pytest.mark.parametrize(
    "fill",
    [pytest.param(f, id=f.function, marks=pytest.mark.function(f.function)) for f in FILLS if "Async" in f.function],
)
@pytest.mark.needs("handle checks")
def test_a_bad_stream_has_the_release_s_code(hip: Hip, fill: Fill) -> None:
    with hip.buffer(64) as address:
        code = call(hip, fill, address, 1, DANGLING)

        assert code == (INVALID_VALUE if hip.version >= (7, 0) else CONTEXT_DESTROYED)


@pytest.mark.function("hipMemset")
def test_zero_and_other_values_over_large_uneven_ranges(hip: Hip) -> None:
    size = 3 * MIB
    with hip.buffer(size) as address:
        for value in (7, 0):
            hip.hipMemset(address, 1, size)
            assert hip.hipMemset(address + 100, value, size - 300) == SUCCESS

            assert hip.read(address, size) == b"\1" * 100 + bytes([value]) * (size - 300) + b"\1" * 200


@pytest.mark.function("hipMemset")
def test_only_the_low_byte_counts(hip: Hip) -> None:
    with hip.buffer(64) as address:
        assert hip.hipMemset(address, 0x1FF, 4) == SUCCESS
        assert hip.read(address, 4) == b"\xff" * 4


@pytest.mark.function("hipMemset")
def test_host_and_managed_memory_can_be_filled(hip: Hip) -> None:
    with hip.pinned(64) as pinned, hip.managed(64) as managed:
        assert hip.hipMemset(pinned, 0x50, 64) == hip.hipMemset(managed, 0x51, 64) == SUCCESS
        assert hip.hipDeviceSynchronize() == SUCCESS
        assert ctypes.string_at(pinned, 64) + ctypes.string_at(managed, 64) == b"P" * 64 + b"Q" * 64
