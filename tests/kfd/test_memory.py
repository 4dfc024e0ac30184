"""Memory of GPUs: accounting, page tables, what copies may reach, and the ledger."""

from __future__ import annotations

import pytest

from .conftest import Program


def test_memory_is_counted_and_comes_back(program: Program) -> None:
    program("""
driver = Driver()
def free(): return driver.call("available_memory", gpu_id=driver.gpus[0]).available
before, empty = free(), alive(ledger())
handle = driver.allocate(3 * MIB, 0x7000_0000_0000)
assert before - free() == 4 * MIB  # in pages of 2 MiB, as the kernel counts it
assert ledger()["gpus"][0]["used"] == 3 * MIB
assert [(buffer["kind"], buffer["size"]) for buffer in ledger()["buffers"]] == [("gpu", 3 * MIB)]
driver.map(handle, 0, 1)
assert [mapping["gpu"] for mapping in ledger()["mappings"]] == [0, 1]
try: driver.free(handle)
except OSError as error: assert error.errno == errno.EBUSY
else: raise AssertionError("freed while it was mapped")
driver.unmap(handle, 0, 1)
driver.free(handle)
assert free() == before and alive(ledger()) == empty == {}
""")


def test_no_more_than_there_is(program: Program) -> None:
    program("""
driver = Driver()
for size, gpu in ((1 << 50, 0), (193 << 30, 1)):
    try: driver.allocate(size, 0x7000_0000_0000, gpu)
    except OSError as error: assert error.errno == errno.ENOMEM
    else: raise AssertionError("more memory than the GPU has")
assert alive(ledger()) == {}
for wrong in ({"handle": 1}, {"handle": 0}):
    try: driver.call("free_memory_of_gpu", **wrong)
    except OSError as error: assert error.errno == errno.EINVAL
""")


def test_memory_of_an_apu_is_the_host_s(program: Program) -> None:
    program(
        """
driver = Driver()
def free(): return driver.call("available_memory", gpu_id=driver.gpus[0]).available
before = free()
handle = driver.allocate(3 * MIB, 0x7000_0000_0000)
assert (ledger()["gpus"][0]["used"], ledger()["host_used"]) == (3 * MIB, 3 * MIB)
others = [driver.allocate(127 << 30, (0x7100 + gpu) << 32, gpu) for gpu in (1, 2, 3)]
host = driver.allocate(MIB, 0x7200_0000_0000, flags=GTT | WRITABLE)  # the machine has 512 GiB in all
assert free() == (512 << 30) // 16 * 15 - (381 << 30) - 4 * MIB < before
try: driver.allocate(100 << 30, 0x7300_0000_0000)
except OSError as error: assert error.errno == errno.ENOMEM
else: raise AssertionError("more memory than the machine has")
for memory in (handle, host, *others): driver.free(memory)
assert free() == before and alive(ledger()) == {}
""",
        machine="mi300a-4",
    )


def test_a_gpu_copies_what_it_reaches(program: Program) -> None:
    program("""
driver = Driver()
there = driver.allocate(2 * MIB, 0x7000_0000_0000)
driver.map(there, 0, 1)
source, given = driver.host(b"some bytes")
target, taken = driver.host(b"\\0")
queues = Queue(driver, 0), Queue(driver, 1)
queues[0].copy(0x7000_0000_0000 + 12345, ctypes.addressof(given), 10)
queues[1].copy(ctypes.addressof(taken), 0x7000_0000_0000 + 12345, 10)
assert taken.raw[:10] == b"some bytes"
assert ledger()["queues"] == [{"queue": queue.id, "gpu": gpu} for gpu, queue in enumerate(queues)]
for queue in queues: queue.destroy()
assert [buffer["kind"] for buffer in ledger()["buffers"]] == ["gpu", "registered", "registered"]
assert not ledger()["queues"]
""")


FAULT = """
driver = Driver()
there = driver.allocate(2 * MIB, 0x7000_0000_0000, 1)
driver.map(there, 1)  # and not by GPU 0
source, given = driver.host(b"some bytes")
Queue(driver, 0).copy(0x7000_0000_0000 + 4096, ctypes.addressof(given), 10)
print(libc.kfdsim_page_faults())
"""


