"""Streams that wait for values in memory, and write them."""

import ctypes
from collections.abc import Iterator
from ctypes import c_uint64

import pytest

from .conditions import ALL_BITS, AT_LEAST, EQUAL, each_condition
from .hip import CONTEXT_DESTROYED, DANGLING, INVALID_VALUE, MIB, NOT_READY, SUCCESS, Hip

Words = ctypes.Array[c_uint64]

pytestmark = pytest.mark.needs("stream values")
in_both_sizes = pytest.mark.parametrize(
    "bits", [pytest.param(n, marks=pytest.mark.function(f"hipStreamWaitValue{n}")) for n in (32, 64)]
)


@pytest.fixture
def words(hip: Hip) -> Iterator[Words]:
    """Eight words of the host, all 0, that GPUs and the host both see."""
    with hip.pinned(4096) as address:
        ctypes.memset(address, 0, 4096)
        yield (c_uint64 * 8).from_address(address)


def at(words: Words, index: int) -> int:
    return ctypes.addressof(words) + 8 * index


def write(hip: Hip, stream: int, bits: int, address: int, value: int) -> None:
    assert getattr(hip, f"hipStreamWriteValue{bits}")(stream, address, value, 0) == SUCCESS


def wait(hip: Hip, stream: int, bits: int, address: int, value: int, condition: int, mask: int = ALL_BITS) -> None:
    mask &= 2**bits - 1
    assert getattr(hip, f"hipStreamWaitValue{bits}")(stream, address, value, condition, mask) == SUCCESS


@in_both_sizes
def test_a_value_is_written_and_nothing_beside_it(hip: Hip, words: Words, bits: int) -> None:
    words[0] = words[1] = ALL_BITS
    with hip.stream() as stream:
        write(hip, stream, bits, at(words, 0), 2**bits - 5)
        assert hip.hipStreamSynchronize(stream) == SUCCESS
    assert words[0] == (ALL_BITS - 2**bits + 1) + 2**bits - 5
    assert words[1] == ALL_BITS


@in_both_sizes
@each_condition
def test_a_stream_waits_and_what_is_behind_it(
    hip: Hip, words: Words, bits: int, condition: int, value: int, mask: int, not_yet: int, enough: int
) -> None:
    event = hip.get("hipEventCreateWithFlags", ctypes.c_void_p, 0)
    words[0] = not_yet
    with hip.stream(1) as waiting, hip.stream(1) as other:
        wait(hip, waiting, bits, at(words, 0), value, condition, mask)
        write(hip, waiting, 64, at(words, 1), 1)
        assert hip.hipEventRecord(event, waiting) == SUCCESS
        write(hip, other, 64, at(words, 2), 1)
        assert hip.hipStreamSynchronize(other) == SUCCESS
        assert (words[1], words[2]) == (0, 1)
        assert hip.hipStreamQuery(waiting) == hip.hipEventQuery(event) == NOT_READY

        write(hip, other, bits, at(words, 0), enough)
        assert hip.hipStreamSynchronize(waiting) == SUCCESS
        assert (words[1], hip.hipEventQuery(event)) == (1, SUCCESS)
    assert hip.hipEventDestroy(event) == SUCCESS


@in_both_sizes
def test_a_condition_that_holds_is_not_waited_for(hip: Hip, words: Words, bits: int) -> None:
    words[0] = 3
    with hip.stream() as stream:
        wait(hip, stream, bits, at(words, 0), 3, EQUAL)
        assert hip.hipStreamSynchronize(stream) == SUCCESS


@in_both_sizes
def test_the_host_ends_a_wait_by_a_store(hip: Hip, words: Words, bits: int) -> None:
    with hip.stream() as stream:
        wait(hip, stream, bits, at(words, 0), 1, EQUAL)
        assert hip.hipStreamQuery(stream) == NOT_READY
        words[0] = 1
        assert hip.hipStreamSynchronize(stream) == SUCCESS


@in_both_sizes
def test_values_in_device_memory(hip: Hip, bits: int) -> None:
    with hip.buffer(MIB) as memory, hip.stream(1) as waiting, hip.stream(1) as other:
        assert hip.hipMemset(memory, 0, MIB) == SUCCESS
        assert hip.hipDeviceSynchronize() == SUCCESS
        wait(hip, waiting, bits, memory + 8, 5, AT_LEAST)
        assert hip.hipStreamQuery(waiting) == NOT_READY
        write(hip, other, bits, memory + 8, 6)
        assert hip.hipStreamSynchronize(waiting) == SUCCESS


@in_both_sizes
@pytest.mark.needs("stream checks")
def test_wrong_arguments(hip: Hip, words: Words, bits: int) -> None:
    writes, waits = getattr(hip, f"hipStreamWriteValue{bits}"), getattr(hip, f"hipStreamWaitValue{bits}")
    word = at(words, 0)
    outside = ctypes.addressof(ctypes.create_string_buffer(4096))
    for address in (None, outside):
        assert writes(None, address, 0, 0) == waits(None, address, 0, EQUAL, 1) == INVALID_VALUE
    assert writes(DANGLING, word, 0, 0) == waits(DANGLING, word, 0, EQUAL, 1) == CONTEXT_DESTROYED
    assert waits(None, word, 0, 4, 1) == waits(DANGLING, None, 0, 4, 1) == INVALID_VALUE
