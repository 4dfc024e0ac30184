"""The ledger, faults, the trace and the log."""

import ctypes
import json
from ctypes import c_void_p
from pathlib import Path

import pytest

from ..conformance.hip import (
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    MIB,
    OUT_OF_MEMORY,
    SUCCESS,
    Hip,
    Location,
    access,
    prop,
)
from ..conformance.sim import Simulator
from .conftest import Script

SIZE = 2 * MIB


def test_the_ledger_lists_everything_alive(hip: Hip, simulator: Simulator) -> None:
    with (
        hip.buffer(MIB) as buffer,
        hip.pinned(MIB),
        hip.managed(MIB),
        hip.stream() as stream,
        hip.event() as event,
        hip.mapped(SIZE, access(0)) as mapped,
    ):
        assert hip.hipDeviceEnablePeerAccess(1, 0) == SUCCESS
        ledger = simulator.ledger()
        assert hip.hipDeviceDisablePeerAccess(1) == SUCCESS

    assert [(b["kind"], b["size"]) for b in sorted(ledger["buffers"], key=lambda b: b["kind"])] == [
        ("device", MIB),
        ("managed", MIB),
        ("pinned", MIB),
    ]
    assert hex(buffer) in {b["address"] for b in ledger["buffers"]}
    assert [(a["size"], a["references"], a["mappings"]) for a in ledger["allocations"]] == [(SIZE, 1, 1)]
    assert [(m["address"], m["readers"]) for m in ledger["mappings"]] == [(hex(mapped), "0x1")]
    assert [(r["address"], r["mappings"]) for r in ledger["reservations"]] == [(hex(mapped), 1)]
    assert ledger["peers"] == [{"device": 0, "peer": 1}]
    assert ledger["streams"] == [{"stream": hex(stream), "device": 0}]
    assert ledger["events"] == [{"event": hex(event)}]
    assert ledger["devices"][0]["used"] == MIB + SIZE
    assert ledger["host_used"] == 2 * MIB


def test_a_short_buffer_gets_the_start_of_the_ledger_and_the_size(simulator: Simulator) -> None:
    needed = simulator.library.hipsim_ledger(None, 0)
    out = ctypes.create_string_buffer(b"\xee" * 16, 16)

    assert simulator.library.hipsim_ledger(out, 8) == needed
    assert (len(out.value), out.raw[8]) == (7, 0xEE)


