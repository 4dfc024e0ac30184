"""The vendor of a runtime's library, which decides how other libraries see its memory."""

from __future__ import annotations

from typing import Literal

Family = Literal["amd", "cuda", "sim"]


def family_of(runtime_path: str) -> Family:
    """The vendor of a runtime's memory. The simulator's counts as ROCm's."""
    name = runtime_path.rpartition("/")[2]  # called for each piece of a layout, and pathlib is slow
    return "cuda" if name.startswith("libhipcuda") else "sim" if name.startswith("libhipsim") else "amd"
