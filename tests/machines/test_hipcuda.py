"""libhipcuda over a stand-in for NVIDIA's driver: what it calls, in which context, and what it makes of the answers.

What a real driver answers is for tests/cuda/run.sh and the conformance suite on a GPU.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.machines.test_runtimes import in_a_process_of_its_own

Script = Callable[..., str]

HEADER = """
import ctypes, sys, threading
from ctypes import byref, c_int, c_size_t, c_void_p
from pathlib import Path
from hipplan import _core
hip = ctypes.CDLL(str(Path(_core.__file__).with_name("libhipcuda.so")))
cuda = ctypes.CDLL("libcuda.so.1")
hip.hipcuda_message.restype = cuda.fake_calls.restype = ctypes.c_char_p
def calls():
    return cuda.fake_calls().decode().splitlines()
def answer(call, result):
    cuda.fake_answer(call.encode(), result)
P, N = c_void_p(0x200000), c_size_t(1 << 21)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stand-in lies under the driver's name."""
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("needs a C++ compiler")
    made = tmp_path_factory.mktemp("driver")
    source, library = ROOT / "tests" / "cuda" / "fake" / "libcuda.cpp", made / "libcuda.so.1"
    command = [compiler, "-std=c++20", "-fPIC", "-shared", f"-I{ROOT / 'cpp'}", f"-Wl,-soname,{library.name}"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True)
    return made


@pytest.fixture
def script(folder: Path) -> Script:
    """Runs Python source in a process of its own that finds the stand-in; what it printed."""

    def run(source: str, **variables: object) -> str:
        settings = {f"FAKE_CUDA_{name}": str(value) for name, value in variables.items()}
        return in_a_process_of_its_own(HEADER + source, LD_LIBRARY_PATH=str(folder), **settings)

    return run


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"DEVICES": 0}, "the NVIDIA driver sees no GPU"),
        ({"INIT": 100}, "the NVIDIA driver sees no GPU"),
        ({"INIT": 803}, "the NVIDIA driver does not start: cuInit gave CUDA_ERROR_OF_TOMORROW (803)"),
        ({"VERSION": 0}, "libcuda.so.1 is not a usable NVIDIA driver: cuDriverGetVersion failed"),
        ({"VERSION": 10020}, "the NVIDIA driver (CUDA 10.2) is too old: it lacks cuDeviceGetUuid_v2"),
        ({}, ""),
    ],
    ids=str,
)
def test_why_there_is_no_device(settings: dict[str, int], message: str, script: Script) -> None:
    source = """
count = c_int(-1)
print(hip.hipGetDeviceCount(byref(count)), count.value, hip.hipMalloc(byref(P), N), hip.hipcuda_message().decode())
"""
    codes = "100 0 100" if message else "0 2 0"

    assert script(source, **settings) == f"{codes} {message}".strip()


@pytest.mark.parametrize(
    ("version", "advise", "prefetch"),
    [
        # The old form takes a device, the new one a location: type * 100 + id; host is 2, device 1.
        (11080, "cuMemAdvise@100 2097152 2097152 5 1", "cuMemPrefetchAsync@100 2097152 2097152 -1 -1"),
        (12010, "cuMemAdvise@100 2097152 2097152 5 1", "cuMemPrefetchAsync@100 2097152 2097152 -1 -1"),
        (12020, "cuMemAdvise_v2@100 2097152 2097152 5 101", "cuMemPrefetchAsync_v2@100 2097152 2097152 200 0 -1"),
        (13000, "cuMemAdvise_v2@100 2097152 2097152 5 101", "cuMemPrefetchAsync_v2@100 2097152 2097152 200 0 -1"),
    ],
)
def test_each_driver_gets_the_form_of_a_call_that_it_knows(
    version: int, advise: str, prefetch: str, script: Script
) -> None:
    source = """
driver = c_int()
print(hip.hipMemAdvise(P, N, 5, 1), hip.hipMemPrefetchAsync(P, N, -1, None), hip.hipDriverGetVersion(byref(driver)),
      driver.value)
print(*[line for line in calls() if line.startswith(("cuMemAdvise", "cuMemPrefetch"))], sep="\\n")
"""
    assert script(source, VERSION=version).splitlines() == [f"0 0 0 {version}", advise, prefetch]


