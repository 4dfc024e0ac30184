"""Runs the tests that find most mistakes in a minute on two cores, and prints the CPU time they took.

python tools/quick.py [ARGUMENT OF PYTEST]...
python tools/quick.py --installed [ARGUMENT OF PYTEST]...    of an installed hipplan, in a folder without its sources

The folders here hold tests of the language, the compiler, the C++ units and the simulator; none in tests/unit applies a
plan. Of what applies there is one example of each kind, with the quickstart. Everything else waits for `make test`.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
RULES = ["tests/test_house_rules.py", "tests/test_import_circles.py", "tests/test_imports.py"]
FOLDERS = ["tests/unit", "tests/cpp", "tests/conformance"]
SWEEPS = ["tests/conformance/test_ipc.py", "tests/cpp/test_forks_and_exit.py", "tests/cpp/test_short_of_memory.py"]
"""Files of these folders that start a process for each of many cases: they are left out."""
FAILS = "test_a_call_that_fails_leaves"
EXAMPLES = [
    "tests/cli/test_validate.py",
    "tests/golden/test_golden.py",
    "tests/layout/test_api.py",
    f"tests/faults/test_changes.py::{FAILS}_the_old_or_the_new[7.2.53211-for ever-update]",
    f"tests/faults/test_changes.py::{FAILS}_the_old_or_the_new[7.3.0-once-update]",
    f"tests/faults/test_every_call.py::{FAILS}_nothing_but_what_was_reported[7.2.53211-quickstart]",
    f"tests/faults/test_every_call.py::{FAILS}_nothing_but_what_was_reported[7.3.0-quickstart]",
]

PARALLEL = ["-n", "auto", "--dist", "worksteal"]
PYTHON_ALONE = ("tests/unit", "tests/cli/test_validate.py", "tests/golden/test_golden.py")
NATIVE = [path for path in (*FOLDERS, *EXAMPLES) if path not in PYTHON_ALONE]
"""Those that run compiled code: a sanitizer finds nothing in the others."""
OPTIONS = [*(f"--ignore={path}" for path in SWEEPS), *PARALLEL]
TESTS = [*FOLDERS, *EXAMPLES, *OPTIONS]
"""The arguments for pytest, less the rules about sources."""

FOLDERS_READ = ["tests", "plans", "docs", "tools", "cpp"]
"""What these tests read. Of hipplan's sources only the C++, which documentation is made of: Python cannot import it."""


def main(*arguments: str) -> int:
    if arguments[:1] == ("--installed",):
        with tempfile.TemporaryDirectory() as folder:
            return run(copied(Path(folder)), *TESTS, *arguments[1:])
    return run(ROOT, *RULES, *TESTS, *arguments)


def copied(folder: Path) -> Path:
    """Copies what the tests need into an empty folder: there, Python can only find the hipplan that is installed."""
    for name in FOLDERS_READ:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)  # pytest's options
    return folder


def run(folder: Path, *arguments: str) -> int:
    code = subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments], cwd=folder).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"CPU time: {used.ru_utime + used.ru_stime:.0f} s")
    return code


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
