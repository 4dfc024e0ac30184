"""The commands of the README and CONTRIBUTING with a PATH of their own and stand-ins for Python, pip and compilers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

TOOLS = ("cat", "dirname", "env", "find", "mkdir", "rm", "touch")
PYTHON = """#!/bin/sh
[ "$*" = "-m venv {venv}" ] && mkdir -p {venv}/bin && cp "$0" {venv}/bin/python && cp "$0" {venv}/bin/pip \
  && cp "$0" {venv}/bin/hipplan
echo "${{0##*/}} $*" >>{log}
"""

if shutil.which("make") is None:
    pytest.skip("make is not installed", allow_module_level=True)


class Stranger:
    """A shell whose PATH holds make, a few tools, a python3 that writes down how it is called, and what a test adds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.venv, self.log = folder / "venv", folder / "calls"
        self.path = folder / "path"
        self.path.mkdir()
        for tool in ("make", "cp", *TOOLS):
            (self.path / tool).symlink_to(str(shutil.which(tool)))
        self.has("python3", PYTHON.format(venv=self.venv, log=self.log))

    def has(self, name: str, script: str = "#!/bin/sh\n") -> None:
        (self.path / name).write_text(script)
        (self.path / name).chmod(0o755)

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        shell = shutil.which("dash") or "/bin/sh"  # what /bin/sh is on Debian and Ubuntu
        line = ["make", "--no-print-directory", "-C", str(ROOT), f"SHELL={shell}", f"VENV={self.venv}"]
        line += [f"BUILD={self.folder / 'build'}", *arguments]
        variables = {"PATH": str(self.path), "HOME": str(self.folder), "ROCM_PATH": str(self.folder / "rocm")}
        return subprocess.run(line, capture_output=True, text=True, timeout=600, env=variables)


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    return Stranger(tmp_path)


@pytest.mark.parametrize("compiler", ["g++", "c++", "clang++", "hipcc"])
def test_demo_takes_whichever_compiler_there_is(compiler: str, stranger: Stranger) -> None:
    stranger.has(compiler)
    done = stranger.make("demo")

    assert done.returncode == 0, done.stderr
    assert "hipplan apply plans/quickstart.yaml --once --runtime sim\n" in stranger.log.read_text()


def test_demo_takes_the_compiler_of_rocm_that_is_not_on_the_path(stranger: Stranger) -> None:
    (stranger.folder / "rocm" / "bin").mkdir(parents=True)
    stranger.has("hipcc")
    (stranger.path / "hipcc").rename(stranger.folder / "rocm" / "bin" / "hipcc")

    assert stranger.make("demo").returncode == 0


def test_demo_says_that_there_is_no_compiler_before_anything_is_made(stranger: Stranger) -> None:
    done = stranger.make("demo")

    assert done.returncode == 2
    assert "No C++ compiler was found. Install one: sudo apt-get install g++\n" in done.stderr
    assert not stranger.venv.exists()


def test_demo_says_what_it_does_and_how_hipplan_is_called(stranger: Stranger) -> None:
    stranger.has("g++")
    output = stranger.make("demo").stdout

    assert "usually" in output.split("hipplan apply")[0]
    assert output.splitlines()[-1].endswith(f": . {stranger.venv}/bin/activate && hipplan --help")


def test_sanitize_builds_with_all_sanitizers(stranger: Stranger) -> None:
    output = stranger.make("-n", "sanitize").stdout

    assert "for kind in address,undefined thread; do" in output
    assert "for kind in thread; do" in stranger.make("-n", "sanitize", "KINDS=thread").stdout


def test_release_passes_the_pythons_and_the_address_on(stranger: Stranger) -> None:
    stranger.has("g++")
    end = "-m tools.release make build/release --pythons a b --repository https://x.example/y\n"

    assert stranger.make("-n", "release", "PYTHONS=a b", "REPOSITORY=https://x.example/y").stdout.endswith(end)


@pytest.mark.parametrize(
    "fails", ["ruff check", "ruff format", "mypy", "stubtest", "clang-format", "clang-tidy", "cmake"]
)
def test_each_checker_that_fails_makes_the_check_fail(fails: str, tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for name in ("ruff", "mypy", "stubtest", "clang-format", "clang-tidy", "cmake", "python"):
        (tmp_path / name).write_text(f'#!/bin/sh\ncase "{name} $*" in "{fails}"*) exit 1;; esac\n')
        (tmp_path / name).chmod(0o755)
    line = [shutil.which("dash") or "sh", "tools/check.sh", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, cwd=ROOT)

    assert done.returncode != 0, done.stdout
    assert "all checks passed" not in done.stdout


@pytest.mark.parametrize("code", [0, 3])
def test_the_build_shows_how_far_it_is_and_what_went_wrong(code: int, tmp_path: Path) -> None:
    """With a pip that says what ninja says."""
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(
        "import sys\n"
        "for n in range(1, 9): print(f'  [{n}/8] Building CXX object x.cpp.o')\n"
        f"print('x.cpp:1:1: warning: unused'); sys.exit({code})\n"
    )
    line = [sys.executable, str(ROOT / "tools" / "build.py"), str(tmp_path / "build")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, cwd=tmp_path)

    assert done.returncode == code
    assert "usually takes" in done.stdout
    assert [text.strip() for text in done.stdout.splitlines() if " of 8" in text] == [f"{n} of 8" for n in (2, 4, 6, 8)]
    assert "x.cpp:1:1: warning: unused" in (done.stderr if code else done.stdout)
    assert ("The build failed" in done.stderr) == (code != 0)