def test_registered_and_pinned_memory_are_distinguished_as_in_hip(script: Script) -> None:
    """CUDA does not; hipFree unregisters it, and it has no flags."""
    source = """
flags = ctypes.c_uint()
def ask(*offsets):
    return [hip.hipHostGetFlags(byref(flags), c_void_p(P.value + offset)) for offset in offsets]
print(ask(0), hip.hipHostRegister(P, N, 0), ask(-1, 0, 100, N.value - 1, N.value), hip.hipFree(P), ask(0))
answer("cuMemHostRegister_v2", 712)
print(hip.hipHostRegister(P, N, 0), ask(0))
answer("cuMemHostRegister_v2", 0)
answer("cuMemHostUnregister", 713)
print(hip.hipHostRegister(P, N, 0), hip.hipHostUnregister(P), ask(0))
answer("cuMemHostUnregister", 0)
print(hip.hipHostUnregister(P), ask(0), hip.hipFree(P))
print(*[line.split("@")[0] for line in calls() if "Free" in line or "egister" in line])
"""
    assert script(source).splitlines() == [
        "[0] 0 [0, 1, 1, 1, 0] 0 [0]",
        "712 [0]",
        "0 713 [1]",
        "0 [0] 0",
        "cuMemHostRegister_v2 cuMemHostUnregister cuMemHostRegister_v2 cuMemHostRegister_v2 cuMemHostUnregister "
        "cuMemHostUnregister cuMemFree_v2",
    ]


def test_what_is_refused_before_the_driver_is_asked(script: Script) -> None:
    source = """
print(hip.hipMemcpyAsync(None, None, 0, 77, None), hip.hipMemcpy(None, None, 0, 77),
      hip.hipMemcpyAsync(None, None, 0, 4, None), hip.hipPointerGetAttributes(None, None))
"""
    assert script(source) == "21 0 0 1"


def test_every_result_of_the_driver_is_translated_and_an_unknown_one_reported_once(
    folder: Path, script: Script
) -> None:
    source = """
results = []
for result in range(1, 1000):
    answer("cuMemRelease", result)
    results.append(hip.hipMemRelease(P))
    assert hip.hipMemRelease(P) == results[-1] == hip.hipGetLastError() or results[-1] == 600
    assert hip.hipGetLastError() == 0
print(*results)
"""
    codes = [0, *map(int, script(source + "sys.stderr.close()").split())]
    header = (ROOT / "cpp" / "runtimes" / "cuda" / "cuda_abi.h").read_text()
    known = {int(value) for value in re.findall(r"X\(CUDA_(?:ERROR_\w+), (\d+)\)", header)}
    moved = {34: 100, 46: 100, 711: 217, **dict.fromkeys((220, 714, 715, 716, 717, 718), 719)}

    assert len(known) > 30
    for result, code in enumerate(codes):
        assert code == (moved.get(result, result) if result in known else 999 if result else 0), result

    reported = """
for result in (7, 7, 911, 7):
    answer("cuMemRelease", result)
    hip.hipMemRelease(P)
import os; os.dup2(1, 2)
"""
    report = script("import os; os.dup2(1, 2)\n" + reported).splitlines()
    assert report == [
        f"libhipcuda: CUDA error {result} (CUDA_ERROR_OF_TOMORROW) has no HIP counterpart: it becomes hipErrorUnknown"
        for result in (7, 911)
    ]


def test_a_null_stream_is_that_of_the_device_in_the_plan(script: Script) -> None:
    source = """
runtime = _core.Runtime.open(str(Path(_core.__file__).with_name("libhipcuda.so")))
rows = [
    ("create managed buffer", "x", 0, 1, 4096, "global"),
    ("prefetch", "x", 0, 0, 4096, -1, -1, 1),
    ("await stream", "", -1, 1),
]
book = _core.LeaseBook()
holdings = _core.Holdings(_core.Retired(runtime, book), book)
change = _core.Change(holdings, _core.Rows(rows), slots=1)
while change.done < 3:
    change.advance(3)
print(*(line.split()[0] for line in calls() if "Prefetch" in line or "Retain" in line or "Synchronize" in line))
"""
    assert script(source).split()[-2:] == ["cuMemPrefetchAsync_v2@101", "cuStreamSynchronize@101"]


