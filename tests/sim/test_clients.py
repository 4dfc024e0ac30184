"""Programs that know nothing of a simulator run on it, through the launcher."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..conformance.sim import TWO_DEVICES, library_path
from .conftest import ROOT

CLIENTS = Path(__file__).parent / "clients"
LAUNCH = (
    "import sys; from hipplan.machines import simulator; sys.exit(simulator.run(sys.argv[2:], sys.argv[1] or None))"
)


def launched(*command: str, profile: str = TWO_DEVICES, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LAUNCH, profile, *command],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HIPSIM_LIBRARY": library_path(), **variables},
        capture_output=True,
        text=True,
        timeout=600,
    )


def compiler() -> str:
    result = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not result:
        pytest.skip("no C++ compiler")
    return result


def stub(folder: Path, version: int, nodes: bool = False) -> Path:
    """A library to link against with AMD's name, SONAME and, if asked for, symbol versions."""
    names = ["hipMalloc", "hipFree", "hipGetErrorName", "hipInit"]
    source = folder / "stub.cpp"
    source.write_text("".join(f'extern "C" int {name}() {{ return 0; }}\n' for name in names))
    script = folder / "nodes.map"
    script.write_text("hip_4.2 { global: *; };")
    out = folder / "libamdhip64.so"
    extra = [f"-Wl,--version-script={script}"] if nodes else []
    subprocess.run(
        [compiler(), "-shared", "-fPIC", str(source), "-o", str(out), f"-Wl,-soname,libamdhip64.so.{version}", *extra],
        check=True,
    )
    return out


def linked(folder: Path, version: int, nodes: bool = False) -> str:
    """A program that makes a few HIP calls, linked to libamdhip64.so.`version`."""
    library = stub(folder, version, nodes)
    source = folder / "program.cpp"
    source.write_text(
        'extern "C" int hipMalloc(void**, unsigned long); extern "C" int hipFree(void*);\n'
        "int main() { void* p = nullptr; return hipMalloc(&p, 100) || hipFree(p) || !p ? 1 : 42; }\n"
    )
    program = folder / "program"
    subprocess.run([compiler(), str(source), str(library), "-o", str(program)], check=True)
    library.unlink()
    return str(program)


@pytest.mark.skipif(importlib.util.find_spec("hip") is None, reason="hip-python is not installed")
def test_hip_python_runs_virtual_memory_managed_memory_and_peers(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.json"
    got = launched(sys.executable, str(CLIENTS / "with_hip_python.py"), HIPSIM_LEDGER_AT_EXIT=str(ledger))

    assert got.returncode == 0, got.stderr
    assert got.stdout.strip() == "hip-python: Sim A gfx942:sramecc+:xnack-"
    left = json.loads(ledger.read_text())
    assert [left[name] for name in ("allocations", "reservations", "mappings", "buffers", "peers")] == [[]] * 5


@pytest.mark.skipif("HIP_HEADERS_DIR" not in os.environ, reason="HIP_HEADERS_DIR names no HIP 6 or 7 headers")
@pytest.mark.parametrize("built_with", ["g++", "hipcc"])
def test_a_program_built_with_hip_s_headers_runs(built_with: str, tmp_path: Path) -> None:
    if shutil.which(built_with) is None:
        pytest.skip(f"{built_with} is not installed")
    program = tmp_path / "program"
    with_names = tmp_path / "libamdhip64.so"
    with_names.symlink_to(library_path())
    subprocess.run(
        [built_with, "-w", "-x", "c++", "-D__HIP_PLATFORM_AMD__", f"-I{os.environ['HIP_HEADERS_DIR']}",
         str(CLIENTS / "rocm_program.cpp"), "-o", str(program), f"-L{tmp_path}", "-lamdhip64",
         "-Wl,--allow-shlib-undefined"],
        check=True,
        # hipcc would take nvcc where it finds one, and look for a GPU to build for.
        env=os.environ | {"HIP_PLATFORM": "amd", "HCC_AMDGPU_TARGET": "gfx90a"},
    )  # fmt: skip
    got = launched(str(program))

    assert (got.returncode, got.stdout.strip()) == (
        42,
        "Sim A gfx942:sramecc+:xnack- 16384 MiB, seen by the device",
    ), got.stderr


def test_what_exit_handlers_and_destructors_give_back_is_no_leak(tmp_path: Path) -> None:
    source, program, ledger = tmp_path / "program.cpp", tmp_path / "program", tmp_path / "ledger.json"
    source.write_text(
        'extern "C" int hipMalloc(void**, unsigned long), hipFree(void*), atexit(void (*)());\n'
        "struct owner { void* memory = nullptr; ~owner() { hipFree(memory); } } owned, handled;\n"
        "void give_back() { hipFree(handled.memory); handled.memory = nullptr; }\n"
        "int main() { void* leaked; atexit(give_back);\n"
        "  return hipMalloc(&owned.memory, 1) || hipMalloc(&handled.memory, 2) || hipMalloc(&leaked, 3); }\n"
    )
    library = library_path()
    extra = [f"-Wl,-rpath,{Path(library).parent}", "-Wl,--allow-shlib-undefined"]
    subprocess.run([compiler(), str(source), library, "-o", str(program), *extra], check=True)
    subprocess.run([str(program)], env={**os.environ, "HIPSIM_LEDGER_AT_EXIT": str(ledger)}, check=True)

    assert [buffer["size"] for buffer in json.loads(ledger.read_text())["buffers"]] == [3]


@pytest.mark.parametrize("version", [6, 7])
def test_programs_find_the_simulator_under_amd_s_names(tmp_path: Path, version: int) -> None:
    assert launched(linked(tmp_path, version)).returncode == 42


def test_programs_linked_to_versioned_symbols_run(tmp_path: Path) -> None:
    assert launched(linked(tmp_path, 6, nodes=True)).returncode == 42


@pytest.mark.parametrize("nodes", [False, True])
@pytest.mark.parametrize("binding", ["lazy", "now"])
def test_a_program_for_hip_5_is_reported_so_in_a_sentence(tmp_path: Path, nodes: bool, binding: str) -> None:
    variables = {"LD_BIND_NOW": "1"} if binding == "now" else {}
    got = launched(linked(tmp_path, 5, nodes), **variables)

    assert got.returncode == 3
    assert "libamdhip64.so.5" in got.stderr
    assert "HIP 6 and 7" in got.stderr


def test_every_function_of_the_public_headers_is_exported() -> None:
    import ctypes
    import re

    lists = [
        ROOT / "cpp" / "hip" / "hip_calls.def",
        ROOT / "cpp" / "runtimes" / "sim" / "extra_calls.def",
        ROOT / "cpp" / "runtimes" / "sim" / "refused_calls.def",
    ]
    names = {n for f in lists for n in re.findall(r"^HIP_\w+\((\w+)", f.read_text(), re.MULTILINE)}
    if headers := os.environ.get("HIP_HEADERS_DIR"):
        text = (Path(headers) / "hip" / "hip_runtime_api.h").read_text()
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
        names |= set(re.findall(r"^\s*hipError_t (hip[A-Z]\w*)\(", text, re.MULTILINE))
    library = ctypes.CDLL(library_path())

    assert len(names) > 450
    assert [name for name in sorted(names) if not hasattr(library, name)] == []
