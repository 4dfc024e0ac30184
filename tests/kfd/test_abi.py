"""The stand-in's own declarations of the driver's interface are those of the system's kernel headers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ..conftest import ROOT

HERE = Path(__file__).parent


def compiled(source: str) -> subprocess.CompletedProcess[str]:
    options = ["-std=c++20", "-fsyntax-only", "-x", "c++", "-I", ROOT / "cpp", "-idirafter", HERE / "without_libdrm"]
    compiler = os.environ.get("CXX", "c++")
    return subprocess.run([compiler, *options, "-"], input=source, capture_output=True, text=True)


@pytest.fixture(scope="module")
def source() -> str:
    if compiled("#include <linux/kfd_ioctl.h>").returncode:
        pytest.skip("this system has no linux/kfd_ioctl.h")
    if compiled("#include <linux/kfd_ioctl.h>\nkfd_ioctl_import_dmabuf_args it;").returncode:
        pytest.skip("this system's linux/kfd_ioctl.h is older than Linux 5.0")
    return (HERE / "abi.cpp").read_text()


def test_structures_and_numbers_are_the_kernel_s(source: str) -> None:
    ran = compiled(source)

    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        "NUMBER(get_version, CREATE_QUEUE);",
        "SAME(kfdsim::memory_gtt, KFD_IOC_ALLOC_MEM_FLAGS_VRAM);",
        "static_assert(offsetof(kfdsim::kfd_event_data, event_id) == offsetof(::kfd_event_data, pad));",
    ],
)
def test_a_difference_is_seen(source: str, wrong: str) -> None:
    assert "static assertion failed" in compiled(f"{source}\n{wrong}\n").stderr