def test_a_page_fault_ends_the_process_and_says_why(program: Program) -> None:
    ran = program(FAULT, check=False)

    assert ran.returncode < 0
    assert "fault by GPU 0 (hipplan simulator (MI300X-like), gpu_id 10111) on address 0x700000001000" in ran.stderr
    assert "It may not write: nothing is mapped there for it." in ran.stderr


def test_page_faults_are_counted_on_demand(program: Program) -> None:
    assert program(FAULT, KFDSIM_ON_FAULT="count").stdout == "1\n"


def test_managed_memory_has_attributes(program: Program) -> None:
    program("""
import mmap
ACCESS, NO_ACCESS, PREFERRED, PREFETCH = 2, 4, 0, 1
driver = Driver()
pages = mmap.mmap(-1, 8 * 4096)
start = ctypes.addressof((c_char * 1).from_buffer(pages))
here, unknown = driver.gpus[0], 12345
assert driver.attributes(start, 8 * 4096, 1, (ACCESS, here)) == [(NO_ACCESS, here)]
driver.attributes(start, 4096, 0, (ACCESS, here), (PREFERRED, here))
assert driver.attributes(start, 4096, 1, (ACCESS, here), (PREFERRED, 0)) == [(ACCESS, here), (PREFERRED, here)]
driver.attributes(start + 4096, 4096, 0, (PREFERRED, driver.gpus[1]))
assert driver.attributes(start, 2 * 4096, 1, (PREFERRED, 0)) == [(PREFERRED, 0xFFFFFFFF)]  # not the same all over
assert [memory["size"] for memory in ledger()["managed"]] == [4096, 4096]
for wrong, code in (((ACCESS, unknown), errno.EINVAL), ((99, 0), errno.EINVAL)):
    try: driver.attributes(start, 4096, 0, wrong)
    except OSError as error: assert error.errno == code
    else: raise AssertionError(wrong)
try: driver.attributes(0x1000, 4096, 0, (ACCESS, here))
except OSError as error: assert error.errno == errno.EFAULT
libc.munmap.argtypes = [c_void_p, ctypes.c_size_t]
libc.munmap(start, 8 * 4096)
assert not ledger()["managed"]
os._exit(0)  # Python would unmap it again
""")


def test_a_gpu_has_no_right_to_managed_memory_that_the_program_has_not(program: Program) -> None:
    program(
        """
import mmap
ACCESS, NONE, READ, BOTH = 2, 0, 1, 3
driver = Driver()
source, given = driver.host(b"some bytes")
queue = Queue(driver)
pages = mmap.mmap(-1, 4 * 4096)
start = ctypes.addressof((c_char * 1).from_buffer(pages))
libc.mprotect.argtypes = [c_void_p, ctypes.c_size_t, ctypes.c_int]
driver.attributes(start, 4 * 4096, 0, (ACCESS, driver.gpus[0]))
for rights, read, written in ((NONE, 0, 0), (READ, 1, 0), (BOTH, 1, 1)):
    assert libc.mprotect(start + 4096, 4096, rights) == 0
    for to, origin, works in (
        (start + 4090, ctypes.addressof(given), written), (ctypes.addressof(given), start + 4090, read)
    ):
        before = libc.kfdsim_page_faults()
        queue.copy(to, origin, 10)
        assert libc.kfdsim_page_faults() - before == 1 - works, (rights, to == start + 4090)
queue.copy(start, start + 4096, 3 * 4096)
""",
        KFDSIM_ON_FAULT="count",
    )


@pytest.mark.parametrize("xnack", [False, True])
def test_xnack_is_the_profile_s_until_it_is_set(program: Program, tmp_path, xnack: bool) -> None:  # type: ignore[no-untyped-def]
    profile = tmp_path / "xnack.yaml"
    profile.write_text(
        f"name: x\ndevices: [{{name: a, arch: gfx942, memory: 1GiB, xnack: {str(xnack).lower()}}}]\nhost_memory: 1GiB\n"
    )
    program(
        f"""
driver = Driver()
assert driver.call("set_xnack_mode", enabled=-1).enabled == {int(xnack)}
driver.call("set_xnack_mode", enabled={int(not xnack)})
assert driver.call("set_xnack_mode", enabled=-1).enabled == {int(not xnack)}
""",
        machine=str(profile),
    )