def test_the_ledger_at_exit(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "ledger.json"
    script("hip.get('hipMalloc', c_void_p, 12345)", HIPSIM_LEDGER_AT_EXIT=str(file))

    assert [b["size"] for b in json.loads(file.read_text())["buffers"]] == [12345]


def test_the_nth_call_of_a_function_fails_once(hip: Hip, simulator: Simulator) -> None:
    simulator.fail("hipMalloc@2=hipErrorOutOfMemory")
    codes = []
    for _ in range(3):
        address = c_void_p()
        codes.append(hip.hipMalloc(ctypes.byref(address), 64))
        hip.hipFree(address)

    assert codes == [SUCCESS, OUT_OF_MEMORY, SUCCESS]
    assert simulator.library.hipsim_fail_fired() == 1
    assert simulator.library.hipsim_fail_calls() == 6


def test_an_injected_failure_carries_nothing_out_and_is_the_last_error(hip: Hip, simulator: Simulator) -> None:
    simulator.fail("hipMemCreate@1=999")
    handle = c_void_p(7)

    assert hip.hipMemCreate(ctypes.byref(handle), SIZE, ctypes.byref(prop()), 0) == 999
    assert handle.value == 7
    assert hip.hipGetLastError() == 999
    assert simulator.alive() == {}


def test_every_call_from_the_nth_on_fails_like_a_lost_device(hip: Hip, simulator: Simulator) -> None:
    simulator.fail("*@3+=hipErrorIllegalAddress")

    assert [hip.hipDeviceSynchronize() for _ in range(5)] == [0, 0] + [ILLEGAL_ADDRESS] * 3


def test_random_failures_repeat_with_their_seed(hip: Hip, simulator: Simulator) -> None:
    def codes(seed: int) -> list[int]:
        simulator.fail(f"*@~0.3/{seed}=999")
        return [hip.hipDeviceSynchronize() for _ in range(200)]

    assert codes(1) == codes(1) != codes(2)
    assert 30 < codes(1).count(999) < 90


@pytest.mark.parametrize("rules", ["hipMalloc", "hipMalloc@0=1", "hipMalloc@1=NoSuchError", "hipFree@1=0"])
def test_bad_rules_are_refused_with_a_sentence(simulator: Simulator, rules: str) -> None:
    assert simulator.library.hipsim_fail(rules.encode()) == 1
    assert simulator.message


def test_a_rule_for_no_function_is_refused(simulator: Simulator) -> None:
    for rules, why in (
        ("hipMemMpa@1=2", "no call hipMemMpa to fail; did you mean hipMemMap?"),
        ("hipMallocAsnyc@1=2", "did you mean hipMallocAsync?"),
        ("hipLaunchKernel@1=2", "no call hipLaunchKernel to fail"),  # refused anyway
        ("malloc@1=2", "no call malloc to fail"),
    ):
        assert simulator.library.hipsim_fail(rules.encode()) == 1
        assert simulator.message.endswith(why)
    simulator.fail("hipMemMap@1=2; hipMallocAsync@1=2")


def test_faults_from_the_environment(script: Script) -> None:
    source = "print([hip.hipMalloc(byref(c_void_p()), 64) for _ in range(3)])"
    got = script(source, HIPSIM_FAIL="hipMalloc@2+=hipErrorOutOfMemory")

    assert got.stdout.strip() == "[0, 2, 2]"


def test_the_trace_has_one_line_per_call(hip: Hip, simulator: Simulator, tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    simulator.library.hipsim_trace(str(file).encode())
    with hip.reservation(SIZE) as address:
        hip.hipMemUnmap(address, SIZE)
        hip.hipMemAdvise_v2(address, 5, 1, Location(1, -1))
        hip.hipMallocManaged(None, 2**64 - 1, 1)
    simulator.library.hipsim_trace(None)
    hip.hipDeviceSynchronize()

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    names = ["hipMemAddressReserve", "hipMemUnmap", "hipMemAdvise_v2", "hipMallocManaged", "hipMemAddressFree"]
    assert [line["call"] for line in lines] == names
    assert lines[1]["args"] == {"ptr": hex(address), "size": SIZE}
    assert (lines[2]["args"]["location"], lines[3]["args"]["size"]) == (-1, 2**64 - 1)
    assert (lines[1]["result"], lines[1]["code"], lines[1]["injected"]) == ("hipErrorInvalidValue", 1, False)


def test_one_call_of_a_program_is_one_line_even_where_hip_shares_code(
    hip: Hip, simulator: Simulator, tmp_path: Path
) -> None:
    file = tmp_path / "trace.jsonl"
    simulator.library.hipsim_trace(str(file).encode())
    hip.hipHostFree(hip.get("hipMallocHost", c_void_p, 64))
    simulator.library.hipsim_trace(None)

    assert [json.loads(line)["call"] for line in file.read_text().splitlines()] == ["hipMallocHost", "hipHostFree"]


def test_a_trace_that_cannot_be_written_is_refused(simulator: Simulator) -> None:
    assert simulator.library.hipsim_trace(b"/no/such/folder/trace") == 3
    assert "/no/such/folder/trace" in simulator.message


def test_the_log_names_calls_that_crash_the_real_library(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "log"
    got = script("print(hip.hipMemRelease(DANGLING))", HIPSIM_LOG=str(file))

    assert got.stdout.strip() == str(INVALID_VALUE)
    assert "hipMemRelease" in file.read_text()
    assert "undefined in the real library" in file.read_text()


def test_touch_reports_the_device_the_access_and_the_address(hip: Hip, simulator: Simulator) -> None:
    with hip.buffer(MIB) as address, hip.mapped(SIZE, access(0, 1)) as mapped:
        assert simulator.touch(1, address, MIB) == ILLEGAL_ADDRESS
        assert "device 1 has no peer access" in simulator.message
        assert simulator.touch(0, address, MIB + 1) == ILLEGAL_ADDRESS
        assert "runs past" in simulator.message
        assert simulator.touch(0, mapped, SIZE, 1) == 0
        assert simulator.touch(0, mapped, SIZE, 2) == ILLEGAL_ADDRESS
        assert "read-only" in simulator.message
        for too_much in (SIZE + 1, 2**64 - 1):
            assert simulator.touch(0, mapped, too_much, 1) == ILLEGAL_ADDRESS
        assert "not mapped" in simulator.message


@pytest.mark.parametrize("name", ["hipModuleLaunchKernel", "hipGraphCreate", "hipMemPoolCreate", "hipLaunchKernel"])
def test_what_is_missing_refuses_by_name(script: Script, name: str) -> None:
    got = script(f"print(hip.library.{name}(None), hip.library.{name}(None), hip.hipGetLastError())")

    assert got.stdout.split() == ["801", "801", "801"]
    assert got.stderr.count(name) == 1
