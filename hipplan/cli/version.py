"""`hipplan --version`: this package, its compiled part and the runtime libraries. No driver is loaded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hipplan import __version__
from hipplan.errors import RuntimeUnavailable

_SHIPPED = {"cuda": "libhipcuda.so", "sim": "libhipsim.so"}
"""Runtime -> its library, beside the compiled part."""


def version_text() -> str:
    """The first line is the version alone, for scripts."""
    rows = {"hipplan": __version__, "Python": f"{sys.version.split()[0]}, {os.uname().machine}"}
    try:
        from hipplan import _core
    except RuntimeUnavailable:
        rows["compiled part"] = "none: plans can be checked but not applied"
    else:
        rows["compiled part"] = _core.compiler
        rows["amd"] = _amd_library()
        rows |= {name: str(Path(_core.__file__).with_name(library)) for name, library in _SHIPPED.items()}
    first, *others = rows.items()
    return "\n".join([" ".join(first), *(f"  {name}: {value}" for name, value in others)])


def _amd_library() -> str:
    from hipplan.machines.libraries import open_amd

    try:
        return open_amd().path
    except RuntimeUnavailable as error:
        return error.diagnostics[0].summary
