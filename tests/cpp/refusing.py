"""A process in which requests for memory can be refused: what it is started with."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("refusing.c")

not_under_sanitizers = pytest.mark.skipif(
    "HIPPLAN_SANITIZER" in os.environ, reason="sanitizers have an allocator of their own"
)


def environment(folder: Path, source: Path = SOURCE) -> dict[str, str]:
    """LD_PRELOAD there is a C file, built in the folder; the process calls its functions through ctypes."""
    compiler = shutil.which("cc") or shutil.which("c++")
    if not compiler:
        pytest.skip("needs a compiler")
    library = folder / "librefusing.so"
    subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library), "HIPSIM_LOG": "none"}
