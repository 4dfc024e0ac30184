"""Choosing a runtime, and what is said when there is none."""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

import hipplan
from hipplan import _core
from hipplan.errors import MachineError, RuntimeUnavailable
from hipplan.machines import libraries, runtimes
from hipplan.machines.discover import discover
from hipplan.machines.machine import Machine
from hipplan.machines.profiles import load_machine
from hipplan.machines.simulator import library_path
from tests.conftest import Simulator
from tests.meddling import Making
from tests.pauses import Pause, during

OLD = "libamdhip64.so.5"
NOT_UTF_8 = os.fsdecode(b"\xff")


def has(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def refused(wanted: str, code: int = 3) -> str:
    with pytest.raises(RuntimeUnavailable) as caught:
        runtimes.choose(wanted)
    assert caught.value.exit_code == code
    return str(caught.value)


@pytest.mark.skipif(not has(OLD), reason=f"{OLD} (Debian's libamdhip64-5) is not installed")
def test_a_runtime_before_6_1_is_too_old() -> None:
    with pytest.raises(_core.RuntimeUnusable, match=r"is HIP 5\.\d+; hipplan needs 6\.1 or later"):
        _core.Runtime.open(OLD)


@pytest.mark.skipif(not has(OLD), reason=f"{OLD} (Debian's libamdhip64-5) is not installed")
def test_the_error_of_amd_with_only_an_old_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_amd_candidates", lambda: iter(["libamdhip64.so.77", OLD]))

    assert "is HIP 5." in refused("amd")


def test_amd_without_any_library_says_where_it_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_amd_candidates", lambda: iter(["libamdhip64.so.77", "libamdhip64.so.66"]))
    text = refused("amd")

    assert "no HIP library was found" in text
    assert "looked at libamdhip64.so.77, libamdhip64.so.66" in text
    assert "install ROCm 6.1 or later" in text


def test_rocm_path_is_looked_at_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "lib" / "libamdhip64.so.6"
    library.parent.mkdir()
    library.touch()
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    monkeypatch.setattr(_core, "loaded_libraries", lambda prefix: [])

    assert next(libraries._amd_candidates()) == str(library)


def test_the_system_s_rocm_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("libamdhip64.so.6", "libamdhip64.so.7"):
        library = tmp_path / "lib" / name
        library.parent.mkdir(exist_ok=True)
        library.touch()
    monkeypatch.setattr(libraries, "SYSTEM_ROCM", str(tmp_path))
    monkeypatch.delenv("ROCM_PATH", raising=False)
    monkeypatch.setattr(_core, "loaded_libraries", lambda prefix: [])
    monkeypatch.setattr(libraries, "wheel_folders", lambda: iter(()))

    assert next(libraries._amd_candidates()) == str(library)  # the newest


def test_a_wheel_s_own_copy_comes_before_the_system_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "torch" / "lib" / "libamdhip64.so"
    library.parent.mkdir(parents=True)
    library.touch()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delenv("ROCM_PATH", raising=False)
    monkeypatch.setattr(_core, "loaded_libraries", lambda prefix: [])

    assert next(libraries._amd_candidates()) == str(library)


def test_a_module_that_stands_in_for_a_wheel_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was made by hand, as tests of others do, has no spec to look at."""
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))

    assert not [folder for folder in libraries.wheel_folders() if "torch" in folder]


def elsewhere(library: str, folder: Path, name: str = "libamdhip64.so.7") -> Path:
    """A copy of the simulator under ROCm's name: another library for the loader, as ROCm's copies are."""
    folder.mkdir()
    return Path(shutil.copy(library, folder / name))


def in_a_process_of_its_own(script: str, **variables: str) -> str:
    environment = {**os.environ, "HIPSIM_LOG": "none", **variables}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["libamdhip64.so.6", "libamdhip64.so.7", "libamdhip64.so"])
def test_the_library_is_found_by_the_loader_alone(name: str, sim: Simulator, tmp_path: Path) -> None:
    library = elsewhere(sim.runtime.path, tmp_path / "lib", name)
    script = "from hipplan.machines.runtimes import choose; made = choose('amd'); print(made.kind, made.runtime.path)"

    assert in_a_process_of_its_own(script, LD_LIBRARY_PATH=str(library.parent), ROCM_PATH="") == f"amd {name}"


def test_a_copy_that_another_module_has_loaded_is_used(sim: Simulator, tmp_path: Path) -> None:
    other_library = elsewhere(sim.runtime.path, tmp_path / f"theirs{NOT_UTF_8}")
    library = elsewhere(sim.runtime.path, tmp_path / "lib")
    script = f"""
import ctypes
ctypes.CDLL({str(other_library)!r})
from hipplan.machines.discover import discover
from hipplan.machines.runtimes import choose
made = choose("amd")
print(ascii(made.runtime.path), discover(made).sources[0].source)
"""
    used = f"{str(other_library)!r} measured through {tmp_path}/theirs\N{REPLACEMENT CHARACTER}/{other_library.name}"
    assert in_a_process_of_its_own(script, ROCM_PATH=str(tmp_path)) == used
    script = script.replace("ctypes.CDLL", "str")
    assert in_a_process_of_its_own(script, ROCM_PATH=str(tmp_path)) == f"{str(library)!r} measured through {library}"


def test_a_second_copy_that_is_loaded_later_is_noticed_before_a_view_is_handed_out(
    sim: Simulator, tmp_path: Path
) -> None:
    library = elsewhere(sim.runtime.path, tmp_path / "lib")
    other_library = elsewhere(sim.runtime.path, tmp_path / "theirs")
    script = f"""
import ctypes
import hipplan
plan = {{"hipplan": 1, "buffers": {{"b": {{"kind": "device", "size": 4096}}, "p": {{"kind": "pinned", "size": 4096}}}}}}
with hipplan.apply(plan, runtime="amd") as layout:
    layout["b"].__dlpack__()
    layout["b"].__cuda_array_interface__
    ctypes.CDLL({str(other_library)!r})
    for take in (lambda: layout["b"].__dlpack__(), lambda: layout["b"].__cuda_array_interface__):
        try:
            take()
        except BufferError as error:
            print(error)
    memoryview(layout["p"])  # the CPU's own view needs no runtime
"""
    reported = in_a_process_of_its_own(script, ROCM_PATH=str(tmp_path)).splitlines()
    assert len(reported) == 2
    for line in reported:
        assert "two copies of ROCm's library" in line
        assert f"{library}, {other_library}" in line


def rocm(folder: Path) -> Path:
    """An empty ROCM_PATH, and the file that would be its library."""
    library = folder / "rocm" / "lib" / "libamdhip64.so.7"
    library.parent.mkdir(parents=True)
    return library


def refused_in(root: Path | str, **variables: str) -> str:
    script = """
from hipplan.errors import RuntimeUnavailable
from hipplan.machines.runtimes import choose
try:
    choose("amd")
except RuntimeUnavailable as error:
    print(error)
"""
    return in_a_process_of_its_own(script, ROCM_PATH=str(root), **variables)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("a link that leads nowhere", ": .*cannot open shared object file"),
        ("a text", " is no shared library of 64 bits"),
        ("a folder", ": .*Is a directory"),
        ("an empty file", " is no whole shared library"),
        ("a library that is cut off", r" is cut off: it has 4096 of \d+ bytes"),  # dlopen would end the process
    ],
)
def test_what_is_wrong_with_rocm_path_s_library_is_reported(kind: str, said: str, tmp_path: Path) -> None:
    library = rocm(tmp_path)
    match kind:
        case "a link that leads nowhere":
            library.symlink_to(tmp_path / "gone")
        case "a folder":
            library.mkdir()
        case "a library that is cut off":
            library.write_bytes(library_path().read_bytes()[:4096])
        case _:
            library.write_text("no library" * 10 if kind == "a text" else "")

    assert re.match(rf"error\[HP407\]: {re.escape(str(library))}{said}", refused_in(tmp_path / "rocm"))


def test_a_library_that_lacks_one_that_it_needs_itself_names_both(tmp_path: Path) -> None:
    """ROCm half installed: the loader names only what is missing, as if the library were not there at all."""
    compiler = shutil.which("cc") or shutil.which("c++")
    if not compiler:
        pytest.skip("needs a compiler to make such a library")
    library = rocm(tmp_path)
    source = tmp_path / "empty.c"
    source.write_text("int empty;")
    needed = tmp_path / "libhsa-none.so.1"
    make = [compiler, "-shared", "-fPIC", str(source)]
    subprocess.run([*make, f"-Wl,-soname,{needed.name}", "-o", str(needed)], check=True)
    subprocess.run([*make, "-Wl,--no-as-needed", str(needed), "-o", str(library)], check=True)
    needed.unlink()
    reported = refused_in(tmp_path / "rocm")

    assert f"error[HP407]: {library}: libhsa-none.so.1: cannot open shared object file" in reported


def test_a_library_of_a_later_abi_is_refused_by_the_loader_and_the_doctor_alike(tmp_path: Path) -> None:
    library = rocm(tmp_path).with_name("libamdhip64.so.8")
    shutil.copy(library_path(), library)
    fault = f"{library} has an ABI that hipplan does not know: it knows .so.6 and .so.7"
    script = """
from hipplan.machines.doctor.examine import examine
print(*(finding.summary for finding in examine().findings), sep="\\n")
"""
    assert refused_in(tmp_path / "rocm").startswith(f"error[HP407]: {fault}")
    assert fault in in_a_process_of_its_own(script, ROCM_PATH=str(tmp_path / "rocm")).splitlines()


def test_a_rocm_path_that_holds_no_library_is_named(tmp_path: Path) -> None:
    assert f"ROCM_PATH is {tmp_path}, which has no lib/libamdhip64.so" in refused_in(tmp_path)


def test_cuda_says_why_there_is_no_device() -> None:
    script = """
from hipplan.errors import RuntimeUnavailable
from hipplan.machines.runtimes import choose
try:
    choose("cuda")
except RuntimeUnavailable as error:
    print(error)
print(choose("auto").notice)
"""
    reported = in_a_process_of_its_own(script, CUDA_VISIBLE_DEVICES="", ROCM_PATH="")
    why = "(no NVIDIA driver: libcuda.so.1: .*|the NVIDIA driver sees no GPU)"

    assert re.match(rf"error\[HP407\]: {why}", reported)
    assert re.search(rf"\(amd: .*; cuda: {why}\)$", reported)
    assert "CUDA_VISIBLE_DEVICES" in reported


@pytest.mark.parametrize("by_path", [False, True])
def test_a_runtime_without_a_device_is_refused(by_path: bool, sim: Simulator) -> None:
    script = f"""
from hipplan.errors import RuntimeUnavailable
from hipplan.machines.runtimes import choose
try:
    choose({sim.runtime.path if by_path else "sim"!r})
except RuntimeUnavailable as error:
    print(error)
"""
    reported = in_a_process_of_its_own(script, HIP_VISIBLE_DEVICES="-1")

    assert "no device" in reported
    assert f"{sim.runtime.path} says so" in reported


@pytest.mark.parametrize("wanted", ["sim", "auto"])
def test_a_forked_child_gets_an_error_about_the_fork(wanted: str) -> None:
    """And gets no simulator instead of the devices that it may not use."""
    script = f"""
import os, sys, warnings
import hipplan
warnings.simplefilter("ignore")
plan = {{"hipplan": 1, "buffers": {{"b": {{"kind": "device", "size": 4096}}}}}}
with hipplan.apply(plan, runtime="sim"):
    if os.fork() == 0:
        try:
            hipplan.apply(plan, runtime={wanted!r})
        except hipplan.RuntimeUnavailable as error:
            print(error, flush=True)
        os._exit(0)
    os.wait()
"""
    reported = in_a_process_of_its_own(script)

    assert reported.startswith("error[HP407]: this process was forked from one that had opened a runtime")
    assert "spawn" in reported


def test_a_library_that_is_not_hip_is_refused() -> None:
    libc = ctypes.util.find_library("c")
    assert libc is not None
    with pytest.raises(_core.RuntimeUnusable, match="is not a HIP runtime"):
        _core.Runtime.open(libc)


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    nonsense = tmp_path / f"lib{NOT_UTF_8}.so"
    nonsense.write_text("nonsense")

    answer = refused(str(nonsense))
    assert "lib\N{REPLACEMENT CHARACTER}.so is no whole shared library" in answer


def test_an_unknown_name_is_refused_with_the_choices() -> None:
    assert "one of auto, amd, cuda, sim" in refused("rocm", code=2)
    assert "one of auto, amd, cuda, sim" in refused("/lib\ud800.so", code=2)  # no file has such a name


def test_loaded_libraries_finds_what_is_loaded(sim: Simulator) -> None:
    assert sim.runtime.path in _core.loaded_libraries("libhipsim.so")


def test_the_simulator_changes_machine_only_when_nothing_is_alive(sim: Simulator) -> None:
    from hipplan.machines.profiles import load_machine

    buffer = Making(sim.runtime, ("create device buffer", "b", 0, 0, 4096))
    with pytest.raises(RuntimeUnavailable, match="the simulator cannot simulate sim-1"):
        runtimes.choose("sim", load_machine("sim-1"))
    buffer.release()

    assert runtimes.choose("sim", load_machine("sim-1")).runtime.device_count() == 1
    assert runtimes.choose("sim").runtime.device_count() == 2


@pytest.mark.parametrize(
    "rules",
    [
        *("hipMemMap", "hipMemMap@0=1", "hipMemMap@x=1", "*@1=hipErrorNoSuch", "*@1=hipSuccess", "*@~2=1"),
        *("*@1=delay:x", "hipMemMpa@1=1", "hipMallocAsync@1=1"),
        *("*@1=pause:", "*@1=pause:no/such/file", f"*@1=pause:{__file__}", f"*@1=pause:{Path(__file__).parent}"),
    ],
)
def test_a_fault_rule_that_cannot_be_read_is_refused(rules: str, sim: Simulator) -> None:
    with pytest.raises(ValueError, match=r"fault rule|no HIP error"):
        sim.runtime.arm_faults(rules)


def test_a_paused_call_continues_when_released_and_not_at_a_signal(sim: Simulator, tmp_path: Path) -> None:
    order: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)

    def act() -> None:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
        order.append("let go")

    with during(sim, tmp_path, "hipMalloc@1", act):
        buffer = Making(sim.runtime, ("create device buffer", "b", 0, 0, 4096))
        order.append("made")
    signal.signal(signal.SIGUSR1, before)
    buffer.release()

    assert order == ["let go", "made"]


def test_a_pause_without_its_fifo_does_not_wait(sim: Simulator, tmp_path: Path) -> None:
    """No process could end the pause."""
    pause = Pause(tmp_path, "hipMalloc@1")
    sim.runtime.arm_faults(pause.rule)
    pause.fifo.unlink()
    Making(sim.runtime, ("create device buffer", "b", 0, 0, 4096)).release()


def test_a_trace_has_a_line_per_call(sim: Simulator, tmp_path: Path) -> None:
    import json

    trace = tmp_path / NOT_UTF_8
    sim.runtime.trace_to(str(trace))
    sim.runtime.arm_faults("hipMalloc@2=hipErrorOutOfMemory")
    with pytest.raises(_core.HipError):
        Making(sim.runtime, ("create device buffer", "a", 0, 0, 4096), ("create device buffer", "b", 1, 0, 8192))
    sim.runtime.trace_to("")
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    mallocs = [line for line in lines if line["call"] == "hipMalloc"]

    assert [line["result"] for line in mallocs] == ["hipSuccess", "hipErrorOutOfMemory"]
    assert [line["injected"] for line in mallocs] == [False, True]
    assert [line["args"]["size"] for line in mallocs] == [4096, 8192]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))


def test_a_trace_that_cannot_be_written_is_an_os_error(sim: Simulator) -> None:
    with pytest.raises(OSError, match=f"cannot write the trace /no/such/{NOT_UTF_8}/trace"):
        sim.runtime.trace_to(f"/no/such/{NOT_UTF_8}/trace")


PLAN = {"hipplan": 1, "requires": {"gpu": True}, "buffers": {"x": {"kind": "device", "size": 4096}}}


def test_a_runtime_by_path_is_whose_library_it_is(sim: Simulator) -> None:
    with pytest.raises(MachineError, match=r"HP313.*the plan requires a real GPU, but this is the simulator"):
        hipplan.apply(PLAN, runtime=sim.runtime.path)
    with hipplan.apply({**PLAN, "requires": {}}, runtime=sim.runtime.path) as layout:
        assert layout.program.measured is not None
        assert layout.program.measured.runtime == "sim"
        assert layout.update({**PLAN, "requires": {}}).empty


def test_a_simulator_by_path_is_the_machine_that_is_asked_for(sim: Simulator, tmp_path: Path) -> None:
    other = elsewhere(sim.runtime.path, tmp_path / "lib", "libhipsim.so")
    script = (
        "import hipplan; plan = {'hipplan': 1, 'devices': {'gpu': {'count': 8}}}\n"
        f"with hipplan.apply(plan, runtime={str(other)!r}, machine='mi300x-8') as layout: print(layout.runtime.path)"
    )
    by_variable = script.replace(repr(str(other)), "'sim'")

    assert in_a_process_of_its_own(script) == str(other)
    assert in_a_process_of_its_own(by_variable, HIPSIM_LIBRARY=str(other)) == str(other)


def test_a_simulator_that_is_not_there_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPSIM_LIBRARY", "/no/such/libhipsim.so")

    assert "HIPSIM_LIBRARY names no file" in refused("sim", code=2)


def test_the_simulator_becomes_a_machine_with_unknown_links(sim: Simulator) -> None:
    devices = [{"name": "a", "memory": "64GiB"}, {"name": "b", "memory": "64GiB"}]
    unknown = Machine.model_validate({"name": "box", "devices": devices, "meshes": [{"devices": [0, 1]}]})

    made = runtimes.choose("sim", unknown)

    assert made.runtime.can_access_peer(0, 1)
    runtimes.choose("sim", load_machine("sim-2"))


def test_the_granularity_of_host_memory_is_measured_where_there_is_such_memory(sim: Simulator) -> None:
    newest = load_machine("sim-2")
    results = [discover(runtimes.choose("sim", newest.model_copy(update={"hip_version": release}))).host_granularity
            for release in ("7.2.53211", "6.4.43482")]  # fmt: skip
    runtimes.choose("sim", newest)

    assert results == [4096, None]


def test_the_hint_to_close_layouts_needs_open_layouts(sim: Simulator) -> None:
    large = Machine.model_validate({"name": "large", "devices": [{"name": "a"}] * 65})
    with pytest.raises(RuntimeUnavailable, match="the simulator knows devices 0 to 63") as wrong:
        runtimes.choose("sim", large)
    with (
        hipplan.apply({**PLAN, "requires": {}}, runtime="sim"),
        pytest.raises(RuntimeUnavailable, match="first close the layouts that use it"),
    ):
        runtimes.choose("sim", load_machine("mi300x-8"))

    assert "close the layouts" not in str(wrong.value)
