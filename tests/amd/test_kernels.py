"""Kernels of a program's own, which are not run: what AMD's library says of them, and --refuse-kernels."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.conftest import ROOT

PROGRAM = """
import ctypes, os
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p
from tests.amd.kernels import code_object
from tests.conformance.hip import Hip

hip = Hip(os.environ["HIPPLAN_RUNTIME"])
library = hip.library
module, kernel, stream = c_void_p(), c_void_p(), c_void_p(hip.get("hipStreamCreateWithFlags", c_void_p, 1))
code = code_object("__kernel void add_one(__global int* number) { *number += 1; }", "gfx942")
assert library.hipModuleLoadData(byref(module), code) == 0
assert library.hipModuleGetFunction(byref(kernel), module, b"add_one") == 0
numbers = c_void_p(hip.get("hipMalloc", c_void_p, 4096))
arguments = (c_void_p * 1)(ctypes.addressof(numbers))
grid = (c_uint(1), c_uint(1), c_uint(1), c_uint(64), c_uint(1), c_uint(1), c_uint(0), stream)

class Node(ctypes.Structure):  # hipKernelNodeParams
    _fields_ = [("block", c_uint * 3), ("extra", c_void_p), ("kernel", c_void_p), ("grid", c_uint * 3),
                ("arguments", c_void_p), ("shared", c_uint)]

def launched():
    return library.hipModuleLaunchKernel(kernel, *grid, arguments, None), hip.hipGetLastError()

def captured():
    assert library.hipStreamBeginCapture(stream, 0) == 0
    code = library.hipModuleLaunchKernel(kernel, *grid, arguments, None)
    graph = c_void_p()
    library.hipStreamEndCapture(stream, byref(graph))
    hip.hipGetLastError()
    return code

def added():
    graph, node = c_void_p(), c_void_p()
    assert library.hipGraphCreate(byref(graph), 0) == 0
    wanted = Node((1, 1, 1), None, kernel, (1, 1, 1), ctypes.addressof(arguments), 0)
    return library.hipGraphAddKernelNode(byref(node), graph, None, c_size_t(0), byref(wanted))
"""

LAUNCHES = """
print(launched(), launched(), captured(), added())
assert hip.hipStreamSynchronize(stream) == 0
print(hip.write(numbers.value, b"bytes"), hip.read(numbers.value, 5))
"""

OCCUPANCY = """
blocks, block = c_int(), c_int()
for threads in (64, 256, 1024):
    ask = library.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor
    print(ask(byref(blocks), kernel, threads, c_size_t(0)), blocks.value)
print(library.hipModuleOccupancyMaxPotentialBlockSize(byref(blocks), byref(block), kernel, c_size_t(0), 0), block.value)
"""


def output(program: str, **variables: str) -> tuple[list[str], str]:
    """The lines on stdout, and stderr."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KFDSIM_LOG": "/dev/stderr"} | variables
    ran = subprocess.run([sys.executable, "-c", PROGRAM + program], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines(), ran.stderr


def test_launches_that_are_not_run_are_counted(release: str) -> None:
    lines, log = output(LAUNCHES)

    assert lines == ["(0, 0) (0, 0) 0 0", "0 b'bytes'"]
    assert log.count("kernel 'add_one' is not run: there is no GPU") == 1
    assert "2 launches of kernels were not run: there is no GPU" in log


def test_each_launch_is_an_error_on_demand(release: str) -> None:
    lines, log = output(LAUNCHES, KFDSIM_REFUSE_KERNELS="1")

    assert lines == ["(801, 801) (801, 801) 801 801", "0 b'bytes'"]
    assert "4 launches of kernels were refused: there is no GPU" in log
    assert "not run" not in log


def test_occupancy_is_the_number_of_blocks_that_fit(release: str) -> None:
    """Eight waves of 64 threads on each of four SIMDs."""
    lines, _ = output(OCCUPANCY)

    assert lines == ["0 32", "0 8", "0 2", "0 1024"]
