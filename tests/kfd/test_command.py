"""`hipplan sim --library` and --without-gpu, on a library in the place of AMD's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hipplan.cli.main import run
from hipplan.machines import libraries
from tests.cli.conftest import Run, hipplan, started  # noqa: F401

from .conftest import preload

Command = Callable[..., "subprocess.CompletedProcess[str]"]
HERE = Path(__file__).parent
COUNT = """
import ctypes
count = ctypes.c_int()
print(ctypes.CDLL("libamdhip64.so.7").hipGetDeviceCount(ctypes.byref(count)), count.value)
"""


def compiled(folder: Path, name: str, *arguments: str) -> Path:
    library = folder / name
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", *arguments, f"-Wl,-soname,{name}", "-o", library], check=True)
    return library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    preload()
    folder = tmp_path_factory.mktemp("rocm")
    (folder / "hsa.c").write_text("int hsa_is_there(void) { return 1; }\n")
    hsa = compiled(folder, "libhsa-runtime64.so.1", str(folder / "hsa.c"))
    return compiled(folder, "libamdhip64.so.7", str(HERE / "fake_hip.c"), str(hsa), "-Wl,-rpath,$ORIGIN")


@pytest.fixture
def sim(library: Path, hipplan: Run) -> Command:  # noqa: F811
    """`hipplan sim --library`, as a process."""

    def run(*arguments: str, code: str = COUNT, **variables: str) -> subprocess.CompletedProcess[str]:
        return hipplan("sim", "--library", library, *arguments, "--", sys.executable, "-c", code, env=variables)

    return run


@pytest.mark.parametrize(("machine", "count"), [([], 2), (["--machine", "mi250x-8"], 8), (["--machine=mi210"], 1)])
def test_a_program_finds_the_machine_of_the_profile(sim: Command, machine: Sequence[str], count: int) -> None:
    ran = sim(*machine)

    assert ran.stdout == f"0 {count}\n"
    assert ran.stderr.count("notice: AMD's library runs on this machine without a GPU: kernels of your own") == 1


def test_exit_codes_signals_and_streams_are_the_program_s(sim: Command, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    assert sim(code="raise SystemExit(42)", TMPDIR=str(temporary)).returncode == 42
    assert sim(code="import os; os.kill(os.getpid(), 9)", TMPDIR=str(temporary)).returncode == 128 + signal.SIGKILL
    assert list(temporary.iterdir()) == []
    assert sim(code="import sys; print('out'); print('err', file=sys.stderr)").stdout == "out\n"


def test_a_signal_to_the_command_reaches_the_program(library: Path) -> None:
    code = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print(1, flush=True)
sys.exit(9 if signal.sigwait({signal.SIGTERM}) else 1)
"""
    whole = [sys.executable, "-m", "hipplan", "sim", "--library", str(library), "--", sys.executable, "-c", code]
    with subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 9


def test_faults_reach_the_program(sim: Command) -> None:
    code = "from tests.kfd.client import *\ntry: Driver()\nexcept OSError as error: print(error.errno)"
    ran = sim("--fail", "get_process_apertures_new@1=EIO", code=code, PYTHONPATH=str(HERE.parents[1]))

    assert ran.stdout == "5\n"


LAUNCH = """
import ctypes
hip = ctypes.CDLL("libamdhip64.so.7")
hip.hipGetDeviceCount(ctypes.byref(ctypes.c_int()))
print(hip.hipLaunchKernel(None, 1), hip.hipPeekAtLastError(), hip.launches_done())
"""
LINKED = """
#include <stdio.h>
int hipLaunchKernel(void*, int), hipPeekAtLastError(void), launches_done(void), hipGetDeviceCount(int*);
int main(void) {
  int count;
  const int code = hipLaunchKernel(0, 1); /* the program's first call */
  hipGetDeviceCount(&count);
  printf("%d %d %d\\n", code, hipPeekAtLastError(), launches_done());
}
"""


def test_launches_are_refused_on_demand(sim: Command) -> None:
    assert sim(code=LAUNCH).stdout == "0 0 1\n"

    ran = sim("--refuse-kernels", code=LAUNCH)
    assert ran.stdout == "801 801 0\n"
    assert "1 launches of kernels were refused: there is no GPU" in ran.stderr


