"""Folders in which copies of ROCm's library may be, and its names."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator

SYSTEM_ROCM = "/opt/rocm"
AMD_NAMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "libamdhip64.so.5")
"""In the order in which they are tried; 5 only to say that it is too old."""


def abi_fault(name: str) -> str:
    """Why a file of this name is not opened: its ABI is of a later ROCm. Empty if it is."""
    abi = re.match(r"libamdhip64\.so\.(\d+)", name)
    return "" if abi is None or int(abi[1]) <= 7 else "has an ABI that hipplan does not know: it knows .so.6 and .so.7"


def wheel_folders() -> Iterator[str]:
    """Folders of Python packages with a copy of their own, which they load on import. This does not import them."""
    for package in ("torch", "_rocm_sdk_core"):
        try:
            spec = importlib.util.find_spec(package)
        except ValueError:  # a module without a spec has this name
            continue
        yield from (spec.submodule_search_locations or () if spec else ())
