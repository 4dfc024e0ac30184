"""Graphs of copies and fills on AMD's library: their bytes, at each launch."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_int, c_size_t, c_void_p

import pytest

from tests.conformance.hip import DEVICE_TO_DEVICE, SUCCESS, TO_DEVICE, TO_HOST, Hip

SIZE = 100_000


@pytest.fixture(scope="module")
def hip(release: str) -> Hip:
    return Hip(os.environ["HIPPLAN_RUNTIME"])


def test_a_captured_graph_copies_and_fills_at_each_launch(hip: Hip) -> None:
    stream = c_void_p(hip.get("hipStreamCreateWithFlags", c_void_p, 1))
    graph, executable = c_void_p(), c_void_p()
    with hip.pinned(SIZE) as given, hip.pinned(SIZE) as taken, hip.buffer(SIZE) as first, hip.buffer(SIZE) as second:
        assert hip.library.hipStreamBeginCapture(stream, c_int(0)) == SUCCESS
        assert hip.hipMemcpyAsync(first, given, SIZE, TO_DEVICE, stream) == SUCCESS
        assert hip.hipMemsetAsync(first + 1000, 7, 500, stream) == SUCCESS
        assert hip.hipMemcpyAsync(second, first, SIZE, DEVICE_TO_DEVICE, stream) == SUCCESS
        assert hip.hipMemcpyAsync(taken, second, SIZE, TO_HOST, stream) == SUCCESS
        assert hip.library.hipStreamEndCapture(stream, ctypes.byref(graph)) == SUCCESS
        made = hip.library.hipGraphInstantiate(ctypes.byref(executable), graph, None, None, c_size_t(0))
        assert made == SUCCESS

        for seed in (1, 2):
            data = bytes((seed * byte) % 251 for byte in range(SIZE))
            ctypes.memmove(given, data, SIZE)
            ctypes.memset(taken, 0, SIZE)
            assert hip.library.hipGraphLaunch(executable, stream) == SUCCESS
            assert hip.hipStreamSynchronize(stream) == SUCCESS
            assert ctypes.string_at(taken, SIZE) == data[:1000] + b"\7" * 500 + data[1500:]

        assert hip.library.hipGraphExecDestroy(executable) == SUCCESS
        assert hip.library.hipGraphDestroy(graph) == SUCCESS
    assert hip.hipStreamDestroy(stream) == SUCCESS
