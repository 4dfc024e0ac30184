"""Copies, fills and loads in a stream of the plan, which are under way when the call returns."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from hipplan import _core
from tests.conftest import Simulator
from tests.pauses import Pause

MIB = 2**20
PENDING = "hipEventQuery@1+=hipErrorNotReady"
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "streams": {"copy": {"device": "gpu.0"}, "other": {"device": "gpu.1"}},
    "buffers": {
        "a": {"kind": "device", "device": "gpu.0", "size": MIB},
        "b": {"kind": "device", "device": "gpu.0", "size": MIB},
        "far": {"kind": "device", "device": "gpu.1", "size": MIB},
        "host": {"kind": "pinned", "size": MIB},
        "theirs": {"kind": "pinned", "device": "gpu.1", "size": MIB},
    },
    "regions": {"r": {"device": "gpu.0", "tensors": {"x": {"dtype": "f32", "shape": [64, 64]}}}},
}


@pytest.fixture
def layout(sim: Simulator) -> Any:
    with hipplan.apply(PLAN, runtime="sim") as made:
        yield made
        made.runtime.arm_faults("")


def calls_of(layout: hipplan.Layout, file: Path) -> Counter[str]:
    layout.runtime.trace_to("")
    return Counter(json.loads(line)["call"] for line in file.read_text().splitlines())


def test_a_stream_has_its_drivers_handle(layout: hipplan.Layout, sim: Simulator) -> None:
    stream = layout["copy"]
    assert isinstance(stream, hipplan.Stream)
    assert hex(stream.handle) in {stream["stream"] for stream in sim.ledger()["streams"]}
    assert stream.__cuda_stream__() == (0, stream.handle)
    assert (stream.device, hasattr(stream, "address"), stream.kind) == ("gpu.0", False, "stream")
    assert not hasattr(layout["a"], "__cuda_stream__")


@pytest.mark.parametrize("by", ["name", "piece"])
def test_a_copy_stands_in_the_stream(by: str, layout: hipplan.Layout, tmp_path: Path) -> None:
    layout.write("a", numpy.arange(MIB, dtype="u1"))
    layout.runtime.trace_to(str(tmp_path / "trace"))
    stream: Any = layout["copy"] if by == "piece" else "copy"
    transfer = layout.copy("a", "b", stream=stream)
    with pytest.raises(TypeError, match="timeout must be a number of seconds, not str"):
        transfer.wait(timeout="1")  # type: ignore[arg-type]
    transfer.wait()
    calls = calls_of(layout, tmp_path / "trace")
    lines = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
    copy = next(line for line in lines if line["call"] == "hipMemcpyAsync")

    assert transfer.done
    assert transfer.ordered
    assert int(copy["args"]["stream"], 16) == layout["copy"].handle  # type: ignore[attr-defined]
    assert "hipStreamSynchronize" not in calls
    assert calls["hipEventCreateWithFlags"] == calls["hipEventDestroy"] == calls["hipEventRecord"] == 1
    assert (layout.read("b") == layout.read("a")).all()


@pytest.mark.parametrize(("value", "dtype"), [(7, "u8"), (0.25, "f32"), (-3, "i64"), (1.0, "bf16")])
def test_a_fill_needs_nothing_of_the_host(value: Any, dtype: str, layout: hipplan.Layout) -> None:
    before = len(layout.program.steps)
    transfer = layout.fill("a", value, dtype=dtype, stream="copy")
    transfer.wait()
    layout.fill("b", value, dtype=dtype)

    assert transfer.ordered
    assert (layout.read("a") == layout.read("b")).all()
    assert before < len(layout.program.steps), "the second fill made its lanes, the first none"


def test_a_load_is_done_by_threads_behind_the_stream(layout: hipplan.Layout, tmp_path: Path) -> None:
    wanted = numpy.arange(4096, dtype="f4").reshape(64, 64)
    numpy.save(tmp_path / "x.npy", wanted)
    transfer = layout.load("r.x", tmp_path / "x.npy", stream="copy")
    transfer.wait()

    assert not transfer.ordered
    assert (layout.read("r.x") == wanted).all()


def test_host_memory_is_filled_by_the_host(layout: hipplan.Layout) -> None:
    transfer = layout.fill("host", 9, stream="copy")
    transfer.wait()

    assert not transfer.ordered
    assert (layout.read("host") == 9).all()


@pytest.mark.parametrize("source", ["host", "theirs"])
def test_pinned_memory_of_another_device_goes_through_the_host(source: str, layout: hipplan.Layout) -> None:
    """HIP up to 6.4 has the device copy that the memory was pinned with, which may have no right to the other side."""
    layout.fill(source, 4)
    transfer = layout.copy(source, "a", stream="copy")
    transfer.wait()

    assert transfer.ordered == (source == "host")
    assert (layout.read("a") == 4).all()


def test_a_transfer_holds_its_memory_until_it_is_done(layout: hipplan.Layout) -> None:
    layout.runtime.arm_faults(PENDING)
    transfer = layout.fill("r.x", 1, stream="copy")

    assert not transfer.done
    assert layout.leases == 1
    assert "under way" in repr(transfer)
    with pytest.raises(hipplan.LayoutInUse, match=r"(?s)bytes are on their way to 'r\.x'\n.*wait\(\) for the transfer"):
        layout.remap("r")
    with pytest.raises(hipplan.LayoutInUse, match=r"on their way to 'r\.x'"):
        layout.sleep("r")
    with pytest.raises(TimeoutError, match=r"'r\.x' are still on their way after 0\.01 s"):
        transfer.wait(0.01)
    layout.runtime.arm_faults("")
    assert layout.leases == 0
    assert transfer.done
    layout.remap("r")


def test_the_memory_is_freed_without_a_wait(layout: hipplan.Layout) -> None:
    layout.fill("r.x", 1, stream="copy")
    layout.remap("r")


def test_a_dropped_transfer_is_waited_for(layout: hipplan.Layout) -> None:
    layout.fill("a", 5, stream="copy")
    gc.collect()
    assert layout.leases == 0
    assert (layout.read("a") == 5).all()


def test_close_waits_for_what_is_under_way(sim: Simulator) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    layout.runtime.arm_faults("hipEventQuery@1=hipErrorNotReady; hipEventQuery@2=hipErrorNotReady")
    transfer = layout.copy("host", "a", stream="copy")
    assert not transfer.done
    layout.close()
    assert transfer.done
    transfer.wait()


def test_close_is_refused_while_the_device_does_not_end(sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPPLAN_IDLE_NOTICE", "0.05")
    layout = hipplan.apply(PLAN, runtime="sim")
    layout.runtime.arm_faults(PENDING)
    transfer = layout.copy("host", "a", stream="copy")
    with pytest.raises(hipplan.LayoutInUse, match="on their way to 'a'"):
        layout.close()
    assert not layout.closed
    layout.runtime.arm_faults("")
    transfer.wait()
    layout.close()


def test_a_forced_close_stops_a_load(sim: Simulator, tmp_path: Path) -> None:
    plan = PLAN | {"buffers": {"a": {"kind": "device", "device": "gpu.0", "size": 64 * MIB}}}
    (tmp_path / "bytes").write_bytes(bytes(64 * MIB))
    layout = hipplan.apply(plan, runtime="sim")
    layout.runtime.arm_faults("hipMemcpyAsync@1+=delay:40")
    transfer = layout.load("a", tmp_path / "bytes", stream="copy")
    layout.close(force=True)
    layout.runtime.arm_faults("")
    with pytest.raises(hipplan.ApplyError, match="'a': the layout was closed meanwhile"):
        transfer.wait()


def test_a_load_begins_when_the_stream_has_done_what_it_had(layout: hipplan.Layout, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"z" * MIB)
    layout.fill("a", 1)
    pause = Pause(tmp_path, "hipStreamSynchronize@1")
    layout.runtime.arm_faults(pause.rule)
    transfer = layout.load("a", tmp_path / "bytes", stream="copy")
    with pause.under_way():
        assert not transfer.done
    transfer.wait()
    assert (layout.read("a") == ord("z")).all()


def test_who_reads_files_later_waits_for_the_load(layout: hipplan.Layout, tmp_path: Path) -> None:
    """They use the same pinned memory."""
    (tmp_path / "y").write_bytes(b"y" * MIB)
    (tmp_path / "z").write_bytes(b"z" * MIB)
    layout.runtime.arm_faults("hipMemcpyAsync@1+=delay:5")
    first = layout.load("a", tmp_path / "y", stream="copy")
    layout.load("b", tmp_path / "z")
    assert first.done
    second = layout.load("a", tmp_path / "z", stream="copy")
    contents = {"b": {"file": str(tmp_path / "y")}, "c": {"file": str(tmp_path / "y")}}
    more = PLAN | {"buffers": PLAN["buffers"] | {"c": {"kind": "device", "device": "gpu.0", "size": MIB}}}
    layout.update(more | {"contents": contents})
    assert second.done
    assert (layout.read("c") == ord("y")).all()
    assert (layout.read("a") == ord("z")).all()


def test_transfers_are_awaited(layout: hipplan.Layout) -> None:
    layout.fill("host", 6)
    steps: list[str] = []

    async def other() -> None:
        while not steps:
            layout.runtime.arm_faults("")
            steps.append("something else ran")
            await asyncio.sleep(0)

    async def both() -> None:
        layout.runtime.arm_faults(PENDING)
        task = asyncio.ensure_future(other())
        await layout.copy("host", "a", stream="copy")
        await task

    asyncio.run(both())
    assert steps
    assert (layout.read("a") == 6).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda lay: lay.copy("a", "b", stream="other"),
            "stream 'other' is of gpu.1, and the bytes of 'b' are moved by",
        ),
        (
            lambda lay: lay.fill("far", 1, stream="copy"),
            "stream 'copy' is of gpu.0, and the bytes of 'far' are moved by",
        ),
        (lambda lay: lay.copy("a", "b", stream="nope"), "the layout has no 'nope'"),
        (lambda lay: lay.copy("a", "b", stream="a"), "'a' is no stream\n"),
        (lambda lay: lay.copy("a", "none", stream="copy"), "has no 'none'"),
        (lambda lay: lay.load("a", "/nowhere", stream="copy"), "HP405"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(call: Any, message: str, layout: hipplan.Layout) -> None:
    with pytest.raises(hipplan.ApplyError, match=message):
        call(layout)
    assert layout.leases == 0


def test_only_streams_of_the_layout_are_taken(layout: hipplan.Layout) -> None:
    with pytest.raises(TypeError, match=r"not int; to have PyTorch work in it: torch.cuda.ExternalStream"):
        layout.copy("a", "b", stream=3)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="remove it, or stream"):
        layout.copy("a", "b", stream="copy", on_bytes=print)  # type: ignore[call-overload]
    with hipplan.apply(PLAN, runtime="sim") as other, pytest.raises(hipplan.ApplyError, match="of another layout"):
        layout.copy("a", "b", stream=other["copy"])  # type: ignore[call-overload]


def test_a_recreated_stream_is_another_one(layout: hipplan.Layout) -> None:
    old = layout["copy"]
    layout.update(PLAN | {"streams": {"copy": {"device": "gpu.1"}}})
    with pytest.raises(hipplan.ApplyError, match="recreated"):
        layout.fill("far", 1, stream=old)  # type: ignore[call-overload]
    layout.fill("far", 1, stream="copy").wait()


def test_a_failure_surfaces_at_wait_each_time(layout: hipplan.Layout) -> None:
    layout.runtime.arm_faults("hipEventQuery@1=hipErrorIllegalAddress")
    transfer = layout.fill("a", 1, stream="copy")
    for _ in range(2):
        with pytest.raises(hipplan.ApplyError, match="hipErrorIllegalAddress") as caught:
            transfer.wait()
        assert caught.value.call == "hipEventQuery"
    assert "failed" in repr(transfer)
    assert layout.leases == 0


def test_a_failure_without_a_wait_is_logged(layout: hipplan.Layout, caplog: pytest.LogCaptureFixture) -> None:
    layout.runtime.arm_faults("hipEventQuery@1=hipErrorIllegalAddress")
    with caplog.at_level(logging.ERROR, "hipplan"):
        layout.fill("a", 1, stream="copy")
        assert layout.leases == 0
        gc.collect()
    assert "the bytes of 'a' did not arrive, and the transfer was never awaited" in caplog.text


def test_a_transfer_is_one_of_its_kind(layout: hipplan.Layout) -> None:
    with pytest.raises(TypeError, match="one of its kind"):
        pickle.dumps(layout.fill("a", 1, stream="copy"))


def test_a_forked_child_does_not_wait_for_it(layout: hipplan.Layout) -> None:
    layout.runtime.arm_faults(PENDING)
    transfer = layout.fill("a", 1, stream="copy")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            transfer.wait()
        except ValueError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as reported:
        assert reported.read() == "a transfer of the parent process: a forked child cannot wait for it"
    layout.runtime.arm_faults("")
    transfer.wait()


def test_an_event_that_cannot_be_freed_is_reported(layout: hipplan.Layout) -> None:
    layout.runtime.arm_faults("hipEventDestroy@1=hipErrorUnknown")
    layout.fill("a", 1, stream="copy").wait()
    (line,) = _core.take_leaks()
    assert "event of 'a'" in line
    layout.runtime.arm_faults("")
    event = int(line.partition("event=")[2].partition(")")[0], 16)
    assert ctypes.CDLL(layout.runtime.path).hipEventDestroy(ctypes.c_void_p(event)) == 0
