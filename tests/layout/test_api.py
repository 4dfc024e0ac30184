"""hipplan.apply and the layout it gives, on the simulator."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hipplan
from hipplan import _core
from hipplan.errors import ApplyError, LeakError
from hipplan.layout.undo import free_waiting
from hipplan.layout.verify import ToRead, verify
from hipplan.program.steps import Step
from tests.conftest import ROOT, Simulator
from tests.machines.test_runtimes import in_a_process_of_its_own
from tests.meddling import meddle

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
MIB = 2**20


def plan(**nouns: Any) -> dict[str, Any]:
    return {"hipplan": 1, **nouns}


def test_a_layout_reports_addresses_and_sizes(sim: Simulator) -> None:
    with hipplan.apply(QUICKSTART, runtime="sim") as layout:
        assert layout["staging"].size == 4 * MIB
        with pytest.raises(AttributeError, match="kind allocation; its mappings have one"):
            _ = layout["weights"].address
        assert layout["model[1]"].address == layout["model"].address + 32 * MIB
        assert "table" in layout
        assert len(layout) == 9
        assert list(layout)[:2] == ["gpu.0->gpu.1", "gpu.1->gpu.0"]
        with pytest.raises(KeyError, match="the layout has no 'wieghts'; did you mean 'weights'"):
            layout["wieghts"]

    assert layout.closed


def test_the_memory_is_real_and_access_is_as_the_plan_says(sim: Simulator) -> None:
    with hipplan.apply(QUICKSTART, runtime="sim") as layout:
        runtime = layout.runtime
        address = layout["model"].address
        runtime.write(address, b"hipplan")

        assert runtime.read(address, 7) == b"hipplan"
        assert [runtime.access(device, address) for device in (0, 1)] == [3, 1]
        assert [runtime.access(device, address + 32 * MIB) for device in (0, 1)] == [1, 3]


def test_two_mappings_of_one_allocation_are_the_same_bytes(sim: Simulator) -> None:
    with hipplan.apply(ROOT / "plans" / "virtual-memory.yaml", runtime="sim") as layout:
        base = layout["doubled"].address
        assert base is not None
        layout.runtime.fill(base, 7, 16)

        assert layout.runtime.read(base + 2 * MIB, 16) == b"\7" * 16


def test_closing_twice_does_nothing(sim: Simulator) -> None:
    layout = hipplan.apply(QUICKSTART, runtime="sim")

    assert layout.close().count == 13
    assert layout.close().count == 0


def test_an_exception_in_the_body_tears_down_and_goes_on(sim: Simulator) -> None:
    with pytest.raises(ZeroDivisionError), hipplan.apply(QUICKSTART, runtime="sim"):
        1 / 0  # noqa: B018

    assert sim.alive() == set()


def test_a_leak_never_hides_the_body_s_exception(sim: Simulator, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError), hipplan.apply(QUICKSTART, runtime="sim"):
        sim.runtime.arm_faults("hipHostFree@1=hipErrorUnknown")
        1 / 0  # noqa: B018
    sim.free_everything()

    assert "pinned buffer 'staging'" in caplog.text


def test_a_leak_at_close_is_an_error_by_name(sim: Simulator) -> None:
    layout = hipplan.apply(QUICKSTART, runtime="sim")
    sim.runtime.arm_faults("hipHostFree@1=hipErrorUnknown")
    with pytest.raises(LeakError) as caught:
        layout.close()
    sim.free_everything()

    assert caught.value.leaks == ("staging",)
    assert caught.value.undone.count == 12


def test_verify_reads_back_again_and_finds_drift(sim: Simulator) -> None:
    import ctypes

    with hipplan.apply(QUICKSTART, runtime="sim") as layout:
        assert all(check.ok for check in layout.verify())
        hip = ctypes.CDLL(sim.runtime.path)
        address = layout["table"].address
        assert hip.hipMemAdvise(ctypes.c_void_p(address), ctypes.c_size_t(8 * MIB), 2, 0) == 0
        (drift,) = layout.drift()

    assert (drift.name, drift.what, drift.desired, drift.current) == ("table", "read mostly [0, 4194304)", "1", "0")


def test_what_was_read_back_can_be_printed(sim: Simulator) -> None:
    import ctypes

    with hipplan.apply(QUICKSTART, runtime="sim") as layout:
        good = layout.verify()
        advise = ctypes.CDLL(sim.runtime.path).hipMemAdvise
        assert advise(ctypes.c_void_p(layout["table"].address), ctypes.c_size_t(8 * MIB), 2, 0) == 0
        bad = layout.verify()

    count = len(good)
    assert str(good) == f"{count} checks, all match the plan"
    assert repr(good) == f"<hipplan.Checks: {count} checks, all match the plan>"
    assert repr(bad) == f"<hipplan.Checks: 1 of {count} checks differs from the plan>"
    assert str(bad) == (
        f"1 of {count} checks differs from the plan\n  table: read mostly [0, 4194304): 1 desired, 0 now"
    )


def test_checks_are_counted_without_being_made(sim: Simulator) -> None:
    """Managed memory has those of its advice."""
    alike = {"size": "80MiB", "chunk": "2MiB", "devices": ["gpu.0", "gpu.1"]}
    managed = {"kind": "managed", "size": "1MiB", "advice": [{"advise": "read_mostly"}]}
    document = plan(
        devices={"gpu": {"count": 2}},
        regions={"alike": alike},
        buffers={"m": managed, "d": {"kind": "device", "size": "64KiB", "device": "gpu.1", "count": 40}},
    )
    with hipplan.apply(document, runtime="sim") as layout:
        counted = len(layout.checks)
        assert counted == len([*layout.checks])
        layout.sleep("alike", to="drop")
        assert len(layout.verify()) == len([*layout.verify()]) < counted


def test_coherency_is_read_back_where_it_was_advised(sim: Simulator) -> None:
    coarse = {"advise": "coarse_grain", "range": {"size": "1MiB"}}
    table = {"kind": "managed", "size": "2MiB", "advice": [coarse]}
    with hipplan.apply(plan(buffers={"table": table}), runtime="sim") as layout:
        address = layout["table"].address
        meddle(layout, "advise", "table", 0, MIB, ("unset_coarse_grain", 0), None)
        (drift,) = layout.drift()
        layout.update(plan(buffers={"table": {**table, "advice": []}}))

        assert (drift.what, drift.desired, drift.current) == (f"coarse grain [0, {MIB})", "1", "0")
        assert layout.runtime.range_attribute(address, MIB, "coarse_grain") == 0


def test_a_read_back_that_differs_is_a_failed_apply(sim: Simulator) -> None:
    """After the last step a driver call outside hipplan gives every device all rights."""

    def meddle_at_the_end(number: int, step: Step) -> None:
        rights = (ctypes.c_int * 6)(1, 0, 3, 1, 1, 3)  # (location type, device, flags) each
        for mapping in sim.ledger()["mappings"]:
            begin, size = ctypes.c_void_p(int(mapping["address"], 16)), ctypes.c_size_t(mapping["size"])
            assert ctypes.CDLL(sim.runtime.path).hipMemSetAccess(begin, size, rights, ctypes.c_size_t(2)) == 0

    with pytest.raises(ApplyError) as caught:
        hipplan.apply(QUICKSTART, runtime="sim", on_step=meddle_at_the_end)

    assert {diagnostic.code for diagnostic in caught.value.diagnostics} == {"HP402"}
    assert "- desired: r" in str(caught.value)
    assert "+ current: rw" in str(caught.value)


def test_an_exact_address_is_kept_or_refused(sim: Simulator) -> None:
    with hipplan.apply(plan(reservations={"r": {"size": "4MiB"}}), runtime="sim") as free:
        taken = free["r"].address
        exact = plan(reservations={"r": {"size": "4MiB", "address": taken, "address_policy": "exact"}})
        with pytest.raises(ApplyError, match="HP404"):
            hipplan.apply(exact, runtime="sim")
        prefer = plan(reservations={"r": {"size": "4MiB", "address": taken}})
        with hipplan.apply(prefer, runtime="sim") as elsewhere:
            assert elsewhere["r"].address != taken
    with hipplan.apply(exact, runtime="sim") as again:
        assert again["r"].address == taken


def test_an_alignment_is_kept_though_hip_ignores_it(sim: Simulator) -> None:
    aligned = plan(
        allocations={"a": {"size": "2MiB"}},
        reservations={
            "r": {"alignment": "1GiB", "access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a"}]},
        },
    )
    with hipplan.apply(aligned, runtime="sim") as layout:
        address = layout["r"].address
        assert address % 2**30 == 0
        layout.runtime.write(address, b"x")


def test_registered_memory_of_a_file_of_the_caller_and_fresh(sim: Simulator, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"not UTF-8: \xff")
    folder.mkdir()
    (folder / "data.bin").write_bytes(b"0123456789" * 1000)
    path = folder / "plan.yaml"
    path.write_text(
        "hipplan: 1\nbuffers:\n"
        "  file: {kind: registered, file: data.bin}\n"
        "  shared: {kind: registered, file: data.bin, read_only: true}\n"
        "  mine: {kind: registered, bind: array}\n"
        "  fresh: {kind: registered, anonymous: {size: 1MiB, huge_pages: transparent}}\n"
    )
    array = np.arange(1000, dtype=np.int64)
    with hipplan.apply(path, runtime="sim", bind={"array": array}) as layout:
        address = layout["file"].address
        assert layout.runtime.read(address, 10) == b"0123456789"
        assert layout["mine"].address == array.ctypes.data
    (folder / "data.bin").write_bytes(b"")
    with pytest.raises(ApplyError, match=r"'file': .*/not UTF-8: \ufffd/data\.bin is empty"):
        hipplan.apply(path, runtime="sim", bind={"array": array})

    assert sim.alive() == set()


@pytest.mark.parametrize(
    ("bind", "said"),
    [
        ({}, "nothing is bound to 'array'"),
        ({"array": 7}, "is not memory"),
        ({"array": b"only to read"}, "it is read-only\n  hint: pass writable memory, such as a bytearray, or"),
        ({"array": bytearray()}, "it has 0 bytes"),
        ({"array": np.zeros(8192, "u1")[::-1]}, "its elements are not contiguous"),
        ({"array": np.zeros(8192, "u1")[::2]}, "its elements are not contiguous"),
        ({"array": np.zeros(2, "M8[s]")}, "is not memory"),
    ],
)
def test_a_binding_that_does_not_fit_is_reported(bind: dict[str, Any], said: str, sim: Simulator) -> None:
    with pytest.raises(ApplyError) as caught:
        hipplan.apply(plan(buffers={"mine": {"kind": "registered", "bind": "array"}}), runtime="sim", bind=bind)

    assert said in str(caught.value)
    assert "HP405" in str(caught.value)


def test_a_layout_shows_what_it_is(sim: Simulator) -> None:
    plan = hipplan.load(QUICKSTART)
    assert repr(plan) == "<hipplan.LoadedPlan 'quickstart'>"
    layout = hipplan.apply(plan, runtime="sim")
    assert repr(layout.program) == "<hipplan.Program 'quickstart' for sim-2: 16 steps>"
    assert repr(layout) == f"<hipplan.Layout 'quickstart': {len(layout)} objects>"
    layout.close()
    assert repr(layout) == "<hipplan.Layout 'quickstart': closed>"


def test_the_caller_s_memory_cannot_move_until_it_is_unregistered(sim: Simulator) -> None:
    bound, mine = plan(buffers={"mine": {"kind": "registered", "bind": "bytes"}}), bytearray(8192)
    with hipplan.apply(bound, runtime="sim", bind={"bytes": mine}) as layout:
        with pytest.raises(BufferError):
            mine.extend(b"more")
        layout.update(plan())
        mine.extend(b"more")
        layout.update(bound, bind={"bytes": mine})
        with pytest.raises(BufferError):
            mine.extend(b"more")
        view = np.asarray(layout["mine"])
        layout.close(force=True)
        with pytest.raises(BufferError):
            mine.extend(b"more")
        del view
    free_waiting()
    mine.extend(b"more")


@pytest.mark.parametrize("rules", ["hipHostRegister@1=2", "hipMalloc@1=2"])
def test_a_roll_back_releases_the_caller_s_memory(rules: str, sim: Simulator) -> None:
    mine = bytearray(8192)
    buffers = {"mine": {"kind": "registered", "bind": "bytes"}, "x": {"kind": "device", "size": 4096}}
    opened = hipplan.apply(plan(), runtime="sim")
    opened.runtime.arm_faults(rules)
    with pytest.raises(ApplyError) as caught:
        hipplan.apply(plan(buffers=buffers), runtime="sim", bind={"bytes": mine})
    with pytest.raises(ApplyError) as again:
        opened.runtime.arm_faults(rules)
        opened.update(plan(buffers=buffers), bind={"bytes": mine})
    opened.runtime.arm_faults("")
    opened.close()

    assert caught.value.undone.leaks == again.value.undone.leaks == ()
    mine.extend(b"more")


def test_a_file_that_is_missing_or_short_is_reported(sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "short.bin").write_bytes(b"abc")
    for spec, answer in (
        ("file: none.bin", "No such file"),
        ("file: short.bin, size: 1MiB", "has 3 bytes, fewer"),
    ):
        path = tmp_path / "plan.yaml"
        path.write_text(f"hipplan: 1\nbuffers:\n  b: {{kind: registered, {spec}}}\n")
        with pytest.raises(ApplyError, match=answer):
            hipplan.apply(path, runtime="sim")


def test_an_allocation_is_imported_from_a_descriptor(sim: Simulator) -> None:
    shared = {"size": "2MiB", "shareable": "posix_fd"}
    mapped = {"r": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a"}]}}
    with hipplan.apply(plan(allocations={"a": shared}, reservations=mapped), runtime="sim") as exporter:
        descriptor = exporter.export("a")
        imported = plan(allocations={"a": {**shared, "bind": "theirs"}}, reservations=mapped)
        with hipplan.apply(imported, runtime="sim", bind={"theirs": descriptor}) as importer:
            os.close(descriptor)
            assert exporter["r"].address != importer["r"].address
            exporter.runtime.write(exporter["r"].address, b"shared")

            assert importer.runtime.read(importer["r"].address, 6) == b"shared"


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (-1, "descriptor -1: Bad file descriptor"),
        (2**40, "descriptor 1099511627776: "),
        (999_999, "descriptor 999999: Bad file descriptor"),
        (True, "it is true or false, not a file descriptor"),
        (None, "it is nothing, not a file descriptor"),
    ],
)
def test_what_is_no_descriptor_never_reaches_the_driver(given: object, wrong: str, sim: Simulator) -> None:
    """Up to HIP 7.1 the driver takes the number for a pointer: -1 was a segmentation fault."""
    shared = {"size": "2MiB", "shareable": "posix_fd", "bind": "theirs"}
    mapped = {"r": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a"}]}}
    with pytest.raises(hipplan.ApplyError, match=f"HP405.*{wrong}"):
        hipplan.apply(plan(allocations={"a": shared}, reservations=mapped), runtime="sim", bind={"theirs": given})
    assert sim.alive() == set()


def test_bind_is_a_mapping(sim: Simulator) -> None:
    with pytest.raises(TypeError, match="bind is a mapping of names to memory or descriptors, not ndarray"):
        hipplan.apply(plan(buffers={}), runtime="sim", bind=np.zeros(4))  # type: ignore[arg-type]


def test_only_what_is_made_for_it_is_exported(sim: Simulator) -> None:
    allocations = {"ours": {"size": "2MiB"}, "all": {"size": "2MiB", "shareable": "posix_fd"}}
    mapped = {"r": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": name} for name in allocations]}}
    with hipplan.apply(plan(allocations=allocations, reservations=mapped), runtime="sim") as layout:
        with pytest.raises(ValueError, match="write shareable: posix_fd in the plan"):
            layout.export("ours")
        with pytest.raises(ValueError, match="'r' is a reservation"):
            layout.export("r")
        with pytest.raises(KeyError, match="no 'al'"):
            layout.export("al")
        os.close(layout.export("all"))
    with pytest.raises(BufferError, match="closed"):
        layout.export("all")


def test_what_a_dropped_layout_lost_is_no_other_layout_s(sim: Simulator, caplog: pytest.LogCaptureFixture) -> None:
    buffer, other = (
        plan(buffers={name: {"kind": kind, "size": 4096}}) for name, kind in (("x", "device"), ("y", "pinned"))
    )
    dropped = [hipplan.apply(buffer, runtime="sim") for _ in range(2)]
    sim.runtime.arm_faults("hipFree@1+=hipErrorUnknown; hipHostMalloc@1=hipErrorOutOfMemory")
    dropped.pop()

    def in_another_thread(number: int, step: object) -> None:
        thread = threading.Thread(target=dropped.clear)
        thread.start()
        thread.join()

    with pytest.raises(ApplyError) as caught:
        hipplan.apply(other, runtime="sim", on_step=in_another_thread)
    sim.runtime.arm_faults("")

    assert (caught.value.exit_code, caught.value.not_as_it_was) == (4, ())
    assert [record.getMessage() for record in caplog.records if "not released: hipFree" in record.getMessage()]
    assert "hipFree" in _core.take_leaks()[0]
    sim.free_everything()


def test_two_layouts_at_once_do_not_harm_each_other(sim: Simulator) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                with hipplan.apply(QUICKSTART, runtime="sim") as layout:
                    layout.runtime.fill(layout["model"].address, 1, 4096)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []


def test_a_keyboard_interrupt_between_steps_rolls_back_and_goes_on(sim: Simulator) -> None:
    def stop(number: int, step: object) -> None:
        if number == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hipplan.apply(QUICKSTART, runtime="sim", on_step=stop)

    assert sim.alive() == set()


@pytest.mark.skipif(any(map(os.path.exists, ("/dev/nvidia0", "/dev/kfd"))), reason="this machine has a GPU")
def test_auto_logs_that_it_is_the_simulator(sim: Simulator, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hipplan"), hipplan.apply(QUICKSTART) as layout:
        assert "this is the simulator" in layout.notice

    assert "this is the simulator" in caplog.text


def test_the_simulator_becomes_the_machine_asked_for(sim: Simulator) -> None:
    one = plan(buffers={"b": {"kind": "device", "size": "1MiB"}})
    with hipplan.apply(one, runtime="sim", machine="sim-1") as layout:
        assert layout.program.machine == "sim-1"
        assert layout.runtime.device_count() == 1


def test_the_flags_of_pinned_memory_are_read_back(sim: Simulator) -> None:
    pinned = {"kind": "pinned", "size": "1MiB", "mapped": True, "coherent": True}
    with hipplan.apply({"hipplan": 1, "buffers": {"b": pinned}}, runtime="sim") as layout:
        assert [(c.desired, c.current) for c in layout.checks if c.what == "flags"] == [("mapped", "mapped")]
    bare = {"kind": "pinned", "size": "1MiB"}
    with hipplan.apply({"hipplan": 1, "buffers": {"b": bare}}, runtime="sim") as layout:
        (step,) = layout.program.steps
        more = replace(layout.program, steps=(replace(step, flags=("mapped",)),))  # as if more had been asked
        (drift,) = verify(layout._holding.state, ToRead(more)).mismatches()
        assert (drift.desired, drift.current) == ("mapped", "none")


def test_flags_reach_the_driver_as_hip_s_numbers(sim: Simulator) -> None:
    import ctypes

    pinned = {"kind": "pinned", "size": 4096, "portable": True, "mapped": True, "coherent": False}
    with hipplan.apply({"hipplan": 1, "buffers": {"b": pinned}}, runtime="sim") as layout:
        flags = ctypes.c_uint()
        ask = ctypes.CDLL(sim.runtime.path).hipHostGetFlags
        assert ask(ctypes.byref(flags), ctypes.c_void_p(layout["b"].address)) == 0
        assert flags.value == 0x80000003


def test_a_plan_is_as_large_on_a_simulated_machine_as_its_profile_says() -> None:
    """mi300x-8 leaves the recommended granularity open: it depends on the release."""
    wanted = plan(allocations={"a": {"size": "96KiB"}}, reservations={"r": {"mappings": [{"allocation": "a"}]}})
    reported = hipplan.compile(hipplan.load(wanted), hipplan.machine("mi300x-8"))
    source = f"""
