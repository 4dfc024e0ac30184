"""How a C program is built: the examples of docs/c.md, `hipplan config`, CMake, pkg-config, and without Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hipplan.cli.main import run
from hipplan.experiment import results
from tests.c.programs import HEADERS, LIBRARY
from tests.cli.test_tutorial import commands, shell  # noqa: F401  # a fixture
from tests.conftest import ROOT, not_under_tsan
from tests.holders.test_holders import Held

pytestmark = not_under_tsan
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "docs" / "c.md").read_text(), re.S | re.M)
PROGRAM = next(body for kind, body in BLOCKS if kind == "c")


def needs(*commands_: str) -> None:
    for command in commands_:
        if shutil.which(command) is None:
            pytest.skip(f"needs {command}")


def done(*command: str | Path, cwd: Path | None = None, **settings: str) -> str:
    """What a command has printed."""
    finished = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **settings})
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def attaches(program: Path) -> bool:
    """Whether the program of docs/c.md attaches to the holder "w", which has no such tensor."""
    finished = subprocess.run([program], capture_output=True, text=True, env={**os.environ, "HIPPLAN_HOLDER": "w"})
    return "the layout has no 'model.embed'" in finished.stderr and finished.returncode == 0


def test_the_examples_of_the_page_run(folder: Path, tmp_path: Path, shell: dict[str, str]) -> None:  # noqa: F811
    needs("cc")
    ran = 0
    for kind, body in BLOCKS:
        if kind in ("yaml", "c"):
            name = body.split("\n", 1)[0].strip("#/* ")
            (tmp_path / name).write_text(body)
        for command, code, shown in commands(body) if kind == "sh" and body.startswith("$") else ():
            finished = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=shell, timeout=600
            )
            assert (finished.returncode, finished.stderr) == (code, ""), command
            printed = finished.stdout.splitlines()
            assert len(printed) == len(shown), finished.stdout
            for expected, line in zip(shown, printed, strict=True):
                assert re.fullmatch(".*".join(map(re.escape, expected.split("..."))), line), finished.stdout
            ran += 1
    assert ran == 4


@pytest.mark.parametrize("standard", ["c11", "c++17"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_both_compilers_take_the_header(compiler: str, standard: str, tmp_path: Path) -> None:
    command = {"gccc++17": "g++", "clangc++17": "clang++"}.get(compiler + standard, compiler)
    found = next(filter(None, map(shutil.which, (command, f"{command}-15"))), None)
    if found is None:
        pytest.skip(f"needs {command}")
    source = tmp_path / ("program.c" if standard == "c11" else "program.cpp")
    source.write_text(PROGRAM)
    strict = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
    done(found, f"-std={standard}", *strict, f"-I{HEADERS}", "-fsyntax-only", source)


def test_config_prints_what_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--libs", "--include-dir"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"-L{LIBRARY.parent} -Wl,-rpath,{LIBRARY.parent} -lhipplan",
        str(HEADERS),
    ]
    assert run(["config"]) == 0
    values = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert Path(values["include-dir"], "hipplan.h").is_file()
    assert Path(values["cmake-dir"], "hipplan-config.cmake").is_file()
    assert Path(values["pkg-config-dir"], "hipplan.pc").is_file()


def build_with_cmake(folder: Path, *options: str) -> Path:
    (folder / "program.c").write_text(PROGRAM)
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(example C)\nfind_package(hipplan 0.1 REQUIRED)\n"
        "add_executable(program program.c)\ntarget_link_libraries(program PRIVATE hipplan::hipplan)\n"
    )
    done("cmake", "-S", folder, "-B", folder / "build", *options)
    done("cmake", "--build", folder / "build")
    return folder / "build" / "program"


def test_cmake_finds_the_package(held: Held, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs("cmake", "cc")
    held()
    assert run(["config", "--cmake-dir"]) == 0
    assert attaches(build_with_cmake(tmp_path, f"-Dhipplan_DIR={capsys.readouterr().out.strip()}"))


def test_pkg_config_finds_the_package(held: Held, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs("pkg-config", "cc")
    held()
    (tmp_path / "program.c").write_text(PROGRAM)
    assert run(["config", "--pkg-config-dir"]) == 0
    words = done("pkg-config", "--cflags", "--libs", "hipplan", PKG_CONFIG_PATH=capsys.readouterr().out.strip()).split()
    done("cc", "program.c", *words, "-o", "program", cwd=tmp_path)
    assert attaches(tmp_path / "program")


def test_the_library_needs_neither_python_nor_hip_and_shows_only_the_header() -> None:
    needs("readelf", "nm")
    needed = re.findall(r"NEEDED.*\[(.*)\]", done("readelf", "-d", LIBRARY))
    assert not [name for name in needed if re.search("python|hip|amd|cuda", name)]
    shown = {line.split()[-1] for line in done("nm", "-D", "--defined-only", LIBRARY).splitlines()}
    declared = set(re.findall(r"HIPPLAN_API [^(]*?(hipplan_\w+)\(", (HEADERS / "hipplan.h").read_text()))
    assert shown == declared and len(declared) == 7
    assert "#include <hip" not in (HEADERS / "hipplan.h").read_text()


def test_the_stream_of_the_examples_runs_as_an_experiment(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("cmake", "c++")
    assert run(["config", "--cmake-dir"]) == 0
    there = capsys.readouterr().out.strip()
    example = shutil.copytree(ROOT / "examples" / "stream", tmp_path / "stream")
    done("cmake", "-S", example, "-B", example / "build", f"-Dhipplan_DIR={there}")
    done("cmake", "--build", example / "build")
    file = example / "stream.experiment.yaml"
    assert run(["validate", str(file), "--machine", "mi300x-8"]) == 0
    assert run(["fmt", "--check", str(file), str(example / "stream.yaml")]) == 0
    file.write_text(file.read_text().replace("host: [none]", "host: [rw]"))
    results_file = tmp_path / "results.jsonl"
    assert run(["experiment", "run", str(file), "--only=size=1MiB", "--repeat=1", "-qo", str(results_file)]) == 0
    (line,) = results.read(str(results_file))
    assert line["metrics"].keys() == {"copy", "scale", "add", "triad"}


@pytest.mark.skipif("HIPPLAN_WHOLE" not in os.environ, reason="make reliability: it compiles for a minute")
def test_it_is_built_and_installed_without_python(held: Held, tmp_path: Path) -> None:
    needs("cmake", "cc")
    held()
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    done("cmake", "-S", ROOT, "-B", build, "-DHIPPLAN_PYTHON=OFF", "-DPython_ROOT_DIR=/nowhere")
    done("cmake", "--build", build)
    done("cmake", "--install", build, "--prefix", prefix)
    (tmp_path / "example").mkdir()
    assert attaches(build_with_cmake(tmp_path / "example", f"-DCMAKE_PREFIX_PATH={prefix}"))
