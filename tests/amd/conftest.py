"""These tests run on AMD's own library: `make amd-library`, or `python -m tests.amd.on 7.2 pytest tests/amd`."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def release() -> str:
    """The release under test: "6.4" or "7.2". HIPPLAN_RUNTIME is its library. Skips the test where there is none."""
    under_test = os.environ.get("HIPPLAN_AMD_RELEASE")
    if under_test is None:
        pytest.skip("needs AMD's own library: make amd-library")
    return under_test
