"""hipplan/__init__.py is the one place of the version: everything else follows it."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import hipplan
from hipplan import _core
from hipplan.cli.main import run
from tests.conftest import PACKAGE, ROOT
from tests.release.conftest import FOLDER
from tools.release_checks import version_of

OTHER = "7.8.9"


def test_what_is_installed_has_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    library = ctypes.CDLL(FOLDER / "libhipplan.so")
    library.hipplan_version.restype = ctypes.c_char_p
    package = FOLDER / "cmake" / "hipplan" / "hipplan-config-version.cmake"
    assert run(["--version"]) == 0

    assert {
        version_of((PACKAGE / "__init__.py").read_text()),
        version("hipplan"),
        _core.__version__,
        library.hipplan_version().decode(),
        capsys.readouterr().out.splitlines()[0].removeprefix("hipplan "),
        *re.findall(r'set\(PACKAGE_VERSION "([\d.]+)"\)', package.read_text()),
        *re.findall(r"^Version: (.*)$", (FOLDER / "pkgconfig" / "hipplan.pc").read_text(), re.M),
    } == {hipplan.__version__}


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The sources with another version in that one place."""
    for name in ("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("hipplan", "cpp"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    init = tmp_path / "hipplan" / "__init__.py"
    init.write_text(init.read_text().replace(f'__version__ = "{hipplan.__version__}"', f'__version__ = "{OTHER}"'))
    return tmp_path


def test_the_metadata_follow_it(other: Path) -> None:
    pytest.importorskip("scikit_build_core")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(other), str(other)], check=True, env=os.environ | {"HIPPLAN_PURE": "1"})

    assert [file.name for file in other.glob("*.whl")] == [f"hipplan-{OTHER}-py3-none-any.whl"]


def test_the_cmake_package_the_pkg_config_file_and_the_library_follow_it(other: Path) -> None:
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if cmake is None or shutil.which("g++") is None:
        pytest.skip("needs cmake and g++")
    line = [cmake, "-S", other, "-B", other / "build", "-DHIPPLAN_PYTHON=OFF", "-DCMAKE_CXX_COMPILER=g++"]
    subprocess.run(line, check=True, capture_output=True)
    made = other / "build" / "cpp" / "c"

    assert f'set(PACKAGE_VERSION "{OTHER}")' in (made / "hipplan-config-version.cmake").read_text()
    assert f"\nVersion: {OTHER}\n" in (made / "hipplan.pc").read_text()
    assert re.search(rf"HIPPLAN_VERSION=\W*{OTHER}\W", (other / "build" / "compile_commands.json").read_text())


def test_no_other_file_of_the_build_has_it() -> None:
    cpp = ROOT / "cpp"
    files = [ROOT / "pyproject.toml", ROOT / "CMakeLists.txt", *cpp.rglob("CMakeLists.txt"), *cpp.rglob("*.in")]

    assert [str(file) for file in files if re.search(r"(?i)\bversion[ =]+\W?\d+\.\d+\.\d+", file.read_text())] == []


@pytest.mark.parametrize("text", ["", '__version__ = "1.0"\n', "__version__ = version()\n", ' __version__ = "1.0.0"\n'])
def test_an_init_without_a_version_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="has no line such as"):
        version_of(text)