def test_a_thread_s_context_is_restored_after_every_call(script: Script) -> None:
    source = """
hip.hipMemRelease(P)
calls()
assert hip.hipMemRelease(P) == 0
print(calls())  # virtual memory is the process's, and needs no context
hip.hipStreamSynchronize(P)
calls()
answer("cuStreamSynchronize", 1)
assert hip.hipStreamSynchronize(P) == 1  # fails: what was pushed is popped all the same
print(calls())
assert hip.hipSetDevice(1) == 0
print(calls())
assert hip.hipMalloc(byref(P), N) == 0
print(calls())
seen = []
other = threading.Thread(target=lambda: (hip.hipMalloc(byref(P), N), seen.extend(calls())))
other.start(); other.join()
print(seen)  # another thread is on device 0
"""
    pushed = "['cuCtxGetCurrent@0 -1', 'cuCtxPushCurrent_v2@0 {0}', '{1}', 'cuCtxPopCurrent_v2@{0} -1']"
    assert script(source).splitlines() == [
        "['cuMemRelease@0 2097152']",
        pushed.format(100, "cuStreamSynchronize@100 -1"),
        "[]",
        pushed.format(101, "cuMemAlloc_v2@101 -1 2097152").replace("['", "['cuDevicePrimaryCtxRetain@0 -1 1', '"),
        pushed.format(100, "cuMemAlloc_v2@100 -1 2097152"),
    ]


def test_a_primary_context_is_retained_once_however_many_threads_come_first(script: Script) -> None:
    source = """
start = threading.Barrier(16)
def work(number):
    hip.hipSetDevice(number % 2)
    start.wait()
    for _ in range(20):
        assert hip.hipMalloc(byref(c_void_p()), N) == 0
threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sorted(line for line in calls() if "Retain" in line or "Init" in line))
"""
    reported = script(source)

    assert reported == "['cuDevicePrimaryCtxRetain@0 -1 0', 'cuDevicePrimaryCtxRetain@0 -1 1', 'cuInit@0 0']"


def test_a_context_that_cannot_be_retained_is_tried_again_by_the_next_call(script: Script) -> None:
    source = """
answer("cuDevicePrimaryCtxRetain", 2)
print(hip.hipMalloc(byref(P), N), hip.hipMalloc(byref(P), N))
answer("cuDevicePrimaryCtxRetain", 0)
print(hip.hipMalloc(byref(P), N))
"""
    assert script(source).splitlines() == ["2 2", "0"]


def test_a_hint_that_cannot_be_is_left_out_and_a_lost_device_stays_lost(script: Script) -> None:
    source = """
address = c_void_p()
answer("cuMemAddressReserve", 1)
print(hip.hipMemAddressReserve(byref(address), N, c_size_t(0), c_void_p(0x10000), ctypes.c_ulonglong(0)))
print([line for line in calls() if "Reserve" in line])
answer("cuCtxSynchronize", 700)
print(hip.hipDeviceSynchronize(), hip.hipGetLastError(), hip.hipGetLastError(), hip.hipDeviceSynchronize())
"""
    assert script(source).splitlines() == [
        "1",
        "['cuMemAddressReserve@0 -1 2097152 0 65536 0', 'cuMemAddressReserve@0 -1 2097152 0 0 0']",
        "700 700 0 700",
    ]


def test_hipplan_measures_such_a_machine(script: Script) -> None:
    source = """
from hipplan.machines.discover import discover
from hipplan.machines.runtimes import choose
machine = discover(choose("auto"))
print(machine.runtime, [(device.pci, device.memory) for device in machine.devices], len(machine.links))
"""
    assert script(source) == f"cuda [('0000:a1:00.0', {2**30}), ('0000:a1:00.0', {2**30})] 2"


