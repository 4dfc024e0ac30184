"""Whose library a runtime is: what it hands out is seen by other libraries accordingly."""

from __future__ import annotations

from typing import Literal

Family = Literal["amd", "cuda", "sim"]


def family_of(runtime_path: str) -> Family:
    """Whose memory a runtime gives. The simulator's goes out as ROCm's."""
    name = runtime_path.rpartition("/")[2]  # asked for each piece of a layout: a path is slow to take apart
    return "cuda" if name.startswith("libhipcuda") else "sim" if name.startswith("libhipsim") else "amd"
