"""hipStreamAttachMemAsync: checks, then no effect at all."""

import ctypes

import pytest

from .hip import (
    ATTACH_HOST,
    CONTEXT_DESTROYED,
    DANGLING,
    GLOBAL,
    INVALID_VALUE,
    MIB,
    SINGLE,
    SUCCESS,
    Hip,
)

pytestmark = pytest.mark.function("hipStreamAttachMemAsync")


def test_null_is_invalid(hip: Hip) -> None:
    with hip.stream() as stream:
        assert hip.hipStreamAttachMemAsync(stream, None, 0, SINGLE) == INVALID_VALUE


@pytest.mark.parametrize("flags", [0, 3, 8])
def test_unknown_flags_are_invalid(hip: Hip, flags: int) -> None:
    with hip.managed(MIB) as address, hip.stream() as stream:
        assert hip.hipStreamAttachMemAsync(stream, address, 0, flags) == INVALID_VALUE


def test_single_needs_a_stream(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipStreamAttachMemAsync(None, address, 0, SINGLE) == INVALID_VALUE


@pytest.mark.parametrize("flags", [GLOBAL, ATTACH_HOST, SINGLE])
@pytest.mark.parametrize("length", [0, MIB])
def test_the_whole_allocation_can_be_attached(hip: Hip, flags: int, length: int) -> None:
    with hip.managed(MIB) as address, hip.stream() as stream:
        assert hip.hipStreamAttachMemAsync(stream, address, length, flags) == SUCCESS


def test_part_of_an_allocation_is_invalid(hip: Hip) -> None:
    with hip.managed(MIB) as address, hip.stream() as stream:
        assert hip.hipStreamAttachMemAsync(stream, address, 4096, SINGLE) == INVALID_VALUE


@pytest.mark.parametrize("length", [0, 1, 2 * MIB])
def test_memory_of_a_device_is_taken_in_any_length(hip: Hip, length: int) -> None:
    with hip.buffer(MIB) as address, hip.stream() as stream:
        assert hip.hipStreamAttachMemAsync(stream, address, length, SINGLE) == SUCCESS


@pytest.mark.needs("pageable refused")
def test_unknown_memory_is_invalid_without_xnack(hip: Hip) -> None:
    here = ctypes.create_string_buffer(4096)
    with hip.stream() as stream:
        assert hip.hipStreamAttachMemAsync(stream, here, 4096, SINGLE) == INVALID_VALUE
        assert hip.hipStreamAttachMemAsync(stream, here, 0, SINGLE) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_a_bad_stream_has_the_release_s_code(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        code = hip.hipStreamAttachMemAsync(DANGLING, address, 0, SINGLE)

        assert code == (INVALID_VALUE if hip.version >= (7, 0) else CONTEXT_DESTROYED)