def test_the_first_call_of_a_linked_program_is_refused_if_it_is_a_launch(library: Path, tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text(LINKED)
    compile_it = [os.environ.get("CC", "cc"), tmp_path / "program.c", library, "-o", tmp_path / "program"]
    subprocess.run([*compile_it, f"-Wl,-rpath-link,{library.parent}"], check=True)
    whole = [sys.executable, "-m", "hipplan", "sim", "--library", str(library)]
    outcomes = [
        subprocess.run([*whole, *option, "--", tmp_path / "program"], capture_output=True, text=True).stdout
        for option in ([], ["--refuse-kernels"])
    ]
    assert outcomes == ["0 0 1\n", "801 801 0\n"]


def test_a_machine_that_is_named_inside_another_one_is_not_dropped(library: Path, hipplan: Run) -> None:  # noqa: F811
    inner = [sys.executable, "-m", "hipplan", "apply", "plan.yaml", "--without-gpu", "--machine", "h200-1"]
    ran = hipplan("sim", "--library", library, "--machine", "mi210", "--", *inner)

    assert ran.returncode == 3
    assert "the machine h200-1 cannot be simulated for AMD's library" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["--fail", "no_such_call@1=EIO"], 2, "--fail: fault rule 'no_such_call@1=EIO': no call no_such_call"),
        (["--hip-version", "7.2"], 2, "--hip-version: a library has a version of its own"),
        (["--trace", "calls.jsonl"], 2, "--trace: the simulator's"),
        (["--machine", "h200-1"], 3, "device 0 (NVIDIA H200) has no AMD target, such as gfx942, as its arch"),
        (["--machine", "no-such"], 2, "there is no machine profile 'no-such'"),
        (["--library", "/no/such/libamdhip64.so.7"], 3, "No such file or directory"),
        (["--library", __file__], 3, "it is not a shared library"),
    ],
)
def test_what_cannot_be_is_refused_at_once(sim: Command, arguments: Sequence[str], code: int, why: str) -> None:
    ran = sim(*arguments)

    assert (ran.returncode, ran.stdout) == (code, "")
    assert why in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_library_that_is_not_amd_s_is_refused(sim: Command, library: Path, tmp_path: Path) -> None:
    from hipplan.machines.simulator import library_path

    other = compiled(tmp_path, "libother.so", str(library.parent / "hsa.c"))
    needs = compiled(
        tmp_path, "libneeds.so", str(library.parent / "hsa.c"), str(other), "-Wl,--no-as-needed", str(other)
    )
    other_kind = tmp_path / "arm.so"
    head = bytearray(library.read_bytes())
    head[18:20] = b"\xb7\0"  # EM_AARCH64
    other_kind.write_bytes(head)
    for path, why in (
        (other, "it is not AMD's HIP library"),
        (library_path(), "it is hipplan's simulator, not AMD's library"),
        (other_kind, "it is for another kind of processor than x86-64"),
    ):
        ran = sim("--library", str(path))
        assert (ran.returncode, why in ran.stderr) == (3, True), ran.stderr
    other.unlink()
    assert "libother.so: cannot open shared object file" in sim("--library", str(needs)).stderr


def test_a_program_that_is_not_there(library: Path, hipplan: Run) -> None:  # noqa: F811
    ran = hipplan("sim", "--library", library, "--", "no-such-program")

    assert ran.returncode == 3
    assert "'no-such-program' cannot be started" in ran.stderr


@pytest.mark.parametrize("runtime", ["sim", "cuda"])
def test_without_gpu_is_for_amd_s_library(runtime: str, hipplan: Run) -> None:  # noqa: F811
    ran = hipplan("apply", "plan.yaml", "--without-gpu", "--runtime", runtime)

    assert ran.returncode == 2
    assert f"it is for AMD's library, and not for the runtime {runtime}" in ran.stderr


@pytest.mark.parametrize("verb", ["machine", "bench"])
def test_a_machine_is_chosen_for_amd_s_library_alone(verb: str, hipplan: Run) -> None:  # noqa: F811
    ran = hipplan(verb, "--machine", "mi210")
    assert (ran.returncode, "--machine is for --without-gpu" in ran.stderr) == (2, True)
    ran = hipplan(verb, "--machine", "mi210", "--without-gpu", "--runtime", "/none.so")
    assert (ran.returncode, "/none.so cannot be run without a GPU" in ran.stderr) == (3, True)


def test_without_gpu_where_there_is_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(libraries, "_amd_candidates", lambda: [str(tmp_path / "libamdhip64.so.7")])
    monkeypatch.setattr(libraries, "_unknown_abis", lambda: iter(()))  # of what this machine has
    monkeypatch.delenv("HIPPLAN_RUNTIME", raising=False)

    assert run(["apply", "plan.yaml", "--without-gpu"]) == 3
    assert "error[HP407]: no ROCm library was found" in capsys.readouterr().err