@pytest.mark.parametrize(
    ("devices", "asked"),
    [({"gpu": {"count": 1}}, [0]), ({"far": {"ordinal": 3}}, [3]), ({"a": {"ordinal": 2}, "b": {}}, [0, 2])],
)
def test_only_devices_of_the_plan_get_a_context(devices: object, asked: list[int], script: Script) -> None:
    """A context takes hundreds of MB of a GPU that other processes use."""
    source = f"""
from hipplan.language.loader import load
from hipplan.layout.prepare import prepare, prepare_change
from hipplan.machines.runtimes import choose
chosen, plan = choose("auto"), load({{"hipplan": 1, "devices": {devices!r}}})
program = prepare(plan, chosen, None)
prepare_change(program, plan, chosen.runtime, set())
print(sorted(int(line.split()[-1]) for line in calls() if line.startswith("cuDevicePrimaryCtxRetain")))
print([device.granularity_minimum is not None for device in program.measured.devices])
"""
    assert script(source, DEVICES=4).splitlines() == [str(asked), str([number in asked for number in range(4)])]


@pytest.mark.parametrize("kind", ["device", "pinned", "managed"])
def test_giving_back_makes_no_context_either(kind: str, script: Script) -> None:
    source = f"""
import hipplan
buffer = {{"kind": {kind!r}, "device": "far", "size": "2MiB"}}
if {kind!r} == "managed":
    buffer["advice"] = [{{"advise": "preferred_location", "device": "far"}}]
plan = {{"hipplan": 1, "devices": {{"far": {{"ordinal": 3}}}}, "buffers": {{"b": buffer}}}}
plan["streams"] = {{"s": {{"device": "far"}}}}
layout = hipplan.apply(plan, runtime="cuda", verify=False)
layout.close()
made = calls()
print({{line.split()[-1] for line in made if line.startswith("cuDevicePrimaryCtxRetain")}})
print(any("StreamDestroy" in line for line in made))
"""
    assert script(source, DEVICES=4).splitlines() == ["{'3'}", "True"]


def test_an_address_is_asked_about_in_whatever_context_there_is(script: Script) -> None:
    source = """
hip.hipSetDevice(1)
hip.hipStreamSynchronize(P)
hip.hipSetDevice(0)
calls()
hip.hipMemGetAddressRange(byref(P), byref(N), P)
print([line.split()[0] for line in calls()])
"""
    pushed = "['cuCtxGetCurrent@0', 'cuCtxPushCurrent_v2@0', 'cuMemGetAddressRange_v2@101', 'cuCtxPopCurrent_v2@101']"
    assert script(source).strip() == pushed


def test_what_is_checked_first_is_what_hip_checks_first(script: Script) -> None:
    source = """
attributes, value = ctypes.create_string_buffer(b"\\xaa" * 32, 32), c_int()
print(hip.hipMemcpy(P, c_void_p(0x400000), N, 1024), hip.hipMemcpy(P, c_void_p(0x400000), N, 5))
print(hip.hipHostMalloc(byref(P), c_size_t(0), ctypes.c_uint(0xC0000000)), P.value)
print(hip.hipPointerGetAttributes(attributes, None), list(memoryview(attributes.raw).cast("i"))[:2])
print(hip.hipDeviceGetP2PAttribute(byref(value), 99, 0, 99), hip.hipDeviceGetP2PAttribute(byref(value), 99, 0, 1))
"""
    assert script(source).splitlines() == ["0 21", "0 None", "0 [0, -2]", "101 1"]


def test_the_smoke_test_makes_every_call() -> None:
    """It fails itself when it makes one not at all, but only where there is a GPU."""
    sources = "\n".join(path.read_text() for path in (ROOT / "tests" / "cuda").glob("*.cpp"))
    names = re.findall(r"^HIP_CALL(?:_OPTIONAL)?\((\w+),", (ROOT / "cpp/hip/hip_calls.def").read_text(), re.MULTILINE)
    assert len(names) > 50
    assert [name for name in names if f"hip.{name}(" not in sources] == []
