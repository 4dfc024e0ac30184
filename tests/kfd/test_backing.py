"""A machine of the profile's size on a machine that is smaller."""

from __future__ import annotations

import pytest

from .conftest import Program


def test_the_host_s_memory_is_the_profile_s(program: Program) -> None:
    """AMD's HIP refuses an allocation that is larger than what sysinfo() says."""
    program("""
class Information(ctypes.Structure):
    _fields_ = [("uptime", ctypes.c_long), ("loads", c_uint64 * 3), ("total", c_uint64), ("free", c_uint64),
                ("more", c_uint64 * 4), ("processes", ctypes.c_uint16), ("high", c_uint64 * 2), ("unit", c_uint32)]
def now():
    there = Information()
    assert libc.sysinfo(ctypes.byref(there)) == 0
    return there.total * there.unit, there.free * there.unit
assert now() == (512 << 30, 512 << 30)
driver = Driver()
driver.allocate(MIB, 0x7000_0000_0000, flags=GTT | WRITABLE)
assert now() == (512 << 30, (512 << 30) - MIB)
""")


def test_host_memory_that_this_machine_does_not_have_is_refused_with_the_reason(program: Program) -> None:
    """Memory of GPUs is not: only what is written of it takes memory here."""
    ran = program(
        """
driver = Driver()
driver.allocate(100 << 30, 0x7000_0000_0000)
first = driver.allocate(10 * MIB, 0x7100_0000_0000, flags=GTT | WRITABLE)
try: driver.allocate(7 * MIB, 0x7200_0000_0000, flags=GTT | WRITABLE)
except OSError as error: assert error.errno == errno.ENOMEM
else: raise AssertionError("there is more than this machine has")
driver.free(first)
driver.allocate(16 * MIB, 0x7200_0000_0000, flags=GTT | WRITABLE)
""",
        KFDSIM_MEMORY_LIMIT=str(16 << 20),
    )
    (line,) = ran.stderr.splitlines()
    wanted, here, taken = 7 << 20, 16 << 20, 10 << 20
    assert line.endswith(
        f"{wanted} bytes of host memory are refused: this machine itself has {here} bytes, and {taken} are taken"
    )


MEASURE = """
from dataclasses import replace
from hipplan.machines.discover import discover
from hipplan.machines.machine import NumaNode
from hipplan.machines.runtimes import choose
machine = discover(replace(choose("sim"), kind="amd", machine=None))
print(machine.host_memory, machine.limits.backed_memory, *(node.node for node in machine.numa_nodes))
print(NumaNode(node=1, simulated=True) in machine.numa_nodes)
"""


def test_a_machine_is_measured_with_the_profile_s_host_and_what_is_behind_it(program: Program) -> None:
    """Preflight then refuses what AMD's library would refuse, and what this machine cannot back."""
    ran = program(MEASURE, machine="mi300x-8", KFDSIM_MEMORY_LIMIT=str(16 << 20))

    assert ran.stdout == f"{8 * 196592 << 20} {16 << 20} 0 1\nTrue\n"


def test_a_process_that_finds_its_own_machine_has_no_host_of_a_profile(program: Program) -> None:
    code = "from hipplan.machines.topology import host_here\nprint(host_here() is None)"

    assert program(code).stdout == "False\n"
    assert program(code, LD_PRELOAD="").stdout == "True\n"


FILL = """
driver, at = Driver(), 0x7000_0000_0000
handle = driver.allocate(1 << 30, at)
driver.map(handle, 0)
queue = Queue(driver)
for number in range(8): queue.fill(at + number * 4 * MIB, 7, 4 * MIB)
for number in range(8): queue.fill(at + number * 4 * MIB, 5, 4 * MIB)  # there already
queue.fill(at + 128 * MIB, 0, 512 * MIB)
assert libc.kfdsim_page_faults() == 0
target, taken = driver.host(b"x" * 4096)
for offset, byte in ((0, 5), (32 * MIB - 4096, 5), (32 * MIB, 0), (400 * MIB, 0)):
    queue.copy(ctypes.addressof(taken), at + offset, 4096)
    assert taken.raw == bytes([byte]) * 4096, offset
queue.fill(at + 32 * MIB, 9, 4 * MIB)
queue.copy(at + 36 * MIB, ctypes.addressof(taken), 4096)
print(libc.kfdsim_page_faults())
queue.fill(at, 0, 4 * MIB)  # makes room
queue.fill(at + 32 * MIB, 9, 4 * MIB)
print(libc.kfdsim_page_faults())
"""


def test_a_gpu_that_writes_more_than_this_machine_has_says_so(program: Program) -> None:
    """Zeros take nothing, and what was written once takes nothing again."""
    settings = {"KFDSIM_MEMORY_LIMIT": str(32 << 20)}
    counted = program(FILL, KFDSIM_ON_FAULT="count", **settings)
    ended = program(FILL, check=False, **settings)

    assert counted.stdout == "2\n2\n"
    why = "It may not write: this machine itself has no memory left for what is written there."
    assert counted.stderr.count(why) == 2
    assert ended.returncode < 0
    assert "on address 0x700002000000. " + why in ended.stderr


@pytest.mark.parametrize("limit", ["16GiB", "-1", "0x1000"])
def test_a_limit_that_cannot_be_read_keeps_the_driver_from_opening(program: Program, limit: str) -> None:
    ran = program("Driver()", check=False, KFDSIM_MEMORY_LIMIT=limit)

    assert ran.returncode == 1
    assert f"cannot start: KFDSIM_MEMORY_LIMIT: {limit} is not a number of bytes" in ran.stderr
