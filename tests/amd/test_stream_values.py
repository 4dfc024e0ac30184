"""Streams that wait for values in memory, and write them: kernels of AMD's library, which the stand-in carries out."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from ctypes import c_uint, c_uint32, c_uint64, c_void_p

import pytest

from tests.conformance.conditions import ALL_BITS, AT_LEAST, EQUAL, each_condition
from tests.conformance.hip import NOT_READY, SUCCESS, Hip

WAIT_32, WRITE_32, WAIT_64, WRITE_64 = 1, 2, 4, 5


class Operation(ctypes.Structure):
    """hipStreamBatchMemOpParams."""

    _fields_ = [("kind", c_uint), ("address", c_void_p), ("value", c_uint64), ("flags", c_uint), ("rest", c_uint64 * 2)]


class Batch(ctypes.Structure):
    """hipBatchMemOpNodeParams."""

    _fields_ = [("context", c_void_p), ("count", c_uint), ("operations", c_void_p), ("flags", c_uint)]


@pytest.fixture(scope="module")
def hip(release: str) -> Hip:
    runtime = Hip(os.environ["HIPPLAN_RUNTIME"])
    for bits, word in ((32, c_uint32), (64, c_uint64)):
        getattr(runtime.library, f"hipStreamWaitValue{bits}").argtypes = [c_void_p, c_void_p, word, c_uint, word]
        getattr(runtime.library, f"hipStreamWriteValue{bits}").argtypes = [c_void_p, c_void_p, word, c_uint]
    return runtime


@pytest.fixture
def words(hip: Hip) -> Iterator[ctypes.Array[c_uint64]]:
    """Eight words of the host, all 0, that GPUs and the host both see."""
    with hip.pinned(4096) as address:
        ctypes.memset(address, 0, 4096)
        yield (c_uint64 * 8).from_address(address)


@pytest.fixture
def streams(hip: Hip) -> Iterator[tuple[int, int]]:
    made = tuple(hip.get("hipStreamCreateWithFlags", c_void_p, 1) for _ in range(2))
    yield made[0], made[1]
    for stream in made:
        assert hip.hipStreamDestroy(stream) == SUCCESS


def address_of(words: ctypes.Array[c_uint64], index: int) -> int:
    return ctypes.addressof(words) + 8 * index


def write_values(hip: Hip, stream: int, bits: int, address: int, value: int) -> None:
    assert getattr(hip.library, f"hipStreamWriteValue{bits}")(stream, address, value, 0) == SUCCESS


def wait_for(hip: Hip, stream: int, bits: int, address: int, value: int, condition: int, mask: int) -> None:
    mask &= 2**bits - 1
    assert getattr(hip.library, f"hipStreamWaitValue{bits}")(stream, address, value, condition, mask) == SUCCESS


@pytest.mark.parametrize("bits", [32, 64])
def test_a_written_value_is_in_memory_and_nothing_beside_it(
    hip: Hip, words: ctypes.Array[c_uint64], streams: tuple[int, int], bits: int
) -> None:
    words[0] = words[1] = ALL_BITS
    write_values(hip, streams[0], bits, address_of(words, 0), 2**bits - 5)

    assert hip.hipStreamSynchronize(streams[0]) == SUCCESS
    assert words[0] == (ALL_BITS - 2**bits + 1) + 2**bits - 5
    assert words[1] == ALL_BITS


@pytest.mark.parametrize("bits", [32, 64])
@each_condition
def test_a_stream_waits_until_the_condition_holds(
    hip: Hip,
    words: ctypes.Array[c_uint64],
    streams: tuple[int, int],
    bits: int,
    condition: int,
    value: int,
    mask: int,
    not_yet: int,
    enough: int,
) -> None:
    waiting, other = streams
    words[0] = not_yet
    wait_for(hip, waiting, bits, address_of(words, 0), value, condition, mask)
    write_values(hip, waiting, 64, address_of(words, 1), 1)
    write_values(hip, other, 64, address_of(words, 2), 1)

    assert hip.hipStreamSynchronize(other) == SUCCESS
    assert (words[1], words[2]) == (0, 1)
    assert hip.hipStreamQuery(waiting) == NOT_READY

    write_values(hip, other, bits, address_of(words, 0), enough)
    assert hip.hipStreamSynchronize(waiting) == SUCCESS
    assert words[1] == 1


def test_the_host_ends_a_wait_by_a_store(hip: Hip, words: ctypes.Array[c_uint64], streams: tuple[int, int]) -> None:
    wait_for(hip, streams[0], 64, address_of(words, 0), 1, EQUAL, ALL_BITS)
    assert hip.hipStreamQuery(streams[0]) == NOT_READY
    words[0] = 1
    assert hip.hipStreamSynchronize(streams[0]) == SUCCESS


def batch_in_graph(hip: Hip, batch: ctypes.Array[Operation]) -> int:
    """A graph that reads the batch at each launch. hipStreamBatchMemOp itself is InvalidValue on 7.2, whatever it is
    given."""
    context, graph, node = hip.get("hipCtxGetCurrent", c_void_p), c_void_p(), c_void_p()
    assert hip.library.hipGraphCreate(ctypes.byref(graph), 0) == SUCCESS
    wanted = Batch(context, len(batch), ctypes.addressof(batch), 0)
    added = hip.library.hipGraphAddBatchMemOpNode(
        ctypes.byref(node), graph, None, ctypes.c_size_t(0), ctypes.byref(wanted)
    )
    assert added == SUCCESS
    executable = c_void_p()
    made = hip.library.hipGraphInstantiate(ctypes.byref(executable), graph, None, None, ctypes.c_size_t(0))
    assert (made, hip.library.hipGraphDestroy(graph)) == (SUCCESS, SUCCESS)
    assert executable.value
    return executable.value


def test_operations_of_a_batch_do_not_wait_for_each_other(
    hip: Hip, words: ctypes.Array[c_uint64], streams: tuple[int, int]
) -> None:
    waiting, other = streams
    batch = (Operation * 4)(
        Operation(WAIT_32, address_of(words, 0), 5, EQUAL),
        Operation(WRITE_32, address_of(words, 1), 1),
        Operation(WAIT_64, address_of(words, 2), 2**40, AT_LEAST),
        Operation(WRITE_64, address_of(words, 3), 2**40),
    )
    graph = batch_in_graph(hip, batch)
    assert hip.library.hipGraphLaunch(c_void_p(graph), c_void_p(waiting)) == SUCCESS
    write_values(hip, waiting, 64, address_of(words, 4), 1)
    wait_for(hip, other, 64, address_of(words, 3), 2**40, EQUAL, ALL_BITS)

    assert hip.hipStreamSynchronize(other) == SUCCESS
    assert (words[1], words[4]) == (1, 0)
    words[0] = 5
    words[2] = 2**40
    assert hip.hipStreamSynchronize(waiting) == SUCCESS
    assert words[4] == 1
    assert hip.library.hipGraphExecDestroy(c_void_p(graph)) == SUCCESS
