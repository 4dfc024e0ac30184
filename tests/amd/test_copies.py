"""Copies between the virtual memory of two linked devices: right where both GPUs may reach both; what becomes of them
where each may reach its own alone. Then the GPU that copies has a page fault, which the library does not foresee.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys

import pytest

from hipplan.machines.runtimes import choose
from tests.conformance.hip import MIB, Hip, access
from tests.conftest import ROOT

CALLS = ("hipMemcpyPeer",) if "HIPPLAN_QUICK" in os.environ else ("hipMemcpyDtoD", "hipMemcpyPeer", "hipMemcpyAsync")

PROGRAM = """
import ctypes, itertools, os, random, sys
from ctypes import c_void_p
from tests.conformance.hip import DEFAULT, MIB, Hip, access

hip = Hip(os.environ["HIPPLAN_RUNTIME"])
call, everybody, peers = sys.argv[1], sys.argv[2] == "both", sys.argv[3] == "peers"
SIZE = 8 * MIB

def of_device(device, kind):
    hip.hipSetDevice(device)
    if kind == "plain":
        return hip.buffer(SIZE)
    return hip.mapped(SIZE, *(access(d) for d in ((0, 1) if everybody else (device,))), device=device)

def copy(to, to_device, source, from_device, size):
    if call == "hipMemcpyPeer":
        return hip.hipMemcpyPeer(to, to_device, source, from_device, size)
    if call == "hipMemcpyDtoD":
        return hip.hipMemcpyDtoD(to, source, size)
    return hip.hipMemcpyAsync(to, source, size, DEFAULT, None)

for device in (0, 1) if peers else ():
    hip.hipSetDevice(device)
    assert hip.hipDeviceEnablePeerAccess(1 - device, 0) == 0
copies = wrong = 0
mixed = (("virtual", "plain"), ("plain", "virtual")) if peers else ()  # plain memory needs peers
for first, second in (("virtual", "virtual"), *mixed):
    with of_device(0, first) as on_0, of_device(1, second) as on_1:
        for size, offset, current, source in itertools.product((5, MIB, 7 * MIB + 3), (0, 3), (0, 1), (0, 1)):
            here, there = (on_0, on_1)[source] + offset, (on_1, on_0)[source] + 2 * offset
            data = random.Random(f"{size} {offset} {current} {source}").randbytes(size)
            hip.hipSetDevice(source)
            assert hip.write(here, data) == 0
            hip.hipSetDevice(1 - source)
            assert hip.write(there, bytes(size)) == 0
            hip.hipSetDevice(current)
            assert copy(there, 1 - source, here, source, size) == 0
            assert hip.hipDeviceSynchronize() == 0
            hip.hipSetDevice(1 - source)
            copies += 1
            wrong += hip.read(there, size) != data
print("copies", copies, "wrong", wrong, "faults", ctypes.CDLL(None).kfdsim_page_faults())
"""


def numbers(call: str, reach: str, peers: str) -> tuple[int, int, int]:
    """Copies, those with wrong bytes, and page faults."""
    environment = os.environ | {"KFDSIM_ON_FAULT": "count", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, call, reach, peers]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    copies, wrong, faults = (int(number) for number in re.findall(r"\d+", ran.stdout))
    return copies, wrong, faults


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("peers", ["peers", "no peers"])
def test_devices_that_may_both_reach_both_copy_every_byte(release: str, call: str, peers: str) -> None:
    copies, wrong, faults = numbers(call, "both", peers)

    assert copies == (72 if peers == "peers" else 24)
    assert (wrong, faults) == (0, 0)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("peers", ["peers", "no peers"])
def test_devices_that_reach_only_their_own_fault(release: str, call: str, peers: str) -> None:
    """7.2 copies through the host where peer access is not enabled, and is right then."""
    _, wrong, faults = numbers(call, "own", peers)

    if release == "7.2" and peers == "no peers":
        assert (wrong, faults) == (0, 0)
    else:
        assert wrong > 0
        assert faults > 0


def test_hipplan_waits_until_a_peer_copy_is_done(release: str) -> None:
    """6.4 returns from hipMemcpyPeer before it is, and runs it in the null stream of one of both devices."""
    size, runtime = 64 * MIB, choose(None).runtime
    hip, both = Hip(runtime.path), (access(0), access(1))
    with hip.mapped(size, *both, device=0) as on_0, hip.mapped(size, *both, device=1) as on_1:
        for current, (source, to) in itertools.product((0, 1), ((0, 1), (1, 0))):
            places = (on_0, on_1)
            runtime.fill_on(source, places[source], 1 + source, size)
            hip.hipSetDevice(current)
            runtime.copy_peer(places[to], to, places[source], source, size)
            for device in (0, 1):
                hip.hipSetDevice(device)
                assert hip.hipStreamQuery(None) == 0, (current, source, device)
            assert set(hip.read(places[to] + size - 4096, 4096)) == {1 + source}
    hip.hipSetDevice(0)


LEFT_MAPPED = """
import os
from tests.conformance.hip import MIB, Hip, access
hip = Hip(os.environ["HIPPLAN_RUNTIME"])
left = hip.mapped(2 * MIB, access(0))
left.__enter__()
print("done", flush=True)
os.environ.get("LEAVE") or left.__exit__(None, None, None)
"""


@pytest.mark.parametrize("left", [True, False], ids=["mapped", "nothing"])
def test_6_4_crashes_in_a_process_that_ends_with_virtual_memory_mapped(release: str, left: bool) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "LEAVE": "1" if left else ""}
    ran = subprocess.run([sys.executable, "-c", LEFT_MAPPED], env=environment, capture_output=True, text=True)

    assert ran.stdout == "done\n"
    assert (ran.returncode != 0) == (left and release == "6.4")
