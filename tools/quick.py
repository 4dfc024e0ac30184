"""Runs the tests that say most of what `make test` says, in a minute on two cores, and prints the CPU time they took.

python tools/quick.py [ARGUMENT OF PYTEST]...

A test belongs here if it needs no other process: the language, the compiler, differences, the rules, the C++ units, the
simulator's conformance; and of what applies, one apply, one change and one sweep of failing calls, all with the
quickstart. Everything else waits for `make test`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RULES = ["tests/test_house_rules.py", "tests/test_import_circles.py"]
FOLDERS = ["tests/unit", "tests/cpp", "tests/conformance"]
APPLIES = [
    "tests/faults/test_every_call.py::test_a_call_that_fails_leaves_nothing_but_what_was_reported",
    "tests/faults/test_changes.py::test_a_call_that_fails_leaves_the_old_or_the_new",
    "tests/cli/test_validate.py",
    "tests/cli/test_preview_from.py",
    "tests/cli/test_hold.py",
]
LONG = [
    "tests/machines/test_hipcuda.py",
    "tests/layout/test_owners.py",
]
"""Files of the folders above that start programs or take long."""
ONLY = "not (test_every_call and not quickstart) and not (test_changes and not grow)"


def main(*arguments: str) -> int:
    chosen = [*RULES, *FOLDERS, *APPLIES, *(f"--ignore={path}" for path in LONG)]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", "-k", ONLY]
    code = subprocess.run([*command, *chosen, *arguments], cwd=ROOT, env=os.environ).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"CPU time: {used.ru_utime + used.ru_stime:.0f} s")
    return code


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