import hipplan
with hipplan.apply({wanted!r}, machine="mi300x-8", runtime="sim") as layout:
    print(layout["a"].size)
"""
    assert in_a_process_of_its_own(source) == str(reported.bytes_by_device()["gpu.0"])


def test_completion_lists_the_public_names() -> None:
    assert set(hipplan.__all__) <= set(dir(hipplan))
    assert not [name for name in dir(hipplan) if name.startswith("_") and not name.startswith("__")]


@pytest.mark.usefixtures("sim")
def test_what_is_not_a_name_is_refused_with_its_type() -> None:
    with hipplan.apply({"hipplan": 1, "buffers": {"a": {"kind": "pinned", "size": 64}}}, runtime="sim") as layout:
        wrongs = (lambda: layout[0], lambda: layout.fill(layout["a"], 1), lambda: layout.copy("a", layout["a"]))
        for wrong in wrongs:
            with pytest.raises(TypeError, match=r"expected the name of an object, such as 'weights', not an? "):
                wrong()
        assert not hasattr(layout["a"], "handle")


def test_a_missing_file_of_registered_memory_is_named_with_its_absolute_path(sim: Simulator, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("hipplan: 1\nbuffers:\n  b: {kind: registered, file: none.bin}\n")
    with pytest.raises(ApplyError) as caught:
        hipplan.apply(path, runtime="sim")

    missing = caught.value.diagnostics[0]
    assert (missing.code, missing.span is not None and missing.span.line) == ("HP405", 3)
    assert missing.summary == f"'b': {tmp_path / 'none.bin'}: No such file or directory"
    assert missing.hint == f"its absolute path is {tmp_path / 'none.bin'}"
    assert missing.notes == ("undone: there was nothing to release",)
    assert sim.alive() == set()
