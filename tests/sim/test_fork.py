"""A forked child has no part in its parent's devices."""

import json
from pathlib import Path

from tests.conftest import not_under_tsan

from .conftest import Script


def test_a_child_of_a_process_that_started_hip_is_refused_and_changes_nothing(script: Script) -> None:
    source = """
p = hip.get("hipMalloc", c_void_p, 1 << 20)
hip.write(p, b"parent")
with hip.allocation(1 << 21) as h:
    if (child := os.fork()) == 0:
        codes = [hip.hipMemset(p, 0, 1 << 20), hip.hipFree(p), hip.hipMemRelease(h), hip.hipInit(0)]
        codes += [hip.library.hipMemPoolCreate(None, None)]  # refused elsewhere too, with another code
        simulator.configure  # not called: it must not touch a lock that a lost thread may hold
        os._exit(0 if codes == [3] * 5 and hip.library.hipsim_ledger(None, 0) == 0 else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), hip.read(p, 6))
"""
    got = script(source)

    assert got.stdout.split() == ["0", "b'parent'"]
    assert got.stderr.count("refused in a forked child") == 1


def test_a_child_that_exits_normally_undoes_nothing(script: Script, tmp_path: object) -> None:
    source = """
p = hip.get("hipMalloc", c_void_p, 1 << 20)
hip.write(p, b"parent")
if (child := os.fork()) == 0:
    sys.exit(0)
os.waitpid(child, 0)
print(hip.read(p, 6), os.path.exists(os.environ["HIPSIM_LEDGER_AT_EXIT"]))
"""
    got = script(source, HIPSIM_LEDGER_AT_EXIT=f"{tmp_path}/ledger.json")

    assert got.stdout.split() == ["b'parent'", "False"]


@not_under_tsan
def test_a_child_has_no_part_in_visible_device_memory(script: Script) -> None:
    source = """
simulator.configure("device.0.host_visible=1")
p = hip.get("hipMalloc", c_void_p, 4096)
ctypes.memset(p, 1, 4096)
if (child := os.fork()) == 0:
    ctypes.memset(p, 2, 4096)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), ctypes.string_at(p, 1))
"""
    assert script(source).stdout.split() == ["-11", "b'\\x01'"]


def test_a_child_has_no_part_in_its_parent_s_faults(script: Script) -> None:
    source = """
simulator.fail("hipInit@1=999")
hip.hipInit(0)
def counts(): return [hip.library.hipsim_fail_fired(), hip.library.hipsim_fail_calls()]
if (child := os.fork()) == 0:
    os._exit(0 if counts() == [0, 0] else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), counts())
"""
    assert script(source).stdout.strip() == "0 [1, 1]"


def test_each_process_has_its_line_in_the_ledger_at_exit(script: Script, tmp_path: Path) -> None:
    source = """
if (child := os.fork()) == 0:
    hip.get("hipMalloc", c_void_p, 12345)
    sys.exit(0)
os.waitpid(child, 0)
with hip.buffer(4096): pass
print(child, os.getpid())
"""
    file = tmp_path / "ledger.json"
    got = script(source, HIPSIM_LEDGER_AT_EXIT=str(file))

    left = [json.loads(line) for line in file.read_text().splitlines()]
    assert [str(process["pid"]) for process in left] == got.stdout.split()
    assert [[buffer["size"] for buffer in process["buffers"]] for process in left] == [[12345], []]


def test_a_child_may_start_hip_if_its_parent_had_not(script: Script) -> None:
    source = """
if (child := os.fork()) == 0:
    with hip.buffer(4096): pass
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), hip.hipInit(0))
"""
    assert script(source).stdout.split() == ["0", "0"]


def test_a_fork_amid_busy_threads_leaves_the_child_answering(script: Script) -> None:
    source = """
import threading
stop = False
def work():
    while not stop:
        with hip.buffer(4096) as p: hip.hipMemset(p, 1, 4096)
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
codes = []
for _ in range(20):
    if (child := os.fork()) == 0:
        os._exit(hip.hipDeviceSynchronize())
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop = True
for t in threads: t.join()
print(set(codes))
"""
    assert script(source).stdout.strip() == "{3}"
