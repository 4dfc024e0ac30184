"""Folders in which copies of ROCm's library may be."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

SYSTEM_ROCM = "/opt/rocm"


def wheel_folders() -> Iterator[str]:
    """Folders of Python packages with a copy of their own, which they load on import. This does not import them."""
    for package in ("torch", "_rocm_sdk_core"):
        try:
            spec = importlib.util.find_spec(package)
        except ValueError:  # a module without a spec has this name
            continue
        yield from (spec.submodule_search_locations or () if spec else ())
