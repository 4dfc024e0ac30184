"""Ioctls that fail on demand."""

from __future__ import annotations

import pytest

from .conftest import Program


def test_the_nth_call_fails_with_the_errno_that_the_rule_names(program: Program) -> None:
    ran = program(
        """
driver = Driver()
made = []
for number in range(1, 6):
    try: made.append(driver.allocate(MIB, 0x7000_0000_0000 + number * 16 * MIB))
    except OSError as error: print(number, errno.errorcode[error.errno])
assert len(ledger()["buffers"]) == len(made) == 2  # what failed took nothing
print(libc.kfdsim_fail_fired(), libc.kfdsim_fail_calls())
""",
        KFDSIM_FAIL="alloc_memory_of_gpu@2=EINTR; alloc_memory_of_gpu@4+=ENOMEM",
    )
    assert ran.stdout == "2 EINTR\n4 ENOMEM\n5 ENOMEM\n3 6\n"


def test_each_call_can_be_made_to_fail(program: Program) -> None:
    """Before anything is changed: the ledger is as before."""
    ran = program("""
driver = Driver()
before = ledger()
for name in CALLS:
    libc.kfdsim_fail(f"{name}@1=EIO".encode())
    try: driver.call(name)
    except OSError as error: assert error.errno == errno.EIO
    else: raise AssertionError(name)
    assert libc.kfdsim_fail_fired() == 1
libc.kfdsim_fail(b"svm@1=EIO")
try: driver.attributes(4096, 4096, 1, (2, driver.gpus[0]))
except OSError as error: assert error.errno == errno.EIO
libc.kfdsim_fail(None)
assert ledger() == before
libc.kfdsim_calls.restype = ctypes.c_char_p
names = libc.kfdsim_calls().decode().split()
assert set(CALLS) <= set(names) and "amdgpu_bo_va_op" in names
print(len(names))
""")
    assert int(ran.stdout) > len("alive")


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("alloc_memory_of_gpu", "expected CALL@N=ERROR, such as alloc_memory_of_gpu@3=ENOMEM"),
        ("alloc_memory_of_gp@1=EIO", "no call alloc_memory_of_gp to fail; did you mean alloc_memory_of_gpu?"),
        ("hipMalloc@1=EIO", "no call hipMalloc to fail"),
        ("svm@1=hipErrorOutOfMemory", "'hipErrorOutOfMemory' is no errno, such as ENOMEM or 12"),
        ("svm@0=EIO", "calls count from 1"),
    ],
)
def test_rules_that_cannot_be_read_keep_the_driver_from_opening(program: Program, rules: str, why: str) -> None:
    ran = program("Driver()", check=False, KFDSIM_FAIL=rules)

    assert ran.returncode == 1
    assert "cannot start: KFDSIM_FAIL: " in ran.stderr
    assert why in ran.stderr
    assert "No such device" in ran.stderr.splitlines()[-1]


def test_a_rule_may_wait(program: Program, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Until a process writes to a FIFO; other threads continue meanwhile."""
    program(f"""
import threading
os.mkfifo({str(tmp_path / "fifo")!r})
driver = Driver()
assert libc.kfdsim_fail(b"set_xnack_mode@1=pause:{tmp_path / "fifo"}") == 0
waiting = threading.Thread(target=lambda: driver.call("set_xnack_mode", enabled=1))
waiting.start()
with open({str(tmp_path / "fifo")!r}, "w") as fifo:  # it is under way now
    driver.allocate(MIB, 0x7000_0000_0000)
    assert driver.call("get_version").major == 1
    fifo.write("go on")
waiting.join()
libc.kfdsim_fail(None)
assert driver.call("set_xnack_mode", enabled=-1).enabled == 1
""")
