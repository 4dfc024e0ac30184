"""What CUDA and AMD answer otherwise: every test a table names exists, and the suite holds them to what happens."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from hipplan.machines.simulator import library_path
from tests.conformance.amd_differences import AMD
from tests.conformance.differences import CUDA, as_declared, declared

SUITE = Path(__file__).parents[1] / "conformance"


def test_every_test_of_a_row_exists() -> None:
    tests = {test for row in CUDA + AMD for test in row.tests}

    assert [
        test
        for test in sorted(tests)
        for file, _, name in [test.partition("::")]
        if not re.search(rf"^def {name}\(", (SUITE / file).read_text(), re.MULTILINE)
    ] == []


def test_a_row_is_found_by_test_and_parameters() -> None:
    message = "test_host_malloc.py::test_the_flags_are_reported"
    assert declared(CUDA, f"{message}[native-1]") is declared(CUDA, f"{message}[native-1073741824]") is not None
    assert declared(CUDA, f"{message}[native-2]") is None
    assert declared(CUDA, "test_malloc.py::test_the_flags_are_reported[native-1]") is None


def test_another_answer_is_not_as_declared() -> None:
    row = declared(CUDA, "test_mem_address_free.py::test_a_range_with_a_mapping_is_in_use[native]")
    assert row is not None
    assert as_declared(row, "assert 1 == 999")
    assert not as_declared(row, "assert 0 == 999")


def test_a_row_that_is_not_so_fails_the_suite(tmp_path: Path) -> None:
    """The simulator under CUDA's name passes what the table says must fail; the other tests of the file are as ever."""
    library = shutil.copy(library_path(), tmp_path / "libhipcuda.so")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(SUITE / "test_mem_address_free.py")]
    environment = {**os.environ, "HIPPLAN_CONFORMANCE_RUNTIME": str(library)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)

    assert done.returncode == 1, done.stdout
    assert "passes, and it is declared that it cannot" in done.stdout
    assert "2 failed" in done.stdout
