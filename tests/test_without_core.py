"""What needs no driver works from the pure-Python wheel, and the rest says what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import ROOT

QUICKSTART = ROOT / "plans" / "quickstart.yaml"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment where hipplan is what the pure-Python wheel installs."""
    pytest.importorskip("scikit_build_core")
    folder = tmp_path_factory.mktemp("bare")
    source = folder / "source"  # pip builds beside the sources
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "hipplan", source / "hipplan", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    without_compiler = os.environ | {"HIPPLAN_PURE": "1", "CXX": "/nonexistent"}
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder), str(source)],
        check=True, env=without_compiler,
    )  # fmt: skip
    path = os.pathsep.join([str(folder), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    return os.environ | {"PYTHONPATH": path}


def run(bare: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    # -S: the site's own hooks would find the installed hipplan, compiled part and all.
    line = [sys.executable, "-S", "-m", "hipplan", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=600, env=bare, cwd="/")


@pytest.mark.parametrize("python_compiler", ["no-such-g++ -pthread", ""])
def test_without_a_compiler_the_error_says_what_to_install(python_compiler: str, tmp_path: Path) -> None:
    """scikit-build-core sets CXX to the compiler that Python was made with, so CMake would blame CXX."""
    (tmp_path / "bin").mkdir()
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert cmake is not None
    (tmp_path / "bin" / "cmake").symlink_to(cmake)
    line = ["cmake", "-S", ROOT, "-B", tmp_path / "build", "-DSKBUILD=ON", "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF"]
    alone = {"PATH": str(tmp_path / "bin"), "CXX": python_compiler, "ROCM_PATH": str(tmp_path)}
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, env=alone)
    message = " ".join(done.stderr.split())

    assert done.returncode == 1
    assert "hipplan needs a C++ compiler, and none was found. Install g++ (apt-get install g++)" in message
    assert "HIPPLAN_PURE=1 pip install ." in message


def test_the_compiled_part_is_really_not_there(bare: dict[str, str]) -> None:
    line = [sys.executable, "-S", "-c", "import hipplan._core"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, env=bare, cwd="/")

    assert "No module named 'hipplan._core'" in done.stderr


def test_the_wheel_is_for_every_python(bare: dict[str, str]) -> None:
    folder = Path(bare["PYTHONPATH"].partition(os.pathsep)[0])
    (about,) = folder.glob("hipplan-*.dist-info/WHEEL")

    assert "Tag: py3-none-any\n" in about.read_text()
    assert not [*folder.glob("hipplan/**/*.so"), *folder.glob("hipplan/_core*")]


def test_all_that_needs_no_driver_works(bare: dict[str, str], tmp_path: Path) -> None:
    tensors, picture = ROOT / "plans" / "data" / "layer.safetensors", tmp_path / "plan.html"
    for arguments in (["validate", QUICKSTART], ["preview", QUICKSTART, "--machine", "sim-2"], ["machine", "list"],
                      ["preview", QUICKSTART, "--from", QUICKSTART, "--machine", "sim-2"], ["schema"],
                      ["lock", QUICKSTART, "--machine", "mi300x-8"], ["fmt", "--check", QUICKSTART],
                      ["draw", QUICKSTART, "--machine", "sim-2", "-o", picture], ["explain", "--list"],
                      ["explain", "HP101"], ["import", "safetensors", tensors],
                      ["machine", "show", "mi300x-8"], ["completion", "bash"], ["--version"]):  # fmt: skip
        done = run(bare, *arguments)

        assert (done.returncode, done.stderr) == (0, "")
    assert "<script>" in picture.read_text()


@pytest.mark.parametrize("arguments", [["apply", QUICKSTART], ["machine"], ["preview", QUICKSTART], ["bench"]], ids=str)
def test_what_needs_it_says_what_is_missing(arguments: list[object], bare: dict[str, str]) -> None:
    done = run(bare, *arguments)

    assert done.returncode == 3
    assert done.stderr.startswith("error[HP408]: the compiled part of hipplan (hipplan._core) is missing")
    assert "pip install ." in done.stderr


def test_the_doctor_says_that_it_is_missing(bare: dict[str, str]) -> None:
    done = run(bare, "doctor")

    assert done.returncode in (0, 3), done.stderr
    assert (
        "warning: this is the pure-Python hipplan: it checks plans, and cannot apply one\n  do:  install" in done.stdout
    )


def test_a_simulator_is_not_in_it(bare: dict[str, str]) -> None:
    done = run(bare, "sim", "--", "true")

    assert done.returncode == 3
    assert "the pure-Python hipplan has no simulator; install the full wheel" in done.stderr
    assert "name an executable program" not in done.stderr


def test_python_reports_the_missing_core_too(bare: dict[str, str]) -> None:
    script = "import hipplan; hipplan.compile(hipplan.load('{}'), hipplan.machine('sim-2')); hipplan.apply"
    line = [sys.executable, "-S", "-c", script.format(QUICKSTART)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, env=bare, cwd="/")

    assert "RuntimeUnavailable: error[HP408]" in done.stderr


def test_importing_hipplan_loads_nothing_heavy(bare: dict[str, str]) -> None:
    script = "import sys, hipplan; print(sorted({'pydantic', 'yaml', 'rich', 'numpy'} & set(sys.modules)))"
    line = [sys.executable, "-S", "-c", script]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, env=bare, cwd="/")

    assert done.stdout.strip() == "[]"


def test_validate_loads_nothing_it_does_not_need(bare: dict[str, str]) -> None:
    heavy = {
        "rich",
        "importlib.metadata",
        "email",
        "json",
        "difflib",
        "hipplan.program.compiler",
        "hipplan.lowering.compiler",
        "hipplan.machines.profiles",
    }
    script = f"import sys; from hipplan.cli.main import run; assert run(['validate', {str(QUICKSTART)!r}]) == 0; "
    script += f"print(sorted({heavy!r} & set(sys.modules)))"
    line = [sys.executable, "-S", "-c", script]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, env=bare, cwd="/")

    assert done.stdout.splitlines()[-1] == "[]"


def test_plugins_of_pydantic_are_found_again(bare: dict[str, str]) -> None:
    script = "from hipplan.start import without_plugins; without_plugins(); from pydantic.plugin import _loader; "
    script += (
        "import importlib.metadata as real; print(_loader.entry_points(group='x') == real.entry_points(group='x'))"
    )
    line = [sys.executable, "-S", "-c", script]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, env=bare, cwd="/")

    assert done.stdout.strip() == "True", done.stderr


def test_the_two_halves_belong_together() -> None:
    import hipplan
    from hipplan import _core

    assert hipplan.__version__ == _core.__version__
    assert Path(_core.__file__).with_name("libhipsim.so").exists()
    assert Path(_core.__file__).with_name("libhipcuda.so").exists()


def test_an_experiment_is_checked_and_its_run_says_what_is_missing(bare: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("hipplan: 1\nvars: {n: 1}\nregions: {a: {size: 2MiB}}\n")
    file = tmp_path / "e.experiment.yaml"
    file.write_text("hipplan_experiment: 1\nplan: plan.yaml\nvary: {n: [1, 2]}\nmeasure: [map]\n")
    listed = run(bare, "experiment", "run", file, "--dry-run", "--machine", "mi300x-8")
    refused = run(bare, "experiment", "run", file)

    assert (listed.returncode, listed.stdout.count(": good")) == (0, 2), listed.stderr
    assert refused.returncode == 3
    assert "HP408" in refused.stderr
    assert not (tmp_path / "e.results.jsonl").exists()
