"""Where copies of ROCm's library may be."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

SYSTEM_ROCM = "/opt/rocm"


def wheel_folders() -> Iterator[str]:
    """Packages that bring their own copy, which they load when they are imported; looked at, not imported."""
    for package in ("torch", "_rocm_sdk_core"):
        try:
            spec = importlib.util.find_spec(package)
        except ValueError:  # a module made by hand under that name
            continue
        yield from (spec.submodule_search_locations or () if spec else ())
