"""Recording an apply, and showing it again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import hipplan as library
from hipplan.errors import RecordError
from hipplan.layout.recorded import MAX_LINE_BYTES, read
from hipplan.show import render
from tests.cli.conftest import Run, command
from tests.conftest import ROOT, Simulator

QUICKSTART = ROOT / "plans" / "quickstart.yaml"


def applied(file: Path, **more: Any) -> None:
    library.apply(QUICKSTART, runtime="sim", record=file, **more).close()


def test_a_record_reports_plan_machine_versions_and_every_step(sim: Simulator, tmp_path: Path) -> None:
    file = tmp_path / "apply.jsonl"
    plan = library.load("hipplan: 1\nname: n\nvars: {size: 1MiB}\nbuffers:\n  b: {kind: device, size: $(size)}\n",
                        {"size": "2MiB"})  # fmt: skip
    with library.apply(plan, runtime="sim", record=file) as layout:
        digest = layout.program.digest
    record = read(file)

    assert record.complete
    head = record.head
    assert (head["plan"], head["digest"], head["vars"]) == ("n", digest, {"size": "2MiB"})
    assert head["provenance"]["runtime"]["kind"] == "simulator" and len(head["program"]) == 64
    assert head["machine"]["name"] == "sim-2" and len(head["machine"]["devices"]) == 2
    assert set(head["runtime"]) == {"path", "version", "driver_version"}
    assert head["steps"] == len(record.of("step")) == 1
    (step,) = record.of("step")
    assert (step["call"], step["name"], step["result"], step["retries"]) == ("hipMalloc", "b", "ok", 0)
    assert step["us"] > 0
    assert [(e["name"], e["result"]) for e in record.of("undo")] == [("b", "released")]
    assert [e["event"] for e in record.events] == ["apply", "step", "verify", "undo", "undone", "end"]


def test_each_event_has_its_start_after_the_end_of_the_one_before(sim: Simulator, tmp_path: Path) -> None:
    with library.apply(QUICKSTART, runtime="sim", record=tmp_path / "r") as layout:
        layout.update(ROOT / "plans" / "contents.yaml", lose="*")
    timed = [event for event in read(tmp_path / "r").events if "at_us" in event]

    assert [event["event"] for event in timed].count("verify") == 2
    assert timed[0]["at_us"] > 0
    for one, other in pairwise(timed):
        assert one["at_us"] + one["us"] <= other["at_us"] + 0.2, (one, other)  # tenths are rounded


def test_a_record_becomes_a_timeline_for_perfetto(sim: Simulator, tmp_path: Path, hipplan: Run) -> None:
    with library.apply(QUICKSTART, runtime="sim", record=tmp_path / "r") as layout:
        layout.update(ROOT / "plans" / "virtual-memory.yaml", lose="*")
    shown = hipplan("replay", tmp_path / "r", "--format", "perfetto")
    trace = json.loads(shown.stdout)
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    phases = [part for part in slices if part["cat"] == "phase"]
    steps = [part for part in slices if part["cat"] == "step"]
    record = read(tmp_path / "r")

    assert (shown.returncode, shown.stderr) == (0, "")
    assert [phase["name"].partition(" ")[0] for phase in phases] == ["apply", "change:"]
    assert [step["name"] for step in steps] == [f"{one['call']} {one['name']}" for one in record.of("step")]
    assert [(step["ts"], step["dur"]) for step in steps] == [(one["at_us"], one["us"]) for one in record.of("step")]
    assert phases[0]["ts"] + phases[0]["dur"] <= phases[1]["ts"]
    for step in steps:  # a viewer nests what lies inside
        assert any(p["ts"] <= step["ts"] and step["ts"] + step["dur"] <= p["ts"] + p["dur"] + 0.2 for p in phases)
    assert {(event["pid"], event["tid"]) for event in trace["traceEvents"]} == {(1, 1)}
    undone = [part for part in slices if part["cat"] == "undo"]
    assert len(undone) == 2
    assert "table: released" in undone[0]["args"]["objects"]


def test_a_failure_stands_in_the_timeline(sim: Simulator, tmp_path: Path, hipplan: Run) -> None:
    sim.runtime.arm_faults("hipMemMap@2=hipErrorOutOfMemory")
    with pytest.raises(library.ApplyError):
        applied(tmp_path / "r")
    events = json.loads(hipplan("replay", tmp_path / "r", "--format", "perfetto").stdout)["traceEvents"]
    (failed,) = [event for event in events if event["ph"] == "X" and event["cat"] == "failed"]
    (instant,) = [event for event in events if event["ph"] == "i"]

    assert failed["args"]["error"] == "hipErrorOutOfMemory"
    assert instant["ts"] >= failed["ts"] + failed["dur"] - 0.2
    assert [event["cat"] for event in events if event["ph"] == "X"][-1] == "undo"


def test_a_change_in_place_is_marked_and_one_layout_at_a_time_has_the_file(sim: Simulator, tmp_path: Path) -> None:
    plan = {"hipplan": 1, "buffers": {"b": {"kind": "pinned", "size": "1MiB"}}}
    wider = {"hipplan": 1, "buffers": {"b": {"kind": "pinned", "size": "1MiB"}, "c": {"kind": "pinned", "size": 64}}}
    with library.apply(plan, runtime="sim", record=tmp_path / "r") as layout:
        layout.update(wider)
        before = (tmp_path / "r").read_bytes()
        with pytest.raises(
            library.RecordError, match=r"HP413.*\n.*another open layout is writing to it\n.*name another file"
        ):
            library.apply(plan, runtime="sim", record=tmp_path / "r")
        assert (tmp_path / "r").read_bytes() == before
    record = read(tmp_path / "r")
    events = [event["event"] for event in record.events]
    shown = "\n".join(map(str, render.record_parts(record)))

    assert events[:6] == ["apply", "step", "verify", "change", "step", "verify"]
    assert "read back" in shown.split("changed: + pinned c: 64B\n")[0]
    assert "2  hipHostMalloc  c" in shown.split("changed: + pinned c: 64B\n")[1]
    library.apply(plan, runtime="sim", record=tmp_path / "r").close()


def test_a_sleep_and_a_wake_are_recorded(sim: Simulator, tmp_path: Path, hipplan: Run) -> None:
    plan = {"hipplan": 1, "regions": {"cache": {"size": "4MiB"}}}
    with library.apply(plan, runtime="sim", record=tmp_path / "r") as layout:
        layout.sleep("cache", checksum=True)
        sim.runtime.arm_faults("hipMemMap@1=hipErrorUnknown")
        with pytest.raises(library.ApplyError):
            layout.wake()
        sim.runtime.arm_faults("")
        layout.wake()
    shown = hipplan("replay", tmp_path / "r").stdout

    assert "changed: ~ region cache: falls asleep, 4MiB, its bytes are in pinned host memory" in shown
    assert shown.count("changed: ~ region cache: wakes, 4MiB, with its bytes") == 2
    assert shown.count("not changed:") == 1
    for call in ("hipHostMalloc", "hipMemcpyAsync", "checksum", "hipMemUnmap", "hipMemCreate", "hipMemMap"):
        assert call in shown


def test_a_failed_apply_is_recorded_with_its_roll_back(sim: Simulator, tmp_path: Path) -> None:
    file = tmp_path / "apply.jsonl"
    sim.runtime.arm_faults(
        "hipMemCreate@1=hipErrorNotReady; hipMemMap@2=hipErrorOutOfMemory; hipMemRelease@1=hipErrorUnknown"
    )
    with pytest.raises(library.ApplyError):
        applied(file)
    record = read(file)
    failing = [event for event in record.of("step") if event["result"] != "ok"]

    assert [(e["name"], e["error"], e["code"]) for e in failing] == [("model[0]/1", "hipErrorOutOfMemory", 2)]
    assert [e["retries"] for e in record.of("step") if e["call"] == "hipMemCreate"] == [1, 0, 0, 0]
    assert record.of("failed")[0]["driver_call"] == "hipMemMap"
    results = {event["name"]: event["result"] for event in record.of("undo")}
    assert results.pop("cache") == "leaked"
    assert set(results.values()) == {"released"}
    assert record.of("undone")[0]["leaks"] == ["cache"]
    assert record.complete
    sim.free_everything()


def test_recorded_or_not_the_same_calls_are_made(sim: Simulator, tmp_path: Path) -> None:
    traces = []
    for name, record in (("without", None), ("with", tmp_path / "apply.jsonl")):
        sim.runtime.trace_to(str(tmp_path / name))
        library.apply(QUICKSTART, runtime="sim", record=record).close()
        sim.runtime.trace_to("")
        traces.append([json.loads(line)["call"] for line in (tmp_path / name).read_text().splitlines()])

    traces[1].remove("hipDriverGetVersion")  # for the first line
    # Which device is current is asked once for many steps in a row, and for each that is made by itself.
    one, other = ([call for call in trace if call not in ("hipGetDevice", "hipSetDevice")] for trace in traces)
    assert one == other


def test_a_record_that_cannot_be_written_is_reported_before_the_first_call(sim: Simulator, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path / "no" / "folder", tmp_path, pipe, "a\0b"):
        sim.runtime.arm_faults("*@1000000000=1")
        with pytest.raises(RecordError) as caught:
            applied(path)  # type: ignore[arg-type]
        assert caught.value.diagnostics[0].code == "HP413"
        assert caught.value.exit_code == 2
        assert sim.runtime.calls_counted() == 0


def test_an_invalid_plan_leaves_an_old_record_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "apply.jsonl"
    file.write_text("old")
    with pytest.raises(library.PlanError):
        library.apply("hipplan: 1\nx: 1\n", runtime="sim", record=file)
    assert file.read_text() == "old"


TOO_LARGE = "hipplan: 1\nname: much\nvars: {size: 999GiB}\nbuffers:\n  b: {kind: device, size: $(size)}\n"
BOUND = "hipplan: 1\nbuffers:\n  b: {kind: registered, bind: mine, size: 4KiB}\n"


@pytest.mark.parametrize(
    ("plan", "runtime", "error"),
    [
        (TOO_LARGE, "sim", "MachineError"),
        (TOO_LARGE, "simm", "SettingError"),
        (BOUND, "sim", "ApplyError"),
    ],
    ids=["preflight", "runtime", "binding"],
)
def test_a_refused_apply_is_recorded_with_its_reason(
    plan: str, runtime: str, error: str, sim: Simulator, tmp_path: Path, hipplan: Run
) -> None:
    (tmp_path / "plan.yaml").write_text(plan)
    line = ("apply", tmp_path / "plan.yaml", "--runtime", runtime, "--record", tmp_path / "by-command")
    done = hipplan(*line)
    with pytest.raises(library.HipplanError):
        library.apply(tmp_path / "plan.yaml", runtime=runtime, record=tmp_path / "by-library")
    for file in ("by-command", "by-library"):
        record = read(tmp_path / file)
        events = [event["event"] for event in record.events]
        shown = hipplan("replay", tmp_path / file)

        assert record.complete
        assert (events[0], events[-1]) == ("apply", "end")
        (failed,) = record.of("failed")
        assert failed["error"] == error
        assert failed["why"].strip() in done.stderr
        assert (shown.returncode, shown.stderr) == (0, "")
        assert f"failed: {error}" in shown.stdout


def test_an_interrupt_before_the_first_step_is_recorded(
    sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hipplan.layout.assembly.prepare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        applied(tmp_path / "r")
    record = read(tmp_path / "r")

    assert record.complete
    assert [event["error"] for event in record.of("failed")] == ["KeyboardInterrupt"]


def test_a_full_disk_ends_the_record_and_not_the_apply(sim: Simulator, caplog: pytest.LogCaptureFixture) -> None:
    with library.apply(QUICKSTART, runtime="sim", record="/dev/full") as layout:
        assert len(sim.alive()) == 13
        assert layout.drift() == []

    assert [record.getMessage() for record in caplog.records] == [
        "the record '/dev/full' ends here: No space left on device"
    ]


def test_the_command_records_and_replays(tmp_path: Path, hipplan: Run) -> None:
    file = tmp_path / "apply.jsonl"
    done = hipplan("apply", QUICKSTART, "--once", "--runtime", "sim", "--record", file)
    shown = hipplan("replay", file)
    report = json.loads(hipplan("replay", file, "--format", "json").stdout)

    assert done.returncode == shown.returncode == 0
    assert "hipMemSetAccess" in shown.stdout
    assert "0 differ" in shown.stdout
    assert "13 of 13 objects released, nothing leaked" in shown.stdout
    assert shown.stderr == ""
    assert report["complete"] is True
    assert len([event for event in report["events"] if event["event"] == "step"]) == 22


def test_a_plan_without_a_name_is_called_by_its_source(sim: Simulator, tmp_path: Path, hipplan: Run) -> None:
    """Also where it was refused before its program was made."""
    for size, refused in (("4KiB", False), ("900GiB", True)):
        plan = {"hipplan": 1, "buffers": {"b": {"kind": "device", "size": size}}}
        with pytest.raises(library.MachineError) if refused else nullcontext():
            library.apply(plan, runtime="sim", record=tmp_path / "r").close()

        assert hipplan("replay", tmp_path / "r").stdout.startswith("<data> (<data>), ")


@pytest.mark.parametrize(
    ("checks", "differences", "said"), [(1, [], "1 check, 0 differ"), (2, [{}], "2 checks, 1 differs")]
)
def test_checks_are_counted_in_english(
    sim: Simulator, tmp_path: Path, hipplan: Run, checks: int, differences: list[Any], said: str
) -> None:
    applied(tmp_path / "r")
    events = [json.loads(line) for line in (tmp_path / "r").read_text().splitlines()]
    for event in events:
        if event["event"] == "verify":
            event |= {"checks": checks, "differences": differences}
    (tmp_path / "r").write_text("".join(f"{json.dumps(event)}\n" for event in events))

    assert f"\nread back: {said}, " in hipplan("replay", tmp_path / "r").stdout
    trace = json.loads(hipplan("replay", tmp_path / "r", "--format", "perfetto").stdout)["traceEvents"]
    assert f"read back: {said.partition(',')[0]}" in [event["name"] for event in trace]


def test_a_change_that_did_not_happen_is_reported_as_that(sim: Simulator, tmp_path: Path, hipplan: Run) -> None:
    def plan(size: str) -> dict[str, Any]:
        buffers = {"x": {"kind": "pinned", "size": size}, "y": {"kind": "device", "size": 4096}}
        return {"hipplan": 1, "buffers": buffers}

    def raising(number: int, step: object) -> None:
        raise RuntimeError("mine")

    file = tmp_path / "apply.jsonl"
    with library.apply(plan("4KiB"), runtime="sim", record=file) as layout:
        with memoryview(layout["x"]), pytest.raises(library.LayoutInUse):
            layout.update(plan("8KiB"), lose="*")
        with pytest.raises(RuntimeError, match="mine"):
            layout.update(plan("8KiB"), on_step=raising, lose="*")
        layout.fill("y", 3)
        layout.update(plan("8KiB"), lose="*")
    events = [event for event in read(file).events if event["event"] in ("change", "failed")]
    shown = hipplan("replay", file).stdout

    assert [event["event"] for event in events] == ["change", "failed", "change", "failed", "change", "change"]
    assert [event["error"] for event in events if event["event"] == "failed"] == ["LayoutInUse", "RuntimeError"]
    assert events[4]["what"] == "streams and pinned memory that move bytes"
    assert shown.count("not changed: -/+ pinned x: is recreated, 4KiB -> 8KiB; loses its bytes") == 2
    assert shown.count("\nchanged: ") == 2
    assert "failed: LayoutInUse error[HP409]: the layout is in use: 1 view of it exists\n" in shown


def test_a_record_does_not_go_where_the_report_goes(tmp_path: Path, hipplan: Run) -> None:
    done = hipplan("apply", QUICKSTART, "--once", "--runtime", "sim", "--record", "-", cwd=tmp_path)

    assert done.returncode == 2
    assert "--record: the report goes to standard output" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_record_of_a_killed_process_is_shown_as_far_as_it_goes(tmp_path: Path, hipplan: Run) -> None:
    file = tmp_path / "apply.jsonl"
    process = subprocess.Popen(
        command("apply", QUICKSTART, "--runtime", "sim", "--record", file), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert any("holding" in line for line in process.stderr)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    file.write_bytes(file.read_bytes() + b'{"event": "und')
    shown = hipplan("replay", file)

    assert shown.returncode == 0
    assert "hipMemPrefetchAsync" in shown.stdout
    assert shown.stderr == f"{file} ends before the layout was torn down\n"


HEAD = {
    "event": "apply", "format_version": 1, "plan": "p", "source": "s", "digest": "d", "vars": {}, "runtime": {},
    "steps": 1, "started": "t",
}  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "empty"),
        ([b"a: 1"], "not JSON"),
        ([b"[" * 100_000], "not JSON"),
        ([b"\xff\xfe"], "not JSON"),
        ([b"[]"], "not an event"),
        ([b'{"event": ["apply"]}'], "not an event"),
        ([b'{"event": "end"}'], "begins with"),
        ([HEAD, HEAD], "begins with"),
        ([HEAD | {"format_version": 2}], "format version"),
        ([HEAD | {"vars": []}], "vars"),
        ([HEAD, {"event": "step", "call": "hipMalloc"}], "name"),
        ([HEAD, {"event": "undone", "at_us": 0, "us": 1, "retries": 0, "leaks": {}, "summary": ""}], "leaks"),
        ([HEAD, b'"' + b"x" * MAX_LINE_BYTES], "too long"),
        ([HEAD, b'{"event": "end", "us": 1e400}'], "1e400 is not a representable number"),
        ([HEAD, b'{"event": "end", "us": -1E+999}'], "-1E+999 is not a representable number"),
        ([HEAD, b'{"event": "end", "us": NaN}'], "NaN is not a representable number"),
        ([HEAD, b'{"event": "end", "us": -Infinity}'], "-Infinity is not a representable number"),
    ],
)
def test_what_is_no_record_is_reported_with_its_line(lines: list[Any], why: str, tmp_path: Path) -> None:
    file = tmp_path / "no-record"
    file.write_bytes(
        b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    )
    with pytest.raises(RecordError) as caught:
        read(file)
    (diagnostic,) = caught.value.diagnostics

    assert diagnostic.code == "HP414"
    assert why in diagnostic.why
    assert caught.value.exit_code == 2


def test_files_that_are_invalid_are_reported_too(tmp_path: Path, hipplan: Run) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(10 << 30)
    for name in ("pipe", "large", "missing", "."):
        done = hipplan("replay", tmp_path / name)
        assert done.returncode == 2
        assert "error[HP414]" in done.stderr


def test_a_hostile_record_cannot_reach_the_terminal(tmp_path: Path, hipplan: Run) -> None:
    file = tmp_path / "hostile"
    step = {
        "event": "step",
        "call": "\x1b[31m",
        "name": "[bold]x",
        "what": "\x1b]0;t\x07",
        "at_us": 0,
        "us": 1,
        "retries": 0,
        "result": "\x9b2J",
    }
    events = [
        HEAD | {"plan": "\x1b[2J", "machine": [1], "vars": {"\x1b": {}}},
        step,
        {"event": "failed", "error": "\r\x1b"},
    ]
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    done = hipplan("replay", file)

    assert done.returncode == 0
    assert not [c for c in done.stdout if not c.isprintable() and c != "\n"]
    assert "[bold]x" in done.stdout


def test_an_anonymous_record_names_no_path_and_no_host(tmp_path: Path, hipplan: Run) -> None:
    plan, data, file = tmp_path / "plan.yaml", tmp_path / "data.bin", tmp_path / "apply.jsonl"
    data.write_bytes(bytes(1 << 20))
    plan.write_text(f"hipplan: 1\nregions: {{r: {{size: 1MiB}}}}\ncontents: {{r: {{file: {data}}}}}\n")
    hipplan("apply", plan, "--once", "--record", file)
    assert str(tmp_path) in file.read_text()
    hipplan("apply", plan, "--once", "--record", file, "--anonymous")

    text = file.read_text()
    assert str(tmp_path) not in text and str(ROOT) not in text and f'"{os.uname().nodename}"' not in text
    assert read(file).head["provenance"]["unread"]["host"] == "anonymous"
